"""The lines of a file that may hold anything, looked through without holding it."""

from collections.abc import Iterable, Iterator, Sequence

LONGEST_LINE = 1 << 16  # bytes; what is longer is looked through in parts
SHOWN = 500  # characters


def line_with(words: Sequence[str], chunks: Iterable[bytes]) -> str | None:
    """The first line of a text that has all words, which are casefolded; None where none has."""
    for raw in lines(chunks):
        if b"\0" in raw:
            return None  # no text
        line = raw.decode("utf-8", "replace")
        folded = line.casefold()
        if all(word in folded for word in words):
            start = max(0, folded.find(words[0]) - SHOWN // 2)
            return line[start : start + SHOWN].strip()
    return None


def lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Lines of a stream; one that is too long comes in parts."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole
        while len(rest) > LONGEST_LINE:
            yield rest[:LONGEST_LINE]
            rest = rest[LONGEST_LINE:]
    if rest:
        yield rest
