"""A text that is still being written, read by steps that wait where it is not there yet.

A reader is a generator: it goes on where it stood when more text has come, so that no character
is read twice and what is read does not depend on the pieces that the text comes in.
"""

import re
from collections.abc import Generator, Iterable
from typing import TypeVar

_T = TypeVar("_T")
Steps = Generator[None, None, _T]

BARS = "|｜‖∥│┃¦"
SPACE = re.compile(r"\s*+")
ANGLE = re.compile("[<＜]")
_MARK_LENGTH = 80  # with the spaces and bars in between
_SUFFIX = ":opensource>"  # of Hunyuan's tags
_LOOK_AHEAD = 4
_IGNORED = BARS + "_▁-"
_NOTHING = rf"[\s{_IGNORED}]"
_PLAIN = dict.fromkeys(_IGNORED, "") | {"＜": "<", "＞": ">"}


def plain(text: str) -> str:
    """A mark without what models add to it or lose from it.  "<｜tool▁calls >" -> "<toolcalls>" """
    return "".join(_PLAIN.get(it, it) for it in text if not it.isspace()).lower()


def _begun(marks: Iterable[str], length: int) -> str:
    """A pattern for where one of the marks may begin, as far as so many characters tell."""
    behind: dict[str, set[str]] = {}
    for mark in marks:
        behind.setdefault(mark[:1], set()).add(mark[1:])
    if length == 0 or "" in behind:
        return ""
    firsts = {"[<＜]" if it == "<" else re.escape(it): rest for it, rest in behind.items()}
    return "|".join(
        rf"{first}(?i:(?={_NOTHING}*+(?:\Z|{_begun(rest, length - 1)})))"
        for first, rest in firsts.items()
    )


class Marks:
    """Marks that are known again in any spelling."""

    def __init__(self, *marks: str) -> None:
        spelled = [plain(mark) for mark in marks]
        self.whole = {mark: mark for mark in spelled}
        self.whole |= {mark.replace(">", _SUFFIX): mark for mark in spelled}
        self.begun = {mark[:length] for mark in self.whole for length in range(1, len(mark))}
        self.first = re.compile(_begun(self.whole, _LOOK_AHEAD))


class Tape:
    """The text so far."""

    def __init__(self) -> None:
        self.text = ""
        self.end = 0  # of what can be read now
        self.closed = False  # no more will come
        self.short = False  # somebody wanted more than there is
        self.limit: int | None = None  # where the text ends for a reader, whatever follows

    def add(self, piece: str) -> None:
        """More text has come."""
        self.text += piece
        self.stop_at(self.limit)

    def drop(self, length: int) -> None:
        """So much is not needed any more: places count from there."""
        self.text = self.text[length:]
        self.stop_at(None)

    def stop_at(self, limit: int | None) -> None:
        """Readers see nothing beyond a place."""
        self.limit = limit
        self.end = len(self.text) if limit is None else min(len(self.text), limit)

    def more(self) -> Steps[bool]:
        """Waits for more text; False where none can come."""
        known = self.end
        while self.end == known and known != self.limit and not self.closed:
            yield
        self.short |= self.end == known
        return self.end > known

    def room(self, at: int, length: int) -> Steps[int]:
        """Waits until so much is there, and says where it ends."""
        while self.end < at + length and (yield from self.more()):
            pass
        return min(self.end, at + length)

    def character(self, at: int) -> Steps[str]:
        """The character at a place, none at the end of the text."""
        end = yield from self.room(at, 1)
        return self.text[at:end]

    def run(self, pattern: re.Pattern[str], at: int) -> Steps[int]:
        """Where characters of a kind end that begin here."""
        while True:
            match = pattern.match(self.text, at, self.end)
            at = match.end() if match else at
            if at < self.end or not (yield from self.more()):
                return at

    def find(self, pattern: re.Pattern[str], at: int, within: int | None = None) -> Steps[int]:
        """Where the next character of a kind is; else the end, of the text or of the search."""
        last = None if within is None else at + within
        while True:
            end = self.end if last is None else min(self.end, last)
            if match := pattern.search(self.text, at, end):
                return match.start()
            at = end
            if at == last or not (yield from self.more()):
                return at

    def mark(self, at: int, marks: Marks) -> Steps[tuple[str, int]]:
        """The longest mark that begins here and its end; ("", at) where none does."""
        seen, found = "", ("", at)
        for here in range(at, at + _MARK_LENGTH):
            if here >= self.end and not (yield from self.more()):
                break
            seen += plain(self.text[here])
            if seen in marks.whole:
                found = marks.whole[seen], here + 1
            if seen not in marks.begun:
                break
        return found

    def until(
        self, marks: Marks, at: int, within: int | None = None
    ) -> Steps[tuple[int, str, int]]:
        """Where the next mark begins, which it is and where it ends; none: where the text ends."""
        last = None if within is None else at + within
        while True:
            start = yield from self.find(marks.first, at, None if last is None else last - at)
            if start in (self.end, last):
                return start, "", start
            mark, end = yield from self.mark(start, marks)
            if mark:
                return start, mark, end
            if self.cut(start, marks):
                return start, "", self.end
            at = start + 1

    def cut(self, at: int, marks: Marks) -> bool:
        """Whether the text ends in a mark that begins here."""
        if not (self.closed or self.end == self.limit) or self.end - at >= _MARK_LENGTH:
            return False
        text = self.text[at : self.end]
        return plain(text[:1]) != "" and plain(text) in marks.begun
