"""Tool calls as models write them into text: every form, whole and mangled, with any arguments."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

Arguments = Mapping[str, Any]
TOOL = "recall_memory"

ARGUMENTS: tuple[dict[str, Any], ...] = (
    {"query": "成都 火锅"},
    {"query": "What did I say about spicy food?"},
    {"query": "he said \"hi\", then left; 她说“好”、'行'"},
    {"query": "第一行\nline two\n\n  indented 第三行"},
    {"query": "a < b && c > d | e ｜ <b>粗</b> </p> <parameter", "limit": 3},
    {"limit": -2, "ratio": 0.5, "deep": True, "shallow": False, "nothing": None},
    {"filter": {"tags": ["a", "乙"], "deep": {"n": [1, 2.5, None]}}, "query": "嵌套"},
    {"query": ""},
    {"query": '{"not": ["json"]} }} ]] "', "note": "back`tick` \\ C:\\dir \\n"},
    {},
)


@dataclass(frozen=True, slots=True)
class Shape:
    """One way to write a call."""

    name: str
    form: str
    write: Callable[[str, Arguments], str]
    written: bool = False  # values come without a type
    open_ended: bool = False  # nothing shows where the call ends, so no text can follow

    def expected(self, arguments: Arguments) -> dict[str, Any]:
        """The arguments as they are to be read."""
        return {k: _text(v) if self.written else v for k, v in arguments.items()}


def pieces(text: str, size: int) -> Iterator[str]:
    """The text in pieces of a size."""
    return (text[at : at + size] for at in range(0, len(text), size))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _call(name: str, arguments: Arguments, key: str = "arguments") -> str:
    return _json({"name": name, key: arguments})


def _openai(name: str, arguments: Arguments) -> Any:
    return {"type": "function", "function": {"name": name, "arguments": _json(arguments)}}


def _python(name: str, arguments: Arguments) -> str:
    return f"{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"


def _gemma(value: Any) -> str:
    if isinstance(value, str):
        return f'<|"|>{value}<|"|>'
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_gemma(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_gemma, value)) + "]"
    return _json(value)


def _joined(pattern: str, arguments: Arguments) -> str:
    """Each argument in a pattern of KEY and VALUE."""
    return "".join(
        pattern.replace("KEY", key).replace("VALUE", _text(value))
        for key, value in arguments.items()
    )


def _kimi_k3(name: str, arguments: Arguments) -> str:
    kinds = {str: "string", dict: "object", bool: "boolean", int: "integer", float: "number"}
    inner = "".join(
        f'<|open|>argument key="{key}" type="{kinds.get(type(value), "null")}"<|sep|>'
        f"{_text(value)}<|close|>argument<|sep|>"
        for key, value in arguments.items()
    )
    call = f'<|open|>call tool="{name}" index="1"<|sep|>{inner}<|close|>call<|sep|>'
    return f"<|open|>tools<|sep|>\n{call}\n<|close|>tools<|sep|>"


PLAIN = (
    Shape("hermes", "hermes", lambda n, a: f"<tool_call>\n{_call(n, a)}\n</tool_call>"),
    Shape("hermes unclosed", "hermes", lambda n, a: f"<tool_call>{_call(n, a)}"),
    Shape("hermes list", "hermes", lambda n, a: f"<tool_calls>[{_call(n, a)}]</tool_calls>"),
    Shape(
        "hermes, arguments as text",
        "hermes",
        lambda n, a: f"<tool_call>{_json({'name': n, 'arguments': _json(a)})}</tool_call>",
    ),
    Shape(
        "glm",
        "glm",
        lambda n, a: (
            f"<tool_call>{n}\n"
            + _joined("<arg_key>KEY</arg_key>\n<arg_value>VALUE</arg_value>\n", a)
            + "</tool_call>"
        ),
        written=True,
    ),
    Shape(
        "qwen coder",
        "qwen",
        lambda n, a: (
            f"<tool_call>\n<function={n}>\n"
            + _joined("<parameter=KEY>\nVALUE\n</parameter>\n", a)
            + "</function>\n</tool_call>"
        ),
        written=True,
    ),
    Shape(
        "qwen coder without wrapper",
        "qwen",
        lambda n, a: (
            f"<function={n}>{_joined('<parameter=KEY>VALUE</parameter>', a)}</function></tool_call>"
            if a
            else f"<tool_call><function={n}></function></tool_call>"
        ),
        written=True,
    ),
    Shape("function", "function", lambda n, a: f"<function={n}>{_json(a)}</function>"),
    Shape("llama", "llama", lambda n, a: f"<|python_tag|>{_call(n, a, 'parameters')}<|eom_id|>"),
    Shape("mistral", "mistral", lambda n, a: f"[TOOL_CALLS] [{_call(n, a)}]"),
    Shape("mistral compact", "mistral", lambda n, a: f"[TOOL_CALLS]{n}[ARGS]{_json(a)}"),
    Shape(
        "mistral with id",
        "mistral",
        lambda n, a: f"[TOOL_CALLS]{n}[CALL_ID]Ab3dE6[ARGS]{_json(a)}",
    ),
    Shape(
        "deepseek v3",
        "deepseek",
        lambda n, a: (
            f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>{n}\n```json\n"
            f"{_json(a)}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜><｜end▁of▁sentence｜>"
        ),
    ),
    Shape(
        "deepseek v3.1",
        "deepseek",
        lambda n, a: (
            f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>{n}<｜tool▁sep｜>{_json(a)}"
            "<｜tool▁call▁end｜><｜tool▁calls▁end｜>"
        ),
    ),
    Shape(
        "kimi k2",
        "kimi_k2",
        lambda n, a: (
            f"<|tool_calls_section_begin|><|tool_call_begin|>functions.{n}:0"
            f"<|tool_call_argument_begin|>{_json(a)}<|tool_call_end|><|tool_calls_section_end|>"
        ),
    ),
    Shape("kimi k3", "kimi_k3", _kimi_k3),
    Shape(
        "anthropic",
        "anthropic",
        lambda n, a: (
            f'<function_calls>\n<invoke name="{n}">\n'
            + _joined('<parameter name="KEY">VALUE</parameter>\n', a)
            + "</invoke>\n</function_calls>"
        ),
        written=True,
    ),
    Shape(
        "anthropic, invoke alone",
        "anthropic",
        lambda n, a: (
            f'<invoke name="{n}">'
            + _joined('<parameter name="KEY">VALUE</parameter>', a)
            + "</invoke>"
        ),
        written=True,
    ),
    Shape("gemma", "gemma", lambda n, a: f"```tool_code\n{_python(n, a)}\n```"),
    Shape("gemma print", "gemma", lambda n, a: f"```tool_code\nprint({_python(n, a)})\n```"),
    Shape("gemma 4", "gemma4", lambda n, a: f"<|tool_call>call:{n}{_gemma(a)}<tool_call|>"),
    Shape(
        "gpt-oss",
        "gpt_oss",
        lambda n, a: (
            f"<|channel|>commentary to=functions.{n} <|constrain|>json<|message|>{_json(a)}<|call|>"
        ),
    ),
    Shape(
        "gpt-oss, whole message",
        "gpt_oss",
        lambda n, a: (
            f"<|start|>assistant to=functions.{n}<|channel|>commentary <|constrain|>json"
            f"<|message|>{_json(a)}<|call|>"
        ),
    ),
    Shape(
        "gpt-oss without marks",
        "gpt_oss",
        lambda n, a: f"commentary to=functions.{n} json{_json(a)}",
    ),
    Shape("lfm2", "lfm2", lambda n, a: f"<|tool_call_start|>[{_python(n, a)}]<|tool_call_end|>"),
    Shape("lfm2 json", "lfm2", lambda n, a: f"<|tool_call_start|>[{_call(n, a)}]<|tool_call_end|>"),
    Shape(
        "internlm",
        "internlm",
        lambda n, a: f"<|action_start|> <|plugin|>\n{_call(n, a, 'parameters')}<|action_end|>",
    ),
    Shape(
        "hunyuan",
        "hunyuan",
        lambda n, a: (
            f"<tool_calls>\n<tool_call>{n}<tool_sep>\n"
            + _joined("<arg_key>KEY</arg_key>\n<arg_value>VALUE</arg_value>\n", a)
            + "</tool_call>\n</tool_calls>"
        ),
        written=True,
    ),
)

BARE = (
    Shape("json alone", "json", _call),
    Shape("json in a list", "json", lambda n, a: f"[{_call(n, a)}]"),
    Shape("json in a fence", "json", lambda n, a: f"```json\n{_call(n, a)}\n```"),
    Shape("indented", "json", lambda n, a: json.dumps({"name": n, "arguments": a}, indent=4)),
    Shape(
        "fence without a language", "json", lambda n, a: f"```\n{_call(n, a, 'parameters')}\n```"
    ),
    Shape("arguments first", "json", lambda n, a: _json({"arguments": a, "name": n})),
    Shape("as OpenAI has it", "json", lambda n, a: _json(_openai(n, a))),
    Shape("list of calls", "json", lambda n, a: _json({"tool_calls": [_openai(n, a)]})),
    Shape("manual", "json", lambda n, a: _json({"calls": [{"name": n, "arguments": a}]})),
    Shape("doubled braces", "json", lambda n, a: "{" + _call(n, a) + "}"),
    Shape("template", "template", lambda n, a: "{{ " + _python(n, a) + " }}"),
    Shape("tools", "tools", lambda n, a: f"<tools>\n{_call(n, a)}\n</tools>"),
)
"""Nothing but the name of the tool tells these from what ordinary answers hold."""

MARKS = (
    *("｜DSML｜", "｜｜DSML｜｜", "|DSML|", "||DSML||", "‖DSML‖"),
    *(" | DSML | ", "｜DSML｜ ", "\n｜DSML｜\n"),
)
WRAPPERS = ("tool_calls", "function_calls", "tool_call", "tool-calls", "calls", "tool_use", "", "<")
"""Names of the block; without one the invokes are bare, with "<" the mark is lost: `< calls>`."""


@dataclass(frozen=True, slots=True)
class Dsml:
    """How a block of DSML is spelled, and what is wrong with it."""

    mark: str = "｜DSML｜"
    wrapper: str = "tool_calls"
    quotes: tuple[str, str] = ('"', '"')
    kind: str = ""  # in place of true and false
    plain_opens: bool = False
    closers: str = "</{mark}{word}>\n"
    lost: tuple[str, ...] = ()  # closing tags that are missing: parameter, invoke, block
    body: bool = False  # JSON in the invoke, not parameters
    wrapped: str = ""  # all arguments as the value of one parameter
    sibling: str = ""  # a malformed invoke before

    @property
    def open_ended(self) -> bool:
        """Whether nothing shows where the call ends."""
        if not self.wrapper:
            return "invoke" in self.lost
        return len(self.lost) == 3 and not self.body

    def __call__(self, name: str, arguments: Arguments) -> str:
        inner = self._invoke(name, arguments) + self._close("invoke")
        if self.sibling:
            inner = f"<{self.mark}invoke {self.sibling}>\n{self._close('invoke')}{inner}"
        if not self.wrapper:
            return inner.rstrip()
        opened = "< calls>" if self.wrapper == "<" else self._open(self.wrapper)
        return f"{opened}\n{inner}{self._close('block')}".rstrip()

    def _invoke(self, name: str, arguments: Arguments) -> str:
        start, end = self.quotes
        opened = self._open(f"invoke name={start}{name}{end}") + "\n"
        if self.body:
            return opened + _json(arguments) + "\n"
        if self.wrapped:
            arguments = {self.wrapped: arguments}
        return opened + "".join(self._parameter(*pair) for pair in arguments.items())

    def _parameter(self, key: str, value: Any) -> str:
        start, end = self.quotes
        kind = self.kind or ("true" if isinstance(value, str) else "false")
        told = "" if self.plain_opens else f" string={start}{kind}{end}"
        opened = self._open(f"parameter name={start}{key}{end}{told}")
        return opened + _text(value) + self._close("parameter")

    def _open(self, tag: str) -> str:
        return f"<{tag}>" if self.plain_opens else f"<{self.mark}{tag}>"

    def _close(self, word: str) -> str:
        block = self.wrapper if self.wrapper not in ("", "<") else "calls"
        named = self.closers.format(mark=self.mark, word=block if word == "block" else word)
        return "\n" if word in self.lost else named


FAULTS = {
    "whole": Dsml(),
    "smart quotes": Dsml(quotes=("“", "”")),
    "bad type": Dsml(kind="invalid"),
    "block open": Dsml(lost=("block",)),
    "invoke open": Dsml(lost=("invoke",)),
    "invoke and block open": Dsml(lost=("invoke", "block")),
    "parameter open": Dsml(lost=("parameter",)),
    "all open": Dsml(lost=("parameter", "invoke", "block")),
    "plain closers": Dsml(closers="</{word}>\n"),
    "wrong closers": Dsml(closers="</tool_call></function>\n"),
    "json body": Dsml(body=True),
    "json body, invoke open": Dsml(body=True, lost=("invoke",)),
    "json body, all open": Dsml(body=True, lost=("parameter", "invoke", "block")),
    "wrapped arguments": Dsml(wrapped="arguments"),
    "wrapped input": Dsml(wrapped="input"),
    "bad sibling": Dsml(sibling='nam="x'),
    "plain openers": Dsml(plain_opens=True),
}


def dsml_shapes() -> Iterator[Shape]:
    """Every spelling of the mark and of the block, each with every fault."""
    for (fault, dsml), mark, wrapper in product(FAULTS.items(), MARKS, WRAPPERS):
        write = replace(dsml, mark=mark, wrapper=wrapper)
        told = f"dsml {mark!r} {wrapper or 'bare'}, {fault}"
        written = bool(dsml.kind) or dsml.plain_opens
        yield Shape(told, "dsml", write, written, write.open_ended)


SHAPES = (*PLAIN, *BARE, *dsml_shapes())

FRAGMENTS = (
    *(
        "好的。",
        "see ",
        "\n\n",
        " ",
        "a < b",
        "|",
        "｜",
        "`",
        "```",
        "```\n",
        "[x](y)",
        "<b>粗</b>",
    ),
    *('"', "'", "}", ",", "\\", "=>", "<", "</", "[", "c", "commentary to=functions.", "{}", "x"),
    *("<｜", "<｜DSML｜", "</｜DSML｜", "DSML", "<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>"),
    *('<｜DSML｜invoke name="x">', "</｜DSML｜invoke>", '<|DSML|parameter name="q" string="true">'),
    *("</｜DSML｜parameter>", "</parameter>", "</invoke>", "<tool_call>", "</tool_call>"),
    *('{"name": "x", "arguments": {"q": "v"}}', '{"name": "', "<function_calls>", "<function=x>"),
    *('<invoke name="x">', '<parameter name="q">', "<parameter=q>", "[TOOL_CALLS]", "x[ARGS]"),
    *("<|python_tag|>", "<|tool_call_begin|>", "<|tool_sep|>", "functions.x:0", "<tool_sep>"),
    *("<|tool_call_argument_begin|>", "<arg_key>q</arg_key>", "<arg_value>v</arg_value>"),
    *("```tool_code\n", 'x(q="v")', "<|tool_call_start|>[", "<|tool_call>call:x{", '<|"|>'),
    *("<tool_call|>", "<|channel|>commentary to=functions.x", "<|message|>", "<|call|>"),
    *("<|open|>tools<|sep|>", '<|open|>call tool="x"<|sep|>', '<|open|>argument key="q"<|sep|>'),
    *("<|close|>call<|sep|>", "<｜end▁of▁", "<tools>", "</tools>", "<tool_response>", "{{", "}}"),
    *('{"name": "recall_memory", "arguments": {"q": 1}}', "```json\n", '{"calls": [', "[{"),
)
"""Pieces of prose and of markup, for texts that nobody would write."""
