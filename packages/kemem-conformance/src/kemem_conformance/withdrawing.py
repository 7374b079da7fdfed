"""What is promised about withdrawn messages: transcripts show them, and nothing else does."""

from dataclasses import replace

from hypothesis import strategies as st

from kemem.ports import Store, read_messages
from kemem.records import Embedded, Message, Scope, Where
from kemem.records.batch import Batch
from kemem.text.query import Query
from kemem_conformance import world
from kemem_conformance.comparing import outcome, same_contents, same_messages, same_search
from kemem_conformance.filtering import near, worded
from kemem_conformance.nearest import embed
from kemem_conformance.ram import RamStore
from kemem_conformance.searching import find, ranks
from kemem_conformance.states import save, saved, states
from kemem_conformance.suite import (
    ALL_MINE,
    EVERYTHING,
    ME,
    MINE,
    MY_NOTES,
    Suite,
    ids,
    law,
    note_ids,
    noted,
    put,
    remember,
    rule,
    said,
)

TRANSCRIPT = replace(MINE, withdrawn=True)
TIMES = {"a": world.NOW, "退": world.NOW + 1, "b": world.NOW + 2}
AXIS = (1.0, 0.0, 0.0, 0.0)
some_ids = st.frozensets(st.sampled_from(world.MESSAGE_IDS), min_size=2, max_size=6)
reads = st.builds(replace, world.wheres(), withdrawn=st.booleans())


async def withdraw(store: Store, *message_ids: str, scope: Scope = ME) -> None:
    """Withdraw messages by their ids."""
    await store.apply(Batch(withdraw=(Where(scope, ids=frozenset(message_ids)),)))


class WithdrawalRules(Suite):
    """Promises by example."""

    @rule
    async def test_a_withdrawn_message_is_read_only_where_that_is_asked_for(
        self, store: Store
    ) -> None:
        """By time, by id, in pages; the notes that cite it stay, and so do others' messages."""
        await put(store, *(said(name, ts=TIMES[name]) for name in TIMES))
        await put(store, said("退", user_id="小明"))
        await remember(store, noted("笔", sources=("退", "a")))
        await withdraw(store, "退", "没有")
        named = frozenset({"退", "b"})
        assert await ids(store, MINE) == ["a", "b"]
        assert await ids(store, replace(MINE, ids=named)) == ["b"]
        assert await ids(store, MINE, limit=1, newest_first=True) == ["b"]
        assert await ids(store, TRANSCRIPT) == ["a", "退", "b"]
        assert await ids(store, replace(TRANSCRIPT, ids=named)) == ["退", "b"]
        shown = await read_messages(store, TRANSCRIPT, newest_first=False)
        assert [one.withdrawn for one in shown] == [False, True, False]
        assert await note_ids(store) == ["笔"]
        assert await note_ids(store, replace(MY_NOTES, sources=frozenset({"退"}))) == ["笔"]
        assert await ids(store, Where(Scope("agent", "小明"))) == ["退"]

    @rule
    async def test_no_search_finds_a_withdrawn_message(self, store: Store) -> None:
        """Not even one for all that there is; scores are as if it had never been there."""
        await put(store, said("a", "火锅 tea"), said("b", "tea of the house 火锅"))
        before = ranks(await find(store, "火锅 tea", MINE))
        await put(store, said("退", "火锅 火锅 tea"))
        await remember(store, noted("笔", "火锅 tea", sources=("退",)))
        await embed(store, dict.fromkeys(("a", "退", "笔"), AXIS))
        assert await worded(store, MINE) == ["a", "b", "退"]
        assert await near(store, MINE) == ["a", "退"]
        await withdraw(store, "退")
        for where in (MINE, TRANSCRIPT, replace(TRANSCRIPT, ids=frozenset({"a", "b", "退"}))):
            found = await find(store, "火锅 tea", where)
            assert (ranks(found), found.total) == (before, 2)
            assert await near(store, where) == ["a"]
        assert await worded(store, ALL_MINE) == ["a", "b", "笔"]
        await store.apply(Batch(rebuild_words=True))
        await embed(store, {"退": AXIS})
        assert await worded(store, MINE) == ["a", "b"]
        assert await near(store, MINE) == ["a"]

    @rule
    async def test_states_that_may_retell_a_withdrawn_message_go(self, store: Store) -> None:
        """Those of its session; caches notice."""
        await put(store, said("退"), said("b", session_id="会话"))
        await save(store, saved("c"), saved("会", session_id="会话"))
        before = await store.generation(MINE)
        await withdraw(store, "退")
        assert await states(store) == ["会"]
        assert await store.generation(MINE) != before

    @rule
    async def test_a_withdrawn_message_is_not_present(self, store: Store) -> None:
        """Work that read it before is refused; a note that is there may cite it on."""
        await put(store, said("退"), said("b"))
        await withdraw(store, "退")
        late = Batch(notes=(noted("迟"),), present=(said("b"), said("退")))
        assert (await store.apply(late)).refused == "row"
        assert not (await store.apply(replace(late, present=(said("b"),)))).refused
        await remember(store, noted("n", "tea", sources=("退",)))

    @rule
    async def test_a_withdrawn_message_stays_what_it_is(self, store: Store) -> None:
        """To store it again changes nothing; to drop what there is drops it, too."""
        (stored,) = await put(store, said("退", "火锅"))
        await withdraw(store, "退")
        again = await store.apply(Batch(put=(said("退", "火锅"),)))
        assert (again.inserted, again.ignored) == ((), ("退",))
        assert await read_messages(store, TRANSCRIPT) == [replace(stored, withdrawn=True)]
        assert (await store.apply(Batch(drop=(MINE,)))).dropped == 1
        assert await ids(store, TRANSCRIPT) == []


class BranchRules(Suite):
    """What is promised about messages that their session has left."""

    @rule
    async def test_a_message_that_was_replaced_has_ended(self, store: Store) -> None:
        """With what follows it, until its branch is taken up again; other sessions stay."""
        tree = {"b": "a", "退": "b", "A": "a"}
        await put(store, said("a", "火锅"), said("B", "火锅", session_id="会话"))
        for at, (name, parent) in enumerate(tree.items(), 1):
            await put(store, said(name, "火锅", parent_message_id=parent, ts=world.NOW + at))
        assert await _ended(store) == {"b": world.NOW + 3, "退": world.NOW + 3}
        now, then = (replace(MINE, valid_at=world.NOW + at) for at in (3, 2))
        assert await ids(store, now) == ["a", "B", "A"]
        assert await ids(store, then) == ["a", "B", "b", "退", "A"]
        assert await worded(store, now) == ["A", "B", "a"]  # by their ids
        assert len(await worded(store, MINE)) == len(await worded(store, then)) == 5
        again = said("m%", parent_message_id="退", ts=world.NOW + 4)
        assert [it.valid_until for it in await put(store, again)] == [None]
        assert await _ended(store) == {"A": world.NOW + 4}
        await store.apply(Batch(drop=(Where(ME, ids=frozenset({"m%"})),)))
        assert await _ended(store) == {"b": world.NOW + 3, "退": world.NOW + 3}


async def _ended(store: Store) -> dict[str, int]:
    """When messages were replaced, by their ids."""
    messages = await read_messages(store, MINE)
    return {it.id: it.valid_until for it in messages if it.valid_until is not None}


class WithdrawalLaws(Suite):
    """What holds whatever is withdrawn."""

    @law(
        told=world.transcripts(min_size=6, users=world.USERS[:2]),
        withdrawn=st.lists(st.builds(Where, st.sampled_from(world.SCOPES), ids=some_ids)),
        wheres=st.lists(reads, min_size=4, max_size=8),
        queries=st.lists(world.queries(), min_size=2, max_size=4),
        vectors=world.embeddings(),
    )
    async def test_withdrawn_messages_are_where_the_reference_has_them(
        self,
        store: Store,
        *,
        told: tuple[Message, ...],
        withdrawn: list[Where],
        wheres: list[Where],
        queries: list[Query],
        vectors: Embedded,
    ) -> None:
        """In reads and searches of every kind."""
        reference = RamStore()
        for one in (store, reference):
            await one.apply(Batch(put=told))
            await outcome(one, Batch(vectors=(vectors,)))
            await find(one, "火锅", MINE)  # what a store may cache
            await one.apply(Batch(withdraw=tuple(withdrawn)))
        for where in wheres:
            seen = await read_messages(store, where, limit=EVERYTHING)
            same_messages(seen, await read_messages(reference, where, limit=EVERYTHING))
            for query in queries:
                await same_search(store, reference, where, query)
        await same_contents(store, reference, queries)
