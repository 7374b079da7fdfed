"""Votes on hits: what an operator thought of them, and what all votes together say."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import blake2b
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from kemem.memory import AsyncMemory
from kemem.records import Line, Micros

VOTE = "vote"  # the kind of line
KEPT = 20_000  # votes
WORST = 20  # questions
LONGEST = 2_000  # characters of one

Id = Annotated[str, Field(min_length=1, max_length=64)]


class Vote(BaseModel):
    """What somebody thinks of one hit of a search."""

    model_config = ConfigDict(frozen=True)

    query: str = Field(min_length=1, max_length=LONGEST)
    memory_id: Id
    vote: Literal["up", "down"]
    user_id: str = Field("", max_length=64)
    rank: int = Field(ge=1, le=1_000)
    score: float = Field(0.0, ge=0, le=1)
    settings: dict[str, Any] = Field(default_factory=dict, max_length=20)

    @property
    def mode(self) -> str:
        """The mode of the search."""
        return str(self.settings.get("mode", "hybrid"))

    @property
    def asked_with(self) -> str:
        """The settings of the search as one line; how many hits were wanted moves none of them."""
        rest = {name: it for name, it in self.settings.items() if name not in ("mode", "limit")}
        return ", ".join([self.mode, *(f"{name}={rest[name]}" for name in sorted(rest))])

    def to_line(self, now: Micros) -> Line:
        """The vote as it is kept; who votes again on the same hit has changed their mind."""
        same = self.model_dump_json(include={"query", "memory_id", "user_id", "settings"})
        id_ = blake2b(same.encode(), digest_size=16).hexdigest()
        return Line(VOTE, id_, now, self.model_dump(), self.user_id)


async def keep_vote(memory: AsyncMemory, vote: Vote, now: Micros) -> None:
    """Put a vote into the journal, where only the newest stay."""
    await memory.journal.note([vote.to_line(now)])
    await memory.journal.trim(VOTE, keep=KEPT)


@dataclass(slots=True)
class Opinion:
    """How many votes there are of each kind, on something."""

    subject: Any
    up: int = 0
    down: int = 0

    @property
    def n(self) -> int:
        return self.up + self.down

    @property
    def share(self) -> float:
        """Of those that were up."""
        return self.up / self.n if self.n else 0.0


@dataclass(frozen=True, slots=True)
class Asked:
    """A question that votes were cast on, and how it was asked."""

    query: str
    user_id: str
    mode: str


@dataclass(frozen=True, slots=True)
class Report:
    """What all votes together say."""

    all: Opinion
    days: Sequence[Opinion] = field(default=())  # oldest first
    ranks: Sequence[Opinion] = field(default=())
    settings: Sequence[Opinion] = field(default=())
    worst: Sequence[Opinion] = field(default=())  # of Asked, most votes down first


async def report(memory: AsyncMemory) -> Report:
    """What the votes say by day, by rank, by the settings of the search, and by question."""
    lines = await memory.journal.lines(VOTE, limit=KEPT)
    votes = [(line.ts, Vote.model_validate(dict(line.body))) for line in lines]
    asked = _by(votes, lambda _, it: Asked(it.query, it.user_id, it.mode))
    worst = sorted(filter(lambda it: it.down, asked), key=lambda it: (-it.down, it.up))
    counts = Counter(vote.vote for _, vote in votes)
    return Report(
        Opinion("all", counts["up"], counts["down"]),
        days=sorted(_by(votes, lambda ts, _: day_of(ts)), key=lambda it: it.subject),
        ranks=sorted(_by(votes, lambda _, it: it.rank), key=lambda it: it.subject),
        settings=sorted(_by(votes, lambda _, it: it.asked_with), key=lambda it: -it.n),
        worst=worst[:WORST],
    )


def _by(
    votes: Iterable[tuple[Micros, Vote]], key: Callable[[Micros, Vote], Hashable]
) -> list[Opinion]:
    found: dict[Hashable, Opinion] = {}
    for ts, vote in votes:
        subject = key(ts, vote)
        opinion = found.setdefault(subject, Opinion(subject))
        if vote.vote == "up":
            opinion.up += 1
        else:
            opinion.down += 1
    return list(found.values())


def day_of(ts: Micros) -> datetime:
    """When the day began, by the server's own time zone."""
    return datetime.fromtimestamp(ts / 1e6).replace(hour=0, minute=0, second=0, microsecond=0)
