"""A made-up chat corpus, the same on every machine: who said what, and what is asked about it."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import accumulate

from bench.phrases import CHINESE, ENGLISH, MIXED, QUESTIONS, WORDS

SEED = 20260126
FILLER_SIZE = 1_000  # messages of each user who is there only to make the corpus large
SESSION_SIZE = 50
BEGINNING = datetime(2026, 1, 26, 10, 47, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Message:
    message_id: str
    session_id: str
    role: str
    ts: str  # RFC 3339
    text: str


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages of one user that are added by one call."""

    user_id: str
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Share:
    """The rows of the corpus that belong to one user."""

    user_id: str
    start: int
    stop: int
    measured: bool  # False for a filler

    @property
    def size(self) -> int:
        return self.stop - self.start


class Words(dict[str, str]):
    """Answers `words["food"]` with a word of that list; word k is k times rarer than the first."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self._chance = chance
        self._words = {gap: words.split() for gap, words in WORDS.items()}
        self._weights = {
            gap: list(accumulate(1 / rank for rank in range(1, len(words) + 1)))
            for gap, words in self._words.items()
        }

    def __missing__(self, gap: str) -> str:
        if gap == "code":
            return f"{self._chance.choice(('OPS', 'BUG', 'ORD'))}-{self._chance.randrange(10_000)}"
        if gap == "号码":
            return str(self._chance.randrange(10**7, 10**8))
        if gap in ("价钱", "price"):
            return str(self._chance.randrange(10, 3_000))
        return self._chance.choices(self._words[gap], cum_weights=self._weights[gap])[0]


def texts(count: int) -> list[str]:
    """The first `count` messages: 40 % Chinese, 40 % English, 20 % both in one sentence."""
    chance = random.Random(SEED)
    words = Words(chance)
    kinds = chance.choices((CHINESE, ENGLISH, MIXED), weights=(2, 2, 1), k=count)
    return [chance.choice(kind).format_map(words) for kind in kinds]


def questions(count: int) -> list[str]:
    """`count` different questions, so that a cache of answers helps nobody."""
    chance = random.Random(SEED + 1)
    words = Words(chance)
    asked: dict[str, None] = {}
    while len(asked) < count:
        asked[chance.choice(QUESTIONS).format_map(words)] = None
    return list(asked)


def layout(total: int, measured: Sequence[int]) -> list[Share]:
    """Deals `total` rows to the measured users, smallest first, and the rest to fillers."""
    shares: list[Share] = []
    start = 0
    for size in sorted(measured):
        shares.append(Share(f"user_of_{size}", start, start + size, measured=True))
        start += size
    if start > total:
        raise ValueError(f"the measured users need {start} messages, the corpus has {total}")
    for number, begin in enumerate(range(start, total, FILLER_SIZE)):
        stop = min(begin + FILLER_SIZE, total)
        shares.append(Share(f"filler_{number}", begin, stop, measured=False))
    return shares


def within(shares: Sequence[Share], limit: int) -> list[Share]:
    """As many whole users as fit into `limit` messages, the measured ones before the fillers."""
    kept: list[Share] = []
    room = limit
    for share in shares:
        if share.size <= room:
            kept.append(share)
            room -= share.size
    return kept


def message(row: int, user_row: int, text: str) -> Message:
    return Message(
        message_id=f"m{row:07d}",
        session_id=f"s{user_row // SESSION_SIZE:05d}",
        role="assistant" if user_row % 2 else "user",
        ts=(BEGINNING + timedelta(minutes=user_row)).isoformat().replace("+00:00", "Z"),
        text=text,
    )


def row_of(message_id: str) -> int:
    """The corpus row that a message id names."""
    return int(message_id[1:])


def batches(share: Share, size: int, all_texts: Sequence[str]) -> Iterator[Batch]:
    """The messages of one user in calls of `size`."""
    for start in range(share.start, share.stop, size):
        rows = range(start, min(start + size, share.stop))
        yield Batch(
            share.user_id,
            tuple(message(row, row - share.start, all_texts[row]) for row in rows),
        )


def shuffled_batches(shares: Sequence[Share], size: int, all_texts: Sequence[str]) -> list[Batch]:
    """All users' batches in a mixed order: a store that keeps arrival order gains nothing.

    The order is the same in every process, and each user's own batches stay in time order.
    """
    waiting = [batches(share, size, all_texts) for share in shares]
    turns = [
        number for number, share in enumerate(shares) for _ in range(share.start, share.stop, size)
    ]
    random.Random(SEED + 2).shuffle(turns)
    return [next(waiting[number]) for number in turns]
