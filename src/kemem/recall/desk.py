"""What lies on the table during one recall: whose memories, what was found, what is left."""

import time
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Literal, Protocol

from kemem.errors import InvalidArgument, NotFound
from kemem.ports import Deps
from kemem.recall.caches import Caches
from kemem.recall.models import HandoffInput, SearchMemoriesInput
from kemem.recall.result import By, Evidence, Limits, Step
from kemem.records import MESSAGES, NOTES, Message, Note
from kemem.results import Hit, Item, Memories
from kemem.scope import CallScope, Time
from kemem.text.times import to_rfc3339

Language = Literal["zh", "en"]
SEARCHES_IN_A_ROW = 3
MOST_RESULTS = 10
COUNTED = 24  # matches that rules count: to count all costs six searches, which a model can ask for
TOOL_SECONDS = 10.0  # for one reading of the store
_MOST = {"max_iterations": 10, "window": 1_000, "max_window": 1_000, "max_calls": 100}
_DAY = 86_400_000_000  # microseconds
_MODES: dict[str, Literal["semantic", "lexical", "hybrid"]] = {
    "semantic": "semantic",
    "keyword": "lexical",
    "hybrid": "hybrid",
}


class DepsProvider(Protocol):
    """Opens the store and the models behind a memory."""

    async def deps(self) -> Deps:
        """The store and the models, opened on first use."""


class MemoryReader(Protocol):
    """What a recall reads of a memory; `AsyncMemory` and its handles have it."""

    @property
    def reach(self) -> CallScope:
        """The ids that this memory is bound to."""

    @property
    def runtime(self) -> DepsProvider:
        """The source of the store and the models."""

    async def search(
        self,
        query: str,
        *,
        limit: int,
        filters: Mapping[str, Any] | None,
        threshold: float | None,
        kinds: Iterable[str] | None,
        since: Time | None,
        keywords: Sequence[str] | None,
        mode: Literal["semantic", "lexical", "hybrid"],
        count: bool,
    ) -> Memories[Hit]:
        """Notes and messages that match a query, best first."""

    async def get(self, memory_id: str) -> Item:
        """One memory; raises NotFound for one that does not exist or belongs to another user."""

    async def get_all(
        self, *, session_id: str | None, kinds: Iterable[str] | None, limit: int
    ) -> Memories[Item]:
        """Memories of some kinds, newest first."""

    async def sources(self, memory_id: str) -> list[Message]:
        """The messages that a memory was extracted from."""

    async def neighbors(
        self, message_id: str, user_id: str | None, before: int, after: int
    ) -> list[Message]:
        """A message with those before and after it, in conversation order."""

    async def generation(self) -> str:
        """A mark that changes with every change of what a search can find."""


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
class Desk:
    """The state of one recall; nothing of it outlives the recall or is shared with another."""

    memory: MemoryReader  # a handle: whose data is settled
    deps: Deps
    caches: Caches
    budget: Budget
    question: str
    language: Language
    by: By  # what decides on the moves
    iteration: int = 1
    windows: list[int] = field(default_factory=list)  # messages shown, round by round
    has_more: bool = False  # messages before those that are shown
    calls: int = 0
    in_a_row: int = 0  # searches without another tool between them
    searches: list[SearchMemoriesInput] = field(default_factory=list)
    # As each memory was first found: a later query may quote it, which proves nothing.
    seen: dict[str, Hit] = field(default_factory=dict)
    handed: HandoffInput | None = None
    message: str = ""  # of the hand-off
    completed: bool = False  # the hand-off was not forced by a limit
    evidence: list[Evidence] = field(default_factory=list)
    cached: bool = False  # whether the last answer came out of a cache
    trace: list[Step] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    on_step: Callable[[Step], None] | None = None
    without: frozenset[str] = frozenset()  # what is not to be found
    begun: float = field(default_factory=time.monotonic)

    @property
    def window(self) -> int:
        """Messages of the conversation that are shown."""
        return self.windows[-1] if self.windows else 0

    @property
    def seconds_left(self) -> float:
        return max(0.0, self.budget.seconds - (time.monotonic() - self.begun))

    @property
    def calls_left(self) -> int:
        return max(0, self.budget.max_calls - self.calls)

    def say(self, chinese: str, english: str) -> str:
        """What the agent is told, in its language."""
        return chinese if self.language == "zh" else english

    @property
    def counts(self) -> bool:
        """Whether searches count all that matches: for a model, which is told `total_found`."""
        return self.by == "llm"

    def note(self, step: Step) -> None:
        """Keep a step, and tell whoever watches."""
        self.trace.append(step)
        if self.on_step:
            self.on_step(step)

    async def generation(self) -> str:
        """The state of what this recall reaches; whatever is cached under another is stale."""
        return await self.memory.generation()

    def whose(self, *about: str | None) -> Hashable:
        """A key for caches that no other user's question can have; short, however long that is."""
        return (self.memory.reach, blake2b(repr(about).encode(), digest_size=16).digest())

    async def find(self, key: str) -> Item:
        """A memory that a search could find now; what has ended is NotFound as what never was."""
        item = await self.memory.get(key)
        if _ended(item, self.deps.clock()):
            raise NotFound(f"no memory {key!r:.80}", memory_id=key)
        return item

    async def search(self, asked: SearchMemoriesInput) -> Memories[Hit]:
        """What a search finds, kept for a minute while nothing changes."""
        counted = str(self.counts)
        key = self.whose(asked.model_dump_json(), counted, *sorted(self.without))
        mark = await self.generation()
        found = self.caches.search.get(key, mark)
        now = self.deps.clock()
        self.cached = found is not None and not any(_ended(hit, now) for hit in found)
        if found is None or not self.cached:
            found = await self._search(asked, now)
            never = () if self.deps.model else ("semantic",)
            if {*found.missing}.issubset(never):  # what else is missing may answer a moment later
                self.caches.search.put(key, found, mark)
        for hit in found:
            self.seen.setdefault(hit.id, hit)
        self.searches.append(asked)
        return found

    async def _search(self, asked: SearchMemoriesInput, now: int) -> Memories[Hit]:
        days, types = asked.time_range_days, asked.memory_types or []
        only_kinds = bool(types) and {*types} <= MESSAGES | NOTES
        named = [{"memory_type": {"in": types}}, {"kind": {"in": types}}]
        wanted = asked.limit + len(self.without)
        found = await self.memory.search(
            asked.query,
            limit=wanted if self.counts else max(wanted, COUNTED),
            threshold=asked.min_relevance_score,
            mode=_MODES[asked.search_mode],
            keywords=asked.keywords or None,
            kinds=types if only_kinds else None,
            filters={"OR": named} if types and not only_kinds else None,
            since=None if days is None else to_rfc3339(now - days * _DAY),
            count=self.counts,
        )
        left = [hit for hit in found if hit.id not in self.without]
        total = found.total - (len(found) - len(left)) if self.counts else len(left)
        return replace(found, items=tuple(left[: asked.limit]), total=total)

    def limits(self) -> Limits:
        """What this recall was limited to: what held for all of its searches together."""
        days = [asked.time_range_days for asked in self.searches]
        types = [asked.memory_types for asked in self.searches]
        every = [name for some in types for name in some or ()]
        return Limits(
            max_iterations=self.budget.max_iterations,
            max_window=self.budget.max_window,
            max_calls=self.budget.max_calls,
            seconds=self.budget.seconds,
            windows=tuple(self.windows),
            memory_types=tuple(dict.fromkeys(every)) if all(types) else (),
            time_range_days=max((each for each in days if each), default=None)
            if all(days)
            else None,
            min_relevance_score=min(
                (asked.min_relevance_score for asked in self.searches), default=None
            ),
        )


def will_end(item: Item) -> bool:
    """Whether time alone ends it, which no generation tells."""
    return isinstance(item.row, Note) and (item.row.valid_until or item.row.expires) is not None


def _ended(item: Item, now: int) -> bool:
    return isinstance(item.row, Note) and item.row.ended(now)
