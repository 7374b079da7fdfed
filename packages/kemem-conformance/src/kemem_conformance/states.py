"""What a store promises about sessions: their saved states, their end, the directory, erasure."""

from dataclasses import replace
from typing import Any

import pytest

from kemem.errors import PermissionDenied
from kemem.ports import Store, read_messages, read_notes
from kemem.ports.request import Candidates, SearchRequest
from kemem.records import CHECKPOINTS_KEPT, Checkpoint, Entry, Layer, Match, Scope, Where
from kemem.records.batch import Applied, Batch, Configuration, Ending, Job
from kemem.text.query import parse
from kemem_conformance.noting import FULL, STUDIES, added
from kemem_conformance.suite import (
    ALL_MINE,
    ME,
    MINE,
    MY_NOTES,
    Suite,
    around,
    noted,
    put,
    remember,
    rule,
    said,
)
from kemem_conformance.world import NOW

HERE = Scope("agent", "u_", "s")
NAMED: dict[Any, Scope] = {
    "agent": Scope("agent"),
    "user": Scope(user_id="u_"),
    "session": HERE,
}
LAYERS = (Layer(2, "他们谈了火锅 they talked", 1, 9), Layer(0, "And then 咖啡\0", 10, 12))


def saved(name: str, created: int = NOW, **changed: Any) -> Checkpoint:
    """A state of the first user's first session."""
    return replace(Checkpoint(name, "agent", "u_", "s", created), **changed)


async def save(store: Store, *checkpoints: Checkpoint) -> None:
    """Store states."""
    await store.apply(Batch(checkpoints=checkpoints))


async def states(store: Store, scope: Scope = ME) -> list[str]:
    """The names of all states, newest first."""
    return [one.checkpoint_id for one in await store.checkpoints(scope, limit=1_000)]


def _every(candidates: Candidates) -> list[Match]:
    return [match for ranking in candidates.words for match in ranking.matches]


async def listed(store: Store, level: Any, scope: Scope | None = None, **options: Any) -> list[str]:
    """The ids of a directory."""
    return [entry.id for entry in await store.directory(level, scope, **options)]


async def sessions(store: Store) -> dict[str, Entry]:
    """The first user's sessions by name."""
    return {entry.id: entry for entry in await store.directory("session", ME)}


class StateRules(Suite):
    """Sessions, by example."""

    @rule
    async def test_a_state_comes_back_as_it_was_saved(self, store: Store) -> None:
        """With its layers and notes, whether these are stored or not; newest first."""
        told = [
            saved("c", layers=LAYERS, notes=(FULL, noted("n"))),
            saved("存档", NOW + 1, session_id="会话"),
            saved("tie", NOW + 1, layers=LAYERS[:1]),
        ]
        await save(store, *told)
        assert await store.checkpoints(ME, limit=9) == told[::-1]
        assert await store.checkpoints(HERE) == [told[2]]
        assert await store.checkpoints(Scope(session_id="s"), limit=9) == [told[2], told[0]]
        assert await store.checkpoints(Scope("agent", "小明")) == []
        assert await read_notes(store, MY_NOTES) == []

    @rule
    async def test_the_newest_states_of_a_session_are_kept(self, store: Store) -> None:
        """By the time they were made, then by writing; other sessions do not count."""
        many = [saved(f"存{n}", NOW + n) for n in range(CHECKPOINTS_KEPT)]
        await save(store, *many, saved("other", 0, session_id="会话"), saved("old", 0))
        kept = [one.checkpoint_id for one in reversed(many)]
        assert await states(store, HERE) == kept
        await save(store, saved("tie", NOW))
        assert await states(store, HERE) == [*kept[:-1], "tie"]
        await save(store, saved("new", NOW + 99), saved("again", NOW + 99))
        assert await states(store, HERE) == ["again", "new", *kept[:-2]]
        assert await states(store) == ["again", "new", *kept[:-2], "other"]

    @rule
    async def test_what_a_state_quotes_takes_it_along(self, store: Store) -> None:
        """A message or note that is dropped takes the states of its session, and no others."""
        wheres = (Where(ME, ids=frozenset({"a"})), replace(MY_NOTES, ids=frozenset({"n"})))
        for where in wheres:
            await put(store, said("a"), said("b", session_id="会话"))
            await remember(store, noted("n", session_id="s"), noted("笔", "no session 无"))
            others = (saved("会", session_id="会话"), saved("x", user_id="小明"))
            await save(store, saved("c"), saved("d"), *others)
            await store.apply(Batch(drop=(replace(where, ids=frozenset({"没有"})),)))
            assert len(await states(store)) == 3
            await store.apply(Batch(drop=(replace(MY_NOTES, ids=frozenset({"笔"})),)))
            assert len(await states(store)) == 3
            await store.apply(Batch(drop=(where,)))
            assert await states(store) == ["会"]
            assert len(await states(store, Scope("agent", "小明"))) == 1
            await self.reset(store)

    @rule
    async def test_an_ended_session_keeps_its_messages(self, store: Store) -> None:
        """Its states go, those of its last batch too; an unknown one is no error."""
        await put(store, said("a"), said("b", session_id="会话"))
        await save(store, saved("c"), saved("会", session_id="会话"))
        unknown = Scope("agent", "u_", "没有")
        ended = (Ending(HERE, NOW + 5), Ending(unknown, NOW))
        last = Batch(notes=(noted("n", session_id="s"),), checkpoints=(saved("d"),), ended=ended)
        assert await store.apply(last) == Applied()
        known = await sessions(store)
        assert (known["s"].active, known["s"].ended) == (False, NOW + 5)
        assert (known["会话"].active, known["会话"].ended) == (True, None)
        assert known.keys() == {"s", "会话"}
        assert await states(store) == ["会"]
        assert len(await read_messages(store, MINE)) == 2

    @rule
    async def test_a_session_that_goes_on_is_open_again(self, store: Store) -> None:
        """A message, a note or a state that comes after the end opens it, and no other session."""
        await put(store, said("a"), said("b", session_id="会话"))
        ended = (Ending(HERE, NOW + 5), Ending(replace(HERE, session_id="会话"), NOW + 5))
        later = (
            Batch(put=(said("后", "I am back 我回来了", ts=NOW + 6, ingest_time=NOW + 6),)),
            Batch(notes=(noted("n", session_id="s", created=NOW + 7, updated=NOW + 7),)),
            Batch(notes=(noted("同", session_id="s", created=NOW + 8, updated=NOW + 8),)),
            Batch(checkpoints=(saved("c", NOW + 9),)),
        )
        for number, batch in enumerate(later):
            await store.apply(Batch(ended=ended))
            await put(store, said("a"))
            known = await sessions(store)
            assert (known["s"].active, known["s"].ended) == (False, NOW + 5), "by a retry"
            await store.apply(batch)
            known = await sessions(store)
            assert (known["s"].active, known["s"].ended) == (True, None)
            assert (known["s"].created, known["s"].updated) == (NOW, NOW + 6 + number)
            assert (known["会话"].active, known["会话"].ended) == (False, NOW + 5)

    @rule
    async def test_who_is_seen_enters_the_directory(self, store: Store) -> None:
        """By a message, a note or a state; the shared part of an agent is no user."""
        await put(store, said("a", ingest_time=NOW + 1))
        await remember(store, noted("笔", agent_id="助手", user_id="", session_id="公"))
        await remember(store, noted("n", user_id="小明", created=NOW + 2, updated=NOW + 3))
        await save(store, saved("c", NOW + 4, agent_id="助手", session_id="会话"))
        agent = Entry("agent", "agent", "agent", None, "agent", True, NOW + 1, NOW + 1)
        entry = (await store.directory("agent", None))[0]
        assert replace(entry, updated=NOW + 1) == agent
        assert await listed(store, "agent") == ["agent", "助手"]
        users = await store.directory("user", None)
        assert [(one.id, one.agent_id, one.user_id) for one in users] == [
            ("u_", "agent", "u_"),
            ("小明", "agent", "小明"),
        ]
        assert users[1] == Entry("user", "小明", "agent", "小明", None, True, NOW + 2, NOW + 3)
        assert await store.directory("session", None) == [
            Entry("session", "s", "agent", "u_", None, True, NOW + 1, NOW + 1),
            Entry("session", "会话", "助手", "u_", None, True, NOW + 4, NOW + 4),
            Entry("session", "公", "助手", None, None, True, NOW, NOW),
        ]

    @rule
    async def test_who_is_configured_stays_so(self, store: Store) -> None:
        """What is given replaces what was, None leaves it, an empty text takes it away."""
        await put(store, said("a", ingest_time=NOW))
        for level, scope in NAMED.items():
            whole = Configuration(level, scope, NOW + 1, "小助手 Ann", "chat", {"茶": [1, None]})
            await store.apply(Batch(configured=(whole,)))
            await store.apply(Batch(configured=(Configuration(level, scope, NOW + 2, type=""),)))
            (entry,) = await store.directory(level, scope)
            assert (entry.name, entry.type, entry.config) == ("小助手 Ann", None, {"茶": [1, None]})
            assert (entry.disabled, entry.active, entry.created) == (False, True, NOW)
            assert entry.updated == NOW + 2
            bare = Configuration(level, scope, NOW + 3, name="", config={})
            await store.apply(Batch(configured=(bare,)))
            (entry,) = await store.directory(level, scope)
            assert (entry.name, entry.config) == ("agent" if level == "agent" else None, {})
        nobody = Configuration("user", Scope(user_id="没有"), NOW, name="x", disabled=True)
        await store.apply(Batch(configured=(nobody,)))
        assert await listed(store, "user") == ["u_"]

    @rule
    async def test_who_is_disabled_takes_no_messages_and_is_not_found(self, store: Store) -> None:
        """Notes of what was said before come, deleting goes on; enabled again, all is back."""
        await put(store, said("a", "火锅 hotpot"), said("b", "茶 tea", session_id="另"))
        await put(store, said("c", "火锅 hotpot", agent_id="助手"))
        await remember(store, noted("笔", "火锅 hotpot", session_id="s", sources=("a",)))
        everybody = Where(Scope(user_id="u_"), kinds=ALL_MINE.kinds)
        here, hotpot = replace(everybody, scope=HERE), parse("hotpot")
        for level, scope in NAMED.items():
            before = await store.generation(everybody)
            await store.apply(Batch(configured=(Configuration(level, scope, NOW, disabled=True),)))
            assert await store.generation(everybody) != before
            (entry,) = await store.directory(level, scope)
            assert (entry.disabled, entry.active) == (True, False)
            with pytest.raises(PermissionDenied, match=f"{level} '{entry.id}' is disabled"):
                await put(store, said(f"new {level}", ingest_time=NOW + 9))
            await put(store, said("a", "火锅 hotpot"))  # a retry is none
            await remember(store, noted(f"n {level}", "later", session_id="s", sources=("a",)))
            assert (await store.directory(level, scope))[0].disabled
            request = SearchRequest(here, queries=(hotpot,), select=_every)
            with pytest.raises(PermissionDenied, match=f"{level} '{entry.id}' is disabled"):
                await store.search(request)
            if level == "agent":  # what the user has with others is found
                found = await store.search(replace(request, where=everybody))
                assert {at[-1] for at in found.rows} == {"c"}
            gone = Where(ME, kinds=ALL_MINE.kinds, ids=frozenset([f"n {level}"]))
            assert (await store.apply(Batch(drop=(gone,)))).dropped == 1
            assert len(await store.read(everybody)) == 4
            await store.apply(Batch(configured=(Configuration(level, scope, NOW, disabled=False),)))
            assert {at[-1] for at in (await store.search(request)).rows} == {"a", "笔"}
            await put(store, said(f"new {level}", "hello", session_id="别", ingest_time=NOW + 9))
            await store.apply(Batch(drop=(Where(ME, ids=frozenset([f"new {level}"])),)))

    @rule
    async def test_a_session_that_ended_is_enabled_as_such(self, store: Store) -> None:
        await put(store, said("a"))
        for disabled in (True, False):
            given = Configuration("session", HERE, NOW + 1, disabled=disabled)
            await store.apply(Batch(configured=(given,)))
            await store.apply(Batch(ended=(Ending(HERE, NOW + 5),)))
            entry = (await sessions(store))["s"]
            assert (entry.disabled, entry.active, entry.ended) == (disabled, False, NOW + 5)

    @rule
    async def test_what_comes_later_moves_a_session(self, store: Store) -> None:
        """It was updated when it last came, and created when it first did."""
        await put(store, said("a", ingest_time=NOW))
        await put(store, said("b", ingest_time=NOW + 5))
        assert (await sessions(store))["s"].updated == NOW + 5
        note = noted("笔", session_id="s", created=NOW + 6, updated=NOW + 7)
        await remember(store, note)
        moved = (await sessions(store))["s"]
        assert (moved.created, moved.updated, moved.active) == (NOW, NOW + 7, True)

    @rule
    async def test_the_directory_shows_a_scope_its_own(self, store: Store) -> None:
        """Page by page, in the order of code points."""
        pairs = [("agent", "u_"), ("agent", "小明"), ("助手", "u_"), ("助手", "B")]
        for agent_id, user_id in pairs:
            whose = {"agent_id": agent_id, "user_id": user_id}
            await put(store, said(f"a {agent_id}", session_id="s", **whose))
            await remember(store, noted("n", session_id=f"会 {user_id}", **whose))
        await remember(store, noted("公", agent_id="助手", user_id="", session_id="s"))
        assert await listed(store, "user") == ["B", "u_", "小明"]
        assert await listed(store, "user", Scope("助手")) == ["B", "u_"]
        assert await listed(store, "agent", Scope(user_id="小明")) == ["agent"]
        assert await listed(store, "agent", Scope(user_id="")) == ["助手"]
        assert await listed(store, "agent", Scope(user_id="u_")) == ["agent", "助手"]
        assert await listed(store, "user", Scope(session_id="会 B")) == ["B"]
        assert await listed(store, "agent", Scope(session_id="会 u_")) == ["agent", "助手"]
        assert await listed(store, "user", Scope("agent", "B")) == []
        assert await listed(store, "session", Scope("agent", "u_")) == ["s", "会 u_"]
        assert await listed(store, "session", Scope(session_id="s")) == ["s"] * 5
        assert await listed(store, "session", Scope("助手", "u_", "没有")) == []
        whole = await store.directory("session", None)
        assert [one.place for one in whole] == sorted(one.place for one in whole)
        assert len(whole) == 9
        for start in range(9):
            place = whole[start].place
            page = await store.directory("session", None, after=place, limit=2)
            assert page == whole[start + 1 : start + 3]

    @rule
    async def test_jobs_forget_a_message_that_is_dropped(self, store: Store) -> None:
        """What its call asked for must not outlive it; others' jobs and other ids stay."""
        await put(store, said("a"), said("b"))
        both, one = (
            Job("both", "extract", ME, NOW, ("a", "b")),
            Job("one", "embed", ME, NOW, ("a",)),
        )
        other = replace(one, job_id="other", scope=Scope(user_id="somebody else"))
        await store.apply(Batch(jobs=(both, one, other)))
        await store.apply(Batch(drop=(Where(ME, ids=frozenset("a")),)))
        left = {job.job_id: job.ids for job in await store.jobs()}
        assert left == {"both": ("b",), "other": ("a",)}

    @rule
    async def test_to_drop_everything_is_to_erase(self, store: Store) -> None:
        """Rows, history, states, sessions and open work of the scope; others keep theirs."""
        for user_id in ("u_", "小明"):
            whose: dict[str, Any] = {"user_id": user_id}
            await put(store, said("a", **whose), said("b", session_id="会话", **whose))
            line = replace(added(), user_id=user_id)
            await remember(store, noted("n", **whose), links=(STUDIES,), changes=(line,))
            await save(store, saved("c", **whose), saved("会", session_id="会话", **whose))
        scopes = (ME, HERE, Scope(user_id="u_"), Scope("agent"), Scope("agent", "小明"))
        await store.apply(
            Batch(jobs=tuple(Job(f"{n}", "embed", each, NOW) for n, each in enumerate(scopes)))
        )
        applied = await store.apply(Batch(drop=(ALL_MINE,), at=NOW, reason="忘记 forget"))
        assert applied == Applied(dropped=3)
        assert await store.history(ME) == []
        assert await around(store, MY_NOTES, ()) == []
        assert await states(store) == await listed(store, "session", ME) == []
        assert [job.job_id for job in await store.jobs()] == ["2", "3", "4"]
        assert await listed(store, "user", Scope("agent")) == ["u_", "小明"]
        other = Scope("agent", "小明")
        assert await store.history(other) == [replace(added(), user_id="小明")]
        assert await states(store, other) == ["会", "c"]
        assert await listed(store, "session", other) == ["s", "会话"]
        assert len(await around(store, Where(other, kinds=MY_NOTES.kinds), ())) == 1

    @rule
    async def test_a_session_can_be_erased_alone(self, store: Store) -> None:
        """Its notes leave no line; the history of other notes stays."""
        for session_id in ("s", "会话"):
            note = noted(f"n {session_id}", session_id=session_id)
            await put(store, said(f"a {session_id}", session_id=session_id))
            await remember(store, note, changes=(added(note.note_id),))
            await save(store, saved("c", session_id=session_id))
        job = Job("任务", "extract", HERE, NOW)
        await store.apply(Batch(jobs=(job, replace(job, job_id="j", scope=ME))))
        erased = Where(HERE, kinds=ALL_MINE.kinds)
        assert (await store.apply(Batch(drop=(erased,)))).dropped == 2
        assert await store.history(ME) == [added("n 会话")]
        assert await listed(store, "session", ME) == ["会话"]
        assert len(await states(store)) == 1
        assert [each.job_id for each in await store.jobs()] == ["j"]
