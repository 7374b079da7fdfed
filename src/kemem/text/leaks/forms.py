"""The forms in which models write calls: a table of openers, and how each form is parsed.

Regular forms are a row of data: markers around the name and around the arguments. Only those that
follow no such pattern (`<tool_call>`, Gemma, Kimi K3, gpt-oss) have a function of their own.
"""

import json
import re
import string
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kemem.text.leaks import parsing
from kemem.text.leaks.dsml import ATTRIBUTE, NAMESPACES, read_invokes, tag_at
from kemem.text.leaks.parsing import BARS, SPACE, Block, Buffer, LeakedCall, MarkerSet, Steps

Reader = Callable[[Buffer, str, int, int], Steps[Block | None]]
"""Reads what an opener of a form begins, by the opener's start and end; None where it is prose."""

_Parse = Callable[[str, str], tuple[str, Any]]  # of a key and a value as they are written

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
    *("[/TOOL_CALLS]", "</tools>", "</tool_response>", "</tool_result>"),
)
_QUOTED_NAME = re.compile(r"[\w.:\"'“”-]*+", re.ASCII)
_NAME_STARTS = string.ascii_letters + "_"
_NEXT_CALL = re.compile(r"[\s;,]*+")
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


def skip_closers(buffer: Buffer, at: int) -> Steps[int]:
    """Where the closing markers end that follow a block."""
    while True:
        here = yield from buffer.skip(SPACE, at)
        marker, end = yield from buffer.marker_at(here, _CLOSERS)
        if marker == "</dsml" and (tag := (yield from tag_at(buffer, here))):
            end = tag.end
        if not marker:
            return buffer.end if buffer.ends_in_marker(here, _CLOSERS) else at
        at = end


def _json(buffer: Buffer, form: str, at: int, name: str = "") -> Steps[Block | None]:
    """Calls as JSON objects, or as a list of them; with a name one call, by its arguments alone."""
    here = yield from buffer.skip(SPACE, at)
    if is_fenced := (yield from buffer.char_at(here)) == "`":
        here = yield from buffer.skip(_FENCE, here)
    first, pattern = ("{", _OBJECT) if name else ("{[", _JSON_CALL)
    end, calls = at, list[LeakedCall]()
    while (yield from looks_like(buffer, here, first, pattern)):
        text, end = yield from read_brackets(buffer, here)
        if name:
            calls += _one_call(name, parsing.parse_object(text))
            break
        calls += parsing.parse_json_calls(text)
        here = yield from buffer.skip(_NEXT_CALL, end)
    if end == at:
        return None
    return Block(form, (yield from buffer.skip(_TICKS, end)) if is_fenced else end, tuple(calls))


def read_python(
    buffer: Buffer, form: str, at: int, closers: MarkerSet = _CLOSERS
) -> Steps[Block | None]:
    """Calls as Python writes them, possibly in a list."""
    start = yield from buffer.skip(SPACE, at)
    if not (yield from looks_like(buffer, start, _NAME_STARTS + "[", _PYTHON_CALL)):
        return None
    is_list = buffer.text[start] == "["
    opening = start if is_list else (yield from buffer.find(_PARENTHESIS, start))
    _, end = yield from read_brackets(buffer, opening, closers)
    return Block(form, end, parsing.parse_python_calls(buffer.text[start:end]))


def _one_call(name: str, arguments: Mapping[str, Any] | None) -> tuple[LeakedCall, ...]:
    return () if arguments is None else (LeakedCall(parsing.tool_name(name), arguments),)


def looks_like(buffer: Buffer, at: int, first: str, pattern: re.Pattern[str]) -> Steps[bool]:
    """Whether the text continues like this; another first character decides at once."""
    character = yield from buffer.char_at(at)
    if not character or character not in first:
        return False
    end = yield from buffer.wait_for(at, _HEAD_LENGTH)
    return bool(pattern.match(buffer.text, at, end))


def read_brackets(buffer: Buffer, at: int, closers: MarkerSet = _CLOSERS) -> Steps[tuple[str, int]]:
    """The text in brackets; where they break off, up to the closing marker behind."""
    end, is_complete = yield from parsing.balanced(buffer, at)
    if not is_complete:
        cut = end == buffer.end  # a string that nothing ends has run over the closing marker
        start, within = (at, None) if cut else (end, _HEAD_LENGTH)
        stop, marker, _ = yield from buffer.find_marker(closers, start, within)
        end = stop if marker else end
    return buffer.text[at:end], end


def read_name(buffer: Buffer, at: int) -> Steps[tuple[str, int]]:
    """The name of a tool, without quotes, and its end; empty where there is none."""
    start = yield from buffer.skip(SPACE, at)
    end = yield from buffer.skip(_QUOTED_NAME, start)
    return buffer.text[start:end].strip("\"'“”"), end


def _attributes(text: str) -> dict[str, str]:
    values = {key: value.strip("\"'“”") for key, value in ATTRIBUTE.findall(text)}
    return {k: v.replace("&quot;", '"').replace("&amp;", "&") for k, v in values.items()}


# Regular forms: a name, a separator, and arguments as JSON or between markers.


def _glm_pair(key: str, value: str) -> tuple[str, Any]:
    return key.strip(), parsing.UntypedText(value)


def _qwen_pair(key: str, value: str) -> tuple[str, Any]:
    text = value.removeprefix("\n").removesuffix("\n")
    return parsing.tool_name(key), parsing.UntypedText(text)


def _kimi_pair(key: str, value: str) -> tuple[str, Any]:
    attributes = _attributes(key)
    is_text = attributes.get("type") == "string"
    return attributes.get("key", ""), value if is_text else parsing.parse_value(value)


class _Pairs:
    """Arguments between markers: opener KEY separator VALUE closer; `ends` also show its end."""

    def __init__(
        self, form: str, parse: _Parse, opener: str, separator: MarkerSet, closer: str, *ends: str
    ) -> None:
        self.form = form  # that such arguments give away
        self.opener = MarkerSet(opener)
        self._ends = MarkerSet(closer, opener, *ends)
        self._parse, self._separator, self._closer = parse, separator, parsing.normalize(closer)

    def read(self, buffer: Buffer, at: int) -> Steps[tuple[dict[str, Any], int]]:
        """The arguments from here on, and where they end."""
        arguments: dict[str, Any] = {}
        while True:
            here = yield from buffer.skip(SPACE, at)
            opened, key = yield from buffer.marker_at(here, self.opener)
            if not opened:
                cut = buffer.ends_in_marker(here, self.opener)
                return arguments, buffer.end if cut else at
            key_end, separated, start = yield from buffer.find_marker(self._separator, key)
            end, marker, past = yield from buffer.find_marker(self._ends, start)
            text, closed = buffer.text[start:end], marker == self._closer
            if separated:
                pair = self._parse(buffer.text[key:key_end], text if closed else text.rstrip())
                arguments.update([pair])
            at = past if closed or not marker else end


def _named(
    separators: Mapping[str, str], pairs: _Pairs | None = None, closer: Iterable[str] = ()
) -> Reader:
    """A reader of NAME separator ARGUMENTS, or NAME closer; a separator may give away the form."""
    openers = pairs.opener.complete if pairs else ()
    markers = MarkerSet(*separators, *openers, *closer)
    forms = {parsing.normalize(it): form for it, form in separators.items()}

    def read(buffer: Buffer, form: str, start: int, at: int) -> Steps[Block | None]:
        name, here = yield from read_name(buffer, at)
        if not name:
            return None
        behind = yield from buffer.skip(SPACE, here)
        marker, past = yield from buffer.marker_at(behind, markers)
        if marker == "[callid]":
            _, marker, past = yield from buffer.find_marker(markers, past, _HEAD_LENGTH)
        is_separated = marker in forms
        if is_separated:
            form, here = forms[marker] or form, past
            if name == "function":  # DeepSeek V3 gives the type of the tool before its name
                name, here = yield from read_name(buffer, here)
            behind = yield from buffer.skip(SPACE, here)
            marker, past = yield from buffer.marker_at(behind, markers)
        if pairs and marker in openers:
            arguments, end = yield from pairs.read(buffer, behind)
            return Block(pairs.form or form, end, _one_call(name, arguments))
        if marker and marker not in forms:
            return Block(form, past, _one_call(name, {}), certain=form == "hunyuan")
        if not is_separated and (pairs or (yield from buffer.char_at(here)) != "{"):
            return None
        return (yield from _json(buffer, form, here, name)) if name else None

    return read


_GLM_SEPARATOR = MarkerSet("</arg_key><arg_value>", "<arg_value>")
_GLM_PAIRS = _Pairs("", _glm_pair, "<arg_key>", _GLM_SEPARATOR, "</arg_value>", "</tool_call>")
_QWEN_ENDS = ("</parameter>", "</function>", "</tool_call>")
_QWEN_PAIRS = _Pairs("qwen", _qwen_pair, "<parameter=", MarkerSet(">"), *_QWEN_ENDS)
_KIMI_ENDS = ("<|close|>argument<|sep|>", "<|close|>call<|sep|>")
_KIMI_PAIRS = _Pairs("", _kimi_pair, "<|open|>argument", _KIMI_SEPARATOR, *_KIMI_ENDS)
_GLM = _named({"<tool_sep>": "hunyuan"}, _GLM_PAIRS, ["</tool_call>"])
_FUNCTION = _named({">": ""}, _QWEN_PAIRS, ["</function>"])
_MISTRAL = _named({"[ARGS]": "", "[CALL_ID]": ""})
_SECTION = _named({"<|tool_sep|>": "deepseek", "<|tool_call_argument_begin|>": "kimi_k2"})


# Irregular forms.


def _tool_call(buffer: Buffer, form: str, start: int, at: int) -> Steps[Block | None]:
    """What Hermes, Qwen, GLM, Hunyuan and Gemma 4 begin alike, and some wrappers of invokes."""
    if block := (yield from _json(buffer, "hermes", at)):
        return block
    here = yield from buffer.skip(SPACE, at)
    marker, end = yield from buffer.marker_at(here, _INSIDE_TOOL_CALL)
    if marker == "<function=":
        return (yield from _FUNCTION(buffer, "qwen", here, end))
    if marker:
        return (yield from read_invokes(buffer, form, start, at))
    name, past = yield from read_name(buffer, here)
    if name.startswith("call:"):
        return (yield from _gemma4(buffer, name.removeprefix("call:"), past))
    return (yield from _GLM(buffer, "glm", start, at))


def _gemma4(buffer: Buffer, name: str, at: int) -> Steps[Block | None]:
    """JSON whose keys are bare and whose strings stand unescaped between markers."""
    if (yield from buffer.char_at(at)) != "{":
        return None
    json_text, depth, brace = "", 0, "{"
    while brace and (depth or not json_text):
        stop = yield from buffer.find(_BRACES, at)
        marker, past = yield from buffer.marker_at(stop, _GEMMA_QUOTE)
        json_text += _KEY.sub(r'"\g<0>"', buffer.text[at:stop])
        if marker:
            end, _, at = yield from buffer.find_marker(_GEMMA_QUOTE, past)
            json_text += json.dumps(buffer.text[past:end])
            continue
        brace = buffer.text[stop : stop + 1]
        json_text += brace
        depth += {"{": 1, "}": -1}.get(brace, 0)
        at = stop + len(brace)
    marker, end = yield from buffer.marker_at((yield from buffer.skip(SPACE, at)), _GEMMA_END)
    if marker == "<toolcall>" and buffer.text[end - 2] not in BARS:  # it opens the next call
        marker = ""
    return Block("gemma4", end if marker else at, _one_call(name, parsing.parse_object(json_text)))


def _kimi_k3(buffer: Buffer, form: str, start: int, at: int) -> Steps[Block | None]:
    """The name is an attribute, and so are keys and types."""
    stop, marker, past = yield from buffer.find_marker(_KIMI_SEPARATOR, at, _HEAD_LENGTH)
    name = _attributes(buffer.text[at:stop]).get("tool", "")
    if not marker or not name:
        return None
    arguments, end = yield from _KIMI_PAIRS.read(buffer, past)
    return Block(form, end, _one_call(name, arguments))


def _mistral(buffer: Buffer, form: str, start: int, at: int) -> Steps[Block | None]:
    block = yield from _json(buffer, form, at)
    return block or (yield from _MISTRAL(buffer, form, start, at))


def _json_or_python(buffer: Buffer, form: str, start: int, at: int) -> Steps[Block | None]:
    block = yield from _json(buffer, form, at)
    name, past = yield from read_name(buffer, at)
    if block or (name and (yield from buffer.char_at(past)) != "("):
        return block
    return (yield from read_python(buffer, form, at))


def _harmony(buffer: Buffer, form: str, start: int, at: int) -> Steps[Block | None]:
    """A message of gpt-oss to a tool; its markers may be lost."""
    brace = yield from buffer.find(_HEADER_END, start, _HEAD_LENGTH)
    to = _RECIPIENT.search(buffer.text, start, brace)
    return (yield from _json(buffer, form, brace, to[1])) if to else None


def _tool_code(buffer: Buffer, form: str, start: int, at: int) -> Steps[Block | None]:
    block = yield from read_python(buffer, form, at, _FENCE_END)
    if not block:
        return None
    stop, _, past = yield from buffer.find_marker(_FENCE_END, block.end)
    if stop == past:  # the fence stays open: prose may follow
        return block
    return Block(form, past, parsing.parse_python_calls(buffer.text[at:stop]))


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
FORMS = {
    parsing.normalize(it): (form, reader) for form, reader, openers in _FORMS for it in openers
}
