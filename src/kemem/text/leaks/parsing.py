"""Incremental parsing: a buffer of streamed text, generators that read it, and values of calls.

A reader is a generator: it resumes where it stopped when more text has come. No character is read
twice, and the result does not depend on how the text was split into chunks.
"""

import ast
import json
import re
import warnings
from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from kemem.text.loose_json import parse_json

_T = TypeVar("_T")
Steps = Generator[None, None, _T]

BARS = "|｜‖∥│┃¦"
SPACE = re.compile(r"\s*+")
ANGLE = re.compile("[<＜]")
_MARKER_LENGTH = 80  # with the spaces and bars in between
_SUFFIX = ":opensource>"  # of Hunyuan's tags
_IGNORED = BARS + "_▁-"
_FILLER = rf"[\s{_IGNORED}]*+"
_NORMAL = dict.fromkeys(_IGNORED, "") | {"＜": "<", "＞": ">"}

_NAMES = ("name", "tool_name", "tool", "function")
_ARGUMENTS = ("arguments", "parameters", "args", "input")
_WRAPPERS = ("arguments", "input")
_LISTS = ("calls", "tool_calls", "tool_call", "function_call")
_CALL_KEYS = {*_NAMES, *_ARGUMENTS, "id", "call_id", "type", "index"}  # all that a call may have
MEMORY_KEYS = {"id", "kind", "time", "content"}  # of what a recall returns
_NAMESPACE = re.compile(r"^(?:functions|default_api)\.|:\d+$")
_DECODER = json.JSONDecoder(strict=False, parse_constant=int)  # `int` refuses NaN and Infinity
_WORDS = {"true": True, "false": False, "null": None}
_PYTHON_ENDS = ("", ")", '")', "')", "]", ")]", '")]', "')]")  # of a call that was cut

_BRACKETS = {"{": 1, "[": 1, "(": 1, "}": -1, "]": -1, ")": -1}
_CLOSING = {'"': '"', "'": "'", "“": "”"}
_QUOTES = {end: re.compile(rf"[\\{end}]") for end in _CLOSING.values()}
_WORD = re.compile(r"[\w.+-]*+", re.ASCII)
_AFTER_LENGTH = 80
# A quote ends a string only where structure follows; any other was not escaped: "他说"好", 走了"
_AFTER = re.compile(
    r"\s*+(?:\Z|[}\]):：<`]|[\"“]\w{1,40}+[\"”]\s*+[:：]"
    r"|,\s*+(?:\Z|[\"'“{\[\d}\])-]|(?i:true|false|null|none)\b|\w{1,40}+\s*+[=:(.]))"
)


class UntypedText(str):
    """A value as text, whose type only the tool's schema can tell."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class LeakedCall:
    """A call as far as it could be parsed: `UntypedText` values where the form gives no types."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Block:
    """Calls in a text, and where their markup ends."""

    form: str
    end: int
    calls: tuple[LeakedCall, ...]
    certain: bool = True  # False: prose may look alike, so the tool must be a known one


def normalize(text: str) -> str:
    """A marker without what models add or lose.  "<｜tool▁calls >" -> "<toolcalls>" """
    return "".join(_NORMAL.get(it, it) for it in text if not it.isspace()).lower()


class MarkerSet:
    """Markers, recognised in any spelling: other bars, spaces, underscores, case."""

    def __init__(self, *markers: str) -> None:
        normal = [normalize(marker) for marker in markers]
        self.complete = {it: it for it in normal} | {it.replace(">", _SUFFIX): it for it in normal}
        self.prefixes = {it[:length] for it in self.complete for length in range(1, len(it))}
        # Where one may begin, judged by two characters.
        heads = {rf"{re.escape(it[0])}(?={_FILLER}(?:\Z|{re.escape(it[1:2])}))" for it in normal}
        start = "|".join(sorted(heads)).replace("<(", "[<＜](")
        self.start = re.compile(start, re.IGNORECASE)


class Buffer:
    """The text received so far and not yet dropped; positions count from its beginning."""

    def __init__(self) -> None:
        self.text = ""
        self.end = 0  # of what can be read now
        self.closed = False  # no more will come
        self.starved = False  # a reader wanted more than there is
        self.limit: int | None = None  # where the text ends for a reader, whatever follows

    def append(self, chunk: str) -> None:
        """Add a chunk."""
        self.text += chunk
        self.set_limit(self.limit)

    def drop(self, length: int) -> None:
        """Forget the beginning: positions count from there."""
        self.text = self.text[length:]
        self.set_limit(None)

    def set_limit(self, limit: int | None) -> None:
        """Hide the text beyond a position from readers."""
        self.limit = limit
        self.end = len(self.text) if limit is None else min(len(self.text), limit)

    def more(self) -> Steps[bool]:
        """Wait for more text; False where none can come."""
        before = self.end
        while self.end == before and before != self.limit and not self.closed:
            yield
        self.starved |= self.end == before
        return self.end > before

    def wait_for(self, at: int, length: int) -> Steps[int]:
        """Wait until so much is there; returns where it ends."""
        while self.end < at + length and (yield from self.more()):
            pass
        return min(self.end, at + length)

    def char_at(self, at: int) -> Steps[str]:
        """The character at a position, empty at the end of the text."""
        end = yield from self.wait_for(at, 1)
        return self.text[at:end]

    def skip(self, pattern: re.Pattern[str], at: int) -> Steps[int]:
        """Where a run of characters ends that begins here."""
        while True:
            match = pattern.match(self.text, at, self.end)
            at = match.end() if match else at
            if at < self.end or not (yield from self.more()):
                return at

    def find(self, pattern: re.Pattern[str], at: int, within: int | None = None) -> Steps[int]:
        """Where the next match is; else the end, of the text or of the search."""
        last = None if within is None else at + within
        while True:
            end = self.end if last is None else min(self.end, last)
            if match := pattern.search(self.text, at, end):
                return match.start()
            at = end
            if at == last or not (yield from self.more()):
                return at

    def marker_at(self, at: int, markers: MarkerSet) -> Steps[tuple[str, int]]:
        """The longest marker that begins here and its end; ("", at) where none does."""
        normal, longest = "", ("", at)
        for here in range(at, at + _MARKER_LENGTH):
            if here >= self.end and not (yield from self.more()):
                break
            normal += normalize(self.text[here])
            if normal in markers.complete:
                longest = markers.complete[normal], here + 1
            if normal not in markers.prefixes:
                break
        return longest

    def find_marker(
        self, markers: MarkerSet, at: int, within: int | None = None
    ) -> Steps[tuple[int, str, int]]:
        """The next marker as (start, marker, end); without one (end of the text, "", end)."""
        last = None if within is None else at + within
        while True:
            start = yield from self.find(markers.start, at, None if last is None else last - at)
            if start in (self.end, last):
                return start, "", start
            marker, end = yield from self.marker_at(start, markers)
            if marker:
                return start, marker, end
            if self.ends_in_marker(start, markers):
                return start, "", self.end
            at = start + 1

    def ends_in_marker(self, at: int, markers: MarkerSet) -> bool:
        """Whether the text is cut off inside a marker that begins here."""
        if not (self.closed or self.end == self.limit) or self.end - at >= _MARKER_LENGTH:
            return False
        text = self.text[at : self.end]
        return normalize(text[:1]) != "" and normalize(text) in markers.prefixes


def balanced(buffer: Buffer, at: int) -> Steps[tuple[int, bool]]:
    """Where the brackets that open here are closed; False: where they break off."""
    depth, end, word_may_follow = 0, at, True
    while True:
        at = yield from buffer.skip(SPACE, at)
        character = yield from buffer.char_at(at)
        if character in _CLOSING:
            at, word_may_follow = (yield from _string(buffer, at, _CLOSING[character])), False
        elif step := _BRACKETS.get(character, 0):
            at, depth, word_may_follow = at + 1, depth + step, step > 0
        elif character and character in ",:：=":
            at, word_may_follow = at + 1, True
        elif word_may_follow and (past := (yield from buffer.skip(_WORD, at))) > at:
            at, word_may_follow = past, False
        else:
            return end, False
        end = at
        if depth == 0:
            return end, True


def _string(buffer: Buffer, at: int, quote: str) -> Steps[int]:
    at += 1
    while (at := (yield from buffer.find(_QUOTES[quote], at))) < buffer.end:
        if buffer.text[at] == "\\":
            at = yield from buffer.wait_for(at, 2)
            continue
        at += 1
        end = yield from buffer.wait_for(at, _AFTER_LENGTH)
        if _AFTER.match(buffer.text, at, end):
            break
    return at


def tool_name(name: str) -> str:
    """The name of a tool alone.  "functions.recall_memory:0" -> "recall_memory" """
    return _NAMESPACE.sub("", name.strip().strip("\"'“”"))


def parse_value(text: str) -> Any:
    """A value parsed as JSON, else as it is written.  "3" -> 3, "成都" -> UntypedText("成都")"""
    try:
        return _DECODER.decode(text.strip())
    except (ValueError, RecursionError):
        return UntypedText(text) if (broken := parse_object(text)) is None else broken


def parse_object(text: str) -> dict[str, Any] | None:
    """The arguments in a JSON object, which may be broken; None for anything else."""
    value = _parse(text) if text.lstrip().startswith("{") else None
    return value if isinstance(value, dict) else None


def _parse(text: str) -> Any:
    with suppress(ValueError):
        return parse_json(text)
    return None


def unwrap(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments that came as the value of a single parameter.  {"input": {"a": 1}} -> {"a": 1}"""
    if len(arguments) != 1 or not arguments.keys() <= {*_WRAPPERS}:
        return arguments
    (value,) = arguments.values()
    inner = parse_object(value) if isinstance(value, str) else value
    return inner if isinstance(inner, dict) else arguments


def parse_json_calls(text: str) -> tuple[LeakedCall, ...]:
    """The calls in a JSON object or list."""
    value = _parse(text)
    items = value if isinstance(value, list) else [value]
    return tuple(call for item in items if (call := _json_call(item)))


def _json_call(item: Any) -> LeakedCall | None:
    if isinstance(item, dict) and isinstance(item.get("function"), dict):
        item = item["function"]
    if not isinstance(item, dict):
        return None
    name = next((item[key] for key in _NAMES if isinstance(item.get(key), str)), "")
    arguments: Any = next((item[key] for key in _ARGUMENTS if item.get(key) is not None), {})
    if isinstance(arguments, str):  # encoded twice
        arguments = parse_object(arguments)
    return LeakedCall(tool_name(name), arguments) if name and isinstance(arguments, dict) else None


def parse_bare_calls(text: str) -> tuple[LeakedCall, ...]:
    """The calls in JSON that nothing marks as calls: objects with arguments and little else.

    {"name": "f", "arguments": {"a": 1}} -> one call; the definition of a tool is none.
    """
    value = _undoubled(text) if text.startswith("{{") else _parse(text)
    wrapper = next((it for it in _LISTS if isinstance(value, dict) and it in value), "")
    items = value[wrapper] if wrapper else value
    items = items if isinstance(items, list) else [items]
    bare = (item for item in items if _is_bare_call(item, is_listed=bool(wrapper)))
    return tuple(call for item in bare if (call := _json_call(item)))


def _undoubled(text: str) -> Any:
    """The value of JSON whose braces are doubled, the outer ones or all, as templates escape it."""
    with suppress(ValueError, RecursionError):
        return _DECODER.decode(text[1:-1])
    return _parse(text.replace("{{", "{").replace("}}", "}"))


def _is_bare_call(item: Any, *, is_listed: bool) -> bool:
    call = item.get("function") if isinstance(item, dict) else None
    call = call if isinstance(call, dict) else item
    if not isinstance(call, dict) or not call.keys() | item.keys() <= _CALL_KEYS:
        return False
    arguments: Any = next(
        (call[key] for key in _ARGUMENTS if key in call), {} if is_listed else None
    )
    if isinstance(arguments, dict):
        return not {"type", "properties"} <= arguments.keys()  # the schema of a definition
    return isinstance(arguments, str)


def are_memories(text: str) -> bool:
    """Whether JSON is what a recall returned: memories with all that only a recall gives them."""
    value = _parse(text)
    events = value.get("events") if isinstance(value, dict) and len(value) == 1 else None
    return isinstance(events, list) and any(
        isinstance(it, dict) and it.keys() >= MEMORY_KEYS for it in events
    )


def parse_python_calls(text: str) -> tuple[LeakedCall, ...]:
    """The calls in Python code that holds nothing else; arguments must be named literals."""
    for end in _PYTHON_ENDS:
        try:
            with warnings.catch_warnings(action="ignore"):
                statements = ast.parse(text.strip() + end).body
            return tuple(call for line in statements for call in _python_calls(line))
        except SyntaxError:
            continue
        except (ValueError, TypeError, RecursionError, MemoryError):
            break
    return ()


def _python_calls(node: ast.AST) -> Iterator[LeakedCall]:
    match node:
        case ast.Expr(value=value) | ast.Assign(value=value):
            yield from _python_calls(value)
        case ast.List(elts=items) | ast.Tuple(elts=items):
            for item in items:
                yield from _python_calls(item)
        case ast.Call(func=ast.Name(id="print"), args=[argument]):
            yield from _python_calls(argument)
        case ast.Call(func=function, args=[], keywords=keywords):
            values = {it.arg: ast.literal_eval(_Words().visit(it.value)) for it in keywords}
            name = tool_name(ast.unparse(function))
            yield LeakedCall(name, json.loads(json.dumps(values)))  # a tuple is a list
        case _:
            raise ValueError("not a call with named arguments")


class _Words(ast.NodeTransformer):
    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(_WORDS[node.id]) if node.id in _WORDS else node
