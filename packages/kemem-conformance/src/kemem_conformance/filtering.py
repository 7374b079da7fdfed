"""What a `Where` promises about notes and filters: every read and every drop honours all of it."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from kemem.ports import Store
from kemem.records import MESSAGES, Message, Note, Scope, Where
from kemem.records.batch import Batch
from kemem.records.filters import COMPARISONS, Filter
from kemem_conformance.nearest import ASKED, ONE, embed
from kemem_conformance.searching import find, ranks
from kemem_conformance.suite import (
    ALL_MINE,
    EVERYTHING,
    ME,
    MINE,
    MY_NOTES,
    Suite,
    ids,
    nearest,
    note_ids,
    noted,
    put,
    remember,
    rule,
    said,
)
from kemem_conformance.world import NOW

KEPT: dict[str, dict[str, Any]] = {  # rows by id, with what is known of them
    "zh": {"tag": "工作", "n": 1, "who": ["小明", "Ann"]},
    "en": {"tag": "Work", "n": 2.5, "who": "小明明"},
    "空": {"tag": None, "n": True, "who": []},
    "none": {},
}
FILTERS: tuple[tuple[Filter, set[str]], ...] = (
    (Filter("eq", "tag", "工作"), {"zh"}),
    (Filter("eq", "tag", "work"), set()),
    (Filter("eq", "metadata.tag", "Work"), {"en"}),
    (Filter("eq", "tag", None), {"空", "none"}),
    (Filter("eq", "n", 1.0), {"zh"}),
    (Filter("eq", "n", True), {"空"}),
    (Filter("eq", "who", "小明"), {"zh"}),
    (Filter("ne", "tag", "工作"), {"en", "空", "none"}),
    (Filter("gt", "n", 1), {"en"}),
    (Filter("gte", "n", 1), {"zh", "en"}),
    (Filter("lt", "n", 2.5), {"zh"}),
    (Filter("lte", "tag", "Work"), {"en"}),
    (Filter("in", "tag", ("工作", None)), {"zh", "空", "none"}),
    (Filter("in", "tag", ()), set()),
    (Filter("nin", "tag", ("工作", "Work")), {"空", "none"}),
    (Filter("contains", "who", "小明"), {"zh", "en"}),
    (Filter("contains", "tag", "work"), set()),
    (Filter("icontains", "tag", "wORK"), {"en"}),
    (Filter("icontains", "who", "ANN"), {"zh"}),
    (Filter("eq", "tag' OR 1=1 --", "x"), set()),
    (Filter("contains", "tag", "%"), set()),
    (Filter("AND", parts=(Filter("gte", "n", 1), Filter("ne", "tag", "工作"))), {"en"}),
    (Filter("OR", parts=(Filter("eq", "tag", "工作"), Filter("eq", "n", True))), {"zh", "空"}),
    (Filter("NOT", parts=(Filter("eq", "tag", None), Filter("gt", "n", 2))), {"zh"}),
    (Filter("NOT", parts=(Filter("OR", parts=(Filter("eq", "user_id", "u_"),)),)), set()),
    (Filter("eq", "user_id", "小明"), set()),
)


VALUES: tuple[Any, ...] = (
    *("tag", "h0", "H0", "0.25", "user", "user_info", "u_", ""),
    *(1, 1.0, 0.25, 2**40, 2**70, -1, True, False, None),
    *(["tag"], [["tag"]], ["h0", ["h1", 1]], [], {"tag": "tag"}, {}),
)
FIELDS = (
    *("id", "ts", "created_at", "importance", "memory_type", "topic", "kind", "role", "content"),
    *("session_id", "sensitive", "sources", "keywords", "tag", "metadata.tag", 'a"b'),
)


def every_filter() -> Iterator[Filter]:
    """Comparisons of every field with some value of every type; ends of their pairs, denied."""
    for at, (key, operator) in enumerate(product(FIELDS, COMPARISONS)):
        lists = operator in ("in", "nin")
        for value in VALUES[at % 9 :: 9]:
            one = Filter(operator, key, (value, NOW) if lists else value)
            yield one
            if at % 4 == 0:
                yield Filter("NOT", parts=(one, Filter("eq", "topic", "h1")))


def rows(user_id: str = "u_") -> tuple[tuple[Message, ...], tuple[Note, ...]]:
    """Messages and notes of a user that have the same ids, words and metadata."""
    messages = [said(name, f"火锅 tea {name}", metadata=known) for name, known in KEPT.items()]
    notes = [noted(name, f"火锅 tea {name}", metadata=known) for name, known in KEPT.items()]
    return (
        tuple(replace(one, user_id=user_id) for one in messages),
        tuple(replace(one, user_id=user_id) for one in notes),
    )


async def near(store: Store, where: Where) -> list[str]:
    """The ids that vectors find."""
    return sorted(hit.id for hit in await nearest(store, where, ASKED, ONE, 99))


async def worded(store: Store, where: Where, text: str = "火锅 tea") -> list[str]:
    """The ids that words find."""
    return sorted(name for name, _ in ranks(await find(store, text, where)))


class FilteringRules(Suite):
    """What may be seen, by example."""

    @rule
    async def test_filters_hold_wherever_rows_are_read(self, store: Store) -> None:
        """Listed, found by words, near by vectors; of messages, of notes and of both."""
        for user_id in ("u_", "小明"):
            messages, notes = rows(user_id)
            await store.apply(Batch(put=messages, notes=notes))
        await embed(store, dict.fromkeys(KEPT, (1.0, 0.0, 0.0, 0.0)))
        scores = dict(ranks(await find(store, "火锅 tea", MY_NOTES)))
        for condition, wanted in FILTERS:
            where = replace(ALL_MINE, filters=condition)
            assert set(await ids(store, where)) == wanted, condition
            assert set(await note_ids(store, where)) == wanted, condition
            assert await worded(store, where) == sorted((*wanted, *wanted)), condition
            assert await near(store, where) == sorted((*wanted, *wanted)), condition
            found = await find(store, "火锅 tea", replace(where, kinds=MY_NOTES.kinds))
            assert dict(ranks(found)) == {name: scores[name] for name in wanted}, condition
            assert found.total == len(wanted), condition

    @rule
    async def test_filters_mean_what_the_definition_says(self, store: Store) -> None:
        """Every comparison of every field with values of every type, alone and denied."""
        keys = ("tag", 'a"b', "memory_type")
        hostile = {f"h{n}": dict.fromkeys(keys, value) for n, value in enumerate(VALUES)}
        messages = [said(name, metadata=known) for name, known in hostile.items()]
        notes = [
            noted(name, f"{name} tea", metadata=known, sources=("h0",), topic=name, importance=0.25)
            for name, known in hostile.items()
        ]
        await store.apply(Batch(put=tuple(messages), notes=tuple(notes)))
        rows = await store.read(ALL_MINE, limit=EVERYTHING)
        assert len(rows) == 2 * len(VALUES)
        wrong = []
        for condition in every_filter():
            where = replace(ALL_MINE, filters=condition)
            seen = await store.read(where, limit=EVERYTHING)
            if len(seen) != sum(map(where.matches, rows)) or not all(map(where.matches, seen)):
                wrong.append(condition)
        assert wrong == []

    @rule
    async def test_filters_know_the_fields_of_rows(self, store: Store) -> None:
        """Those of a message and those of a note."""
        await put(
            store, said("a", "火锅", role="tool"), said("b", "tea", ts=NOW + 1, ingest_time=NOW + 5)
        )
        full = {"memory_type": "饮食", "topic": "taste", "sensitive": True, "importance": 0.75}
        await remember(
            store,
            noted("n", "火锅", keywords=("辣", "Hot"), created=NOW - 1, **full),
            noted("笔", "tea", kind="knowledge", session_id="s", ts=NOW + 1, updated=NOW + 5),
        )
        for condition, wanted in (
            (Filter("eq", "role", "tool"), ["a"]),
            (Filter("eq", "role", None), ["n", "笔"]),
            (Filter("eq", "kind", "message"), ["a", "b"]),
            (Filter("gte", "updated_at", NOW + 5), ["b", "笔"]),
            (Filter("lt", "created_at", NOW), ["n"]),
            (Filter("gt", "timestamp", NOW), ["b", "笔"]),
            (Filter("contains", "memory", "火"), ["a", "n"]),
            (Filter("eq", "keywords", "辣"), ["n"]),
            (Filter("icontains", "keywords", "hot"), ["n"]),
            (Filter("eq", "run_id", "s"), ["a", "b", "笔"]),
            (Filter("eq", "session_id", None), ["n"]),
            (Filter("in", "memory_id", ("b", "n")), ["b", "n"]),
            (Filter("eq", "sensitive", False), ["a", "b", "笔"]),
            *((Filter("eq", name, value), ["n"]) for name, value in full.items()),
        ):
            where = replace(ALL_MINE, filters=condition)
            seen = [*await ids(store, where), *await note_ids(store, where)]
            assert sorted(seen) == wanted, condition

    @rule
    async def test_a_drop_honours_filters(self, store: Store) -> None:
        """It removes what they let through, and no more."""
        for condition, wanted in FILTERS:
            messages, notes = rows()
            await store.apply(Batch(drop=(ALL_MINE,), put=messages, notes=notes))
            dropped = (
                await store.apply(Batch(drop=(replace(ALL_MINE, filters=condition),)))
            ).dropped
            assert dropped == 2 * len(wanted), condition
            assert set(await ids(store, ALL_MINE)) == KEPT.keys() - wanted, condition
            assert set(await note_ids(store, ALL_MINE)) == KEPT.keys() - wanted, condition

    @rule
    async def test_a_note_has_ended_at_its_end(self, store: Store) -> None:
        """Not before; one that is not true yet is not known; messages never end."""
        await put(store, said("m", "火锅 tea"))
        await remember(
            store,
            noted("open", "火锅 tea o", ts=1, valid_from=NOW + 2),
            noted("替", "火锅 tea 替", ts=2, valid_from=NOW, valid_until=NOW + 2),
            noted("out", "火锅 tea x", ts=3, valid_from=NOW + 1, expires=NOW + 3),
        )
        await embed(store, dict.fromkeys(("m", "open", "替", "out"), (1.0, 0.0, 0.0, 0.0)))
        cases: tuple[tuple[dict[str, Any], list[str]], ...] = (
            ({}, ["open", "替", "out"]),
            ({"valid_at": NOW + 1}, ["open", "替", "out"]),
            ({"valid_at": NOW + 2}, ["open", "out"]),
            ({"valid_at": NOW + 3}, ["open"]),
            ({"known_by": NOW}, ["替"]),
            ({"known_by": NOW + 1}, ["替", "out"]),
            ({"known_by": NOW + 2, "valid_at": NOW + 2}, ["open", "out"]),
        )
        for given, wanted in cases:
            where = replace(ALL_MINE, **given)
            assert await note_ids(store, where) == wanted, given
            assert await worded(store, where) == sorted(["m", *wanted]), given
            assert await near(store, where) == sorted(["m", *wanted]), given
            assert await ids(store, where) == ["m"]

    @rule
    async def test_sensitive_rows_are_seen_only_where_that_is_granted(self, store: Store) -> None:
        """Messages and notes, listed, found by words or near; shared ones, and by their ids too."""
        shared = replace(ALL_MINE, shared="agent")
        for name, flag in (("m", False), ("密", True)):
            told = {"sensitive": flag, "ts": NOW + flag}
            await put(store, said(name, f"火锅 tea {name}", **told))
            await remember(store, noted(f"n{name}", f"火锅 tea {name}", **told))
            await remember(store, noted(f"公{name}", f"火锅 tea {name}", user_id="", **told))
            await embed(store, dict.fromkeys((name, f"n{name}"), (1.0, 0.0, 0.0, 0.0)))
        everything = ["m", "nm", "n密", "公m", "公密", "密"]
        for where, wanted in (
            (shared, everything),
            (replace(shared, sensitive=False), ["m", "nm", "公m"]),
            (replace(ALL_MINE, sensitive=False), ["m", "nm"]),
            (replace(shared, sensitive=False, ids=frozenset(everything)), ["m", "nm", "公m"]),
            (replace(shared, sensitive=False, valid_at=NOW), ["m", "nm", "公m"]),
        ):
            found = await find(store, "火锅 tea", where)
            assert sorted([*await ids(store, where), *await note_ids(store, where)]) == wanted
            assert (await worded(store, where), found.total) == (wanted, len(wanted))
            assert await near(store, where) == [name for name in wanted if name[0] != "公"]
        hidden = replace(ALL_MINE, sensitive=False)
        assert await ids(store, hidden, limit=1, newest_first=True) == ["m"]
        assert (await store.apply(Batch(drop=(hidden,)))).dropped == 2
        assert (await ids(store, ALL_MINE), await note_ids(store, ALL_MINE)) == (["密"], ["n密"])
        assert (await store.apply(Batch(drop=(ALL_MINE,)))).dropped == 2

    @rule
    async def test_kinds_roles_and_marks_are_conditions(self, store: Store) -> None:
        """A role hides notes, a mark hides messages."""
        await put(store, said("m", "火锅 tea", role="user"))
        told = {"user_info": "x", "knowledge": "饮食", "experience": None, "short_term": "x"}
        for number, (kind, topic) in enumerate(told.items()):
            note = noted(kind, f"火锅 tea {kind}", kind=kind, topic=topic, digest=f"{kind} 摘")
            await remember(store, replace(note, ts=number))
        for given, wanted in (
            ({"kinds": frozenset({"knowledge"})}, ["knowledge"]),
            ({"kinds": frozenset({"short_term", "message"})}, ["short_term"]),
            ({"kinds": frozenset()}, []),
            (
                {"marks": frozenset({"x", "experience 摘"})},
                ["user_info", "experience", "short_term"],
            ),
            ({"marks": frozenset({"饮食"})}, ["knowledge"]),
            ({"marks": frozenset()}, []),
            ({"role": "user"}, []),
            ({"since": 2}, ["experience", "short_term"]),
            ({"until": 1}, ["user_info"]),
            ({"ids": frozenset({"knowledge", "没有"})}, ["knowledge"]),
        ):
            where = replace(ALL_MINE, **given)
            message = ["m"] if where.matches(said("m")) else []
            assert await note_ids(store, where) == wanted, given
            assert await ids(store, where) == message, given
            assert await worded(store, where) == sorted([*message, *wanted]), given

    @rule
    async def test_shared_notes_are_seen_beside_ones_own(self, store: Store) -> None:
        """Of the agent that is named; not its shared messages, and no other user's notes."""
        for number, (agent_id, user_id) in enumerate(
            (agent, user) for agent in ("agent", "助手") for user in ("u_", "小明", "")
        ):
            whose = {"agent_id": agent_id, "user_id": user_id}
            name = f"{agent_id} {user_id}"
            await put(store, said(f"m {name}", "火锅 tea", **whose))
            await remember(store, noted(name, f"火锅 tea {name}", ts=number, **whose))
            await embed(store, {name: (1, 0, 0, 0)}, scope=Scope(agent_id, user_id))
        for shared, wanted in (
            (None, ["agent u_"]),
            ("agent", ["agent u_", "agent "]),
            ("助手", ["agent u_", "助手 "]),
            ("没有", ["agent u_"]),
        ):
            where = replace(ALL_MINE, shared=shared)
            assert await note_ids(store, where) == wanted
            assert await near(store, where) == sorted(wanted)
            assert await ids(store, where) == ["m agent u_"]
            assert await worded(store, where) == sorted([*wanted, "m agent u_"])
        session = Where(Scope("agent", "u_", "s"), kinds=ALL_MINE.kinds, shared="agent")
        assert await note_ids(store, session) == ["agent "]
        whole = Where(Scope("agent"), kinds=ALL_MINE.kinds, shared="agent")
        assert await ids(store, whole) == ["m agent u_", "m agent 小明"]

    @rule
    async def test_scores_are_those_of_the_kinds_asked_for(self, store: Store) -> None:
        """Other kinds and other users do not count; hidden rows of these kinds do."""
        for scope, text in ((ME, "火锅 hotpot"), (Scope("agent", "小明"), "咖啡 coffee")):
            whose = {"user_id": scope.user_id}
            where = Where(scope, kinds=frozenset({"knowledge"}))
            known = {"kind": "knowledge", **whose}
            await remember(store, noted("a", f"{text} tea", **known), noted("b", "茶 tea", **known))
            before = ranks(await find(store, f"{text} tea", where))
            await put(store, *(said(f"m{n}", f"{text} tea", **whose) for n in range(3)))
            await remember(store, noted("c", f"{text} tea", **whose))
            assert ranks(await find(store, f"{text} tea", where)) == before
            hidden = noted("d", f"{text} old", valid_until=NOW, **known)
            await remember(store, hidden)
            assert ranks(await find(store, f"{text} tea", where))[:1] != before[:1]
            open_now = replace(where, valid_at=NOW)
            both = [await find(store, f"{text} tea", each) for each in (where, open_now)]
            assert ranks(both[1]) == [rank for rank in ranks(both[0]) if rank[0] != "d"]

    @rule
    async def test_shared_rows_count_where_they_are_asked_for(self, store: Store) -> None:
        """A score among one's own and the shared notes is not that among one's own."""
        await remember(store, noted("a", "火锅 hotpot"), noted("b", "茶 tea"))
        alone = ranks(await find(store, "火锅 tea", MY_NOTES))
        await remember(store, *(noted(f"公{n}", f"火锅 {n}", user_id="") for n in range(3)))
        assert ranks(await find(store, "火锅 tea", MY_NOTES)) == alone
        hidden = replace(MY_NOTES, shared="agent", ids=frozenset({"a", "b"}))
        among = dict(ranks(await find(store, "火锅 tea", hidden)))
        assert among.keys() == {"a", "b"}
        assert among["a"] < among["b"]

    @rule
    async def test_vectors_belong_to_every_row_of_that_id(self, store: Store) -> None:
        """A message and a note may have one id, and each of them its words."""
        await put(store, said("a", "火锅"))
        await remember(store, noted("a", "tea", session_id="会话"), noted("笔", "茶"))
        await embed(store, {"a": (1, 0, 0, 0)}, scope=Scope("agent", "u_", "会话"))
        assert (await near(store, MINE), await near(store, MY_NOTES)) == ([], ["a"])
        await embed(store, {"a": (1, 0, 0, 0), "没有": (1, 0, 0, 0)})
        assert await near(store, ALL_MINE) == ["a", "a"]
        assert (await worded(store, MINE), await worded(store, MY_NOTES)) == (["a"], ["a"])
        await store.apply(Batch(drop=(Where(ME, kinds=MESSAGES),)))
        assert await near(store, ALL_MINE) == ["a"]
        assert await worded(store, ALL_MINE) == ["a"]
