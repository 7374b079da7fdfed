"""Calls as `<invoke name="…"><parameter name="…">`: DeepSeek's DSML, intact or mangled, and plain.

A tag is *marked* when DSML stands in it. Marked tags are never prose; plain ones are a call only
where an invoke has arguments or a closing tag.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kemem.text.leaks import parsing
from kemem.text.leaks.parsing import ANGLE, BARS, Block, Buffer, LeakedCall, MarkerSet, Steps

NAMESPACES = ("", *(f"{name}:" for name in ("antml", "minimax")))
_TAG_LENGTH = 300
_JUNK_LENGTH = 400  # text in an invoke that is not an argument, before the closing tag
_MAX_WRAPPERS = 3
_ANGLES = re.compile("[<>＜＞]")
_QUOTES = "\"'“”‘’"
_VALUE = rf"(?:[{_QUOTES}][^{_QUOTES}<>]*+[{_QUOTES}]|[^\s{_QUOTES}<>/]++)"
ATTRIBUTE = re.compile(rf"(\w++)\s*+=\s*+({_VALUE})")
_WORD = r"invoke|parameters?|(?:tool|function)[\s_▁-]?(?:calls?|uses?)|calls?"
_PREFIXES = "|".join(word[:n] for word in ("name", "string") for n in range(len(word), 0, -1))
_MARKED = re.compile(rf"[<＜][\s/{BARS}]*+DSML", re.IGNORECASE)
_TAG = re.compile(
    rf"""[<＜][\s{BARS}]*+(?P<closes>/)?[\s{BARS}]*+(?:
    (?P<marked>DSML)(?:[\s{BARS}]*+(?P<late>/))?
        (?:[\s{BARS}]*+(?P<word>{_WORD})(?![a-z])|[{BARS}]*+(?P<other>[a-z_-]*+))
    |(?:{"|".join(NAMESPACES)})(?P<plain>{_WORD}|function|arg_value)(?![a-z]))
    [{BARS}]*+(?:\s*+\w++\s*+=\s*+{_VALUE})*+
    (?P<rest>[\s{BARS}]*+(?P<empty>/?)\s*+[>＞]
        |\s*+\w++\s*+=[^<>\n]*+[>＞]
        |\s++(?:{_PREFIXES})?(?:\s*+=\s*+[{_QUOTES}]?[^<>]*+)?\Z)?
    """,
    re.VERBOSE | re.IGNORECASE,
)
_PARSERS: dict[str, Callable[[str], Any]] = {"true": str, "false": parsing.parse_value}
_CLOSERS = MarkerSet("</parameter>", "</DSML parameter>", "<DSML")


@dataclass(frozen=True, slots=True)
class Tag:
    """One tag of a call."""

    start: int
    end: int
    kind: str  # "invoke", "parameter", or "" for a wrapper
    marked: bool
    closes: bool
    empty: bool
    attributes: dict[str, str]

    @property
    def closes_value(self) -> bool:
        return self.closes and self.kind == "parameter"


def tag_at(buffer: Buffer, at: int) -> Steps[Tag | None]:
    """The tag that begins here; a plain one only if it is complete."""
    if not ANGLE.match((yield from buffer.char_at(at))):
        return None
    stop = yield from buffer.find(_ANGLES, at + 1, _TAG_LENGTH)
    stop += buffer.text[stop : stop + 1] in (">", "＞")
    match = _TAG.match(buffer.text, at, min(stop, buffer.end))
    if not match or not (match["marked"] or match["rest"]):
        return None
    word = (match["word"] or match["other"] or match["plain"] or "").lower()
    attributes = {name.lower(): it.strip(_QUOTES) for name, it in ATTRIBUTE.findall(match[0])}
    kind = "invoke" if word == "invoke" or "name" in attributes else ""
    kind = "parameter" if word.startswith(("param", "arg")) else kind
    marked, closes = bool(match["marked"]), bool(match["closes"] or match["late"])
    return Tag(at, match.end(), kind, marked, closes, bool(match["empty"]), attributes)


def read_invokes(buffer: Buffer, form: str, start: int, at: int) -> Steps[Block | None]:
    """The calls from a wrapper, an invoke or any marked tag on, as long as there are tags."""
    parser, end, tags = _InvokeParser(buffer), start, 0
    while not parser.closed:
        here = yield from buffer.skip(parsing.SPACE, end)
        if tag := (yield from tag_at(buffer, here)):
            end, tags = (yield from parser.read_tag(tag)), tags + 1
        elif (past := (yield from parser.read_body(here))) > here:
            end = past
        else:
            end = buffer.end if parser.marked and buffer.ends_in_marker(here, _CLOSERS) else end
            break
        if tags == _MAX_WRAPPERS and not (parser.marked or parser.name or parser.calls):
            return None  # nothing yet but plain wrappers
    parser.leave(cut=max(here, end) >= buffer.end)
    calls = tuple(parser.calls)
    if parser.marked:
        return Block("dsml", end, calls)
    return Block("anthropic", end, calls, any(it.arguments for it in calls)) if calls else None


class _InvokeParser:
    """The state between two tags: the open invoke, its arguments, and the calls read so far."""

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        self._in_invoke = False
        self.name = ""  # of the open invoke; a malformed one has none
        self._arguments: dict[str, Any] | None = None  # of it, once the first has come
        self._wrapped = False
        self.marked = False
        self.closed = False  # the wrapper is
        self.calls: list[LeakedCall] = []

    def read_tag(self, tag: Tag) -> Steps[int]:
        """Process a tag and the value behind it; returns where to continue."""
        self.marked |= tag.marked
        if tag.kind == "parameter":
            if tag.closes or tag.empty:
                return tag.end
            if not self._in_invoke:
                return (yield from self._junk(tag.end))
            text, end = yield from self._value(tag)
            self._arguments = self._arguments or {}
            if name := tag.attributes.get("name", ""):
                typed = tag.attributes.get("string", "").lower()
                self._arguments[name] = _PARSERS.get(typed, parsing.UntypedText)(text)
            return end
        if tag.kind == "" and tag.closes and self.marked and not tag.marked:
            self._arguments = self._arguments or ({} if self._in_invoke else None)
            return tag.end  # a wrong closer, of which there may be more
        self._finish()
        if tag.kind == "invoke" and not tag.closes:
            self._in_invoke = True
            self.name = parsing.tool_name(tag.attributes.get("name", ""))
            if tag.empty:
                self._finish()
        elif tag.kind == "":
            self._wrapped, self.closed = not tag.closes, tag.closes
        return tag.end

    def read_body(self, at: int) -> Steps[int]:
        """Where text in an invoke ends: JSON, or in a wrapper whatever stands before its tag."""
        if not self._in_invoke:
            return at
        if self._arguments is None and self._buffer.text[at : at + 1] == "{":
            end, _ = yield from parsing.balanced(self._buffer, at)
            if tag := _MARKED.search(self._buffer.text, at, end):  # no string spans a tag
                end = tag.start()
            self._arguments = parsing.parse_object(self._buffer.text[at:end]) or {}
            return end
        end = (yield from self._junk(at)) if self._wrapped and self.marked else at
        if end > at and self._arguments is None:
            self.name = ""
        return end

    def leave(self, cut: bool) -> None:
        """End after the last tag; an invoke followed by other text is not a call."""
        if self._arguments is None and not (self.marked and (cut or self._wrapped)):
            self.name = ""
        self._finish()

    def _finish(self) -> None:
        if self.name:
            self.calls.append(LeakedCall(self.name, parsing.unwrap(self._arguments or {})))
        self.name, self._arguments, self._in_invoke = "", None, False

    def _junk(self, at: int) -> Steps[int]:
        """Where the marked tag is that closes text which is not an argument; else `at`."""
        here, last = at, at + _JUNK_LENGTH
        if (yield from self._buffer.char_at(at)) == "`":  # the tag is quoted as code, in prose
            return at
        while here < last:
            here = yield from self._buffer.find(ANGLE, here, last - here)
            tag = yield from tag_at(self._buffer, here)
            if (tag and tag.marked) or here >= self._buffer.end:
                return here if tag and tag.closes else at
            here += 1
        return at

    def _value(self, opened: Tag) -> Steps[tuple[str, int]]:
        """The value behind a tag, and where to continue.

        A marked tag ends a marked value. Plain tags may be part of the value, so the first plain
        closing tag counts only where the value has no closing tag of its own.
        """
        buffer, at = self._buffer, opened.end
        closer: Tag | None = None
        while (at := (yield from buffer.find(ANGLE, at))) < buffer.end:
            tag = yield from tag_at(buffer, at)
            is_plain_end = tag and tag.kind and (tag.closes or "name" in tag.attributes)
            if tag and (tag.marked or (is_plain_end and not opened.marked)):
                closer = tag if tag.closes_value else closer or tag
                break
            if tag and tag.closes:
                closer = closer or tag
            if not tag and buffer.ends_in_marker(at, _CLOSERS):
                break
            at = tag.end if tag else at + 1
        if closer is None:
            return buffer.text[opened.end : at].rstrip(), buffer.end
        text = buffer.text[opened.end : closer.start]
        if closer.closes_value:
            return text, closer.end
        return text.rstrip(), closer.start  # without the layout between two tags
