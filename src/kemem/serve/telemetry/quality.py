"""Quality over time, kept in the journal: runs of benchmarks, and votes on hits of searches."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from kemem.errors import InvalidArgument
from kemem.memory import AsyncMemory
from kemem.records import Line, Micros
from kemem.records.times import to_micros

RUN, RUNS_KEPT = "run", 10_000  # the kind of line, and how many are kept
VOTE, VOTES_KEPT = "vote", 20_000
MAX_QUERY = 2_000  # characters

Name = Annotated[str, Field(min_length=1, max_length=64)]
Figure = Annotated[float, Field(allow_inf_nan=False)]


class Run(BaseModel):
    """What one run of a benchmark measured on a set of questions, or on one category of it."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    at: str  # RFC 3339
    name: Name  # of what was measured: "search", "recall"
    set: Name
    language: Literal["zh", "en"]
    category: Name = "all"
    n: int = Field(ge=1)  # questions
    metrics: dict[Name, Figure] = Field(min_length=1, max_length=20)  # {"recall@10": 0.81}
    version: str = Field("", max_length=64)
    settings: dict[str, Any] = Field(default_factory=dict, max_length=20)

    @property
    def ts(self) -> Micros:
        """When it was made."""
        return to_micros(self.at, "at")


class Vote(BaseModel):
    """What somebody thinks of one hit of a search."""

    model_config = ConfigDict(frozen=True)

    query: str = Field(min_length=1, max_length=MAX_QUERY)
    memory_id: Name
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
    def settings_text(self) -> str:
        """The settings of the search as one line; its limit changes no rank and is left out."""
        rest = sorted((name, it) for name, it in self.settings.items() if name != "mode")
        return ", ".join([self.mode, *(f"{name}={it}" for name, it in rest if name != "limit")])


_Runs = TypeAdapter(list[Run])


def parse_runs(text: str | bytes) -> list[Run]:
    """The runs of a file: a JSON list of them."""
    try:
        runs = _Runs.validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or "the file"
        raise InvalidArgument(f"{field}: {first['msg']} ({first['input']!r:.80})") from None
    for run in runs:
        to_micros(run.at, "at")
    return runs


async def keep_runs(memory: AsyncMemory, runs: Sequence[Run]) -> None:
    """Put runs into the journal; idempotent, as the same run again is the same line."""
    lines = [Line(RUN, _digest(run.model_dump_json()), run.ts, run.model_dump()) for run in runs]
    await memory.journal.note(lines)
    await memory.journal.trim(RUN, keep=RUNS_KEPT)


async def kept_runs(memory: AsyncMemory) -> list[Run]:
    """All runs, newest first."""
    lines = await memory.journal.lines(RUN, limit=RUNS_KEPT)
    return [Run.model_validate(dict(line.body)) for line in lines]


def metrics_of(runs: Iterable[Run]) -> list[str]:
    """The names of all metrics, the most frequent first."""
    counts = Counter(name for run in runs for name in run.metrics)
    return sorted(counts, key=lambda name: (-counts[name], name))


def latest(runs: Iterable[Run], metric: str) -> list[tuple[Run, float | None]]:
    """The newest run of each set and category, and its difference to the one before, if any.

    `runs` are newest first.
    """
    by_subject: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        if metric in run.metrics:
            key = (run.language, run.set, run.name, run.category)
            by_subject.setdefault(key, []).append(run)
    rows: list[tuple[Run, float | None]] = []
    for subject in sorted(by_subject, key=lambda it: (*it[:3], it[3] != "all", it[3])):
        newest, *older = by_subject[subject]
        change = newest.metrics[metric] - older[0].metrics[metric] if older else None
        rows.append((newest, change))
    return rows


async def keep_vote(memory: AsyncMemory, vote: Vote, now: Micros) -> None:
    """Put a vote into the journal; another one on the same hit replaces it."""
    same = vote.model_dump_json(include={"query", "memory_id", "user_id", "settings"})
    await memory.journal.note([Line(VOTE, _digest(same), now, vote.model_dump(), vote.user_id)])
    await memory.journal.trim(VOTE, keep=VOTES_KEPT)


async def kept_votes(memory: AsyncMemory) -> list[tuple[Micros, Vote]]:
    """All votes with their times, newest first."""
    lines = await memory.journal.lines(VOTE, limit=VOTES_KEPT)
    return [(line.ts, Vote.model_validate(dict(line.body))) for line in lines]


@dataclass(slots=True)
class Opinion:
    """How many votes there are of each kind on a subject: a day, a rank, a query."""

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


def opinions(
    votes: Iterable[tuple[Micros, Vote]], subject: Callable[[Micros, Vote], Hashable]
) -> list[Opinion]:
    """The votes counted by their subjects, the newest first."""
    by_subject: dict[Hashable, Opinion] = {}
    for ts, vote in votes:
        key = subject(ts, vote)
        opinion = by_subject.setdefault(key, Opinion(key))
        opinion.up += vote.vote == "up"
        opinion.down += vote.vote == "down"
    return list(by_subject.values())


def _digest(text: str) -> str:
    return blake2b(text.encode(), digest_size=16).hexdigest()
