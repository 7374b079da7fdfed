"""What one run is asked to do and what it found, as records that travel as JSON."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Plan:
    """The sizes and limits of a run, the same for every system but `mem0_messages`."""

    messages: int = 200_000
    users: tuple[int, ...] = (1_000, 10_000, 100_000)
    mem0_messages: int = 20_000
    ingest_messages: int = 20_000
    single_adds: int = 400
    queries: int = 100
    ingest_seconds: float = 60.0
    load_seconds: float = 480.0
    search_seconds: float = 30.0


QUICK = Plan(
    messages=12_000,
    users=(200, 2_000, 8_000),
    mem0_messages=3_000,
    ingest_messages=2_000,
    single_adds=40,
    queries=20,
    ingest_seconds=8.0,
    load_seconds=30.0,
    search_seconds=8.0,
)


@dataclass(frozen=True, slots=True)
class Ingested:
    """Adding messages in batches of one size to an empty store."""

    batch: int
    wanted: int
    stored: int
    adds: int
    seconds: float
    add_p50_ms: float
    add_p95_ms: float
    cpu_ms_per_message: float

    @property
    def per_second(self) -> float:
        return self.stored / self.seconds

    @property
    def ms_per_add(self) -> float:
        return self.seconds * 1e3 / self.adds


@dataclass(frozen=True, slots=True)
class Searched:
    """One kind of search by one user."""

    kind: str
    user_messages: int
    queries: int
    first_ms: float
    wall_p50_ms: float
    wall_p95_ms: float
    cpu_p50_ms: float
    cpu_p95_ms: float
    found: float  # mean number of answers; 10 were asked for
    recall: float | None  # of the exact ten nearest; None where nearness is not the aim


@dataclass(frozen=True, slots=True)
class Findings:
    """All that one system's process has to say."""

    system: str
    versions: dict[str, str]
    corpus: int
    load_seconds: float
    ingested: tuple[Ingested, ...]
    searched: tuple[Searched, ...]
    look_up_us: float  # processor time for one vector from the table
    computed_vectors: int  # texts that were missing from the table; 0 in a fair run

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), ensure_ascii=False, indent=2))

    @classmethod
    def read(cls, path: Path) -> "Findings":
        fields = json.loads(path.read_text())
        fields["ingested"] = tuple(Ingested(**row) for row in fields["ingested"])
        fields["searched"] = tuple(Searched(**row) for row in fields["searched"])
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class Failure:
    """A system that could not be measured, and why."""

    system: str
    reason: str


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker process is told."""

    system: str
    corpus_messages: int
    plan: Plan
    material: str  # folder with the texts and vectors
    workspace: str  # folder for the system's own files

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> "Job":
        fields = json.loads(path.read_text())
        fields["plan"]["users"] = tuple(fields["plan"]["users"])
        fields["plan"] = Plan(**fields["plan"])
        return cls(**fields)
