"""How the suite runs: one store and one event loop for each test, emptied between examples."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.strategies import SearchStrategy

from kemem.ports import Store, read_messages, read_notes, read_relations
from kemem.ports.request import Neighborhood, Ranking, SearchRequest
from kemem.records import (
    NOTES,
    Match,
    Message,
    Model,
    Note,
    Rank,
    Relation,
    Scope,
    Vector,
    Where,
)
from kemem.records.batch import Batch
from kemem.text.query import Query
from kemem.text.segment import fingerprint
from kemem_conformance.note_world import ALL_KINDS
from kemem_conformance.world import NOW

ME = Scope("agent", "u_")
MINE = Where(ME)
MY_NOTES = Where(ME, kinds=NOTES)
ALL_MINE = Where(ME, kinds=ALL_KINDS)
EVERYTHING = 1_000  # a limit that no test reaches


class Suite(ABC):
    """What the tests of every chapter need."""

    examples: ClassVar[int] = 60  # of each law
    shrink: ClassVar[bool] = True  # look for the smallest example that fails

    @abstractmethod
    async def open_store(self) -> Store:
        """A fresh, empty store; the suite closes it."""

    async def reset(self, store: Store) -> None:
        """Empty a store; override it where there is a faster way."""
        agents = await store.directory("agent", limit=EVERYTHING)
        everything = tuple(Where(Scope(agent.id), kinds=ALL_KINDS) for agent in agents)
        jobs = tuple(job.job_id for job in await store.jobs(EVERYTHING))
        await store.apply(Batch(drop=everything, done=jobs))

    @contextmanager
    def running(self) -> Iterator[tuple[asyncio.Runner, Store]]:
        """An event loop with a store that lives on it."""
        with asyncio.Runner() as runner:
            store = runner.run(self.open_store())
            try:
                yield runner, store
            finally:
                runner.run(store.close())


def rule(body: Callable[[Any, Store], Awaitable[None]]) -> Callable[[Suite], None]:
    """A test by example: `body` gets a fresh store."""

    def test(self: Suite) -> None:
        async def check(store: Store) -> None:
            await body(self, store)

        with self.running() as (runner, store):
            runner.run(check(store))

    return _named(test, body)


def law(
    **strategies: SearchStrategy[Any],
) -> Callable[[Callable[..., Awaitable[None]]], Callable[[Suite], None]]:
    """A test by generated examples: `body` gets an empty store and what was drawn."""

    def decorate(body: Callable[..., Awaitable[None]]) -> Callable[[Suite], None]:
        def test(self: Suite) -> None:
            async def check(store: Store, drawn: dict[str, Any]) -> None:
                await self.reset(store)
                await body(self, store, **drawn)

            with self.running() as (runner, store):

                @_settings(self)
                @given(**strategies)
                def example(**drawn: Any) -> None:
                    runner.run(check(store, drawn))

                example()

        return _named(test, body)

    return decorate


def _settings(suite: Suite) -> settings:
    return settings(
        max_examples=suite.examples,
        phases=(Phase.generate, Phase.shrink) if suite.shrink else (Phase.generate,),
        deadline=None,
        derandomize=True,
        report_multiple_bugs=False,
        suppress_health_check=(HealthCheck.too_slow,),
    )


def _named(test: Callable[[Suite], None], body: Callable[..., Any]) -> Callable[[Suite], None]:
    """Not functools.wraps: pytest would take the body's parameters for fixtures."""
    test.__name__, test.__qualname__ = body.__name__, body.__qualname__
    test.__doc__, test.__module__ = body.__doc__, body.__module__
    return test


def said(message_id: str, content: str = "我不吃辣 no spice", **changed: Any) -> Message:
    """A message of the first user to the first agent, with some fields changed."""
    usual = Message(message_id, "agent", "u_", "s", "user", content, ts=NOW, ingest_time=NOW)
    return replace(usual, **changed)


def noted(note_id: str, content: str = "用户不吃辣 no spice", **changed: Any) -> Note:
    """A note of the first user of the first agent, with some fields changed."""
    times = {"ts": NOW, "created": NOW, "updated": NOW, "valid_from": NOW}
    whose = {"agent_id": "agent", "user_id": "u_", "session_id": None, "kind": "user_info"}
    usual = {**times, **whose, "digest": fingerprint(content), **changed}
    return Note(note_id=note_id, content=content, **usual)


async def ranking(
    store: Store, where: Where, query: Query, *, limit: int, after: Rank | None = None
) -> Ranking:
    """The best matches by words."""
    request = SearchRequest(where, queries=(query,), limit=limit, after=after)
    (ranked,) = (await store.search(request)).candidates.words
    return ranked


async def nearest(
    store: Store, where: Where, vector: Vector, model: Model, limit: int
) -> list[Match]:
    """The most similar rows among those embedded by a model."""
    vectors = vector.reshape(1, -1)
    request = SearchRequest(where, vectors=vectors, model=model, limit=limit)
    (ranked,) = (await store.search(request)).candidates.vectors
    return list(ranked)


async def around(
    store: Store,
    where: Where,
    names: Sequence[str],
    *,
    hops: int = 1,
    limit: int = 100,
    types: Sequence[str] = (),
) -> list[Relation]:
    """Relations near some entities, all or of some types."""
    return await read_relations(store, Neighborhood(where, names, hops, limit, types))


async def remember(store: Store, *notes: Note, **more: Any) -> None:
    """Store notes, with what belongs to them."""
    assert not (await store.apply(Batch(notes=notes, **more))).refused


async def note_ids(store: Store, where: Where = MY_NOTES, **options: Any) -> list[str]:
    """The ids of the notes that are seen, oldest first unless told otherwise."""
    found = await read_notes(
        store, where, **{"limit": EVERYTHING, "newest_first": False, **options}
    )
    return [note.note_id for note in found]


async def put(store: Store, *messages: Message) -> tuple[Message, ...]:
    """Store messages; return them as stored."""
    return (await store.apply(Batch(put=messages))).inserted


async def ids(store: Store, where: Where, **options: Any) -> list[str]:
    """The ids that a scan sees, oldest first unless told otherwise."""
    found = await read_messages(
        store, where, **{"limit": EVERYTHING, "newest_first": False, **options}
    )
    return [message.message_id for message in found]
