"""The JSON values of a file, one by one, so that a large export is never in memory as a whole."""

import codecs
import json
from collections.abc import Iterator
from typing import Any, Protocol

from kemem.errors import Exhausted, InvalidArgument
from kemem.imports.files import MAX_WHOLE
from kemem.imports.items import wrong

CHUNK = 1 << 16  # bytes
_NEAR_END = 16  # characters: an error so near to the end of what was read may be a cut


class Stream(Protocol):
    """What is read of a file."""

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes."""

    def readline(self, size: int = -1, /) -> bytes:
        """The next line, or so many bytes of it."""


def json_values(stream: Stream, name: str) -> Iterator[tuple[str, Any]]:
    """The values of a file, each with its place: a value a line, or the items of a long list.

    Otherwise the whole file is one value.
    """
    number, raw = 0, b"\n"
    while raw.endswith(b"\n") and not raw.strip():
        number, raw = number + 1, stream.readline(CHUNK)
    head = raw.removeprefix(codecs.BOM_UTF8).lstrip()
    is_list = head.startswith(b"[") and head[1:].lstrip()[:1] != b'"'
    if is_list:
        yield from _items(_Text(stream, raw, name, number))
        return
    if raw and not raw.endswith(b"\n"):
        raw += stream.readline(MAX_WHOLE)
    yield from _lines(stream, raw, name, number)


def _check_size(size: int, place: str) -> None:
    """Refuse a value that is larger than what may be in memory."""
    if size > MAX_WHOLE:
        raise Exhausted(f"{place}: a value must be at most {MAX_WHOLE >> 20} MiB")


def _lines(stream: Stream, raw: bytes, name: str, number: int) -> Iterator[tuple[str, Any]]:
    """A value in each line; where the first line only opens one, the file is that value."""
    is_first = True
    while raw:
        place = f"{name}:{number}"
        _check_size(len(raw), place)
        try:
            value = json.loads(raw) if raw.strip() else None
        except (ValueError, RecursionError) as error:
            if not is_first or raw.strip()[-1:] not in b"[{,":
                raise wrong(place, f"not JSON: {error}") from None
            yield place, _whole(raw + stream.read(MAX_WHOLE), place)
            return
        if raw.strip():
            yield place, value
            is_first = False
        number, raw = number + 1, stream.readline(MAX_WHOLE + 1)


def _whole(raw: bytes, place: str) -> Any:
    _check_size(len(raw), place)
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise wrong(place, f"not JSON: {error}") from None


def _items(text: "_Text") -> Iterator[tuple[str, Any]]:
    """The items of a list, of the next list, and so on."""
    while text.peek():
        if not text.take("["):
            yield text.place, text.value()
            continue
        number = 0
        while not text.take("]"):
            number += 1
            place = f"{text.place}: item {number}"
            yield place, text.value()
            if text.take(","):
                if text.peek() == "]":
                    raise text.wrong("Expecting value after a comma")
            elif text.peek() != "]":
                raise text.wrong("Expecting ',' or ']'")


class _Text:
    """A stream of JSON, of which only what is being read is in memory."""

    def __init__(self, stream: Stream, raw: bytes, name: str, line: int) -> None:
        self._stream, self._name, self._line = stream, name, line
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._json = json.JSONDecoder()
        self._text, self._at, self._is_over = "", 0, False
        self._append(raw)

    @property
    def place(self) -> str:
        """Where the next value begins."""
        return f"{self._name}:{self._line + self._text.count(chr(10), 0, self._at)}"

    def wrong(self, reason: object) -> InvalidArgument:
        """The error of what cannot be read."""
        return wrong(self.place, f"not JSON: {reason}")

    def peek(self) -> str:
        """The next character that is not blank; "" at the end."""
        while True:
            rest = len(self._text)
            while self._at < rest and self._text[self._at] in " \t\r\n":
                self._at += 1
            if self._at < rest or not self._more():
                return self._text[self._at : self._at + 1]

    def take(self, character: str) -> bool:
        """Whether the next character is this one; then it is read."""
        is_next = self.peek() == character
        self._at += is_next
        return is_next

    def value(self) -> Any:
        """The next value."""
        self.peek()
        while True:
            try:
                value, end = self._json.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                is_cut = error.pos >= len(self._text) - _NEAR_END
                is_cut = is_cut or error.msg.startswith("Unterminated string")
                if not (is_cut and self._more()):
                    raise self.wrong(error) from None
            except RecursionError as error:
                raise self.wrong(error) from None
            else:
                is_number = isinstance(value, int | float) and end == len(self._text)
                if not (is_number and self._more()):  # or the rest of its digits may follow
                    self._at = end
                    return value

    def _more(self) -> bool:
        """Read on, twice as much where a value is long; False at the end."""
        if self._is_over:
            return False
        _check_size(len(self._text) - self._at, self.place)
        self._append(self._stream.read(max(CHUNK, len(self._text) - self._at)))
        return True

    def _append(self, raw: bytes) -> None:
        self._is_over = not raw
        try:
            added = self._decoder.decode(raw, final=not raw)
        except UnicodeDecodeError as error:
            raise wrong(self.place, f"not UTF-8: {error.reason}") from None
        self._line += self._text.count("\n", 0, self._at)
        self._text, self._at = self._text[self._at :] + added, 0
