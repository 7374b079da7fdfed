"""Messages that a search has read are not read again, and are never behind the store."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Engine, event

from kemem.ports import Deps
from kemem.records import MESSAGES, NOTES, Scope, Where
from kemem.records.batch import Batch
from kemem.results import Hit, Memories
from kemem.search.recipe import search
from kemem.store import recent
from kemem.store.database import Database
from kemem.store.recent import RecentMessages
from kemem.store.store import SqlStore
from kemem.store.tables import Stored
from kemem.testing import FakeClock
from kemem_conformance.suite import noted, said
from kemem_conformance.world import NOW

OWN = Where(Scope("agent", "u_"), kinds=MESSAGES)
QUESTIONS = ("Where is the dentist?", "牙医在哪里？")


@pytest.fixture
async def store(database: Database) -> AsyncIterator[SqlStore]:
    opened = SqlStore(database, cache_bytes=1 << 24)
    yield opened
    await opened.close()


async def ask(store: SqlStore, text: str, *, past: bool = False) -> dict[str, Hit]:
    deps = Deps(store, None, FakeClock(NOW + 10))
    return {hit.id: hit for hit in await search(text, OWN, 10, deps, past=past)}


@pytest.mark.parametrize("past", [False, True])
async def test_what_was_read_is_not_read_again(store: SqlStore, past: bool) -> None:
    """Also not as the context of another message; what came since is read."""
    turns = ("The dentist is in Rome 牙医", "OK", "And the dentist in Oslo 牙医")
    roles = ("user", "assistant", "user")
    talk = [said(f"m{n}", turns[n], role=roles[n], ts=NOW + n) for n in range(3)]
    await store.apply(Batch(put=tuple(talk)))
    await ask(store, QUESTIONS[0], past=past)
    statements: list[str] = []
    listener: Any = lambda *given: statements.append(given[2])  # noqa: E731
    event.listen(Engine, "before_cursor_execute", listener)
    try:
        for question in QUESTIONS:
            assert {"m0", "m2"} <= {*await ask(store, question, past=past)}
        assert not any("message.content," in it for it in statements)
        await store.apply(Batch(put=(said("m3", "No dentist there 牙医", ts=NOW + 3),)))
        statements.clear()
        assert {"m0", "m2", "m3"} <= {*await ask(store, question, past=past)}
        assert sum("message.content," in it for it in statements) == 1
    finally:
        event.remove(Engine, "before_cursor_execute", listener)


@pytest.mark.parametrize("question", QUESTIONS)
async def test_what_was_read_follows_what_happens_to_it(store: SqlStore, question: str) -> None:
    """An edit, a withdrawal and a removal."""
    first = said("m0", "Hello")
    second = said("m1", "The dentist is in Rome 牙医", parent_message_id="m0", ts=NOW + 1)
    other = said("m2", "The dentist of Ann 牙医", session_id="t", ts=NOW + 1)
    third = said("m3", "The dentist of Bo 牙医", session_id="t", ts=NOW + 2)
    await store.apply(Batch(put=(first, second, other, third)))
    for past in (False, True):
        found = await ask(store, question, past=past)
        assert {"m1", "m2", "m3"} <= {*found} and found["m1"].ended is None
    edited = said("m4", "The dentist is in Oslo 牙医", parent_message_id="m0", ts=NOW + 3)
    await store.apply(Batch(put=(edited,)))
    assert {"m4", "m2", "m3"} <= {*await ask(store, question)} - {"m1"}
    found = await ask(store, question, past=True)
    assert found["m1"].ended == found["m1"].message.valid_until == NOW + 3
    resumed = said("m5", "Rome it is", parent_message_id="m1", role="assistant", ts=NOW + 4)
    await store.apply(Batch(put=(resumed,)))
    for past in (False, True):
        assert (await ask(store, question, past=past))["m1"].message.valid_until is None
    await store.apply(Batch(withdraw=(replace(OWN, ids=frozenset({"m2"})),)))
    await store.apply(Batch(drop=(replace(OWN, ids=frozenset({"m3"})),)))
    for past in (False, True):
        assert {"m2", "m3"}.isdisjoint(await ask(store, question, past=past))


@pytest.mark.parametrize("question", QUESTIONS)
async def test_an_end_that_lies_ahead_is_shown_and_comes(store: SqlStore, question: str) -> None:
    """Of a message that was read before it had one, and of a note; whose answers hold until it."""
    first = said("m0", "Hello")
    second = said("m1", "The dentist is in Rome 牙医", parent_message_id="m0", ts=NOW + 1)
    note = noted("n1", "The dentist of Ann 牙医", valid_until=NOW + 200)
    await store.apply(Batch(put=(first, second), notes=(note,)))
    everything = replace(OWN, kinds=MESSAGES | NOTES)

    async def ask_at(seconds: int, *, past: bool = False) -> Memories[Hit]:
        deps = Deps(store, None, FakeClock(NOW + seconds))
        return await search(question, everything, 10, deps, past=past)

    found = await ask_at(10)
    assert {it.id: it.row.valid_until for it in found} == {"m1": None, "n1": NOW + 200}
    edited = said("m4", "The dentist is in Oslo 牙医", parent_message_id="m0", ts=NOW + 100)
    await store.apply(Batch(put=(edited,)))  # by a clock that is ahead
    found = await ask_at(10)
    ends = {"m1": NOW + 100, "m4": None, "n1": NOW + 200}
    assert {it.id: it.row.valid_until for it in found} == ends
    assert found.holds_until == NOW + 100
    assert {it.id for it in await ask_at(150)} == {"m4", "n1"}
    assert {it.id for it in await ask_at(250)} == {"m4"}
    before = {it.id: it.ended for it in await ask_at(250, past=True)}
    assert (before["m1"], before["n1"]) == (NOW + 100, NOW + 200)


async def test_who_changes_a_hit_changes_it_for_nobody_else(store: SqlStore) -> None:
    metadata = {"speaker": "Ann", "tags": ["teeth"]}
    await store.apply(Batch(put=(said("m1", "The dentist is in Rome", metadata=metadata),)))
    for _ in range(2):
        hit: Any = (await ask(store, QUESTIONS[0]))["m1"]
        assert hit.metadata == metadata
        hit.metadata["seen"] = True
        hit.metadata["tags"].append("seen")


def test_old_messages_are_forgotten_for_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded, and what is used again stays."""
    monkeypatch.setattr(recent, "_MOST", 4 * (recent._ROW_BYTES + 2))
    rows = [Stored(1, number, said(f"m{number}", "x")) for number in range(100)]
    kept, most = RecentMessages(), 0
    for row in rows:
        kept.keep(row)
        kept.keep(rows[0])  # as whoever reads a message does
        most = max(most, kept.nbytes)
    assert most <= 2 * 5 * (recent._ROW_BYTES + 2)
    assert kept.get(0) is rows[0] and kept.get(99) is rows[99] and kept.get(50) is None
