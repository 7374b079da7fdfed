"""The forms in which models write calls: by what each begins with, and how it is read."""

import json
import re
from collections.abc import Callable, Mapping

from kemem.chat.leaks.bodies import (
    CLOSERS,
    HEAD_LENGTH,
    Pairs,
    arguments_at,
    json_at,
    pairs_at,
    python_at,
)
from kemem.chat.leaks.calls import Block, LeakedCall, Opener, Written
from kemem.chat.leaks.invokes import ATTRIBUTE, NAMESPACES, read_invokes, tag_at
from kemem.chat.leaks.tape import BARS, SPACE, Marks, Steps, Tape, plain
from kemem.chat.leaks.values import arguments_in, bare, python_calls, typed

Reader = Callable[[Tape, Opener], Steps[Block | None]]
"""Reads what an opener begins; None where it is prose."""

DSML = ("<dsml", "</dsml")  # never prose, whatever follows

_NAME = re.compile(r"[\w.:-]*+", re.ASCII)
_HEADER_END = re.compile(r"[{\n]")
_BRACES = re.compile(r"[{}<＜]")
_KEY = re.compile(r"[^\W\d][\w.-]*+(?=\s*+:)")
_RECIPIENT = re.compile(rf"\bto=([\w.-]++)[\s\w<>{BARS}]*+\Z", re.ASCII)
_IN_TOOL_CALL = Marks("<function=", *(f"<{space}invoke name=" for space in NAMESPACES), *DSML)
_BEHIND_NAME = Marks("<tool_sep>", "<arg_key>", "</tool_call>")
_BEHIND_FUNCTION = Marks("<parameter=", "</function>")
_SEPARATORS = Marks("<|tool_sep|>", "<|tool_call_argument_begin|>")
_ARGS = Marks("[ARGS]", "[CALL_ID]")
_TAG_END = Marks(">")
_TICKS = Marks("```")
_GEMMA_QUOTE = Marks('<|"|>', "<escape>")
_GEMMA_END = Marks("<tool_call|>", "<end_function_call>")
_KIMI_SEP = Marks("<|sep|>")
_QWEN = Pairs(
    Marks("<parameter="),
    _TAG_END,
    "</parameter>",
    Marks("</parameter>", "<parameter=", "</function>", "</tool_call>"),
)
_GLM = Pairs(
    Marks("<arg_key>"),
    Marks("</arg_key><arg_value>", "<arg_value>"),
    "</argvalue>",
    Marks("</arg_value>", "<arg_key>", "</tool_call>"),
)
_KIMI = Pairs(
    Marks("<|open|>argument"),
    _KIMI_SEP,
    "<close>argument<sep>",
    Marks("<|close|>argument<|sep|>", "<|open|>argument", "<|close|>call<|sep|>"),
)


def behind(tape: Tape, at: int) -> Steps[int]:
    """Where the closing marks end that follow a block."""
    while True:
        here = yield from tape.run(SPACE, at)
        mark, end = yield from tape.mark(here, CLOSERS)
        if mark == "</dsml" and (tag := (yield from tag_at(tape, here))):
            end = tag.end
        if not mark:
            return tape.end if tape.cut(here, CLOSERS) else at
        at = end


def _tool_call(tape: Tape, opener: Opener) -> Steps[Block | None]:
    """What Hermes, Qwen, GLM, Hunyuan and Gemma 4 begin alike, and some wrappers of invokes."""
    if block := (yield from json_at(tape, opener.end, "hermes")):
        return block
    here = yield from tape.run(SPACE, opener.end)
    mark, end = yield from tape.mark(here, _IN_TOOL_CALL)
    if mark == "<function=":
        return (yield from _function(tape, Opener("qwen", here, end)))
    if mark:
        return (yield from read_invokes(tape, opener))
    name, past = yield from _name(tape, here)
    if name.startswith("call:"):
        return (yield from _gemma(tape, name.removeprefix("call:"), past))
    return (yield from _glm(tape, name, past)) if name else None


def _name(tape: Tape, at: int) -> Steps[tuple[str, int]]:
    start = yield from tape.run(SPACE, at)
    end = yield from tape.run(_NAME, start)
    return tape.text[start:end], end


def _glm(tape: Tape, name: str, at: int) -> Steps[Block | None]:
    form, here = "glm", (yield from tape.run(SPACE, at))
    mark, end = yield from tape.mark(here, _BEHIND_NAME)
    if mark == "<toolsep>":
        form, here = "hunyuan", (yield from tape.run(SPACE, end))
        mark, end = yield from tape.mark(here, _BEHIND_NAME)
    if mark == "<argkey>":
        found, end = yield from pairs_at(tape, here, _GLM)
        return Block(form, end, (_written(name, found),))
    if mark == "</toolcall>":
        return Block(form, end, (_written(name, {}),), sure=form == "hunyuan")
    return None


def _written(name: str, found: Mapping[str, str]) -> LeakedCall:
    return LeakedCall(bare(name), {key: Written(value) for key, value in found.items()})


def _function(tape: Tape, opener: Opener) -> Steps[Block | None]:
    """`<function=name>` with arguments as Qwen writes them, or as JSON."""
    stop, mark, past = yield from tape.until(_TAG_END, opener.end, HEAD_LENGTH)
    name = bare(tape.text[opener.end : stop])
    if not (mark and name and _NAME.fullmatch(name)):
        return None
    here = yield from tape.run(SPACE, past)
    mark, end = yield from tape.mark(here, _BEHIND_FUNCTION)
    if mark == "<parameter=":
        found, end = yield from pairs_at(tape, here, _QWEN)
        lines = {bare(key): it.removeprefix("\n").removesuffix("\n") for key, it in found.items()}
        return Block("qwen", end, (_written(name, lines),))
    if mark:
        return Block(opener.form, end, (_written(name, {}),), sure=False)
    return (yield from arguments_at(tape, here, opener.form, name))


def _gemma(tape: Tape, name: str, at: int) -> Steps[Block | None]:
    """JSON whose keys are bare and whose strings stand unescaped between marks."""
    if (yield from tape.character(at)) != "{":
        return None
    written, depth, brace = "", 0, "{"
    while brace and (depth or not written):
        stop = yield from tape.find(_BRACES, at)
        mark, past = yield from tape.mark(stop, _GEMMA_QUOTE)
        if mark:
            end, _, after = yield from tape.until(_GEMMA_QUOTE, past)
            written += _KEY.sub(r'"\g<0>"', tape.text[at:stop]) + json.dumps(tape.text[past:end])
            at = after
            continue
        brace = tape.text[stop : stop + 1]
        written += _KEY.sub(r'"\g<0>"', tape.text[at:stop]) + brace
        depth += {"{": 1, "}": -1}.get(brace, 0)
        at = stop + len(brace)
    mark, end = yield from tape.mark((yield from tape.run(SPACE, at)), _GEMMA_END)
    if mark == "<toolcall>" and tape.text[end - 2] not in BARS:  # it opens the next call
        mark = ""
    arguments = arguments_in(written)
    calls = () if arguments is None else (LeakedCall(bare(name), arguments),)
    return Block("gemma4", end if mark else at, calls)


def _section(tape: Tape, opener: Opener) -> Steps[Block | None]:
    """One call of DeepSeek V3 and V3.1 or of Kimi K2."""
    stop, mark, past = yield from tape.until(_SEPARATORS, opener.end, HEAD_LENGTH)
    name = tape.text[opener.end : stop].strip()
    if not mark or not _NAME.fullmatch(name):
        return None
    if mark == "<toolcallargumentbegin>":
        return (yield from arguments_at(tape, past, "kimi_k2", name))
    if name == "function":  # V3 tells the type of the tool before its name
        name, past = yield from _name(tape, past)
    return (yield from arguments_at(tape, past, "deepseek", name))


def _kimi(tape: Tape, opener: Opener) -> Steps[Block | None]:
    stop, mark, past = yield from tape.until(_KIMI_SEP, opener.end, HEAD_LENGTH)
    name = _attributes(tape.text[opener.end : stop]).get("tool", "")
    if not mark or not name:
        return None
    found, end = yield from pairs_at(tape, past, _KIMI)
    told = [(_attributes(key), value) for key, value in found.items()]
    arguments = {
        it.get("key", ""): value if it.get("type") == "string" else typed(value)
        for it, value in told
    }
    return Block(opener.form, end, (LeakedCall(bare(name), arguments),))


def _attributes(text: str) -> dict[str, str]:
    found = {key: value.strip("\"'“”") for key, value in ATTRIBUTE.findall(text)}
    return {k: v.replace("&quot;", '"').replace("&amp;", "&") for k, v in found.items()}


def _mistral(tape: Tape, opener: Opener) -> Steps[Block | None]:
    if block := (yield from json_at(tape, opener.end, opener.form)):
        return block
    name, past = yield from _name(tape, opener.end)
    mark, end = yield from tape.mark(past, _ARGS)
    if mark == "[callid]":
        _, mark, end = yield from tape.until(_ARGS, end, HEAD_LENGTH)
    if not mark and (yield from tape.character(past)) != "{":
        return None
    return (yield from arguments_at(tape, end, opener.form, name))


def _json_or_python(tape: Tape, opener: Opener) -> Steps[Block | None]:
    block = yield from json_at(tape, opener.end, opener.form)
    name, past = yield from _name(tape, opener.end)
    if block or (name and (yield from tape.character(past)) != "("):
        return block
    return (yield from python_at(tape, opener.end, opener.form))


def _harmony(tape: Tape, opener: Opener) -> Steps[Block | None]:
    """A message of gpt-oss to a tool; its marks may have got lost."""
    brace = yield from tape.find(_HEADER_END, opener.start, HEAD_LENGTH)
    to = _RECIPIENT.search(tape.text, opener.start, brace)
    return (yield from arguments_at(tape, brace, opener.form, to[1])) if to else None


def _tool_code(tape: Tape, opener: Opener) -> Steps[Block | None]:
    block = yield from python_at(tape, opener.end, opener.form, _TICKS)
    if not block:
        return None
    stop, _, past = yield from tape.until(_TICKS, block.end)
    if stop == past:  # the fence stays open: prose may follow
        return block
    return Block(opener.form, past, python_calls(tape.text[opener.end : stop]))


_FORMS: tuple[tuple[str, Reader, tuple[str, ...]], ...] = (
    ("dsml", read_invokes, DSML),
    ("anthropic", read_invokes, tuple(f"<{space}invoke name=" for space in NAMESPACES)),
    ("anthropic", _tool_call, tuple(f"<{space}function_calls>" for space in NAMESPACES)),
    ("anthropic", _tool_call, ("<minimax:tool_call>",)),
    ("hermes", _tool_call, ("<tool_call>", "<tool_calls>", "<calls>", "<function_call>")),
    ("hermes", _tool_call, ("<tool_use>", "<tool>")),
    ("hunyuan", _tool_call, ("<tool_calls><tool_call>",)),
    ("gemma4", _tool_call, ("<start_function_call>",)),
    ("function", _function, ("<function=",)),
    ("llama", _json_or_python, ("<|python_tag|>",)),
    ("lfm2", _json_or_python, ("<|tool_call_start|>",)),
    ("internlm", _json_or_python, ("<|action_start|><|plugin|>",)),
    ("mistral", _mistral, ("[TOOL_CALLS]",)),
    ("deepseek", _section, ("<|tool_call_begin|>", "<|tool_calls_begin|><|tool_call_begin|>")),
    ("kimi_k2", _section, ("<|tool_calls_section_begin|><|tool_call_begin|>",)),
    ("kimi_k3", _kimi, ("<|open|>call", "<|open|>tools<|sep|><|open|>call")),
    ("gpt_oss", _harmony, ("<|channel|>commentary", "<|channel|>analysis", "<|start|>assistant")),
    ("gpt_oss", _harmony, ("commentary to=functions.",)),
    ("gemma", _tool_code, ("```tool_code",)),
)
FORMS = {plain(mark): (form, reader) for form, reader, marks in _FORMS for mark in marks}
OPENERS = Marks(*FORMS)
