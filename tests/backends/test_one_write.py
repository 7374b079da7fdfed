"""An add without a model is one write: one transaction, few statements; nothing is lost by it."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal

import pytest
from sqlalchemy import Engine, event

from kemem.add import recipe
from kemem.memory import AsyncMemory
from kemem.records import Matrix, Scope, Where
from kemem.records.batch import Applied, Batch
from kemem.store.database import Database
from kemem.store.store import SqlStore
from kemem.testing import HashingEmbedder
from kemem_conformance.suite import said

MOST = 36
SAID = [
    {"role": "user", "content": "我叫李明，我住在杭州，我在北京大学学习。I like jazz."},
    {"role": "assistant", "content": "好的。Noted."},
]


class RecordedStore(SqlStore):
    """A store that keeps the batches it is given, and refuses some of them."""

    batches: list[Batch]
    refusals = 0

    async def apply(self, batch: Batch) -> Applied:
        if self.refusals and batch.expects:
            self.refusals -= 1
            return Applied(refused="changed")
        self.batches.append(batch)
        return await super().apply(batch)


@pytest.fixture
async def store(database: Database) -> AsyncIterator[RecordedStore]:
    opened = RecordedStore(database, cache_bytes=1 << 24)
    opened.batches = []
    yield opened
    await opened.close()


class BrokenEmbedder(HashingEmbedder):
    """An embedder in this process that fails."""

    async def embed(self, texts: Sequence[str], *, purpose: Literal["query", "passage"]) -> Matrix:
        raise OSError("out of memory")


class RemoteEmbedder(HashingEmbedder):
    """An embedder that somebody else runs; it sees what is stored when it is asked."""

    in_process = False

    def __init__(self, store: RecordedStore) -> None:
        super().__init__()
        self.store = store
        self.stored: list[int] = []

    async def embed(self, texts: Sequence[str], *, purpose: Literal["query", "passage"]) -> Matrix:
        self.stored.append(sum(len(batch.put) for batch in self.store.batches))
        return await super().embed(texts, purpose=purpose)


@contextmanager
def statements() -> Iterator[list[str]]:
    """Every statement that is sent meanwhile; BEGIN and COMMIT count."""
    sent: list[str] = []
    listeners = {
        "before_cursor_execute": lambda *given: sent.append(given[2]),
        "commit": lambda connection: sent.append("COMMIT") if sent[-1:] != ["COMMIT"] else None,
    }
    for name, listener in listeners.items():
        event.listen(Engine, name, listener)
    try:
        yield sent
    finally:
        for name, listener in listeners.items():
            event.remove(Engine, name, listener)


async def test_an_add_without_a_model_is_one_write(store: RecordedStore) -> None:
    """Messages, notes, links, history and vectors in one transaction, after at most two reads."""
    async with AsyncMemory(store=store, embedder=HashingEmbedder()) as memory:
        await memory.add("Hello there.", user_id="u")
        store.batches.clear()
        with statements() as sent:
            added = await memory.add(SAID, user_id="u")
        (batch,) = store.batches
        assert [message.message_id for message in batch.put] == list(added.message_ids)
        assert len(added.results) >= 4 and added.relations and not added.pending
        assert len(batch.notes) == len(batch.changes) == len(added.results) and batch.links
        (vectors,) = batch.vectors
        assert len(vectors.ids) == len(batch.put) + len(batch.notes)
        assert not batch.jobs and not batch.done and batch.expects
        assert await memory.jobs() == []
        assert len(sent) <= MOST, f"{len(sent)}:\n" + "\n".join(sent)


async def test_what_is_refused_is_decided_again(store: RecordedStore) -> None:
    """And still written once."""
    async with AsyncMemory(store=store, embedder=HashingEmbedder()) as memory:
        await memory.add("Hello there.", user_id="u")
        store.batches.clear()
        store.refusals = 3
        added = await memory.add(SAID, user_id="u")
        assert len(store.batches) == 1 and len(added.message_ids) == 2


async def test_messages_are_stored_where_notes_cannot_be(
    store: RecordedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A conflict without end, or a fault in the rules, leaves a job and loses no message."""
    async with AsyncMemory(store=store, embedder=HashingEmbedder()) as memory:
        store.refusals = 1_000
        monkeypatch.setattr("kemem.add.reconcile._PAUSE", 0)
        added = await memory.add("I live in Rome.", user_id="u")
        assert len(added.message_ids) == 1 and added.pending and added.problems
        store.refusals = 0

        async def fails(*_: object) -> None:
            raise ZeroDivisionError

        monkeypatch.setattr(recipe, "extract_facts", fails)
        with pytest.raises(ZeroDivisionError):
            await memory.add("I live in Oslo.", user_id="u")
        page = await memory.messages("u")
        assert {message.content for message in page.items} == {"I live in Rome.", "I live in Oslo."}
        assert [job.kind for job in await memory.jobs()] == ["extract", "extract"]


async def test_an_embedder_that_fails_leaves_a_job_in_the_same_write(store: RecordedStore) -> None:
    """Messages and notes are stored as ever; their vectors follow."""
    async with AsyncMemory(store=store, embedder=BrokenEmbedder()) as memory:
        await memory.jobs()
        store.batches.clear()
        added = await memory.add(SAID, user_id="u")
        batch = store.batches[-1]
        assert added.pending and len(added.message_ids) == 2 and added.results
        (job,) = batch.jobs
        assert job.kind == "embed" and set(job.ids) == {
            *added.message_ids,
            *(note.note_id for note in batch.notes),
        }


async def test_messages_are_durable_before_a_remote_embedder_is_asked(store: RecordedStore) -> None:
    """Whatever is not known to run in this process may keep us waiting, or never answer."""
    embedder = RemoteEmbedder(store)
    async with AsyncMemory(store=store, embedder=embedder) as memory:
        await memory.add(SAID, user_id="u")
        assert embedder.stored and min(embedder.stored) == 2


async def test_ids_of_the_caller_make_an_add_idempotent(store: RecordedStore) -> None:
    """Said again, nothing is stored again, and no note changes."""
    async with AsyncMemory(store=store, embedder=HashingEmbedder()) as memory:
        message = {"role": "user", "content": "I live in Rome.", "message_id": "m"}
        first = await memory.add(message, user_id="u")
        again = await memory.add(message, user_id="u")
        assert first.message_ids == ("m",) and first.results
        assert again.message_ids == () and again.ignored == ("m",) and not again.results
        assert await memory.jobs() == []


async def test_of_facts_told_at_the_same_time_the_last_is_true(store: RecordedStore) -> None:
    """A store moves messages of one time apart; what is decided before must not reverse them."""
    async with AsyncMemory(store=store, embedder=HashingEmbedder()) as memory:
        day = "2026-01-01T00:00:00Z"
        await memory.add("Hello there.", user_id="u", timestamp=day)
        for number, city in enumerate(("Rome", "Oslo", "Lima", "Bern")):
            message = {"role": "user", "content": f"I live in {city}."}
            named = {**message, "message_id": f"m{number}"} if number % 2 == 0 else message
            await memory.add(named, user_id="u", timestamp=day)
        notes = await memory.get_all(user_id="u", kinds=["user_info"])
        assert [item.memory for item in notes] == ["User lives in Bern"]


async def test_many_rows_in_one_batch_come_back_as_they_went_in(store: RecordedStore) -> None:
    """PostgreSQL is sent whole columns, in which no text may be taken for another or for NULL."""
    texts = ['"', "\\", '\\"},{"', "NULL", "{a,b}", "火锅 'tea", "\0", "line\nbreak"]
    put = tuple(
        said(f"m{n}", f"{texts[n % 8]} {n}", metadata={"said": [texts[n % 6], None, n]})
        for n in range(450)
    )
    await store.apply(Batch(put=put))
    rows = await store.read(Where(Scope("agent", "u_")), limit=500)
    kept = {row.id: (row.content, row.metadata) for row in rows}
    assert kept == {it.id: (it.content, it.metadata) for it in put}
