"""What holds whatever notes are kept and asked for, beside messages with the same ids."""

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from kemem.ports import Store, read_messages, read_notes
from kemem.records import NOTES, Change, Embedded, Message, Note, Row, Scope, Where
from kemem.records.batch import Batch
from kemem.text.query import Query, parse
from kemem_conformance import note_world, world
from kemem_conformance.comparing import (
    QUESTION,
    names,
    outcome,
    same_contents,
    same_messages,
    same_nearest,
    same_notes,
    same_records,
    same_search,
)
from kemem_conformance.note_world import ALL_KINDS, ENTITIES
from kemem_conformance.ram import RamStore
from kemem_conformance.suite import EVERYTHING, Suite, around, law, nearest

Rows = tuple[tuple[Message, ...], tuple[Note, ...]]
users = ("u_", "u_", "u_%", "")
rows = st.tuples(
    world.transcripts(min_size=2, max_size=6, users=users),
    note_world.notebooks(min_size=8, users=users, ids=world.MESSAGE_IDS),
).map(lambda told: (told[0], note_world.citing(told[1], told[0])))
filtered = st.builds(replace, note_world.row_wheres(at_most=1), filters=note_world.filters())
searched = st.builds(
    replace,
    note_world.row_wheres(at_most=1),
    shared=st.none() | st.sampled_from(world.AGENTS),
    valid_at=st.none() | st.sampled_from(note_world.BORDERS),
    known_by=world.rarely(st.sampled_from(note_world.BORDERS)),
    sensitive=st.booleans(),
)
wheres = st.lists(filtered | searched | note_world.row_wheres(), min_size=12, max_size=16)
note_queries = st.sampled_from(
    ("辣", "hotpots", "用户 hotpot", "小明 OR 用户", "NOT 辣", "hot* 火锅", '"不吃辣"', "")
).map(parse)
questions = st.tuples(
    searched,
    st.lists(st.sampled_from((*ENTITIES, "ann", "没有")), max_size=2),
    note_world.among(range(1, 6), (1, 5, 100)),
)


async def both(store: Store, batch: Batch) -> RamStore:
    """Write a batch to a store and to a reference, which is returned."""
    reference = RamStore()
    assert await outcome(store, batch) == await outcome(reference, batch)
    return reference


async def everything(store: Store) -> Rows:
    """All rows of the small world."""
    messages: list[Message] = []
    notes: list[Note] = []
    for where in (Where(Scope(agent_id), kinds=ALL_KINDS) for agent_id in world.AGENTS):
        messages += await read_messages(store, where, limit=EVERYTHING)
        notes += await read_notes(store, where, limit=EVERYTHING)
    return tuple(messages), tuple(notes)


def parted(batch: Batch) -> tuple[Batch, ...]:
    """A write in several, each of one sort."""
    ended = tuple(replace(note, valid_until=note.valid_from) for note in batch.notes)
    return (
        Batch(put=batch.put, notes=batch.notes, links=batch.links),
        Batch(vectors=batch.vectors),
        Batch(notes=ended),
        Batch(drop=batch.drop),
    )


async def readable(store: Store, where: Where) -> tuple[Any, ...]:
    """What a scope shows, but for how often its notes were used."""
    notes = [replace(note, uses=0, used=None) for note in await read_notes(store, where)]
    near = [await nearest(store, where, QUESTION, model, EVERYTHING) for model in world.MODELS]
    return (await read_messages(store, where), notes, await around(store, where, ()), near)


def joined(told: Rows) -> list[Row]:
    """Messages and notes in one list."""
    return [*told[0], *told[1]]


class NoteLaws(Suite):
    """Properties over the small world of notes."""

    @law(told=rows, wheres=wheres, newest_first=st.booleans())
    async def test_rows_are_seen_as_the_definition_says(
        self, store: Store, *, told: Rows, wheres: list[Where], newest_first: bool
    ) -> None:
        """Messages and notes, for every combination of kinds, times, marks and filters."""
        reference = await both(store, Batch(put=told[0], notes=told[1]))
        messages, notes = await everything(reference)
        for where in wheres:
            seen = await read_messages(store, where, limit=EVERYTHING, newest_first=newest_first)
            wanted = [one for one in messages if where.matches(one)]
            wanted.sort(key=lambda one: one.position, reverse=newest_first)
            same_messages(seen, wanted)
            visible = [note for note in notes if where.matches(note)]
            visible.sort(key=lambda note: note.position, reverse=newest_first)
            found = await read_notes(store, where, limit=EVERYTHING, newest_first=newest_first)
            same_notes(found, visible)

    @law(
        told=note_world.notebooks(min_size=5, users=("u_",), ids=world.MESSAGE_IDS),
        where=note_world.row_wheres((Scope("agent", "u_"),)),
        size=st.integers(1, 3),
        newest_first=st.booleans(),
    )
    async def test_pages_of_notes_lose_and_repeat_nothing(
        self,
        store: Store,
        *,
        told: tuple[Note, ...],
        where: Where,
        size: int,
        newest_first: bool,
    ) -> None:
        """Whatever is hidden between them."""
        own = tuple(replace(note, agent_id="agent") for note in told)
        await store.apply(Batch(notes=own))
        where = replace(where, kinds=NOTES, shared=None)
        whole = await read_notes(store, where, limit=EVERYTHING, newest_first=newest_first)
        pages: list[Note] = []
        after = None
        while page := await read_notes(
            store, where, after=after, limit=size, newest_first=newest_first
        ):
            pages += page
            after = page[-1].position
            assert len(pages) <= len(whole)
        assert pages == whole

    @law(
        told=rows,
        asked=st.lists(
            st.tuples(searched | filtered, note_queries)
            | st.tuples(note_world.row_wheres(), world.queries()),
            min_size=6,
            max_size=8,
        ),
    )
    async def test_a_search_of_notes_ranks_as_the_reference_does(
        self, store: Store, *, told: Rows, asked: list[tuple[Where, Query]]
    ) -> None:
        """By the statistics of the kinds asked for, the shared ones included."""
        reference = await both(store, Batch(put=told[0], notes=told[1]))
        for where, query in asked:
            await same_search(store, reference, where, query)

    @law(told=rows, wheres=wheres)
    async def test_notes_are_near_as_in_the_reference(
        self, store: Store, *, told: Rows, wheres: list[Where]
    ) -> None:
        """Among the messages and notes that may be seen."""
        embedded = tuple(
            Embedded(
                Scope(one.agent_id, one.user_id),
                world.MODELS[number % 4 == 3],
                (one.id,),
                world.vector(world.DIRECTIONS[number % 5]).reshape(1, -1),
            )
            for number, one in enumerate(joined(told))
        )
        reference = await both(store, Batch(put=told[0], notes=told[1], vectors=embedded))
        for where in wheres:
            for model in world.MODELS:
                await same_nearest(store, reference, where, model)

    @law(
        told=rows,
        where=filtered | note_world.row_wheres() | st.sampled_from(note_world.ERASURES),
        at=st.sampled_from(world.TIMES),
    )
    async def test_a_drop_removes_what_the_definition_sees(
        self, store: Store, *, told: Rows, where: Where, at: int
    ) -> None:
        """All of it and nothing else; what is left of a note is one line, unless all was erased."""
        lines = tuple(Change(*names(note)[:2], note.id, "add", at, after="辣") for note in told[1])
        batch = Batch(put=told[0], notes=told[1], changes=lines)
        before = joined(await everything(await both(store, batch)))
        gone = [one for one in before if where.matches(one)]
        assert (await store.apply(Batch(drop=(where,), at=at))).dropped == len(gone)
        left = joined(await everything(store))
        kept = [(one.kind, *names(one)) for one in before if one not in gone]
        assert sorted((one.kind, *names(one)) for one in left) == sorted(kept)
        history = [line for agent in world.AGENTS for line in await store.history(Scope(agent))]
        notes = [one for one in before if isinstance(one, Note)]
        assert sorted((line.note_id, line.event, line.after) for line in history) == sorted(
            (note.note_id, "delete", None) if note in gone else (note.note_id, "add", "辣")
            for note in notes
            if not (where.everything and note in gone)
        )

    @law(
        told=note_world.notebooks(min_size=5, users=("u_", "u_", "")),
        ends=note_world.links(6),
        asked=st.lists(questions, min_size=8, max_size=12),
    )
    async def test_relations_are_found_as_in_the_reference(
        self,
        store: Store,
        *,
        told: tuple[Note, ...],
        ends: tuple[tuple[Any, ...], ...],
        asked: list[tuple[Where, list[str], tuple[int, int]]],
    ) -> None:
        """From any names, over any hops and types, as far as the notes may be seen."""
        batch = Batch(notes=told, links=note_world.linked(told, ends))
        reference = await both(store, batch)
        for where, named, (hops, limit) in asked:
            bare = replace(where, filters=None, kinds=where.kinds | {"user_info"})
            for types in ((), *((it.relationship,) for it in batch.links[:1])):
                options: Any = {"types": types, "hops": hops, "limit": limit}
                found = await around(store, bare, named, **options)
                assert found == await around(reference, bare, named, **options)

    @law(batches=st.lists(note_world.note_batches(), min_size=2, max_size=3))
    async def test_one_generation_is_one_state(self, store: Store, *, batches: list[Batch]) -> None:
        """Where the mark is the same, so is all that can be read, after each part of a write."""
        known: dict[tuple[Where, str], Any] = {}
        scopes = (Scope("agent"), Scope("agent", "u_"), Scope(session_id="s"))
        for batch in (part for whole in batches for part in parted(whole)):
            await outcome(store, batch)
            for where in (Where(scope, kinds=ALL_KINDS, shared="agent") for scope in scopes):
                mark = (where, await store.generation(where))
                state = await readable(store, where)
                assert known.setdefault(mark, state) == state

    @law(
        batches=st.lists(note_world.note_batches(), min_size=3, max_size=4),
        queries=st.lists(world.queries(), min_size=1, max_size=2),
    )
    async def test_any_history_of_notes_leaves_what_the_reference_has(
        self, store: Store, *, batches: list[Batch], queries: list[Query]
    ) -> None:
        """Changes, merges, links, uses, states, ends and erasures: each all or nothing."""
        reference = RamStore()
        for batch in batches:
            assert await outcome(store, batch) == await outcome(reference, batch)
            await same_contents(store, reference, queries)
            await same_records(store, reference)
