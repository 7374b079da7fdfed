"""What `apply` promises about notes: kept once, changed wholly, merged where they say the same."""

from dataclasses import replace
from typing import Any

import pytest

from kemem.errors import InvalidArgument
from kemem.ports import Store, read_health, read_messages, read_notes, read_owners
from kemem.records import NOTE_KINDS, Change, Checkpoint, Link, Note, Scope, Where
from kemem.records.batch import Applied, Batch, Expected, Job, Use
from kemem_conformance.nearest import ASKED, ONE, embed, scores
from kemem_conformance.searching import beyond, find, ranks
from kemem_conformance.suite import (
    ALL_MINE,
    ME,
    MINE,
    MY_NOTES,
    Suite,
    around,
    nearest,
    note_ids,
    noted,
    put,
    remember,
    rule,
    said,
)
from kemem_conformance.world import AGENTS, CONTENTS, EXTREMES, NOW
from kemem_conformance.writing import METADATA, contents_of

SPICE = "用户不吃辣 no spice"
SAME = ("用户不吃辣 No Spice。", "用户不吃辣, no spice!")
STUDIES = Link("n", "小明", "就读于", "Beijing University", "person", "place")
FULL = noted(
    "笔记",
    session_id="会话",
    kind="knowledge",
    valid_until=NOW + 3,
    expires=NOW + 4,
    memory_type="饮食",
    summary="no spice 不辣",
    keywords=("火锅", "hot pot"),
    metadata=METADATA[0],
    sources=("消息", "a"),
    topic="口味 taste",
    supersedes="n0",
    importance=0.125,
    sensitive=True,
    uses=3,
    used=NOW + 1,
)


def added(note_id: str = "n", at: int = NOW, **changed: Any) -> Change:
    """A line of history of the first user's note."""
    return replace(Change("agent", "u_", note_id, "add", at, after="辣 spice"), **changed)


async def only(store: Store, where: Where = MY_NOTES) -> Note:
    """The one note that is there."""
    (note,) = await read_notes(store, where)
    return note


class NotingRules(Suite):
    """Notes, by example."""

    @rule
    async def test_a_note_comes_back_as_it_was_told(self, store: Store) -> None:
        """Every field, every kind, and any text; messages are no notes."""
        told = [FULL, *(noted(kind, kind=kind) for kind in NOTE_KINDS)]
        told += [noted(f"t{n}", text, digest=f"text {n}") for n, text in enumerate(CONTENTS)]
        told += [noted(f"{ts}", ts=ts, valid_from=ts, digest=f"at {ts}") for ts in EXTREMES]
        told += [noted("m", metadata=METADATA[1], digest="m")]
        await put(store, said("a"), said("消息"))
        await remember(store, *told)
        seen = await read_notes(store, MY_NOTES, limit=1_000)
        assert {one.note_id: one for one in seen} == {one.note_id: one for one in told}
        assert await read_notes(store, Where(ME)) == []
        assert await read_messages(store, MY_NOTES) == []
        assert len(await read_messages(store, ALL_MINE)) == 2

    @rule
    async def test_notes_are_listed_like_messages(self, store: Store) -> None:
        """By time, then by arrival, in both directions, strictly beyond a cursor."""
        names = ["b", "B", "笔", "A"]
        await remember(store, *(noted(name, name, digest=name) for name in names))
        await remember(store, noted("new", "新", ts=NOW + 1), noted("旧", "old", ts=NOW - 1))
        assert await note_ids(store) == ["旧", *names, "new"]
        assert await note_ids(store, newest_first=True) == ["new", *names[::-1], "旧"]
        (here,) = await read_notes(store, replace(MY_NOTES, ids=frozenset("B")))
        for _ in range(2):
            assert await note_ids(store, after=here.position, limit=2) == ["笔", "A"]
            seen = await note_ids(store, after=here.position, newest_first=True)
            assert seen == ["b", "旧"]
            await store.apply(Batch(drop=(replace(MY_NOTES, ids=frozenset("B")),)))

    @rule
    async def test_a_note_keeps_its_place_when_its_words_change(self, store: Store) -> None:
        """So that a page after it loses and repeats nothing."""
        names = ["b", "B", "笔", "A"]
        await remember(store, *(noted(name, name, digest=name) for name in names))
        before = await read_notes(store, MY_NOTES)
        await remember(store, noted("B", "改了 changed", digest="改"))
        assert await note_ids(store) == names
        seen = await read_notes(store, MY_NOTES)
        assert [note.position for note in seen] == [note.position for note in before]

    @rule
    async def test_a_known_note_is_replaced_wholly(self, store: Store) -> None:
        """Not mixed with what it was; the same id in another pair is another note."""
        others = [noted("笔记", user_id="小明"), noted("笔记", agent_id=AGENTS[1])]
        await put(store, said("a"), said("消息"))
        await remember(store, FULL, *others[:1])
        await remember(store, *others[1:])
        changed = noted("笔记", "Ann likes tea 茶", kind="experience", updated=NOW + 9)
        await remember(store, changed)
        assert await only(store) == changed
        for scope, other in zip((Scope("agent", "小明"), Scope("助手", "u_")), others, strict=True):
            assert await only(store, replace(MY_NOTES, scope=scope)) == other

    @rule
    async def test_other_words_cost_a_note_its_links_and_vector(self, store: Store) -> None:
        """They were drawn from its text; content, summary and keywords are that."""
        for changed in (
            noted("n", summary="杯 omega"),
            noted("n", "茶 tea"),
            noted("n", "茶 tea", keywords=("水 hot", "杯")),
        ):
            await remember(store, noted("n"), links=(STUDIES,))
            await embed(store, {"n": (1, 0, 0, 0)})
            assert len(await around(store, MY_NOTES, ())) == 1
            await remember(store, changed)
            assert await around(store, MY_NOTES, ()) == []
            assert await nearest(store, MY_NOTES, ASKED, ONE, 9) == []
            gone = 0 if changed.summary is None else 1
            assert (await find(store, "辣 OR spice", MY_NOTES)).total == gone
            assert (await find(store, "omega", MY_NOTES)).total == gone
        assert (await find(store, "杯", MY_NOTES)).total == 1
        await remember(store, noted("n", "茶 tea", keywords=("水", "hot 杯")), links=(STUDIES,))
        assert len(await around(store, MY_NOTES, ())) == 1

    @rule
    async def test_the_same_words_keep_links_vector_and_place(self, store: Store) -> None:
        """Whatever else changes, also the end of its validity."""
        for user_id, text in (("u_", "火锅 a"), ("小明", "hotpot a")):
            where = Where(Scope("agent", user_id), kinds=MY_NOTES.kinds)
            told = [noted(f"n{n}", f"{text}{n}", user_id=user_id, ts=-n) for n in range(3)]
            await remember(store, *told, links=(replace(STUDIES, note_id="n1"),))
            await embed(store, {"n1": (1, 0, 0, 0)}, scope=where.scope)
            first = await find(store, text, where, limit=1)
            ended = replace(told[1], valid_until=NOW, metadata={"标": "tag"}, uses=4)
            await remember(store, ended)
            rest = await find(store, text, where, after=beyond(first))
            assert [name for name, _ in ranks(rest)] == ["n1", "n2"]
            assert scores(await nearest(store, where, ASKED, ONE, 9)) == [("n1", 0.8)]
            (relation,) = await around(store, where, ())
            assert (relation.note_ids, relation.valid_until) == (("n1",), NOW)
            assert (await read_notes(store, where))[1] == ended

    @rule
    async def test_a_changed_note_arrives_anew(self, store: Store) -> None:
        """A page begun before does not show it; a search begun now does."""
        await remember(store, *(noted(f"n{n}", f"火锅 tea {n}", ts=-n) for n in range(4)))
        first = await find(store, "火锅 tea", MY_NOTES, limit=1)
        await remember(store, noted("n2", "火锅 tea again", ts=-2))
        rest = await find(store, "火锅 tea", MY_NOTES, after=beyond(first))
        assert [name for name, _ in ranks(rest)] == ["n1", "n3"]
        assert rest.total == 3
        assert (await find(store, "火锅 tea", MY_NOTES)).total == 4

    @rule
    async def test_a_note_that_says_the_same_is_merged(self, store: Store) -> None:
        """The first one stays and gains sources, importance and the later time."""
        await put(store, *map(said, ("a", "b", "c", "消息")))
        first = noted("n", sources=("b", "消息"), importance=0.5, updated=NOW + 5)
        await remember(store, first)
        again = [
            noted("m", SAME[0], sources=("a", "b"), importance=0.75, updated=NOW),
            noted("笔", SAME[1], sources=("c", "消息"), importance=0.25, updated=NOW + 9),
        ]
        applied = await store.apply(Batch(notes=tuple(again)))
        assert applied == Applied(merged={"m": "n", "笔": "n"})
        sources = ("b", "消息", "a", "c")
        grown = replace(first, sources=sources, importance=0.75, updated=NOW + 9)
        assert await only(store) == grown
        assert (await store.apply(Batch(notes=tuple(again)))).merged == {"m": "n", "笔": "n"}
        assert await only(store) == grown

    @rule
    async def test_equal_notes_of_one_batch_are_merged(self, store: Store) -> None:
        """Into the first of them."""
        told = (noted("m", sources=("a",)), noted("笔", "tea 茶"), noted("n", SAME[0]))
        applied = await store.apply(Batch(put=(said("a"),), notes=told))
        assert applied.merged == {"n": "m"}
        assert sorted(await note_ids(store)) == ["m", "笔"]

    @rule
    async def test_only_open_notes_of_one_place_are_merged(self, store: Store) -> None:
        """Another agent, user, kind or session, or one that has ended, is another place."""
        places = (
            *({"agent_id": "助手"}, {"user_id": "小明"}, {"user_id": ""}, {"kind": "knowledge"}),
            *({"session_id": "s"}, {"session_id": "会话"}, {"digest": "other"}),
        )
        told = [noted(f"n{n}", **place) for n, place in enumerate(places)]
        await remember(store, noted("ended", valid_until=NOW + 1), *told)
        assert (await store.apply(Batch(notes=(noted("open"),)))).merged == {}
        assert (await read_health(store)).notes == len(places) + 2
        expired = noted("expired", "茶 tea", expires=NOW)
        applied = await store.apply(Batch(notes=(expired, noted("late", "茶 tea"))))
        assert applied.merged == {}

    @rule
    async def test_a_note_that_is_told_again_lasts_as_long_as_either(self, store: Store) -> None:
        await remember(store, noted("n", expires=NOW + 5))
        await remember(store, noted("m", SAME[0], expires=NOW + 9))
        assert (await only(store)).expires == NOW + 9
        await remember(store, noted("笔", SAME[1]))
        assert (await only(store)).expires is None

    @rule
    async def test_what_was_told_as_sensitive_once_stays_so(self, store: Store) -> None:
        """Whichever came first, and only where both say the same."""
        for user_id, first in (("u_", True), ("小明", False)):
            where = Where(Scope("agent", user_id), kinds=MY_NOTES.kinds)
            for number, text in enumerate((SPICE, *SAME)):
                flag = first if number == 0 else not first
                await remember(store, noted(f"n{number}", text, user_id=user_id, sensitive=flag))
            await remember(store, noted("茶", "茶 tea", user_id=user_id))
            found = {note.id: note.sensitive for note in await read_notes(store, where)}
            assert found == {"n0": True, "茶": False}

    @rule
    async def test_nothing_is_written_where_a_note_has_gone(self, store: Store) -> None:
        """A change that was decided on what is no longer there."""
        await remember(store, noted("n"))
        before = await contents_of(store)
        for gone in (noted("没有"), noted("n", user_id="小明"), noted("n", agent_id="助手")):
            batch = Batch(put=(said("新"),), notes=(noted("m", "tea"),), present=(noted("n"), gone))
            assert (await store.apply(batch)) == Applied(refused="row")
            assert await contents_of(store) == before
        there = Batch(notes=(noted("m", "tea"),), present=(noted("n"),))
        assert not (await store.apply(there)).refused

    @rule
    async def test_nothing_is_written_where_a_message_or_a_state_has_gone(
        self, store: Store
    ) -> None:
        """A state must be the newest of its session, too, as it was read."""
        old, new = (Checkpoint(name, "agent", "u_", "s", NOW + at) for at, name in enumerate("cd"))
        await put(store, said("a"), said("b", user_id="小明"))
        await store.apply(Batch(checkpoints=(old, new)))
        before = await contents_of(store)
        elsewhere = replace(new, user_id="小明")
        changed = replace(new, notes=(noted("n"),))
        for gone in (said("没有"), said("b"), said("a", agent_id="助手"), old, elsewhere, changed):
            batch = Batch(put=(said("新"),), present=(said("a"), new, gone))
            assert (await store.apply(batch)) == Applied(refused="row")
            assert await contents_of(store) == before
        other_words = said("a", "other words 别的")
        assert not (await store.apply(Batch(present=(other_words, new)))).refused

    @rule
    async def test_nothing_is_written_where_a_read_answers_otherwise(self, store: Store) -> None:
        """Another note, one less, or a changed one; uses and notes beyond the limit are no
        matter."""
        told = (noted("n", topic="家"), noted("m", "辣", topic="家", ts=NOW - 1))
        await remember(store, *told, noted("笔", "tea 茶"))
        homes = replace(MY_NOTES, marks=frozenset({"家"}))
        whole = Expected(homes, told, 9)
        newest = Expected(homes, told[:1], 1)
        for number, expected in enumerate((whole, newest, Expected(homes, told[::-1], 9))):
            fresh = noted(f"x{number}", f"new {number}")
            assert not (await store.apply(Batch(notes=(fresh,), expects=(expected,)))).refused
        await store.apply(Batch(used=(Use("agent", "u_", "n", 2, NOW),)))
        before = await contents_of(store)
        ended = (replace(told[0], valid_until=NOW), told[1])
        for notes, limit in ((told[:1], 9), ((*told, noted("笔", "tea 茶")), 9), (ended, 9)):
            wrong = Expected(homes, notes, limit)
            batch = Batch(put=(said("新"),), expects=(newest, wrong))
            assert await store.apply(batch) == Applied(refused="changed")
            assert await contents_of(store) == before
        assert not (await store.apply(Batch(put=(said("新"),), expects=(whole, newest)))).refused

    @rule
    async def test_notes_are_found_by_what_they_cite(self, store: Store) -> None:
        """Any one of the messages; messages cite nothing, and owners do not meet."""
        await put(store, *map(said, ("a", "b", "消息")), said("a", user_id="小明"))
        told = (noted("n", sources=("b", "a")), noted("笔", "tea", sources=("消息",)))
        other = noted("n", user_id="小明", sources=("a",))
        await remember(store, *told, noted("无", "nothing cited"), other)
        for names, found in (("a", ["n"]), (("b", "消息"), ["n", "笔"]), (("没有",), []), ((), [])):
            where = replace(ALL_MINE, sources=frozenset(names))
            assert sorted(await note_ids(store, where)) == sorted(found)
            assert await read_messages(store, where) == []
            assert [hit.id for hit in (await find(store, "spice", where)).matches] == (
                ["n"] if "n" in found else []
            )
        assert (await store.apply(Batch(drop=(replace(ALL_MINE, sources=frozenset("b")),)))) == (
            Applied(dropped=1)
        )
        assert sorted(await note_ids(store)) == ["无", "笔"]

    @rule
    async def test_a_note_does_not_cite_what_was_deleted(self, store: Store) -> None:
        """The others stay in their order; a change that still names it is written without it."""
        await put(store, *map(said, ("a", "b", "消息")), said("b", user_id="小明"))
        first, other = noted("n", sources=("消息", "b", "a")), noted("n", user_id="小明")
        other = replace(other, sources=("b",))
        await remember(store, first, other)
        await store.apply(Batch(drop=(replace(MINE, ids=frozenset("b")),)))
        assert await only(store) == replace(first, sources=("消息", "a"))
        assert await only(store, Where(Scope("agent", "小明"), kinds=MY_NOTES.kinds)) == other
        for changed in (replace(first, importance=0.75), noted("n", "tea 茶", sources=("b",))):
            applied = await store.apply(Batch(notes=(changed,)))
            left = tuple(name for name in changed.sources if name != "b")
            assert (applied, await only(store)) == (Applied(), replace(changed, sources=left))

    @rule
    async def test_a_new_note_that_cites_what_is_not_there_refuses_the_batch(
        self, store: Store
    ) -> None:
        """Deleted, never there, or another owner's; a message of the same batch is there."""
        await put(store, said("a"), said("b", agent_id="助手"), said("消息", user_id="小明"))
        await remember(store, noted("n"))
        before = await contents_of(store)
        for name in ("没有", "b", "消息"):
            batch = Batch(
                put=(said("新"),), notes=(noted("n", "tea"), noted("m", "辣", sources=("a", name)))
            )
            assert await store.apply(batch) == Applied(refused="source")
            assert await contents_of(store) == before
        fresh = noted("m", "辣", sources=("新", "a"))
        await store.apply(Batch(put=(said("新"),), notes=(fresh,)))
        assert fresh in await read_notes(store, MY_NOTES)

    @rule
    async def test_what_belongs_to_a_merged_note_finds_the_first(self, store: Store) -> None:
        """Its links go there; its history and vector are those of the first already."""
        await remember(store, noted("n"), changes=(added(),))
        merged = noted("笔", SAME[0])
        await remember(
            store,
            *(merged, noted("m", "tea")),
            links=(replace(STUDIES, note_id="笔"),),
            changes=(added("笔"), added("m")),
        )
        await embed(store, {"笔": (1, 0, 0, 0)})
        (relation,) = await around(store, MY_NOTES, ())
        assert relation.note_ids == ("n",)
        assert await store.history(ME) == [added("m"), added()]
        assert await nearest(store, MY_NOTES, ASKED, ONE, 9) == []
        assert await read_owners(store, "笔") == []

    @rule
    async def test_uses_are_counted_and_nothing_else_changes(self, store: Store) -> None:
        """Also not the time of the last change; what is unknown is ignored."""
        other = noted("笔记", user_id="小明")
        await put(store, said("a"), said("消息"))
        await remember(store, FULL)
        await remember(store, other)
        uses = (Use("agent", "u_", "笔记", 2, NOW + 5), Use("agent", "u_", "没有", 1, NOW))
        await store.apply(Batch(used=uses))
        assert await only(store) == replace(FULL, uses=5, used=NOW + 5)
        await store.apply(Batch(used=(*uses[:1], Use("agent", "u_", "笔记", 1, NOW + 7))))
        assert await only(store) == replace(FULL, uses=8, used=NOW + 7)
        assert await only(store, Where(Scope("agent", "小明"), kinds=MY_NOTES.kinds)) == other

    @rule
    async def test_a_note_knows_its_owner(self, store: Store) -> None:
        """Shared ones belong to the agent; messages and what is gone have none."""
        await put(store, said("a"))
        await remember(store, noted("n"), noted("笔", user_id="", agent_id="助手"))
        assert await read_owners(store, "n") == [ME]
        assert await read_owners(store, "笔") == [Scope("助手", "")]
        assert await read_owners(store, "a") == await read_owners(store, "没有") == []
        await store.apply(Batch(drop=(MY_NOTES,)))
        assert await read_owners(store, "n") == []

    @rule
    async def test_history_is_told_newest_first(self, store: Store) -> None:
        """Of a scope or of one note, as it was given; equal times go by writing."""
        lines = (
            added(at=NOW + 1),
            added("笔", event="update", before="辣", after="不辣", reason="更正 corrected"),
            added(at=NOW, event="update", before="spice", after="no spice"),
        )
        await remember(store, noted("n"), noted("笔", "tea"), changes=lines)
        later = added("笔", at=NOW + 1, event="update", after="late 晚")
        await store.apply(Batch(changes=(later,)))
        other = noted("n", user_id="小明")
        await remember(store, other, changes=(replace(lines[0], user_id="小明"),))
        assert await store.history(ME) == [later, lines[0], lines[2], lines[1]]
        assert await store.history(ME, limit=2) == [later, lines[0]]
        assert await store.history(ME, note_id="笔") == [later, lines[1]]
        assert await store.history(ME, event="add") == [lines[0]]
        assert await store.history(ME, event="update", limit=2) == [later, lines[2]]
        assert await store.history(ME, note_id="笔", event="delete") == []
        assert await store.history(ME, reason="更正 corrected") == [lines[1]]
        assert await store.history(ME, reason="更正") == []
        assert len(await store.history(Scope("agent"))) == 5
        assert await store.history(Scope(user_id="小明"), note_id="笔") == []
        with pytest.raises(InvalidArgument):
            await store.history(Scope("agent", "u_", "s"))

    @rule
    async def test_a_dropped_note_leaves_one_line_without_text(self, store: Store) -> None:
        """Words, vector, links and what was known of its text go with it."""
        links = tuple(replace(STUDIES, note_id=each) for each in ("n", "笔"))
        told = (noted("n", "辣 spice"), noted("笔", "辣 tea"), noted("k", "辣", kind="knowledge"))
        lines = tuple(added(each) for each in ("n", "笔", "k"))
        await remember(store, *told, links=links, changes=lines)
        await put(store, said("n", "辣 said"))
        await embed(store, dict.fromkeys(("n", "笔", "k"), (1.0, 0.0, 0.0, 0.0)))
        gone = Where(ME, kinds=frozenset({"user_info"}))
        applied = await store.apply(Batch(drop=(gone,), at=NOW + 7, reason="忘记 forgotten"))
        assert applied == Applied(dropped=2)
        assert await note_ids(store) == ["k"]
        assert await around(store, MY_NOTES, ()) == []
        assert sorted(hit.id for hit in await nearest(store, ALL_MINE, ASKED, ONE, 9)) == ["k", "n"]
        assert (await find(store, "tea OR spice", ALL_MINE)).total == 0
        deleted = Change("agent", "u_", "n", "delete", NOW + 7, reason="忘记 forgotten")
        assert await store.history(ME, note_id="n") == [deleted]
        assert await store.history(ME, note_id="笔") == [replace(deleted, note_id="笔")]
        assert await store.history(ME, note_id="k") == [added("k")]
        await remember(store, noted("n", "茶"), changes=(added(after="茶"),))
        await store.apply(Batch(drop=(MY_NOTES,), at=NOW + 9))
        assert await store.history(ME, note_id="n") == [
            Change("agent", "u_", "n", "delete", NOW + 9)
        ]

    @rule
    async def test_a_drop_takes_the_kinds_it_names(self, store: Store) -> None:
        """Messages, notes or both, and counts them together."""
        for user_id, text in (("u_", "火锅"), ("小明", "hotpot")):
            scope = Scope("agent", user_id)
            await put(store, said("a", text, user_id=user_id), said("b", text, user_id=user_id))
            await remember(store, noted("a", text, user_id=user_id))
            where = Where(scope, ids=frozenset({"a"}), kinds=ALL_MINE.kinds)
            drop = (replace(where, kinds=frozenset({"knowledge"})),)
            assert (await store.apply(Batch(drop=drop))).dropped == 0
            drop = (replace(where, kinds=Where(ME).kinds),)
            assert (await store.apply(Batch(drop=drop))).dropped == 1
            assert await note_ids(store, Where(scope, kinds=ALL_MINE.kinds)) == ["a"]
            await put(store, said("a", text, user_id=user_id))
            assert (await store.apply(Batch(drop=(where,)))).dropped == 2
            assert await read_notes(store, Where(scope, kinds=ALL_MINE.kinds)) == []
            assert len(await read_messages(store, Where(scope))) == 1

    @rule
    async def test_rebuilt_words_of_notes_answer_the_same(self, store: Store) -> None:
        """Content and keywords, in both languages."""
        await remember(store, noted("n", keywords=("火锅", "hotpot")), noted("笔", "tea 茶"))
        asked = ("火锅", "hotpots", "茶", "spice", "辣 tea")
        before = [ranks(await find(store, text, MY_NOTES)) for text in asked]
        assert all(before)
        await store.apply(Batch(rebuild_words=True))
        assert [ranks(await find(store, text, MY_NOTES)) for text in asked] == before

    @rule
    async def test_a_batch_whose_job_is_gone_writes_nothing(self, store: Store) -> None:
        """Not even in part, nor where it has more to do by now; else it is written as any other."""
        job = Job("任务", "extract", ME, NOW, ids=("a", "乙"))
        await remember(store, noted("n"), links=(STUDIES,), jobs=(job,))
        batch = Batch(
            put=(said("a"),),
            notes=(noted("笔", "tea"),),
            checkpoints=(Checkpoint("c", "agent", "u_", "s", NOW),),
            drop=(MY_NOTES,),
            done=("任务",),
        )
        before = await contents_of(store)
        for changed in ({"job_id": "没有 gone"}, {"ids": ("a",)}):
            refused = replace(batch, only_if=(job, replace(job, **changed)))
            assert await store.apply(refused) == Applied(refused="job")
            assert await contents_of(store) == before
        applied = await store.apply(replace(batch, only_if=(replace(job, ids=("乙", "b", "a")),)))
        assert (len(applied.inserted), applied.dropped, applied.refused) == (1, 1, None)
        assert await note_ids(store) == ["笔"]
        assert (await store.apply(replace(batch, only_if=(job,)))).refused

    @rule
    async def test_messages_that_were_there_get_no_second_job(self, store: Store) -> None:
        """Sent again, also together with new ones: whoever is fast would do it twice."""
        first, both, other = (
            Job(name, "extract", scope, NOW, ids=ids)
            for name, scope, ids in (
                *(("j", ME, ("a",)), ("任务", ME, ("a", "b"))),
                *(("J", Scope(user_id="小明"), ("a",)),),
            )
        )
        await store.apply(Batch(put=(said("a"),), jobs=(first,), done=("j",)))
        await store.apply(Batch(put=(said("a"), said("b")), jobs=(first, both, other)))
        assert {it.job_id: it.ids for it in await store.jobs()} == {"任务": ("b",), "J": ("a",)}

    @rule
    async def test_a_batch_of_notes_that_fails_changes_nothing(self, store: Store) -> None:
        """A link to a note that is not told with it is such a fault."""
        await remember(store, noted("n"), links=(STUDIES,), changes=(added(),))
        before = await contents_of(store)
        for wrong in (STUDIES, replace(STUDIES, note_id="没有")):
            batch = Batch(
                put=(said("新"),),
                notes=(noted("笔", SAME[0], importance=1.0), noted("m", "tea")),
                links=(replace(STUDIES, note_id="m"), wrong),
                changes=(added("m"),),
                checkpoints=(Checkpoint("c", "agent", "u_", "s", NOW),),
                used=(Use("agent", "u_", "n", 1, NOW),),
                drop=(Where(ME, kinds=frozenset({"knowledge"})),),
            )
            with pytest.raises(InvalidArgument):
                await store.apply(batch)
            assert await contents_of(store) == before
