"""Lives: what people tell an assistant over months, and questions about it, with their answers.

The files in `bench/data/lives` say in a plain format who said what and when, which message makes
which untrue, and which message answers a question; `README.md` there describes it.
"""

import random
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from bench import truth_systems
from bench.truth_systems import Message

LIVES = Path(__file__).parent / "data" / "lives"
STRANGERS = LIVES.with_name("strangers")  # lives that nothing is learned from
_LIFE = re.compile(r"## (en|zh) (\w+)")
_SESSION = re.compile(r"@ (\d{4}-\d\d-\d\d) (\d\d:\d\d)")
_MESSAGE = re.compile(r"([ua])(?:\[([A-Z])(?:>([A-Z, ]+))?\])?: ?(.*)")
_QUESTION = re.compile(r"\? ?([\d: -]+?) ?\| ?(.*?) ?\| ?([-A-Z/+ ]+?) ?(?:\| ?stale ?([A-Z, ]*))?")
_PAUSE = timedelta(minutes=2)  # between two messages
_HOURS = {"en": "+00:00", "zh": "+08:00"}


@dataclass(frozen=True, slots=True)
class Asked:
    """A question; `hops` are messages by their places, one of each is needed, none: never said."""

    text: str
    now: datetime
    hops: tuple[frozenset[int], ...]
    stale: frozenset[int]

    @property
    def gold(self) -> frozenset[int]:
        return frozenset().union(*self.hops)


@dataclass(slots=True)
class Life:
    """One person's messages and the questions about them."""

    name: str
    language: str
    category: str
    messages: list[Message] = field(default_factory=list)
    questions: list[Asked] = field(default_factory=list)
    endings: list[tuple[int, int]] = field(default_factory=list)  # what makes what untrue


def read_lives(folder: Path = LIVES) -> list[Life]:
    """All lives of a folder."""
    return [life for path in sorted(folder.glob("*.txt")) for life in _parse(path)]


def _parse(path: Path) -> Iterator[Life]:
    life: Life | None = None
    letters, at, sessions = dict[str, int](), datetime.min, 0
    for number, raw in enumerate(path.read_text("utf-8").splitlines(), 1):
        line = raw.strip()
        if match := _LIFE.fullmatch(line):
            if life:
                yield life
            life = Life(f"{path.stem}:{number}", match[1], match[2])
            letters, sessions = {}, 0
        elif not line:
            continue
        elif life is None:
            raise ValueError(f"{path.name}:{number}: no life has begun")
        elif match := _SESSION.fullmatch(line):
            at = datetime.fromisoformat(f"{match[1]}T{match[2]}:00{_HOURS[life.language]}")
            sessions += 1
        elif match := _MESSAGE.fullmatch(line):
            place = len(life.messages)
            if match[2]:
                letters[match[2]] = place
            ended = re.findall("[A-Z]", match[3] or "")
            life.endings += [(place, letters[letter]) for letter in ended]
            role = "user" if match[1] == "u" else "assistant"
            life.messages.append(Message(role, match[4], at, f"s{sessions}"))
            at += _PAUSE
        elif match := _QUESTION.fullmatch(line):
            life.questions.append(_asked(match, letters, life.language))
        else:
            raise ValueError(f"{path.name}:{number}: not a line of a life: {line!r:.80}")
    if life:
        yield life


def _asked(match: re.Match[str], letters: dict[str, int], language: str) -> Asked:
    now = datetime.fromisoformat(f"{match[1].replace(' ', 'T')}:00{_HOURS[language]}")
    hops = [] if match[3] == "-" else match[3].split("+")
    places = (frozenset(letters[it.strip()] for it in hop.split("/")) for hop in hops)
    stale = frozenset(letters[letter] for letter in re.findall("[A-Z]", match[4] or ""))
    asked = Asked(match[2], now, tuple(places), stale)
    return Asked(match[2], now, asked.hops, stale - asked.gold)


def in_haystack(life: Life, others: Sequence[Life], sessions: int, chance: random.Random) -> Life:
    """A life among sessions of other lives in which nothing is told that a question is about."""
    hay: dict[str, list[Message]] = defaultdict(list)
    for other in others:
        if other.language != life.language or other.name == life.name:
            continue
        told = {place for it in other.questions for place in it.gold | it.stale}
        told |= {place for pair in other.endings for place in pair}
        telling = {other.messages[place].session for place in told}
        for it in other.messages:
            if it.session not in telling:
                hay[f"{other.name} {it.session}"].append(it)
    names = chance.sample(sorted(hay), min(sessions, len(hay)))
    more = [replace(it, session=name) for name in names for it in hay[name]]
    return replace(life, messages=[*life.messages, *more])


def read_truth(path: Path) -> list[Life]:
    """The lives of a file in the format of the truth set, with the places of the answers."""
    lives = []
    for it in truth_systems.read_truth(path):
        life = Life(it.name, it.language, it.category, [*it.messages])
        for asked in it.questions:
            hops = tuple(_containing(life, texts) for texts in asked.hop_texts)
            stale = _containing(life, asked.stale_texts)
            life.questions.append(Asked(asked.text, asked.now, hops, stale))
        lives.append(life)
    return lives


def _containing(life: Life, strings: Sequence[str]) -> frozenset[int]:
    texts = [it.content.casefold() for it in life.messages]
    folded = [it.casefold() for it in strings]
    return frozenset(at for at, text in enumerate(texts) if any(it in text for it in folded))
