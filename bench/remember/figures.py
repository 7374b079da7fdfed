"""What a run is asked to do and what it found, as records that travel as JSON."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

WARM_UP = 10  # adds before the clock starts; what they ask of the model is counted

# Deps of a run. The stores of a part name it as their model, so the server knows who asks.
VERBATIM = "verbatim"
INFER = "infer"
LOAD = "load"
FULL = "full"  # after loading: the searches, and more adds


@dataclass(frozen=True, slots=True)
class Plan:
    """The sizes and limits of a run, the same for both systems."""

    verbatim_adds: int = 300
    inferred_adds: int = 200
    memories: int = 10_000
    adds_when_full: int = 50
    queries: int = 100
    load_seconds: float = 240.0
    seconds: float = 45.0  # for each other part

    @property
    def told(self) -> int:
        """Messages that the parts of a run need, at most."""
        inferred = self.inferred_adds + self.adds_when_full + 2 * WARM_UP
        return max(inferred, self.verbatim_adds + WARM_UP)


QUICK = Plan(
    verbatim_adds=60,
    inferred_adds=40,
    memories=10_000,
    adds_when_full=15,
    queries=30,
    load_seconds=60.0,
    seconds=12.0,
)


@dataclass(frozen=True, slots=True)
class Adds:
    """Single adds of one part of the run."""

    part: str
    adds: int
    wall_p50_ms: float
    wall_mean_ms: float
    cpu_mean_ms: float
    made: float  # memories for each add


@dataclass(frozen=True, slots=True)
class Searches:
    """One kind of search by the user whose memories were loaded."""

    kind: str
    queries: int
    first_ms: float
    wall_p50_ms: float
    wall_p95_ms: float
    cpu_p50_ms: float
    found: float  # mean number of answers; 10 were asked for


@dataclass(frozen=True, slots=True)
class Findings:
    """All that one system's process has to say."""

    system: str
    versions: dict[str, str]
    adds: tuple[Adds, ...]
    memories: int
    load_seconds: float
    searches: tuple[Searches, ...]
    computed_vectors: int  # texts that were missing from the table; 0 in a fair run

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self), ensure_ascii=False, indent=2))

    @classmethod
    def read(cls, path: Path) -> "Findings":
        fields = json.loads(path.read_text())
        fields["adds"] = tuple(Adds(**row) for row in fields["adds"])
        fields["searches"] = tuple(Searches(**row) for row in fields["searches"])
        return cls(**fields)


@dataclass(frozen=True, slots=True)
class Asked:
    """What the model was asked during one part of a run."""

    calls: int
    summaries: int  # of these calls
    characters: int
    tokens: int
    bare_p50_ms: float  # the same requests by a bare HTTP client
    bare_mean_ms: float


@dataclass(frozen=True, slots=True)
class Job:
    """What a worker process is told."""

    system: str
    plan: Plan
    material: str  # folder with the texts and vectors
    workspace: str  # folder for the system's own files
    base_url: str  # of the model

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: Path) -> "Job":
        fields = json.loads(path.read_text())
        fields["plan"] = Plan(**fields["plan"])
        return cls(**fields)
