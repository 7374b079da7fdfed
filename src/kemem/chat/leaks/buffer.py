"""Incremental parsing: a buffer of streamed text, read by generators that wait for more of it.

A reader is a generator: it resumes where it stopped when more text has come. No character is read
twice, and the result does not depend on how the text was split into chunks.
"""

import re
from collections.abc import Generator, Iterable
from typing import TypeVar

_T = TypeVar("_T")
Steps = Generator[None, None, _T]

BARS = "|｜‖∥│┃¦"
SPACE = re.compile(r"\s*+")
ANGLE = re.compile("[<＜]")
_MARKER_LENGTH = 80  # with the spaces and bars in between
_SUFFIX = ":opensource>"  # of Hunyuan's tags
_LOOKAHEAD = 4
_IGNORED = BARS + "_▁-"
_FILLER = rf"[\s{_IGNORED}]"
_NORMAL = dict.fromkeys(_IGNORED, "") | {"＜": "<", "＞": ">"}


def normalize(text: str) -> str:
    """A marker without what models add or lose.  "<｜tool▁calls >" -> "<toolcalls>" """
    return "".join(_NORMAL.get(it, it) for it in text if not it.isspace()).lower()


def _prefix_pattern(markers: Iterable[str], length: int) -> str:
    """A pattern for where one of the markers may begin, judged by so many characters."""
    tails: dict[str, set[str]] = {}
    for marker in markers:
        tails.setdefault(marker[:1], set()).add(marker[1:])
    if length == 0 or "" in tails:
        return ""
    heads = {"[<＜]" if it == "<" else re.escape(it): rest for it, rest in tails.items()}
    return "|".join(
        rf"{head}(?i:(?={_FILLER}*+(?:\Z|{_prefix_pattern(rest, length - 1)})))"
        for head, rest in heads.items()
    )


class MarkerSet:
    """Markers, recognised in any spelling: other bars, spaces, underscores, case."""

    def __init__(self, *markers: str) -> None:
        normal = [normalize(marker) for marker in markers]
        self.complete = {it: it for it in normal} | {it.replace(">", _SUFFIX): it for it in normal}
        self.prefixes = {it[:length] for it in self.complete for length in range(1, len(it))}
        self.start = re.compile(_prefix_pattern(self.complete, _LOOKAHEAD))


class StreamBuffer:
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
