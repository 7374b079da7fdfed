"""The forms in which models write calls: a table of openers, and how each form is parsed.

Regular forms are a row of data: markers around the name and around the arguments. Only those that
follow no such pattern (`<tool_call>`, Gemma, Kimi K3, gpt-oss) have a function of their own.
"""

import json
import re
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from kemem.chat.leaks.buffer import BARS, SPACE, MarkerSet, Steps, StreamBuffer, normalize
from kemem.chat.leaks.dsml import ATTRIBUTE, NAMESPACES, read_invokes, tag_at
from kemem.chat.leaks.values import (
    Block,
    LeakedCall,
    Opener,
    UntypedText,
    balanced,
    parse_json_calls,
    parse_object,
    parse_python_calls,
    parse_value,
    tool_name,
)

Reader = Callable[[StreamBuffer, Opener], Steps[Block | None]]
"""Reads what an opener begins; None where it is prose."""

DSML = ("<dsml", "</dsml")  # never prose, whatever follows
_INVOKES = tuple(f"<{space}invoke name=" for space in NAMESPACES)

_HEAD_LENGTH = 250  # what tells a call from prose stands within so much
_CLOSERS = MarkerSet(
    *("</tool_call>", "</tool_calls>", "</function_call>", "</function_calls>", "</function>"),
    *("</invoke>", "</parameter>", "</arg_value>", "</calls>", "</tool_use>", "</tool>", "</DSML"),
    *("</minimax:tool_call>", "<|tool_call_end|>", "<|tool_calls_end|>"),
    *("<|tool_calls_section_end|>", "<|action_end|>", "<|call|>", "<|end|>", "<|return|>"),
    *("<|end_of_sentence|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_function_call>"),
    *("<|close|>call<|sep|>", "<|close|>tools<|sep|>", "<|close|>message<|sep|>"),
    "[/TOOL_CALLS]",
)
_NAME = re.compile(r"[\w.:-]*+", re.ASCII)
_QUOTED_NAME = re.compile(r"[\w.:\"'“”-]*+", re.ASCII)
_NAME_STARTS = string.ascii_letters + "_"
_BETWEEN = re.compile(r"[\s;,]*+")
_PARENTHESIS = re.compile(r"\(")
_FENCE = re.compile(r"[\s`json]*+")  # ```json
_TICKS = re.compile(r"[\s`]*+")
_JSON_CALL = re.compile(
    r"[\[\s]*+\{\s*+[\"'“]?"
    r"(?:name|tool_name|tool|function|type|id|arguments|parameters|args|input)[\"'”]?\s*+[:：]"
)
_OBJECT = re.compile(r"\{\s*+(?:\}|[\"'“]|\w++\s*+:)")
_PYTHON_CALL = re.compile(r"[\[\s]*+(?:print\(\s*+)?[A-Za-z_][\w.]*+\(\s*+(?:\)|\w++\s*+=)")
_HEADER_END = re.compile(r"[{\n]")
_BRACES = re.compile(r"[{}<＜]")
_KEY = re.compile(r"[^\W\d][\w.-]*+(?=\s*+:)")
_RECIPIENT = re.compile(rf"\bto=([\w.-]++)[\s\w<>{BARS}]*+\Z", re.ASCII)
_FENCE_END = MarkerSet("```")
_GEMMA_QUOTE = MarkerSet('<|"|>', "<escape>")
_GEMMA_END = MarkerSet("<tool_call|>", "<end_function_call>")
_KIMI_SEPARATOR = MarkerSet("<|sep|>")
_INSIDE_TOOL_CALL = MarkerSet("<function=", *_INVOKES, *DSML)


def skip_closers(buffer: StreamBuffer, at: int) -> Steps[int]:
    """Where the closing markers end that follow a block."""
    while True:
        here = yield from buffer.skip(SPACE, at)
        marker, end = yield from buffer.marker_at(here, _CLOSERS)
        if marker == "</dsml" and (tag := (yield from tag_at(buffer, here))):
            end = tag.end
        if not marker:
            return buffer.end if buffer.ends_in_marker(here, _CLOSERS) else at
        at = end


# Arguments, in the three ways that most forms share.


def _json_calls(
    buffer: StreamBuffer, opener: Opener, form: str | None = None
) -> Steps[Block | None]:
    """Calls as JSON objects with their names, or as a list of them."""
    here = yield from _unfence(buffer, opener.end)
    end, fenced = opener.end, "`" in buffer.text[opener.end : here]
    calls: list[LeakedCall] = []
    while (yield from _looks_like(buffer, here, "{[", _JSON_CALL)):
        text, end = yield from _brackets(buffer, here)
        calls += parse_json_calls(text)
        here = yield from buffer.skip(_BETWEEN, end)
    if end == opener.end:
        return None
    end = (yield from buffer.skip(_TICKS, end)) if fenced else end
    return Block(form or opener.form, end, tuple(calls))


def _json_arguments(buffer: StreamBuffer, at: int, form: str, name: str) -> Steps[Block | None]:
    """The call of a tool whose arguments follow as a JSON object."""
    start = yield from _unfence(buffer, at)
    if not name or not (yield from _looks_like(buffer, start, "{", _OBJECT)):
        return None
    text, end = yield from _brackets(buffer, start)
    if "`" in buffer.text[at:start]:
        end = yield from buffer.skip(_TICKS, end)
    return Block(form, end, _one_call(name, parse_object(text)))


def _python_calls(
    buffer: StreamBuffer, opener: Opener, closers: MarkerSet = _CLOSERS
) -> Steps[Block | None]:
    """Calls as Python writes them, possibly in a list."""
    start = yield from buffer.skip(SPACE, opener.end)
    if not (yield from _looks_like(buffer, start, _NAME_STARTS + "[", _PYTHON_CALL)):
        return None
    listed = buffer.text[start] == "["
    opening = start if listed else (yield from buffer.find(_PARENTHESIS, start))
    _, end = yield from _brackets(buffer, opening, closers)
    return Block(opener.form, end, parse_python_calls(buffer.text[start:end]))


def _one_call(name: str, arguments: Mapping[str, Any] | None) -> tuple[LeakedCall, ...]:
    return () if arguments is None else (LeakedCall(tool_name(name), arguments),)


def _unfence(buffer: StreamBuffer, at: int) -> Steps[int]:
    """The position behind blanks, and behind the opening of a code fence if there is one."""
    start = yield from buffer.skip(SPACE, at)
    fenced = (yield from buffer.char_at(start)) == "`"
    return (yield from buffer.skip(_FENCE, start)) if fenced else start


def _looks_like(buffer: StreamBuffer, at: int, first: str, pattern: re.Pattern[str]) -> Steps[bool]:
    """Whether the text continues like this; another first character decides at once."""
    character = yield from buffer.char_at(at)
    if not character or character not in first:
        return False
    end = yield from buffer.wait_for(at, _HEAD_LENGTH)
    return bool(pattern.match(buffer.text, at, end))


def _brackets(
    buffer: StreamBuffer, at: int, closers: MarkerSet = _CLOSERS
) -> Steps[tuple[str, int]]:
    """The text in brackets; where they break off, up to the closing marker behind."""
    end, complete = yield from balanced(buffer, at)
    if not complete:
        cut = end == buffer.end  # a string that nothing ends has run over the closing marker
        stop, marker, _ = yield from buffer.find_marker(
            closers, at if cut else end, None if cut else _HEAD_LENGTH
        )
        end = stop if marker else end
    return buffer.text[at:end], end


# Regular forms: a name, a separator, and arguments as JSON or between markers.


def _written(key: str, value: str) -> tuple[str, Any]:
    return key.strip(), UntypedText(value)


def _qwen_pair(key: str, value: str) -> tuple[str, Any]:
    return tool_name(key), UntypedText(value.removeprefix("\n").removesuffix("\n"))


def _kimi_pair(key: str, value: str) -> tuple[str, Any]:
    attributes = _attributes(key)
    is_text = attributes.get("type") == "string"
    return attributes.get("key", ""), value if is_text else parse_value(value)


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Arguments between markers: opener KEY separator VALUE closer."""

    opener: MarkerSet
    separator: MarkerSet
    closer: str
    ends: MarkerSet  # the closer, and what else shows that a value is over
    parse: Callable[[str, str], tuple[str, Any]] = _written
    form: str = ""  # that such arguments give away

    def read(self, buffer: StreamBuffer, at: int) -> Steps[tuple[dict[str, Any], int]]:
        """The arguments from here on, and where they end."""
        arguments: dict[str, Any] = {}
        while True:
            here = yield from buffer.skip(SPACE, at)
            opened, key = yield from buffer.marker_at(here, self.opener)
            if not opened:
                cut = buffer.ends_in_marker(here, self.opener)
                return arguments, buffer.end if cut else at
            key_end, separated, start = yield from buffer.find_marker(self.separator, key)
            end, marker, past = yield from buffer.find_marker(self.ends, start)
            text, closed = buffer.text[start:end], marker == self.closer
            if separated:
                name, value = self.parse(
                    buffer.text[key:key_end], text if closed else text.rstrip()
                )
                arguments[name] = value
            at = past if closed or not marker else end


class _Named:
    """NAME separator ARGUMENTS; the separator may tell the form, by `separators`."""

    def __init__(
        self, separators: Mapping[str, str], pairs: _Pairs | None = None, empty: str = ""
    ) -> None:
        pair_openers = pairs.opener.complete if pairs else ()
        self._separators = {normalize(it): form for it, form in separators.items()}
        self._pairs = pairs
        self._empty = normalize(empty)  # closes a call without arguments
        self._markers = MarkerSet(*separators, *pair_openers, *([empty] if empty else ()))

    def __call__(self, buffer: StreamBuffer, opener: Opener) -> Steps[Block | None]:
        name, here = yield from _read_name(buffer, opener.end)
        if not name:
            return None
        form, behind = opener.form, (yield from buffer.skip(SPACE, here))
        marker, past = yield from buffer.marker_at(behind, self._markers)
        if marker == "[callid]":
            _, marker, past = yield from buffer.find_marker(self._markers, past, _HEAD_LENGTH)
        is_separated = marker in self._separators
        if is_separated:
            form, here = self._separators[marker] or form, past
            if name == "function":  # DeepSeek V3 gives the type of the tool before its name
                name, here = yield from _read_name(buffer, here)
            behind = yield from buffer.skip(SPACE, here)
            marker, past = yield from buffer.marker_at(behind, self._markers)
        if self._pairs and marker in self._pairs.opener.complete:
            arguments, end = yield from self._pairs.read(buffer, behind)
            return Block(self._pairs.form or form, end, _one_call(name, arguments))
        if marker and marker == self._empty:
            return Block(form, past, _one_call(name, {}), certain=form == "hunyuan")
        if not is_separated and (self._pairs or (yield from buffer.char_at(here)) != "{"):
            return None
        return (yield from _json_arguments(buffer, here, form, name))


def _read_name(buffer: StreamBuffer, at: int) -> Steps[tuple[str, int]]:
    """The name of a tool, without quotes, and its end; empty where there is none."""
    start = yield from buffer.skip(SPACE, at)
    end = yield from buffer.skip(_QUOTED_NAME, start)
    return buffer.text[start:end].strip("\"'“”"), end


_GLM_PAIRS = _Pairs(
    MarkerSet("<arg_key>"),
    MarkerSet("</arg_key><arg_value>", "<arg_value>"),
    "</argvalue>",
    MarkerSet("</arg_value>", "<arg_key>", "</tool_call>"),
)
_QWEN_PAIRS = _Pairs(
    MarkerSet("<parameter="),
    MarkerSet(">"),
    "</parameter>",
    MarkerSet("</parameter>", "<parameter=", "</function>", "</tool_call>"),
    _qwen_pair,
    form="qwen",
)
_KIMI_PAIRS = _Pairs(
    MarkerSet("<|open|>argument"),
    _KIMI_SEPARATOR,
    "<close>argument<sep>",
    MarkerSet("<|close|>argument<|sep|>", "<|open|>argument", "<|close|>call<|sep|>"),
    _kimi_pair,
)
_GLM = _Named({"<tool_sep>": "hunyuan"}, _GLM_PAIRS, "</tool_call>")
_FUNCTION = _Named({">": ""}, _QWEN_PAIRS, "</function>")
_MISTRAL = _Named({"[ARGS]": "", "[CALL_ID]": ""})
_SECTION = _Named({"<|tool_sep|>": "deepseek", "<|tool_call_argument_begin|>": "kimi_k2"})


# Irregular forms.


def _tool_call(buffer: StreamBuffer, opener: Opener) -> Steps[Block | None]:
    """What Hermes, Qwen, GLM, Hunyuan and Gemma 4 begin alike, and some wrappers of invokes."""
    if block := (yield from _json_calls(buffer, opener, "hermes")):
        return block
    here = yield from buffer.skip(SPACE, opener.end)
    marker, end = yield from buffer.marker_at(here, _INSIDE_TOOL_CALL)
    if marker == "<function=":
        return (yield from _FUNCTION(buffer, Opener("qwen", here, end)))
    if marker:
        return (yield from read_invokes(buffer, opener))
    name, past = yield from _read_name(buffer, here)
    if name.startswith("call:"):
        return (yield from _gemma4(buffer, name.removeprefix("call:"), past))
    return (yield from _GLM(buffer, Opener("glm", opener.start, opener.end)))


def _gemma4(buffer: StreamBuffer, name: str, at: int) -> Steps[Block | None]:
    """JSON whose keys are bare and whose strings stand unescaped between markers."""
    if (yield from buffer.char_at(at)) != "{":
        return None
    written, depth, brace = "", 0, "{"
    while brace and (depth or not written):
        stop = yield from buffer.find(_BRACES, at)
        marker, past = yield from buffer.marker_at(stop, _GEMMA_QUOTE)
        written += _KEY.sub(r'"\g<0>"', buffer.text[at:stop])
        if marker:
            end, _, at = yield from buffer.find_marker(_GEMMA_QUOTE, past)
            written += json.dumps(buffer.text[past:end])
            continue
        brace = buffer.text[stop : stop + 1]
        written += brace
        depth += {"{": 1, "}": -1}.get(brace, 0)
        at = stop + len(brace)
    marker, end = yield from buffer.marker_at((yield from buffer.skip(SPACE, at)), _GEMMA_END)
    if marker == "<toolcall>" and buffer.text[end - 2] not in BARS:  # it opens the next call
        marker = ""
    return Block("gemma4", end if marker else at, _one_call(name, parse_object(written)))


def _kimi_k3(buffer: StreamBuffer, opener: Opener) -> Steps[Block | None]:
    """The name is an attribute, and so are keys and types."""
    stop, marker, past = yield from buffer.find_marker(_KIMI_SEPARATOR, opener.end, _HEAD_LENGTH)
    name = _attributes(buffer.text[opener.end : stop]).get("tool", "")
    if not marker or not name:
        return None
    arguments, end = yield from _KIMI_PAIRS.read(buffer, past)
    return Block(opener.form, end, _one_call(name, arguments))


def _attributes(text: str) -> dict[str, str]:
    values = {key: value.strip("\"'“”") for key, value in ATTRIBUTE.findall(text)}
    return {k: v.replace("&quot;", '"').replace("&amp;", "&") for k, v in values.items()}


def _mistral(buffer: StreamBuffer, opener: Opener) -> Steps[Block | None]:
    block = yield from _json_calls(buffer, opener)
    return block or (yield from _MISTRAL(buffer, opener))


def _json_or_python(buffer: StreamBuffer, opener: Opener) -> Steps[Block | None]:
    block = yield from _json_calls(buffer, opener)
    name, past = yield from _read_name(buffer, opener.end)
    if block or (name and (yield from buffer.char_at(past)) != "("):
        return block
    return (yield from _python_calls(buffer, opener))


def _harmony(buffer: StreamBuffer, opener: Opener) -> Steps[Block | None]:
    """A message of gpt-oss to a tool; its markers may be lost."""
    brace = yield from buffer.find(_HEADER_END, opener.start, _HEAD_LENGTH)
    to = _RECIPIENT.search(buffer.text, opener.start, brace)
    return (yield from _json_arguments(buffer, brace, opener.form, to[1])) if to else None


def _tool_code(buffer: StreamBuffer, opener: Opener) -> Steps[Block | None]:
    block = yield from _python_calls(buffer, opener, _FENCE_END)
    if not block:
        return None
    stop, _, past = yield from buffer.find_marker(_FENCE_END, block.end)
    if stop == past:  # the fence stays open: prose may follow
        return block
    return Block(opener.form, past, parse_python_calls(buffer.text[opener.end : stop]))


_FORMS: tuple[tuple[str, Reader, tuple[str, ...]], ...] = (
    ("dsml", read_invokes, DSML),
    ("anthropic", read_invokes, _INVOKES),
    ("anthropic", _tool_call, tuple(f"<{space}function_calls>" for space in NAMESPACES)),
    ("anthropic", _tool_call, ("<minimax:tool_call>",)),
    ("hermes", _tool_call, ("<tool_call>", "<tool_calls>", "<calls>", "<function_call>")),
    ("hermes", _tool_call, ("<tool_use>", "<tool>")),
    ("hunyuan", _tool_call, ("<tool_calls><tool_call>",)),
    ("gemma4", _tool_call, ("<start_function_call>",)),
    ("function", _FUNCTION, ("<function=",)),
    ("llama", _json_or_python, ("<|python_tag|>",)),
    ("lfm2", _json_or_python, ("<|tool_call_start|>",)),
    ("internlm", _json_or_python, ("<|action_start|><|plugin|>",)),
    ("mistral", _mistral, ("[TOOL_CALLS]",)),
    ("deepseek", _SECTION, ("<|tool_call_begin|>", "<|tool_calls_begin|><|tool_call_begin|>")),
    ("kimi_k2", _SECTION, ("<|tool_calls_section_begin|><|tool_call_begin|>",)),
    ("kimi_k3", _kimi_k3, ("<|open|>call", "<|open|>tools<|sep|><|open|>call")),
    ("gpt_oss", _harmony, ("<|channel|>commentary", "<|channel|>analysis", "<|start|>assistant")),
    ("gpt_oss", _harmony, ("commentary to=functions.",)),
    ("gemma", _tool_code, ("```tool_code",)),
)
FORMS = {normalize(it): (form, reader) for form, reader, openers in _FORMS for it in openers}
OPENERS = MarkerSet(*FORMS)
