"""Runs of a benchmark, kept in the journal so that quality can be watched over time."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

from kemem.errors import InvalidArgument
from kemem.memory import AsyncMemory
from kemem.records import Line, Micros
from kemem.serve.http.schemas import Body
from kemem.text.times import to_micros

RUN = "run"  # the kind of line
KEPT = 10_000  # figures

Name = Annotated[str, Field(min_length=1, max_length=64)]
Figure = Annotated[float, Field(allow_inf_nan=False)]


class Run(Body):
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

    @property
    def subject(self) -> tuple[str, str, str, str]:
        """What later runs are compared by."""
        return (self.language, self.set, self.name, self.category)

    def to_line(self) -> Line:
        """The run as it is kept: the same run again is the same line."""
        whole = self.model_dump_json().encode()
        return Line(RUN, blake2b(whole, digest_size=16).hexdigest(), self.ts, self.model_dump())


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
    """Put runs into the journal, where only the newest stay."""
    await memory.journal.note([run.to_line() for run in runs])
    await memory.journal.trim(RUN, keep=KEPT)


async def kept_runs(memory: AsyncMemory) -> list[Run]:
    """All runs, newest first."""
    lines = await memory.journal.lines(RUN, limit=KEPT)
    return [Run.model_validate(dict(line.body)) for line in lines]


@dataclass(frozen=True, slots=True)
class Latest:
    """The newest run on a subject, and what it measured by one metric."""

    run: Run
    value: float
    before: float | None  # what the run before it measured

    @property
    def difference(self) -> float | None:
        """How much more than the run before; None where there was none."""
        return None if self.before is None else self.value - self.before


def metrics_of(runs: Iterable[Run]) -> list[str]:
    """The names of all metrics, the most frequent first."""
    counts: dict[str, int] = {}
    for run in runs:
        for name in run.metrics:
            counts[name] = counts.get(name, 0) + 1
    return sorted(counts, key=lambda name: (-counts[name], name))


def latest(runs: Iterable[Run], metric: str) -> list[Latest]:
    """The newest run on each subject beside the one before it; `runs` are newest first."""
    by_subject: dict[tuple[str, ...], list[Run]] = {}
    for run in runs:
        if metric in run.metrics:
            by_subject.setdefault(run.subject, []).append(run)
    rows = []
    for subject in sorted(by_subject, key=lambda it: (*it[:3], it[3] != "all", it[3])):
        newest, *older = by_subject[subject]
        before = older[0].metrics[metric] if older else None
        rows.append(Latest(newest, newest.metrics[metric], before))
    return rows
