"""RecallState: the memory of one recall's user, what is left of its budget, what it has found.

Caches are shared by recalls: bounded, with a time to live, void as soon as the store changes.
"""

import logging
import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Generic, Protocol, TypeVar

from cachetools import TTLCache

from kemem.errors import InvalidArgument, KeMemError, NotFound
from kemem.ports import Deps
from kemem.recall import schemas
from kemem.recall.results import Driver, Evidence, Limits, Recalled, Step
from kemem.recall.schemas import HandoffInput, Language, Model, SearchMemoriesInput, ToolTexts
from kemem.records import MESSAGES, NOTES, Message, Note
from kemem.records.times import to_rfc3339
from kemem.results import Hit, Item, Memories, Profile, is_over
from kemem.scope import CallScope
from kemem.text.past import is_about_past

MAX_SEARCHES_IN_A_ROW = 3
MAX_RESULTS = 10
TOOL_SECONDS = 10.0  # for one read of the store
MODEL_SHARE = 0.1  # of the time, for a model that has found nothing
# Matches that rules count: to count all takes as long as six searches. With fewer, evidence is lost
# as well, since a search looks at more candidates the more it is to return.
COUNTED = 60
_MOST = {"max_iterations": 10, "window": 1_000, "max_window": 1_000, "max_calls": 100}
_DAY = 86_400_000_000  # microseconds

log = logging.getLogger("kemem")

V = TypeVar("V")


class Cache(Generic[V]):
    """Values with a time to live; one that was stored under another mark is never served.

    `room` bounds the sum of what the values weigh.
    """

    def __init__(
        self,
        name: str,
        seconds: float,
        room: int,
        weigh: Callable[[V], int],
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.hits = self.misses = 0
        self._values: TTLCache[Hashable, tuple[str, V]] = TTLCache(
            room, seconds, timer, lambda entry: weigh(entry[1])
        )

    def get(self, key: Hashable, mark: str = "") -> V | None:
        """The value under a key, if it was stored under this mark and is still fresh."""
        entry = self._values.get(key)
        if entry is not None and entry[0] == mark:
            self.hits += 1
            return entry[1]
        self.misses += 1
        return None

    def put(self, key: Hashable, value: V, mark: str = "") -> None:
        """Keep a value in place of the last one; what is too large is not kept."""
        self._values.pop(key, None)
        try:
            self._values[key] = (mark, value)
        except ValueError:  # of cachetools: "value too large"
            return

    def __len__(self) -> int:
        return len(self._values)


class Caches:
    """Of recalls and profiles; marks are generations of the store, keys name whose a value is."""

    def __init__(self, timer: Callable[[], float] = time.monotonic) -> None:
        small, large = 1_000_000, 16_000_000  # bytes
        self.expansion = Cache[schemas.ExtractKeywordsOutput]("expansion", 300, small, _size, timer)
        self.search = Cache[Memories[Hit]]("search", 60, large, _size_of_hits, timer)
        self.content = Cache[schemas.GetMemoryDetailOutput]("content", 600, large, _size, timer)
        self.profile = Cache[Profile]("profile", 3600, large, _size_of_profile, timer)

    def __iter__(self) -> Iterator[Cache[Any]]:
        return iter((self.expansion, self.search, self.content, self.profile))


def _size(output: Model) -> int:
    return 1_000 + 2 * len(output.model_dump_json())


def _size_of_hits(hits: Memories[Hit]) -> int:
    return 1_000 + sum(2_000 + 2 * len(hit.memory) for hit in hits)


def _size_of_profile(profile: Profile) -> int:
    lines = [line for group in profile.groups for line in group.lines]
    size = sum(1_000 + 4 * len(line.memory) + 100 * len(line.sources) for line in lines)
    return 1_000 + 4 * len(profile.text) + size


class DepsProvider(Protocol):
    """Opens the store and the models behind a memory on first use."""

    async def deps(self) -> Deps: ...


class MemoryReader(Protocol):
    """What a recall reads of a memory: some methods of `AsyncMemory`, on a handle of one user."""

    @property
    def scope(self) -> CallScope: ...
    @property
    def runtime(self) -> DepsProvider: ...
    async def search(self, query: str, *args: Any, **options: Any) -> Memories[Hit]: ...
    async def get(self, memory_id: str) -> Item: ...
    async def get_all(self, *args: Any, **options: Any) -> Memories[Item]: ...
    async def sources(self, memory_id: str) -> list[Message]: ...
    async def neighbors(self, message_id: str, *args: Any, **options: Any) -> list[Message]: ...
    async def generation(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Budget:
    """How much one recall may spend."""

    max_iterations: int = 3  # rounds, each with a larger window
    window: int = 5  # messages of the conversation in the first round, if max_window allows
    max_window: int = 100
    max_calls: int = 15  # of tools, in all rounds together
    seconds: float = 60.0

    def __post_init__(self) -> None:
        for name, most in _MOST.items():
            value = getattr(self, name)
            if type(value) is not int or not 1 <= value <= most:
                raise InvalidArgument(f"{name} must be 1-{most}, not {value!r:.80}", field=name)
        seconds = self.seconds
        if type(seconds) not in (int, float) or not 0 < seconds < float("inf"):
            raise InvalidArgument(
                f"seconds must be more than 0, not {seconds!r:.80}", field="seconds"
            )


@dataclass(slots=True)
class RecallState:
    """The mutable state of one recall; none of it is shared with another recall."""

    memory: MemoryReader  # bound to one user
    deps: Deps
    caches: Caches
    budget: Budget
    question: str
    language: Language
    driver: Driver
    excluded: frozenset[str] = frozenset()  # keys that no search returns
    past: bool = False  # whether what has ended is evidence,
    past_asked: bool = False  # as the caller says, whatever the words of the question are
    on_step: Callable[[Step], None] | None = None
    tool_texts: ToolTexts = "short"  # how a model is told of the tools
    by_rules: "RecallState | None" = None  # of a model: what it can add to, and not take away
    iteration: int = 1
    windows: list[int] = field(default_factory=list)  # messages shown, round by round
    has_earlier: bool = False  # messages before those that are shown
    calls: int = 0
    searches_in_a_row: int = 0
    searches: list[SearchMemoriesInput] = field(default_factory=list)
    # As each memory was first found: a later query may quote it, which proves nothing.
    hits: dict[str, Hit] = field(default_factory=dict)
    marks: dict[str, str] = field(default_factory=dict)  # generations that the hits are of
    over: set[str] = field(default_factory=set)  # hits that have ended, and are not evidence
    cached: bool = False  # whether the current call was answered from a cache
    trace: list[Step] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    handoff: HandoffInput | None = None
    message: str = ""  # of the handoff
    evidence: list[Evidence] = field(default_factory=list)
    completed: bool = False  # the handoff was not forced by a limit
    started: float = field(default_factory=time.monotonic)
    model_seconds: float = 0.0  # that a model has taken while nothing was found

    def started_by_rules(self) -> "RecallState":
        """A recall of the same question by rules, within the same time; nobody watches it."""
        return replace(
            self,
            driver="rules",
            on_step=None,
            windows=[],
            searches=[],
            hits={},
            marks={},
            over=set(),
            trace=[],
            problems=[],
            evidence=[],
        )

    @property
    def window(self) -> int:
        """Messages of the conversation that are shown."""
        return self.windows[-1] if self.windows else 0

    @property
    def seconds_left(self) -> float:
        return max(0.0, self.budget.seconds - (time.monotonic() - self.started))

    @property
    def patience(self) -> float:
        """Seconds to wait for the model's next reply; 0 where it would not come in time.

        Until something is found, a tenth of the time is all that a model may take: rules, which
        then take over, have the rest.
        """
        if self.hits:
            limit = max(self.seconds_left / 2, min(2 * self.deps.pace.seconds, self.seconds_left))
        else:
            limit = min(MODEL_SHARE * self.budget.seconds - self.model_seconds, self.seconds_left)
        return limit if self.deps.pace.fits(limit) else 0.0

    @property
    def calls_left(self) -> int:
        return max(0, self.budget.max_calls - self.calls)

    @property
    def counts_all(self) -> bool:
        """Whether searches count all matches: for a model, which reads `total_found`."""
        return self.driver == "llm"

    @contextmanager
    def waiting_for_model(self) -> Iterator[None]:
        """Count the time that a model takes while nothing is found."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self.model_seconds += 0.0 if self.hits else time.monotonic() - begun

    def text(self, name: str, /, **values: object) -> str:
        """A message of `tools.toml` in the language of this recall."""
        return schemas.message(name, self.language, **values)

    def record(self, tool: str, *values: Any) -> None:
        """Append a step to the trace, and tell the caller's callback; `values` are in its order."""
        step = Step(len(self.trace) + 1, self.iteration, tool, *values)
        self.trace.append(step)
        try:
            if self.on_step:
                self.on_step(step)
        except Exception as error:  # the caller's code, which may raise anything
            why = error.message if isinstance(error, KeMemError) else type(error).__name__
            log.warning("recall: on_step failed: %s", why)

    def cache_key(self, *parts: str | None) -> Hashable:
        """A key of fixed length that includes the ids of the caller: no other user has it."""
        return (self.memory.scope, blake2b(repr(parts).encode(), digest_size=16).digest())

    async def get(self, key: str, mark: str) -> Item:
        """A memory that a search could return now; one that has ended, unless that is evidence,
        or was withdrawn raises NotFound.

        A hit is read again only if the generation is no longer the one it was found in.
        """
        unchanged = self.marks.get(key) == mark
        item = self.hits[key] if unchanged else await self.memory.get(key)
        of_past = self.past or (key in self.hits and self.hits[key].ended is not None)
        if key in self.over or _gone(item, self.deps.clock(), of_past):
            raise NotFound(f"no memory {key!r:.80}", memory_id=key)
        return item

    def adopt(self, other: "RecallState") -> dict[str, float]:
        """Know the hits of another recall of the same question; the scores of its evidence."""
        self.hits |= other.hits  # whose scores are those of the question, not of a model's words
        self.marks |= other.marks
        return {each.memory_key: each.score for each in other.evidence}

    async def search(self, request: SearchMemoriesInput) -> Memories[Hit]:
        """The hits of a search, cached for a minute while nothing changes."""
        counted = "counted" if self.counts_all else None
        past = f"{self.past} {self.past_asked}"
        key = self.cache_key(request.model_dump_json(), counted, past, *sorted(self.excluded))
        mark = await self.memory.generation()
        hits = self.caches.search.get(key, mark)
        now = self.deps.clock()
        self.cached = hits is not None and (hits.holds_until is None or now < hits.holds_until)
        if hits is None or not self.cached:
            hits = await self._search(request, now)
            never = () if self.deps.embedder else ("semantic",)
            if {*hits.missing}.issubset(never):  # what else is missing may answer a moment later
                self.caches.search.put(key, hits, mark)
        if not self._shows_past(hits):
            self.over |= {hit.id for hit in hits if is_over(hit)}
            hits = replace(hits, items=tuple(hit for hit in hits if not is_over(hit)))
        for hit in hits:
            self.hits.setdefault(hit.id, hit)
            self.marks.setdefault(hit.id, mark)
        self.searches.append(request)
        return hits

    async def _search(self, request: SearchMemoriesInput, now: int) -> Memories[Hit]:
        days, types = request.time_range_days, request.memory_types or []
        kinds = [name for name in types if name in MESSAGES | NOTES]
        of_types = {"OR": [{"memory_type": types}, *([{"kind": kinds}] if kinds else [])]}
        limit = request.limit + len(self.excluded)
        hits = await self.memory.search(
            request.query,
            limit=limit if self.counts_all else max(limit, COUNTED),
            threshold=request.min_relevance_score,
            mode="lexical" if request.search_mode == "keyword" else request.search_mode,
            keywords=request.keywords or None,
            filters=of_types if types else None,
            since=None if days is None else to_rfc3339(now - days * _DAY),
            count=self.counts_all,
            # What the words of a query say of the past, search reads by itself.
            past=self.past_asked or (self.past and not is_about_past(request.query, now)),
        )
        allowed = [hit for hit in hits if hit.id not in self.excluded]
        total = hits.total - (len(hits) - len(allowed)) if self.counts_all else len(allowed)
        over = () if self._shows_past(hits) else tuple(hit for hit in allowed if is_over(hit))
        shown = [hit for hit in allowed if hit not in over][: request.limit]
        return replace(hits, items=(*shown, *over), total=total - len(over))

    def _shows_past(self, hits: Memories[Hit]) -> bool:
        """Whether hits that have ended are evidence: a model may ask for the past in its own words;
        those of rules quote memories, and prove nothing.
        """
        return hits.past if self.driver == "llm" else self.past

    def result(self) -> Recalled:
        """The result of a recall that has ended with a handoff."""
        assert self.handoff is not None, "a recall ends with a handoff"
        days = [each.time_range_days for each in self.searches]
        types = [each.memory_types for each in self.searches]
        all_types = dict.fromkeys(name for some in types for name in some or ())
        scores = [each.min_relevance_score for each in self.searches]
        budget, least = self.budget, min(scores, default=None)
        limits = Limits(
            *(budget.max_iterations, budget.max_window, budget.max_calls, budget.seconds),
            windows=tuple(self.windows),
            memory_types=tuple(all_types) if all(types) else (),
            time_range_days=max(filter(None, days), default=None) if all(days) else None,
            min_relevance_score=least,
        )
        return Recalled(
            question=self.question,
            completed=self.completed,
            by=self.driver,
            evidence=tuple(self.evidence),
            message=self.message,
            limits=limits,
            trace=tuple(self.trace),
            problems=tuple(self.problems),
            **self.handoff.model_dump(exclude={"relevant_memory_keys"}),
        )


def will_end(item: Item) -> bool:
    """Whether time alone will end a memory, which no generation tells."""
    return isinstance(item.row, Note) and (item.row.valid_until or item.row.expires) is not None


def _gone(item: Item, now: int, of_past: bool) -> bool:
    """Whether a memory was withdrawn, has expired or, where the past is no evidence, ended."""
    row = item.row
    if not isinstance(row, Note):
        return item.withdrawn or (row.ended(now) and not of_past)
    return replace(row, valid_until=None).ended(now) if of_past else row.ended(now)
