"""Turns of conversations, and what is to be learned from each of them.

The README beside them describes the format of the files.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

HERE = Path(__file__).parent
_HEADING = re.compile(r"## (en|zh) (\w+)")
_NOW = re.compile(r"now (\d{4}-\d\d-\d\d)\b.*")
_KNOWN = re.compile(r"(m\d) (.+)")
_MESSAGE = re.compile(r"([ua]): ?(.*)")
_FACT = re.compile(r"([+~!]) (.+?)(?: @ (\d{4}-\d\d-\d\d))?")
_FATE = re.compile(r"(end|keep) (m\d)")


@dataclass(frozen=True, slots=True)
class Gold:
    """A statement by what any wording of it contains: one of each group of words."""

    words: tuple[tuple[str, ...], ...]
    day: date | None = None

    def fits(self, text: str) -> bool:
        folded = text.casefold()
        return all(any(it in folded for it in group) for group in self.words)


@dataclass(slots=True)
class Case:
    """Known memories, what is said, what is to be learned and what must not be."""

    name: str
    language: str
    kind: str
    now: date = date.min
    known: dict[str, str] = field(default_factory=dict)
    messages: list[tuple[str, str]] = field(default_factory=list)  # role and text
    gold: list[Gold] = field(default_factory=list)
    harmless: list[Gold] = field(default_factory=list)  # true, but nobody needs it
    wrong: list[Gold] = field(default_factory=list)
    ended: set[str] = field(default_factory=set)


def read_cases(folder: Path = HERE) -> list[Case]:
    """All cases of a folder."""
    return [case for path in sorted(folder.glob("facts_*.txt")) for case in _parse(path)]


def _parse(path: Path) -> Iterator[Case]:
    case: Case | None = None
    for number, raw in enumerate(path.read_text("utf-8").splitlines(), 1):
        line = raw.strip()
        if match := _HEADING.fullmatch(line):
            if case:
                yield case
            case = Case(f"{path.stem}:{number}", match[1], match[2])
        elif line and (case is None or not _read(line, case)):
            raise ValueError(f"{path.name}:{number}: not a line of a case: {line!r:.80}")
    if case:
        yield case


def _read(line: str, case: Case) -> bool:
    if match := _NOW.fullmatch(line):
        case.now = date.fromisoformat(match[1])
    elif match := _KNOWN.fullmatch(line):
        case.known[match[1]] = match[2]
    elif match := _MESSAGE.fullmatch(line):
        case.messages.append(("user" if match[1] == "u" else "assistant", match[2]))
    elif match := _FACT.fullmatch(line):
        kinds = {"+": case.gold, "~": case.harmless, "!": case.wrong}
        kinds[match[1]].append(_gold(match[2], match[3]))
    elif match := _FATE.fullmatch(line):
        case.ended |= {match[2]} if match[1] == "end" else set()
    else:
        return line == "none"
    return True


def _gold(words: str, day: str | None) -> Gold:
    groups: Sequence[str] = words.casefold().split("&")
    options = tuple(tuple(it.strip() for it in group.split("|")) for group in groups)
    return Gold(options, date.fromisoformat(day) if day else None)
