"""The plugs: what the core asks of a store and of models."""

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, Protocol, TypedDict, TypeVar, Unpack, runtime_checkable
from weakref import WeakValueDictionary

import numpy as np

from kemem import records
from kemem.errors import InvalidArgument, Unavailable
from kemem.ports.chat import OnReply as OnReply
from kemem.ports.chat import Prompt as Prompt
from kemem.ports.chat import Reply as Reply
from kemem.ports.chat import Schema as Schema
from kemem.ports.chat import Tool as Tool
from kemem.ports.chat import ToolCall as ToolCall
from kemem.ports.chat import check_calls, parse_reply
from kemem.ports.counts import Counted as Counted
from kemem.ports.counts import read_census as read_census
from kemem.ports.counts import read_holdings as read_holdings
from kemem.ports.faults import fault, whose
from kemem.ports.held import HeldJobs
from kemem.ports.limits import MOST_PATIENCE, asking
from kemem.ports.ontology import CurrentOntology
from kemem.ports.pace import Pace
from kemem.ports.request import Neighborhood, SearchRequest, SearchResponse, StoreInfo
from kemem.records import MESSAGES, NOTES, Matrix, Message, Micros, Note, Row, Scope, Where
from kemem.records.batch import Applied, Batch, Job, JobKind

MAX_EMBEDDED_CHARACTERS = 2_000  # a vector cannot say more about a text than its beginning does
_ALL = 1_000_000
LLM_TIMEOUT = 60.0  # seconds; a durable job tries again what takes longer
_LEAST_LEASE = 300.0  # seconds
_MARGIN = 60.0  # seconds for what a job does beside asking the model
_CALL_TOKENS = 250  # of an answer that calls tools

T = TypeVar("T")


def too_long(context: int = 0) -> Unavailable:
    """The error of a prompt that is longer than a model's context, as many tokens as are known."""
    size = f" of {context} tokens" if context else ""
    return Unavailable(f"the prompt is longer than the model's context{size}", context=context)


class ReadOptions(TypedDict, total=False):
    """The options of `Store.read`."""

    after: records.Position | None
    limit: int
    newest_first: bool


class Store(Protocol):
    """A database: messages, notes, words, vectors, graph, outbox and journal in one transaction."""

    async def apply(self, batch: Batch) -> Applied:
        """Write a batch wholly or not at all; on return it is durable.

        Vectors, hit counts and journal lines alone need not be."""

    async def read(
        self,
        where: Where,
        *,
        after: records.Position | None = None,
        limit: int = 100,
        newest_first: bool = True,
    ) -> list[Row]:
        """Visible messages and notes beyond `after` in the order of time, then of arrival."""

    async def search(self, request: SearchRequest) -> SearchResponse:
        """Candidates by words, vectors and graph, and the selected rows, as of one moment."""

    async def history(
        self,
        scope: Scope,
        *,
        note_id: str | None = None,
        event: str | None = None,
        reason: str | None = None,
        limit: int = 100,
    ) -> list[records.Change]:
        """The changes of a scope's notes, of one note or for one reason, newest first."""

    async def checkpoints(self, scope: Scope, *, limit: int = 1) -> list[records.Checkpoint]:
        """The saved states of a scope's sessions, newest first."""

    async def directory(
        self,
        level: records.Level,
        scope: Scope | None = None,
        *,
        note_id: str | None = None,
        after: tuple[str, str, str] | None = None,
        limit: int = 100,
    ) -> list[records.Entry]:
        """Agents, users, sessions or owners in the order of their places, beyond `after`.

        Owners are the (agent, user) pairs that have messages or notes; with `note_id`, the pair
        that has this note. Without a scope all entries: for operators and trusted callers only.
        """

    async def generation(self, where: Where) -> str:
        """A token that changes with whatever the scope reaches, hit counts of notes excepted."""

    async def claim(self, now: Micros, lease: Micros) -> Job | None:
        """A job that is due, hidden from other workers until the lease ends."""

    async def jobs(
        self,
        limit: int | None = 100,  # None: all
        *,
        ids: Sequence[str] | None = None,
        kinds: Sequence[JobKind] | None = None,
    ) -> list[Job]:
        """Jobs that wait or have failed, oldest first; with `ids` or `kinds`, only these."""

    async def journal(
        self,
        kind: str,
        *,
        since: Micros | None = None,
        until: Micros | None = None,
        user_id: str | None = None,
        limit: int = 1000,
    ) -> list[records.Line]:
        """Lines of a kind, newest first, equal times by id; `since` is inclusive, `until` not."""

    async def info(self, *, health: bool = False) -> StoreInfo:
        """Versions, secret and labels; with `health` also counts, which may take a while.

        Raises Unavailable when the database cannot be reached.
        """

    async def close(self) -> None:
        """Finish what was begun and release files and connections."""


async def read_messages(
    store: Store, where: Where, **options: Unpack[ReadOptions]
) -> list[Message]:
    """The messages among what `Store.read` returns."""
    rows = await store.read(replace(where, kinds=where.kinds & MESSAGES), **options)
    return [row for row in rows if isinstance(row, Message)]


async def read_notes(store: Store, where: Where, **options: Unpack[ReadOptions]) -> list[Note]:
    """The notes among what `Store.read` returns."""
    rows = await store.read(replace(where, kinds=where.kinds & NOTES), **options)
    return [row for row in rows if isinstance(row, Note)]


async def read_relations(store: Store, around: Neighborhood) -> list[records.Relation]:
    """The relations of a neighborhood."""
    response = await store.search(SearchRequest(around.where, around=around))
    return list(response.candidates.relations)


async def read_health(store: Store) -> records.Health:
    """The counts of a store."""
    health = (await store.info(health=True)).health
    if health is None:
        raise Unavailable("the store reports no counts")
    return health


async def read_owners(store: Store, note_id: str | None = None) -> list[Scope]:
    """The (agent, user) pairs that have messages or notes; with `note_id`, the pair with it."""
    entries = await store.directory("owner", note_id=note_id, limit=_ALL)
    return [Scope(entry.agent_id, entry.id) for entry in entries]


class GraphMirror(Protocol):
    """A graph database beside the store; the outbox carries changes to it."""

    async def around(
        self, where: Where, names: Sequence[str], *, hops: int = 1, limit: int = 100
    ) -> list[records.Relation]:
        """Relations within `hops` of the named entities; without names, the newest ones."""

    async def put(self, note: Note, relations: Sequence[records.Relation]) -> None:
        """Make these relations what a note supports, no more and no less."""

    async def remove(self, owner: Scope, note_ids: Sequence[str] | None = None) -> None:
        """Take back what notes support, or all that an owner has."""

    async def close(self) -> None:
        """Release connections."""


class VectorIndex(Protocol):
    """A vector database beside the store; the outbox carries changes to it."""

    async def put(self, embedded: records.Embedded) -> None:
        """Upsert the vectors of one owner's rows."""

    async def remove(self, owner: Scope, ids: Sequence[str] | None = None) -> None:
        """Delete the vectors of some rows, or all that an owner has."""

    async def nearest(
        self, where: Where, vector: records.Vector, model: records.Model, limit: int
    ) -> list[records.Match]:
        """The rows of the where's scope that are most similar, best first, with scores of 0-1.

        The store checks the rest of the Where: it leaves out what may not be seen.
        """

    async def close(self) -> None:
        """Release connections."""


@runtime_checkable
class Archive(Protocol):
    """A store that can be written out and replaced as a whole."""

    async def export(self, take: Callable[[str, Mapping[str, Any]], None]) -> None:
        """Hand over every row of every table as of one moment, parents first, as JSON has values.

        `take` is called in a thread; what can be derived again is left out.
        """

    async def replace(self, rows: Iterable[tuple[str, Mapping[str, Any]]], label: str) -> None:
        """Put these rows in the place of all others, or, where they do not hold together, nothing.

        Writes that came before are replaced, later ones stay; cursors and caches are void.
        """


class Embedder(Protocol):
    """Texts to vectors.

    One with an attribute `learns_width = True` may not know its `width`, which is 0, before its
    first answer.
    """

    name: str
    width: int

    async def embed(self, texts: Sequence[str], *, purpose: Literal["query", "passage"]) -> Matrix:
        """One row of `width` numbers for each text."""


class LLM(Protocol):
    """A chat model."""

    name: str

    async def reply(
        self, messages: Prompt, *, schema: Schema | None = None, tools: Sequence[Tool] = ()
    ) -> Reply:
        """The model's answer: JSON of the schema if it can, or a text and calls of the tools."""


class Reranker(Protocol):
    """A model that reads question and text together."""

    async def rank(self, query: str, texts: Sequence[str]) -> list[float]:
        """How well each text answers, 0-1."""


@dataclass(frozen=True, slots=True)
class Deps:
    """The bundle that is handed down."""

    store: Store
    embedder: Embedder | None
    clock: Callable[[], Micros]
    llm: LLM | None = None
    reranker: Reranker | None = None
    reads: bool = False  # the network that comes with the package reads the best candidates
    graph: GraphMirror | None = None  # a graph database beside the store
    vectors: VectorIndex | None = None  # a vector database beside the store
    llm_timeout: float = LLM_TIMEOUT
    llm_context: int = 0  # tokens of the model; 0: not known
    on_reply: OnReply | None = None
    previous: Embedder | None = None  # whose vectors a change of the embedder may have left,
    settled: set[records.Model] = field(default_factory=set)  # unless the model is one of these
    ontology: CurrentOntology = field(default_factory=CurrentOntology)
    pace: Pace = field(default_factory=Pace, init=False)  # of the LLM: another has its own
    held: HeldJobs = field(default_factory=HeldJobs)
    _locks: WeakValueDictionary[Scope, asyncio.Lock] = field(default_factory=WeakValueDictionary)

    def lock(self, owner: Scope) -> asyncio.Lock:
        """One at a time for each owner: what is compared with stored notes must still be so."""
        return self._locks.setdefault(owner, asyncio.Lock())

    @property
    def model(self) -> records.Model | None:
        """The fingerprint of the embedder in use, None while its width is not known."""
        embedder = self.embedder
        return records.Model(embedder.name, embedder.width) if embedder and embedder.width else None

    @property
    def embeds_in_process(self) -> bool:
        """Whether vectors are made in this process, or not at all: there is no service to wait for.

        An embedder says so by an attribute `in_process`.
        """
        return self.embedder is None or getattr(self.embedder, "in_process", False) is True

    @property
    def archive(self) -> Archive:
        """The store as what can be backed up and restored."""
        if not isinstance(self.store, Archive):
            raise InvalidArgument("this store cannot be backed up")
        return self.store

    async def relations(self, near: Neighborhood) -> list[records.Relation]:
        """The relations of a neighborhood, from the graph database if there is one.

        Those of some types come from the store: it has all of them, too.
        """
        if self.graph is None or near.relationships:
            return await read_relations(self.store, near)
        return await self.graph.around(near.where, near.names, hops=near.hops, limit=near.limit)

    async def embed(self, texts: Sequence[str], *, purpose: Literal["query", "passage"]) -> Matrix:
        """A usable vector for each text; whatever the model does wrong is Unavailable."""
        if self.embedder is None:
            raise Unavailable("no embedder is configured")
        beginnings = [text[:MAX_EMBEDDED_CHARACTERS] for text in texts]
        try:
            matrix = await self.embedder.embed(beginnings, purpose=purpose)
        except Unavailable:
            raise
        except Exception as error:  # the model's code or network, which may raise anything
            raise Unavailable(f"the embedder failed: {type(error).__name__}") from error
        shape = (len(texts), self.embedder.width)
        if np.shape(matrix) != shape:
            raise Unavailable(f"the embedder returned shape {np.shape(matrix)}, not {shape}")
        if not np.isfinite(matrix).all() or not np.any(matrix, axis=1).all():
            raise Unavailable("the embedder returned a vector that is zero or not finite")
        return np.asarray(matrix, dtype=np.float32)

    @property
    def lease(self) -> Micros:
        """How long a job is hidden from other workers: longer than any answer may take."""
        longest = self.llm_timeout * MOST_PATIENCE + _MARGIN if self.llm else 0.0
        return round(max(_LEAST_LEASE, longest) * 1_000_000)

    def grace(self, place: int = 0) -> Micros:
        """How long only its writer works on a job, if `place` others come before it."""
        return round((_MARGIN + (self.llm_timeout * (place + 1) if self.llm else 0)) * 1_000_000)

    async def ask(
        self, messages: Prompt, schema: Schema, *, expected: int = 500, attempts: int = 1
    ) -> Any:
        """The JSON that the model answers with, in about `expected` tokens.

        Whatever it does wrong is Unavailable; of an answer without an end what is complete is read.
        It is waited for twice as long at each of the attempts of a job, up to a limit.
        """
        times = min(1 << max(attempts - 1, 0), MOST_PATIENCE)
        with asking(expected, times):
            limit, read = self.llm_timeout * times, partial(parse_reply, schema)
            return await self._asked(messages, limit, read, schema=schema)

    async def converse(
        self, messages: Prompt, tools: Sequence[Tool], *, timeout: float | None = None
    ) -> Reply:
        """A text, calls, or both; whatever the model does wrong is Unavailable."""
        limit = self.llm_timeout if timeout is None else min(timeout, self.llm_timeout)
        with asking(_CALL_TOKENS):
            return await self._asked(messages, limit, check_calls, tools=tools)

    async def _asked(
        self, messages: Prompt, limit: float, read: Callable[[object], T], **wanted: Any
    ) -> T:
        if self.llm is None:
            raise Unavailable("no LLM is configured")
        begun, reply, is_of_use = time.perf_counter(), None, False
        try:
            async with asyncio.timeout(limit):
                reply = await self.llm.reply(messages, **wanted)
            self.pace.answered(time.perf_counter() - begun)
            answer, is_of_use = read(reply), True
            return answer
        except Unavailable:
            raise
        except TimeoutError:
            self.pace.gave_up(limit)
            model = whose(self.llm.name, getattr(self.llm, "address", ""))
            raise Unavailable(f"{model} {fault(TimeoutError(), limit)}") from None
        except Exception as error:  # the model's code or network, which may raise anything
            raise Unavailable(f"the LLM {fault(error)}") from error
        finally:
            if self.on_reply:
                seconds = time.perf_counter() - begun
                self.on_reply(seconds, is_of_use, reply if isinstance(reply, Reply) else None)
