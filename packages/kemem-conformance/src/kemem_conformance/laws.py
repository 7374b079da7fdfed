"""What holds whatever is stored and asked: a store agrees with the definition and the reference."""

from dataclasses import replace

from hypothesis import strategies as st

from kemem.ports import Store, read_messages
from kemem.records import Embedded, Message, Model, Position, Scope, Where
from kemem.records.batch import Batch
from kemem.text.query import Query, plain
from kemem_conformance import world
from kemem_conformance.comparing import (
    WORD_PRECISION,
    outcome,
    same_contents,
    same_matches,
    same_messages,
    same_nearest,
    same_search,
    unnumbered,
)
from kemem_conformance.ram import RamStore
from kemem_conformance.searching import beyond
from kemem_conformance.suite import EVERYTHING, MINE, Suite, law, ranking, said

Transcript = tuple[Message, ...]
Change = tuple[Transcript, frozenset[str]]  # messages to put, ids to drop
NO_CHANGE: Change = ((), frozenset())

OWNER = world.USERS[0]  # ids are unique within a user, so a user's pages have one order
OWN_SCOPES = tuple(scope for scope in world.SCOPES if scope.user_id == OWNER)
own_messages = world.transcripts(min_size=6, max_size=10, users=(OWNER,))
few_messages = world.transcripts(min_size=1, max_size=3, users=(OWNER,))
few_ids = st.frozensets(st.sampled_from(world.MESSAGE_IDS), max_size=3)
vectors = st.tuples(st.sampled_from(world.MODELS), st.sampled_from(world.DIRECTIONS))


def place(message: Message | Position, newest_first: bool) -> tuple[int, int]:
    """Where a message stands in a scan."""
    sign = -1 if newest_first else 1
    return sign * message.ts, sign * message.arrival


def fresh(messages: Transcript, number: int) -> Transcript:
    """The same messages under ids that nothing else has."""
    return tuple(replace(one, message_id=f"{one.message_id} {number}") for one in messages)


def changing(change: Change, number: int) -> Batch:
    """A change as a write."""
    messages, gone = change
    return Batch(put=fresh(messages, number), drop=(Where(Scope(user_id=OWNER), ids=gone),))


class Laws(Suite):
    """Properties over the small world."""

    @law(
        told=world.transcripts(min_size=4),
        wheres=st.lists(world.wheres(), min_size=4, max_size=8),
        newest_first=st.booleans(),
    )
    async def test_a_scan_shows_what_the_definition_sees(
        self, store: Store, *, told: Transcript, wheres: list[Where], newest_first: bool
    ) -> None:
        """For every combination of filters."""
        stored = (await store.apply(Batch(put=told))).inserted
        assert unnumbered(stored) == unnumbered((await RamStore().apply(Batch(put=told))).inserted)
        for where in wheres:
            visible = [one for one in stored if where.matches(one)]
            visible.sort(key=lambda one: place(one, newest_first))
            seen = await read_messages(store, where, limit=EVERYTHING, newest_first=newest_first)
            same_messages(seen, visible)
            assert [one.position for one in seen] == [one.position for one in visible]

    @law(
        told=own_messages,
        where=world.wheres(OWN_SCOPES),
        size=st.integers(1, 4),
        newest_first=st.booleans(),
        changes=st.lists(st.tuples(few_messages, few_ids), max_size=3),
    )
    async def test_pages_of_a_scan_lose_and_repeat_nothing(
        self,
        store: Store,
        *,
        told: Transcript,
        where: Where,
        size: int,
        newest_first: bool,
        changes: list[Change],
    ) -> None:
        """Though messages come and go between them, newer, older and at the same time."""
        await store.apply(Batch(put=told))
        everything = await read_messages(store, where, limit=EVERYTHING, newest_first=newest_first)
        coming = iter(changes)
        pages: list[Message] = []
        after, left = None, everything
        while page := await read_messages(
            store, where, after=after, limit=size, newest_first=newest_first
        ):
            same_messages(page, left[:size])
            pages += page
            after = page[-1].position
            await store.apply(changing(next(coming, NO_CHANGE), len(pages)))
            now = await read_messages(store, where, limit=EVERYTHING, newest_first=newest_first)
            border = place(after, newest_first)
            left = [one for one in now if place(one, newest_first) > border]
        assert left == []
        kept = {one.message_id for one in await read_messages(store, where, limit=EVERYTHING)}
        seen = [one.message_id for one in pages]
        assert len(seen) == len(set(seen))
        assert {one.message_id for one in everything} & kept <= set(seen)

    @law(
        told=world.transcripts(min_size=6, users=world.USERS[:2]),
        asked=st.lists(st.tuples(world.wheres(), world.queries()), min_size=4, max_size=8),
    )
    async def test_a_search_ranks_as_the_reference_does(
        self, store: Store, *, told: Transcript, asked: list[tuple[Where, Query]]
    ) -> None:
        """The same messages, scores and totals for every query and filter."""
        reference = RamStore()
        await store.apply(Batch(put=told))
        await reference.apply(Batch(put=told))
        for where, query in asked:
            await same_search(store, reference, where, query)

    @law(
        told=own_messages,
        where=st.sampled_from(OWN_SCOPES).map(Where),
        query=world.queries(),
        size=st.integers(1, 3),
        added=st.lists(few_messages, min_size=1, max_size=3),
    )
    async def test_pages_of_a_search_are_one_ranking(
        self,
        store: Store,
        *,
        told: Transcript,
        where: Where,
        query: Query,
        size: int,
        added: list[Transcript],
    ) -> None:
        """Though messages are added between them."""
        await store.apply(Batch(put=told))
        whole = await ranking(store, where, query, limit=EVERYTHING)
        found = await ranking(store, where, query, limit=size)
        hits = [*found.matches]
        coming = iter(added)
        while found.matches:
            await store.apply(Batch(put=fresh(next(coming, ()), len(hits))))
            found = await ranking(store, where, query, limit=size, after=beyond(found))
            hits += found.matches
            assert found.total == whole.total >= len(hits)
        same_matches(hits, whole.matches, WORD_PRECISION)

    @law(
        told=world.transcripts(min_size=6),
        given=st.lists(vectors, min_size=12, max_size=12),
        wheres=st.lists(world.wheres(), min_size=4, max_size=6),
    )
    async def test_the_same_messages_are_near_as_in_the_reference(
        self,
        store: Store,
        *,
        told: Transcript,
        given: list[tuple[Model, tuple[float, ...]]],
        wheres: list[Where],
    ) -> None:
        """For every filter, among the messages of each model."""
        embedded = tuple(
            Embedded(
                Scope(one.agent_id, one.user_id),
                model,
                (one.message_id,),
                world.vector(numbers).reshape(1, -1),
            )
            for one, (model, numbers) in zip(told, given, strict=False)
        )
        reference = RamStore()
        await store.apply(Batch(put=told, vectors=embedded))
        await reference.apply(Batch(put=told, vectors=embedded))
        for where in wheres:
            for model in world.MODELS:
                await same_nearest(store, reference, where, model)

    @law(
        batches=world.histories(),
        queries=st.lists(world.queries(), min_size=3, max_size=3),
    )
    async def test_any_history_leaves_what_the_reference_has(
        self, store: Store, *, batches: list[Batch], queries: list[Query]
    ) -> None:
        """Writes, retries, conflicts, drops, vectors good and bad, jobs: each all or nothing."""
        reference = RamStore()
        for batch in batches:
            assert await outcome(store, batch) == await outcome(reference, batch)
            await same_contents(store, reference, queries)

    @law(
        texts=st.lists(
            st.text(max_size=30) | st.sampled_from(world.CONTENTS), min_size=3, max_size=6
        )
    )
    async def test_any_text_comes_back_and_is_found_by_itself(
        self, store: Store, *, texts: list[str]
    ) -> None:
        """Whatever its script."""
        told = tuple(said(f"m{number}", text) for number, text in enumerate(texts))
        reference = RamStore()
        await store.apply(Batch(put=told))
        await reference.apply(Batch(put=told))
        same_messages(await read_messages(store, MINE), await read_messages(reference, MINE))
        for text in texts:
            await same_search(store, reference, MINE, plain(text))
