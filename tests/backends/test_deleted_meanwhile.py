"""What is deleted stays deleted, whatever is being written at that moment."""

from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.engine import make_url

from kemem import AsyncMemory
from kemem.add.edit import Policy, erase, forget
from kemem.add.summarize import summarize_session
from kemem.ports import Deps, read_messages, read_notes
from kemem.records import NOTES, SHORT_TERM, Matrix, Scope, Where
from kemem.records.batch import Applied, Batch
from kemem.session import restore_checkpoint, save_checkpoint
from kemem.settings import load
from kemem.store.postgres import Postgres
from kemem.store.sqlite import Sqlite
from kemem.store.store import SqlStore
from kemem.testing import FakeClock, HashingEmbedder, ScriptedLLM
from kemem_conformance.suite import ME, MY_NOTES, noted, said
from kemem_conformance.world import NOW

SESSION = Scope("agent", "u_", "s")
SECRETS = {"zh": ("我住在罗马。", "罗马"), "en": ("I live in Rome.", "Rome")}
KEPT = {"zh": ("我喜欢爬山。", "爬山"), "en": ("I like hiking.", "hiking")}
Meanwhile = Callable[[Callable[[Batch], bool], Callable[[], Awaitable[Any]]], None]


@pytest.fixture(params=["sqlite", "postgresql"])
def options(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Where a store is."""
    if request.param == "sqlite":
        return {"data_dir": tmp_path}
    return {"database_url": request.getfixturevalue("store_database")}


@pytest.fixture
def store(options: dict[str, Any]) -> Iterator[SqlStore]:
    url = options.get("database_url")
    database = Postgres(make_url(url)) if url else Sqlite(options["data_dir"])
    opened = SqlStore(database, cache_bytes=1 << 20)
    yield opened
    opened._readers.shutdown()
    database.close()


@pytest.fixture
def deps(store: SqlStore) -> Deps:
    return Deps(store, None, FakeClock(NOW))


@pytest.fixture
def meanwhile(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    """Lets something happen once, just before a batch of some kind is written."""
    write = store.apply

    def arm(is_meant: Callable[[Batch], bool], happen: Callable[[], Awaitable[Any]]) -> None:
        waiting = [happen]

        async def apply(batch: Batch) -> Applied:
            if waiting and is_meant(batch):
                await waiting.pop()()
            return await write(batch)

        monkeypatch.setattr(store, "apply", apply)

    return arm


class Deleting(HashingEmbedder):
    """An embedder during whose work on new notes something is deleted."""

    def __init__(self, word: str, message: str) -> None:
        super().__init__()
        self.word, self.message = word, message
        self.delete: Callable[[], Awaitable[Any]] | None = None

    async def embed(self, texts: Any, *, purpose: Any) -> Matrix:
        notes = [text for text in texts if self.word in text and self.message not in texts]
        if self.delete and (notes or texts.count(self.message) > 1):
            delete, self.delete = self.delete, None
            await delete()
        return await super().embed(texts, purpose=purpose)


def drawn(language: str) -> dict[str, Any]:
    """What a model finds in the two messages."""
    texts = (SECRETS[language][1], KEPT[language][1])
    facts = [{"text": f"user: {it}", "sources": [at]} for at, it in enumerate(texts, 1)]
    return {"facts": facts, "entities": []}


@pytest.mark.parametrize("language", ["zh", "en"])
@pytest.mark.parametrize("by", ["rules", "model"])
async def test_a_message_deleted_while_its_notes_are_embedded_leaves_none(
    options: dict[str, Any], by: str, language: str
) -> None:
    """The note of the other message is there."""
    (secret, word), (other, kept) = SECRETS[language], KEPT[language]
    embedder = Deleting(word, secret)
    llm = ScriptedLLM([drawn(language)]) if by == "model" else None
    settings = load(embedder="none", llm="none", **options)
    messages = [
        {"role": "user", "content": secret, "message_id": "m1"},
        {"role": "user", "content": other, "message_id": "m2"},
    ]
    async with AsyncMemory(settings=settings, embedder=embedder, llm=llm) as memory:

        async def delete() -> None:
            await memory.delete("m1", user_id="u")

        embedder.delete = delete
        await memory.add(messages, "u")
        assert embedder.delete is None
        notes = [item.memory for item in await memory.get_all("u")]
        assert not any(word in text for text in notes)
        assert any(kept in text for text in notes)
        store = (await memory.runtime.deps()).store
        assert word not in str(await store.history(Scope(user_id="u")))
        assert await memory.jobs() == []


async def test_a_message_deleted_while_it_is_kept_verbatim_leaves_no_note(
    options: dict[str, Any],
) -> None:
    texts = ("我住在罗马 Rome", "我喜欢爬山 hiking")
    embedder = Deleting("Rome", "不 none")
    settings = load(embedder="none", llm="none", **options)
    async with AsyncMemory(settings=settings, embedder=embedder) as memory:
        calls = 0

        async def delete() -> None:
            nonlocal calls
            calls += 1
            if calls == 1:  # the messages themselves come first
                embedder.delete = delete
            else:
                await memory.delete("m0", user_id="u")

        embedder.delete = delete
        messages = [
            {"role": "user", "content": text, "message_id": f"m{at}"}
            for at, text in enumerate(texts)
        ]
        await memory.add(messages, "u", infer=False)
        assert calls == 2
        assert [item.memory for item in await memory.get_all("u")] == [texts[1]]


async def fill(deps: Deps) -> None:
    """A session that is worth a summary."""
    texts = [f"第{at}天我们去罗马看了第{at}座喷泉。Day {at} in Rome." for at in range(12)]
    messages = (said(f"m{at}", text, ts=NOW + at) for at, text in enumerate(texts))
    short = noted("n", "罗马的喷泉 fountains", kind="short_term", session_id="s", sources=("m0",))
    await deps.store.apply(Batch(put=tuple(messages), notes=(short,)))


async def quoted(deps: Deps) -> str:
    """All that the session keeps of itself."""
    return str(await deps.store.checkpoints(SESSION, limit=10))


def saves(batch: Batch) -> bool:
    return bool(batch.checkpoints)


@pytest.mark.parametrize("again", [False, True])
async def test_a_message_deleted_while_it_is_summarised_is_in_no_summary(
    deps: Deps, meanwhile: Meanwhile, again: bool
) -> None:
    """Whether the session had a State before or not."""
    await fill(deps)
    if again:
        assert await summarize_session(SESSION, deps, budget=200)
        more = (said(f"l{at}", f"later 后来 {at} " * 9, ts=NOW + 50 + at) for at in range(12))
        await deps.store.apply(Batch(put=tuple(more)))
    (message,) = await read_messages(deps.store, Where(ME, ids=frozenset({"m1"})))
    meanwhile(saves, lambda: erase(message, deps))
    assert await summarize_session(SESSION, deps, budget=60) is None
    assert await quoted(deps) == "[]"
    live = await summarize_session(SESSION, deps, budget=60)
    assert live is not None and live.reach > 2
    assert "第1天" not in await quoted(deps)


async def test_a_note_deleted_while_a_checkpoint_is_saved_is_not_in_it(
    deps: Deps, meanwhile: Meanwhile
) -> None:
    await fill(deps)
    (note,) = await read_notes(deps.store, Where(ME, kinds=SHORT_TERM))
    meanwhile(saves, lambda: erase(note, deps))
    saved = await save_checkpoint(SESSION, deps)
    assert saved.notes == () and "fountains" not in await quoted(deps)


async def test_what_is_deleted_while_a_checkpoint_is_restored_stays_deleted(
    deps: Deps, meanwhile: Meanwhile
) -> None:
    """The checkpoint is gone with it: there is none to restore."""
    await fill(deps)
    await save_checkpoint(SESSION, deps)
    (note,) = await read_notes(deps.store, Where(ME, kinds=SHORT_TERM))
    (message,) = await read_messages(deps.store, Where(ME, ids=frozenset({"m0"})))
    await deps.store.apply(Batch(notes=(replace(note, content="another 别的", digest="other"),)))
    meanwhile(saves, lambda: erase(message, deps))
    with pytest.raises(Exception, match="no checkpoint"):
        await restore_checkpoint(SESSION, None, deps)
    assert await read_notes(deps.store, Where(ME, kinds=SHORT_TERM)) == []
    assert await quoted(deps) == "[]"


async def test_a_note_whose_messages_are_gone_is_not_restored(deps: Deps) -> None:
    """Messages of another session leave the checkpoint of this one; it no longer tells of them."""
    there = said("t", "罗马 Rome", session_id="t")
    told = noted("n", "罗马 Rome", kind="short_term", session_id="s", sources=("t",))
    other = noted("o", "喷泉", kind="short_term", session_id="s", sources=("t", "m"))
    here = noted("h", "here 这里", kind="short_term", session_id="s", sources=("t",))
    await deps.store.apply(Batch(put=(there, said("m")), notes=(told, other, here)))
    saved = await save_checkpoint(SESSION, deps)
    drop = (Where(ME, ids=frozenset("t")), Where(ME, ids=frozenset("no"), kinds=SHORT_TERM))
    await deps.store.apply(Batch(drop=drop))
    await deps.store.apply(Batch(checkpoints=(saved,)))  # as if it had outlived them
    restored = await restore_checkpoint(SESSION, None, deps)
    assert {note.id: note.sources for note in restored.notes} == {"o": ("m",), "h": ()}
    assert {note.id for note in await read_notes(deps.store, MY_NOTES)} == {"o", "h"}


async def test_what_is_deleted_while_another_note_is_forgotten_is_in_no_checkpoint(
    deps: Deps, meanwhile: Meanwhile
) -> None:
    await fill(deps)
    gone = noted("x", "expired", kind="short_term", session_id="s", expires=NOW - 1)
    await deps.store.apply(Batch(notes=(gone,)))
    await save_checkpoint(SESSION, deps)
    (message,) = await read_messages(deps.store, Where(ME, ids=frozenset({"m0"})))
    meanwhile(saves, lambda: erase(message, deps))
    assert await forget(ME, Policy(), deps) == {"x": "expired"}
    assert await read_notes(deps.store, Where(ME, kinds=NOTES)) == []
    assert await quoted(deps) == "[]"


async def test_a_note_that_is_drawn_while_its_message_is_deleted_goes_with_it(
    deps: Deps, meanwhile: Meanwhile
) -> None:
    """One that has another source stays."""
    await fill(deps)
    late = noted("late", "late 晚了", sources=("m1",))
    both = noted("both", "both 两个", sources=("m1", "m2"))
    (message,) = await read_messages(deps.store, Where(ME, ids=frozenset({"m1"})))
    meanwhile(lambda batch: bool(batch.drop), lambda: deps.store.apply(Batch(notes=(late, both))))
    await erase(message, deps)
    notes = {note.id: note.sources for note in await read_notes(deps.store, MY_NOTES)}
    assert notes == {"n": ("m0",), "both": ("m2",)}
