"""What `apply` promises: wholly or not at all, each message once, times and numbers in order."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from operator import attrgetter
from typing import Any, cast

import pytest

from kemem.errors import Conflict, InvalidArgument, KeMemError
from kemem.ports import Store, read_health, read_messages, read_notes, read_owners
from kemem.records import ROLES, Embedded, Scope, Where
from kemem.records.batch import Applied, Batch, Job
from kemem.text.query import parse
from kemem_conformance.note_world import ALL_KINDS
from kemem_conformance.suite import (
    EVERYTHING,
    ME,
    Suite,
    around,
    ids,
    nearest,
    put,
    ranking,
    rule,
    said,
)
from kemem_conformance.world import AGENTS, CONTENTS, EXTREMES, MODELS, NOW, USERS, vector

MODEL = MODELS[0]
OTHERWISE: tuple[dict[str, Any], ...] = (  # each tells the same message id differently
    {"content": "我不吃 辣"},
    {"content": "No spice"},
    {"role": "assistant"},
    {"content_type": "code"},
    {"agent_id": AGENTS[1]},
    {"session_id": "会话"},
    {"parent_message_id": "b"},
    {"metadata": {"speaker": "小明"}},
    {"sensitive": True},
)
METADATA: tuple[dict[str, Any], ...] = (
    {"speaker": "小明 'quoted' 👩\u200d👩\u200d👧", "list": [1, -2.5, None, True, "𠮷"]},
    {"nested": {"deep": {"cafe\u0301": []}}, "": "", "large": 2**60, "text": '\\" \\u0000'},
)

by_id = attrgetter("message_id")


def bad_vectors() -> list[Embedded]:
    """Vectors that no store may take, each with the fault of one."""
    good = (1, 0, 0, 0)
    matrices = [[good, wrong] for wrong in ((0, 0, 0, 0), (float("nan"),) * 4, (float("inf"),) * 4)]
    square = [vector((*good, *wrong)).reshape(2, 4) for _, wrong in matrices]
    narrow, single = vector((1, 0, 0, 1, 0, 0)).reshape(2, 3), vector(good).reshape(1, 4)
    return [Embedded(ME, MODEL, ("a", "b"), matrix) for matrix in (*square, narrow, single)]


def conflicting(error: KeMemError) -> set[str]:
    """The ids an error names."""
    return set(cast(Iterable[str], error.details["message_ids"]))


async def contents_of(store: Store) -> tuple[Any, ...]:
    """Everything that can be seen from outside."""
    scopes = await read_owners(store)
    wheres = [Where(scope, kinds=ALL_KINDS) for scope in scopes]
    return (
        scopes,
        [await read_messages(store, where, limit=EVERYTHING) for where in wheres],
        [await read_notes(store, where, limit=EVERYTHING) for where in wheres],
        [(await ranking(store, where, parse("辣 OR spice"), limit=9)).matches for where in wheres],
        [await nearest(store, where, vector((1, 0, 0, 0)), MODEL, 9) for where in wheres],
        [await around(store, where, ()) for where in wheres],
        [await store.history(scope) for scope in scopes],
        [await store.checkpoints(scope, limit=EVERYTHING) for scope in scopes],
        await store.directory("agent", None),
        await store.directory("user", None),
        await store.directory("session", None),
        await store.jobs(),
        await read_health(store),
    )


class WritingRules(Suite):
    """One write, by example."""

    @rule
    async def test_a_message_comes_back_as_it_was_told(self, store: Store) -> None:
        """Every field, whatever the role and time, and the answer shows what is stored."""
        told = [
            said(f"{role} {ts}", ts=ts, role=role, session_id=role, ingest_time=NOW + 7)
            for role in ROLES
            for ts in (NOW, *EXTREMES)
        ]
        told.append(said("full", content_type="code", parent_message_id="消息", session_id="会话"))
        told.append(said("密", sensitive=True))
        stored = await put(store, *told)
        assert [(one.message_id, one.ts, one.content) for one in stored] == [
            (one.message_id, one.ts, one.content) for one in told
        ]
        seen = await read_messages(store, Where(ME), limit=EVERYTHING)
        assert sorted(seen, key=by_id) == sorted(stored, key=by_id)

    @rule
    async def test_text_and_metadata_come_back_exactly(self, store: Store) -> None:
        """NUL, decomposed accents, joined emoji, rare characters and syntax are only text."""
        texts = (*CONTENTS, " \t\r\n 火 ", "\0", "\ufeff", "x" * 20_000, "火" * 20_000)
        told = [said(f"t{number}", text) for number, text in enumerate(texts)]
        told += [said(f"m{number}", metadata=each) for number, each in enumerate(METADATA)]
        await put(store, *told)
        seen = {
            one.message_id: one for one in await read_messages(store, Where(ME), limit=EVERYTHING)
        }
        for one in told:
            assert seen[one.message_id].content == one.content
            assert seen[one.message_id].metadata == one.metadata

    @rule
    async def test_a_repeated_message_is_ignored(self, store: Store) -> None:
        """A retry may carry another clock reading; the first one stays."""
        first = await put(store, said("a", metadata={"n": [1, "二"]}), said("消息", "hello"))
        retry = said("a", metadata={"n": [1, "二"]}, ts=NOW + 9, ingest_time=NOW + 9)
        applied = await store.apply(Batch(put=(retry, said("消息", "hello", ts=0))))
        assert (applied.inserted, set(applied.ignored)) == ((), {"a", "消息"})
        assert await read_messages(store, Where(ME), newest_first=False) == list(first)

    @rule
    async def test_a_message_told_differently_is_a_conflict(self, store: Store) -> None:
        """Any difference but that of the clock is one, and the rest of the batch is not stored."""
        (first,) = await put(store, said("a"))
        for changed in OTHERWISE:
            with pytest.raises(Conflict) as caught:
                await put(store, said("新"), said("a", **changed), said("z"))
            assert conflicting(caught.value) == {"a"}
            for user_id in USERS:
                seen = await read_messages(store, Where(Scope(user_id=user_id)))
                assert seen == ([first] if user_id == "u_" else [])

    @rule
    async def test_composed_and_decomposed_texts_differ(self, store: Store) -> None:
        """What looks the same is not the same."""
        await put(store, said("a", "caf\u00e9"), said("b", "火锅"))
        with pytest.raises(Conflict) as caught:
            await put(store, said("a", "cafe\u0301"), said("b", "火锅 "))
        assert conflicting(caught.value) == {"a", "b"}

    @rule
    async def test_repeats_inside_one_batch_follow_the_same_rule(self, store: Store) -> None:
        """The same twice is stored once; two versions are refused."""
        with pytest.raises(Conflict) as caught:
            await put(store, said("x"), said("a", "火锅"), said("a", "hotpot"))
        assert conflicting(caught.value) == {"a"}
        assert await read_owners(store) == []
        again = said("b")
        applied = await store.apply(Batch(put=(said("a"), again, said("a", ts=NOW + 5), again)))
        assert [one.message_id for one in applied.inserted] == ["a", "b"]
        assert set(applied.ignored) == {"a", "b"}
        assert await ids(store, Where(ME)) == ["a", "b"]

    @rule
    async def test_users_may_use_the_same_message_id(self, store: Store) -> None:
        """An id is unique within a user, however alike the users' names are."""
        await put(store, *(said("a", f"我是 {user}", user_id=user) for user in USERS))
        for user_id in USERS:
            (seen,) = await read_messages(store, Where(Scope("agent", user_id)))
            assert seen.content == f"我是 {user_id}"

    @rule
    async def test_messages_without_a_time_get_one_each(self, store: Store) -> None:
        """The next free microsecond, in the order given; other sessions do not count."""
        await put(store, said("taken", ts=NOW + 1))
        inserted = await put(
            store,
            *(said(each, ts=NOW) for each in ("z", "火", "a")),
            said("b", ts=NOW + 2),
            said("other session", session_id="会话"),
            said("other agent", agent_id=AGENTS[1]),
            said("other user", user_id="u_%"),
        )
        assert [one.ts - NOW for one in inserted] == [0, 2, 3, 2, 0, 0, 0]
        (late,) = await put(store, said("late", ts=NOW))
        assert late.ts == NOW + 4
        in_order = ["z", "taken", "火", "b", "a", "late"]
        assert await ids(store, Where(Scope("agent", "u_", "s"))) == in_order

    @rule
    async def test_sequence_numbers_count_each_session(self, store: Store) -> None:
        """From 1, in the order of arrival and not of time; a message that is ignored takes none."""
        await put(store, said("b", ts=NOW + 9), said("a", ts=NOW), said("b", ts=NOW))
        await put(store, said("b"), said("会话", session_id="会话"), said("c", ts=0))
        await put(store, said("d", agent_id=AGENTS[1]), said("e", user_id="小明"))
        numbers = {"b": 1, "a": 2, "会话": 1, "c": 3, "d": 1, "e": 1}
        for user_id in USERS:
            for one in await read_messages(store, Where(Scope(user_id=user_id))):
                assert one.sequence_no == numbers.pop(one.message_id)
        assert not numbers

    @rule
    async def test_messages_are_read_from_a_sequence_number_on(self, store: Store) -> None:
        """Those that arrived later, whatever time they tell of; a note has no such number."""
        await put(store, said("b", ts=NOW + 9), said("a", ts=NOW), said("c", ts=0))
        for beyond, names in ((0, ["c", "a", "b"]), (1, ["c", "a"]), (2, ["c"]), (3, [])):
            where = Where(Scope("agent", "u_", "s"), beyond=beyond)
            assert await ids(store, where) == names
            assert await ids(store, replace(where, until=NOW)) == [it for it in names if it == "c"]

    @rule
    async def test_sequence_numbers_still_grow_after_a_drop(self, store: Store) -> None:
        """A number that is in use is never given again."""
        await put(store, said("a"), said("二"), said("c"))
        await store.apply(Batch(drop=(Where(ME, ids=frozenset({"a", "二"})),)))
        inserted = await put(store, said("d"), said("五"))
        assert [one.sequence_no for one in inserted] == [4, 5]

    @rule
    async def test_a_drop_removes_what_it_sees_and_no_more(self, store: Store) -> None:
        """It is counted, and the rest stays."""
        for user_id in USERS:
            await put(store, said("a", user_id=user_id), said("消息", user_id=user_id, role="tool"))
        wheres = (Where(ME, role="tool"), Where(Scope(user_id="小明")), Where(ME, role="tool"))
        applied = await store.apply(Batch(drop=wheres))
        assert applied == Applied(dropped=3)
        assert await ids(store, Where(ME)) == ["a"]
        assert await ids(store, Where(Scope("agent", "u_%"))) == ["a", "消息"]
        assert await read_owners(store) == [Scope("agent", "u_"), Scope("agent", "u_%")]

    @rule
    async def test_a_drop_comes_before_a_put(self, store: Store) -> None:
        """So one batch can replace a message."""
        await put(store, said("a", "火锅"), said("b", "hotpot"))
        applied = await store.apply(
            Batch(drop=(Where(ME),), put=(said("a", "咖啡"), said("b", "coffee")))
        )
        assert (len(applied.inserted), applied.ignored, applied.dropped) == (2, (), 2)
        seen = await read_messages(store, Where(ME), newest_first=False)
        assert [one.content for one in seen] == ["咖啡", "coffee"]

    @rule
    async def test_a_batch_that_fails_changes_nothing(self, store: Store) -> None:
        """Not a row, word, vector or job, whatever part of it is at fault."""
        matrix = vector((1, 0, 0, 0)).reshape(1, 4)
        waiting = Job("j", "embed", ME, due=NOW, ids=("a",))
        await put(store, said("a"), said("消息", "吃辣"))
        await store.apply(Batch(vectors=(Embedded(ME, MODEL, ("a",), matrix),), jobs=(waiting,)))
        before = await contents_of(store)
        drop, new = (Where(ME, ids=frozenset({"消息"})),), (said("n", "spice"), said("新", "辣"))
        jobs, done = (Job("k", "embed", ME, due=NOW),), ("j",)
        with pytest.raises(Conflict):
            await store.apply(
                Batch(put=(*new, said("a", "other")), drop=drop, jobs=jobs, done=done)
            )
        assert await contents_of(store) == before
        for wrong in bad_vectors():
            with pytest.raises(InvalidArgument):
                await store.apply(Batch(put=new, vectors=(wrong,), drop=drop, jobs=jobs, done=done))
            assert await contents_of(store) == before

    @rule
    async def test_an_empty_batch_is_no_error(self, store: Store) -> None:
        """It changes nothing."""
        assert await store.apply(Batch()) == Applied()
        assert await store.apply(Batch(drop=(Where(ME),), done=("没有",))) == Applied()

    @rule
    async def test_a_hundred_writers_at_once_all_land(self, store: Store) -> None:
        """No write is lost, and times and numbers stay apart."""
        batches = [Batch(put=(said(f"火{n}"), said(f"m{n}", user_id="小明"))) for n in range(100)]
        await asyncio.gather(*(store.apply(batch) for batch in batches))
        for scope in (ME, Scope("agent", "小明")):
            seen = await read_messages(store, Where(scope), limit=EVERYTHING, newest_first=False)
            assert len({one.message_id for one in seen}) == 100
            assert [one.ts for one in seen] == list(range(NOW, NOW + 100))
            assert sorted(one.sequence_no for one in seen) == list(range(1, 101))

    @rule
    async def test_writers_of_one_message_leave_one_row(self, store: Store) -> None:
        """Whoever comes first stores it; the same again is ignored, another version refused."""
        same = [store.apply(Batch(put=(said("a", ts=NOW + n),))) for n in range(20)]
        applied = await asyncio.gather(*same)
        assert sum(len(each.inserted) for each in applied) == 1
        versions = [store.apply(Batch(put=(said("二", f"第{n}"),))) for n in range(20)]
        results = await asyncio.gather(*versions, return_exceptions=True)
        assert sum(isinstance(each, Conflict) for each in results) == 19
        assert sorted(await ids(store, Where(ME))) == ["a", "二"]
