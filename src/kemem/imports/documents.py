"""Markdown as knowledge: a document is split at its headings."""

import re
from collections.abc import Iterator

LONGEST = 2_000  # characters of a section; longer ones are split between paragraphs
SUFFIXES = frozenset({".md", ".markdown"})
_HEADING = re.compile(r" {0,3}(#{1,6})(?:\s+(.*?))?(?:\s+#+)?\s*")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_FRONT_MATTER = re.compile(r"\A---\n.*?\n(?:---|\.\.\.)\n", re.DOTALL)
_BETWEEN = " > "


def split_document(text: str) -> tuple[str, ...]:
    """The sections of a document, each below the headings that lead to it.

    "# Guide\\n## Food\\nNo chilli." -> ("Guide > Food\\n\\nNo chilli.",)
    """
    sections = []
    for headings, body in _sections(_FRONT_MATTER.sub("", text.replace("\r\n", "\n"))):
        title = _BETWEEN.join(headings)
        sections += [f"{title}\n\n{part}" if title else part for part in _parts(body)]
    return tuple(sections)


def _sections(text: str) -> Iterator[tuple[list[str], str]]:
    headings: dict[int, str] = {}  # by their level
    lines: list[str] = []
    fence = ""
    for line in text.split("\n"):
        mark = _FENCE.match(line)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        heading = None if fence or mark else _HEADING.fullmatch(line)
        if heading is None:
            lines.append(line)
            continue
        yield list(headings.values()), "\n".join(lines)
        level, lines = len(heading[1]), []
        headings = {it: title for it, title in headings.items() if it < level}
        if title := (heading[2] or "").strip():
            headings[level] = title
    yield list(headings.values()), "\n".join(lines)


def _parts(body: str) -> Iterator[str]:
    """A text in parts of at most LONGEST characters, cut between paragraphs or lines."""
    part = ""
    for piece in _pieces(body.strip()):
        if part and len(part) + len(piece) > LONGEST:
            yield part.strip()
            part = ""
        part += piece
    if part.strip():
        yield part.strip()


def _pieces(body: str) -> Iterator[str]:
    """Paragraphs; of one that is too long its lines, of such a line its beginning and so on."""
    for paragraph in re.split(r"(?<=\n)(?=\n)", body):
        if len(paragraph) <= LONGEST:
            yield paragraph
            continue
        for line in paragraph.splitlines(keepends=True):
            yield from (line[at : at + LONGEST] for at in range(0, len(line), LONGEST))
