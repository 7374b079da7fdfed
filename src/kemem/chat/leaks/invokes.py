"""Calls as `<invoke name="…"><parameter name="…">`: DeepSeek's DSML, whole or mangled, and plain.

A tag is *marked* when DSML stands in it. Marked tags are never text; plain ones are a call only
where an invoke has arguments or a closing tag.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kemem.chat.leaks.calls import Block, LeakedCall, Opener, Written
from kemem.chat.leaks.tape import ANGLE, BARS, SPACE, Marks, Steps, Tape
from kemem.chat.leaks.values import arguments_in, balanced, bare, typed, unwrapped

NAMESPACES = ("", *(f"{name}:" for name in ("antml", "minimax")))
_TAG_LENGTH = 300
_JUNK_LENGTH = 400  # of what is no argument, before the closing tag
_MOST_WRAPPERS = 3
_ANGLES = re.compile("[<>＜＞]")
_QUOTES = "\"'“”‘’"
_VALUE = rf"(?:[{_QUOTES}][^{_QUOTES}<>]*+[{_QUOTES}]|[^\s{_QUOTES}<>/]++)"
ATTRIBUTE = re.compile(rf"(\w++)\s*+=\s*+({_VALUE})")
_WORD = r"invoke|parameters?|(?:tool|function)[\s_▁-]?(?:calls?|uses?)|calls?"
_BEGUN = "|".join(word[:n] for word in ("name", "string") for n in range(len(word), 0, -1))
_MARKED = re.compile(rf"[<＜][\s/{BARS}]*+DSML", re.IGNORECASE)
_TAG = re.compile(
    rf"""[<＜][\s{BARS}]*+(?P<closes>/)?[\s{BARS}]*+(?:
    (?P<marked>DSML)(?:[\s{BARS}]*+(?P<late>/))?
        (?:[\s{BARS}]*+(?P<word>{_WORD})(?![a-z])|[{BARS}]*+(?P<other>[a-z_-]*+))
    |(?:{"|".join(NAMESPACES)})(?P<plain>{_WORD}|function|arg_value)(?![a-z]))
    [{BARS}]*+(?:\s*+\w++\s*+=\s*+{_VALUE})*+
    (?P<rest>[\s{BARS}]*+(?P<empty>/?)\s*+[>＞]
        |\s*+\w++\s*+=[^<>\n]*+[>＞]
        |\s++(?:{_BEGUN})?(?:\s*+=\s*+[{_QUOTES}]?[^<>]*+)?\Z)?
    """,
    re.VERBOSE | re.IGNORECASE,
)
_VALUES: dict[str, Callable[[str], Any]] = {"true": str, "false": typed}
_CLOSING = Marks("</parameter>", "</DSML parameter>", "<DSML")


@dataclass(frozen=True, slots=True)
class Tag:
    """One tag of a call."""

    start: int
    end: int
    kind: str  # "invoke", "parameter", or "" for what stands around them
    marked: bool
    closes: bool
    empty: bool
    attributes: dict[str, str]

    @property
    def closes_value(self) -> bool:
        """Whether it is the closing tag of a value."""
        return self.closes and self.kind == "parameter"

    @property
    def ends_value(self) -> bool:
        """Whether a value cannot go on behind it."""
        return self.kind != "" and (self.closes or "name" in self.attributes)


def tag_at(tape: Tape, at: int) -> Steps[Tag | None]:
    """The tag that begins here; a plain one only where it is whole."""
    if not ANGLE.match((yield from tape.character(at))):
        return None
    stop = yield from tape.find(_ANGLES, at + 1, _TAG_LENGTH)
    stop += tape.text[stop : stop + 1] in (">", "＞")
    found = _TAG.match(tape.text, at, min(stop, tape.end))
    if not found or not (found["marked"] or found["rest"]):
        return None
    word = (found["word"] or found["other"] or found["plain"] or "").lower()
    attributes = {name.lower(): it.strip(_QUOTES) for name, it in ATTRIBUTE.findall(found[0])}
    return Tag(
        at,
        found.end(),
        _kind(word, attributes),
        marked=bool(found["marked"]),
        closes=bool(found["closes"] or found["late"]),
        empty=bool(found["empty"]),
        attributes=attributes,
    )


def _kind(word: str, attributes: dict[str, str]) -> str:
    if word.startswith(("param", "arg")):
        return "parameter"
    return "invoke" if word == "invoke" or "name" in attributes else ""


def read_invokes(tape: Tape, opener: Opener) -> Steps[Block | None]:
    """The calls from a wrapper, an invoke or any marked tag on, as long as there are tags."""
    reader, end, tags = _Invokes(tape), opener.start, 0
    while not reader.closed:
        here = yield from tape.run(SPACE, end)
        if tag := (yield from tag_at(tape, here)):
            end, tags = (yield from reader.take(tag)), tags + 1
        elif (past := (yield from reader.body(here))) > here:
            end = past
        else:
            end = tape.end if reader.marked and tape.cut(here, _CLOSING) else end
            break
        if tags == _MOST_WRAPPERS and reader.idle:
            return None
    reader.leave(cut=max(here, end) >= tape.end)
    calls = tuple(reader.calls)
    if reader.marked:
        return Block("dsml", end, calls)
    return Block("anthropic", end, calls, any(it.arguments for it in calls)) if calls else None


class _Invokes:
    """What is known of the calls between the tags that were read so far."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self._open = False  # an invoke is
        self._name = ""  # of that invoke; malformed ones have none
        self._arguments: dict[str, Any] | None = None  # of it, from its first on
        self._wrapped = False
        self.marked = False
        self.closed = False  # the wrapper is
        self.calls: list[LeakedCall] = []

    @property
    def idle(self) -> bool:
        """Whether there is nothing yet but plain wrappers."""
        return not (self.marked or self._name or self.calls)

    def take(self, tag: Tag) -> Steps[int]:
        """Takes note of a tag and of the value behind it; says where to go on."""
        self.marked |= tag.marked
        if tag.kind == "parameter":
            if tag.closes or tag.empty:
                return tag.end
            return (yield from (self._parameter(tag) if self._open else self._junk(tag.end)))
        if tag.kind == "" and tag.closes and self.marked and not tag.marked:
            self._arguments = self._arguments or ({} if self._open else None)
            return tag.end  # a wrong closer, of which there may be more
        self._finish()
        if tag.kind == "invoke" and not tag.closes:
            self._open = True
            self._name = bare(tag.attributes.get("name", ""))
            if tag.empty:
                self._finish()
        elif tag.kind == "":
            self._wrapped, self.closed = not tag.closes, tag.closes
        return tag.end

    def body(self, at: int) -> Steps[int]:
        """Where text in an invoke ends: JSON, or in a wrapper whatever stands before its tag."""
        if not self._open:
            return at
        if self._arguments is None and self._tape.text[at : at + 1] == "{":
            end, _ = yield from balanced(self._tape, at)
            if tag := _MARKED.search(self._tape.text, at, end):  # no string reaches over a tag
                end = tag.start()
            self._arguments = arguments_in(self._tape.text[at:end]) or {}
            return end
        end = (yield from self._junk(at)) if self._wrapped and self.marked else at
        if end > at and self._arguments is None:
            self._name = ""
        return end

    def leave(self, cut: bool) -> None:
        """Ends with the last tag; an invoke before other text is no call."""
        if self._arguments is None and not (self.marked and (cut or self._wrapped)):
            self._name = ""
        self._finish()

    def _finish(self) -> None:
        if self._name:
            self.calls.append(LeakedCall(self._name, unwrapped(self._arguments or {})))
        self._name, self._arguments, self._open = "", None, False

    def _junk(self, at: int) -> Steps[int]:
        """Where the marked tag is that closes what can be no argument; else the same place."""
        here, last = at, at + _JUNK_LENGTH
        if (yield from self._tape.character(at)) == "`":  # it is the tag in code, before prose
            return at
        while here < last:
            here = yield from self._tape.find(ANGLE, here, last - here)
            tag = yield from tag_at(self._tape, here)
            if (tag and tag.marked) or here >= self._tape.end:
                return here if tag and tag.closes else at
            here += 1
        return at

    def _parameter(self, tag: Tag) -> Steps[int]:
        text, past = yield from self._value(tag)
        self._arguments = self._arguments or {}
        if name := tag.attributes.get("name", ""):
            read = _VALUES.get(tag.attributes.get("string", "").lower(), Written)
            self._arguments[name] = read(text)
        return past

    def _value(self, opened: Tag) -> Steps[tuple[str, int]]:
        """The value behind a tag, and where to go on.

        A marked value is ended by a marked tag. Others may be part of it, so the first that closes
        anything counts only where the value has no closing tag of its own.
        """
        tape, at, plain = self._tape, opened.end, None
        while (at := (yield from tape.find(ANGLE, at))) < tape.end:
            tag = yield from tag_at(tape, at)
            if tag and (tag.marked or (tag.ends_value and not opened.marked)):
                return self._between(opened, tag if tag.closes_value else plain or tag)
            if tag and tag.closes:
                plain = plain or tag
            if not tag and tape.cut(at, _CLOSING):
                break
            at = tag.end if tag else at + 1
        if plain:
            return self._between(opened, plain)
        return tape.text[opened.end : at].rstrip(), tape.end

    def _between(self, opened: Tag, tag: Tag) -> tuple[str, int]:
        text = self._tape.text[opened.end : tag.start]
        return (text, tag.end) if tag.closes_value else (text.rstrip(), tag.start)  # layout
