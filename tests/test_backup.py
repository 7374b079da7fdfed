"""Backup and restore: what comes back is what was there, all of it and nothing else."""

import asyncio
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy.engine import make_url

from kemem import AsyncMemory, Conflict, InvalidArgument, KeMemError, Memory, PermissionDenied
from kemem.ports import Deps, Store, read_messages
from kemem.records import MESSAGES, NOTES, Message, Scope, Where
from kemem.records.batch import Batch
from kemem.settings import load
from kemem.snapshot import Backup, Places, backup, restore
from kemem.store.postgres import Postgres
from kemem.store.sqlite import Sqlite
from kemem.store.store import SqlStore
from kemem.testing import FakeClock, HashingEmbedder
from kemem_conformance.note_world import note_batches
from kemem_conformance.ram import RamStore
from kemem_conformance.world import NOW, histories
from tests.command import kemem
from tests.fixtures import EXAMPLES
from tests.snapshots import picture

SPICE = [("我不吃辣", "辣"), ("I can't eat spicy food", "spicy")]
DAY = "memory_backup_20260101_000000"


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with at(tmp_path) as opened:
        yield opened


def at(directory: Path) -> Memory:
    return Memory(data_dir=directory, embedder=HashingEmbedder(), llm=None, clock=FakeClock(NOW))


def parts_of(store: Store) -> Deps:
    return Deps(store, None, FakeClock(NOW))


def places(folder: Path) -> Places:
    return Places(folder / "backups", folder / "workspaces")


def contents(memory: Memory, user: str = "u") -> list[str]:
    return [item.memory for item in memory.get_all(user, kinds=MESSAGES | NOTES)]


async def apply_all(store: Store, batches: list[Batch]) -> None:
    for batch in batches:
        try:
            await store.apply(batch)
        except KeMemError:  # some of them are to be refused
            continue


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("worlds")


@pytest.fixture(scope="module")
def two_stores(folder: Path) -> Iterator[tuple[SqlStore, SqlStore]]:
    one, two = (SqlStore(Sqlite(folder / name), 1 << 20) for name in "12")
    yield one, two
    for store in (one, two):
        asyncio.run(store.close())


WORLDS = st.lists(note_batches(), min_size=1, max_size=3) | histories()


@settings(max_examples=EXAMPLES)
@given(kept=WORLDS, replaced=WORLDS)
def test_a_restored_store_is_the_one_that_was_backed_up(
    two_stores: tuple[SqlStore, SqlStore], folder: Path, kept: list[Batch], replaced: list[Batch]
) -> None:
    """Messages, notes, links, history, states, jobs, vectors and words, whatever was there."""
    one, two = two_stores

    async def scenario() -> None:
        await one.replace((), "empty")
        await apply_all(one, kept)
        await apply_all(two, replaced)
        await picture(two)  # its caches are warm
        made = await backup(parts_of(one), places(folder))
        assert await restore(parts_of(two), places(folder), made.path) == made
        assert await picture(two) == await picture(one)

    asyncio.run(scenario())


@settings(max_examples=1)
@given(kept=st.lists(note_batches(), min_size=4, max_size=4))
def test_a_backup_goes_from_sqlite_to_postgresql_and_back(
    two_stores: tuple[SqlStore, SqlStore], folder: Path, postgres_url: str, kept: list[Batch]
) -> None:
    """And both go on as if it had always been theirs: what is written next finds its numbers."""
    one, back = two_stores

    async def scenario() -> None:
        await one.replace((), "empty")
        other = SqlStore(Postgres(make_url(postgres_url)), 1 << 20)
        stores = (one, other, back)
        await apply_all(one, kept)
        for source, target in itertools.pairwise(stores):
            made = await backup(parts_of(source), places(folder))
            await restore(parts_of(target), places(folder), made.path)
            assert await picture(target) == await picture(one)
        newcomer = Message("新", "agent", "newcomer", "s", "user", "火锅", ts=NOW, ingest_time=NOW)
        for store in stores:
            await apply_all(store, [*kept[::-1], Batch(put=(newcomer,))])
            assert await read_messages(store, Where(Scope(user_id="newcomer"))) != []
        assert await picture(other) == await picture(back)
        await other.close()

    asyncio.run(scenario())


@pytest.fixture(scope="module")
def postgres_url(postgres: str) -> str:
    """An empty database of this module's own."""
    with psycopg.connect(postgres, autocommit=True) as connection:
        connection.execute('CREATE DATABASE "kemem_backup"')
    return postgres.rsplit("/", 1)[0] + "/kemem_backup"


@pytest.mark.parametrize(("said", "asked"), SPICE)
def test_everything_is_as_it_was(memory: Memory, said: str, asked: str) -> None:
    """What came since is gone, what went is back, in the workspaces too."""
    memory.add(said, user_id="u")
    workspaces = memory.workspaces()
    workspaces.init("空")
    workspaces.put("task", "笔记/notes.md", 0o640, [said.encode(), b"\0" * 100_000])
    workspaces.put("task", "empty", 0o600, [])
    made = memory.backup()
    before = (contents(memory), memory.search(asked, user_id="u"), memory.health())
    memory.delete_all("u")
    memory.add("hello, I like tea", user_id="other")
    memory.workspaces().cleanup("task")
    memory.workspaces().init("later")
    assert memory.restore(made.path) == made
    assert (contents(memory), memory.search(asked, user_id="u"), memory.health()) == before
    assert memory.get_all("other").items == ()
    restored = memory.workspaces()
    assert restored.tasks() == ["task", "空"]
    found = {it.path: (it.mode, b"".join(it.chunks())) for it in restored.files()}
    assert found == {
        "笔记/notes.md": (0o640, said.encode() + b"\0" * 100_000),
        "empty": (0o600, b""),
    }
    assert (made.messages, made.files, made.created) == (1, 2, NOW)
    assert made.path.is_absolute() and made.size == made.path.stat().st_size
    folders = {it.name for it in memory.settings.data_dir.glob("workspaces/*")}
    assert folders - {".lock"} == {restored.root.name}


def test_backups_within_a_second_are_files_of_their_own(memory: Memory) -> None:
    """Named for the second, for their owner's eyes only."""
    memory.add("我不吃辣", user_id="u")
    with ThreadPoolExecutor(3) as pool:
        made = list(pool.map(lambda _: memory.backup(), range(3)))
    assert {it.path.name for it in made} == {f"{DAY}.json", f"{DAY}-2.json", f"{DAY}-3.json"}
    folder = memory.settings.data_dir / "backups"
    assert {it.path.parent for it in made} == {folder}
    assert [it.path.stat().st_mode & 0o777 for it in made] == [0o600] * 3
    assert folder.stat().st_mode & 0o777 == 0o700
    assert len(list(folder.iterdir())) == 3


def test_a_backup_can_be_named_and_overwrites_nothing(memory: Memory, tmp_path: Path) -> None:
    named = tmp_path / "备份" / "mine.json"
    assert memory.backup(named).path == named
    before = named.read_bytes()
    with pytest.raises(Conflict, match="exists"):
        memory.backup(named)
    assert named.read_bytes() == before
    assert memory.backup(named.parent).path.name == f"{DAY}.json"
    assert memory.backup("一.json").path == memory.settings.data_dir / "backups" / "一.json"
    assert memory.restore("一.json").messages == 0


def test_a_handle_of_one_user_can_do_neither(memory: Memory) -> None:
    handle = memory.for_user("u")
    made = memory.backup()
    with pytest.raises(PermissionDenied):
        handle.backup()
    with pytest.raises(PermissionDenied):
        handle.restore(made.path)


async def test_a_store_that_cannot_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="cannot be backed up"):
        await backup(parts_of(RamStore()), places(tmp_path))
    with pytest.raises(InvalidArgument, match="cannot be backed up"):
        await restore(parts_of(RamStore()), places(tmp_path), "x.json")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("said", "asked"), SPICE)
def test_cursors_of_before_are_refused(
    memory: Memory, tmp_path: Path, said: str, asked: str
) -> None:
    """By every process, also one that has sealed cursors before."""
    memory.ingest([{"content": said}] * 3, "u")
    with at(tmp_path) as other:
        pages = [
            (memory.messages, memory.messages("u", page_size=1).next_cursor),
            (other.messages, other.messages("u", page_size=1).next_cursor),
        ]
        memory.restore(memory.backup().path)
        for read, cursor in pages:
            with pytest.raises(InvalidArgument, match="cursor"):
                read("u", page_size=1, cursor=cursor)
        again = other.messages("u", page_size=1).next_cursor
        assert memory.messages("u", page_size=1, cursor=again).items


@pytest.mark.parametrize(("said", "asked"), SPICE)
def test_warm_caches_see_what_was_restored(
    memory: Memory, tmp_path: Path, said: str, asked: str
) -> None:
    """Also where a new user gets the number of one who is no longer there."""
    memory.add(said, user_id="first")
    made = memory.backup()
    memory.add(f"{said} 火锅 hotpot", user_id="second")
    with at(tmp_path) as other:
        before = {user: other.generation(user) for user in ("first", "second")}
        assert other.search(asked, user_id="second") and other.search(asked, user_id="first")
        assert other.recall(asked, "second").evidence
        memory.restore(made.path)
        assert (
            not other.search(asked, user_id="second") and not other.recall(asked, "second").evidence
        )
        assert other.generation("first") != before["first"]
        memory.ingest("咖啡 coffee", "third")
        assert not other.lexical_search(asked, "third").items
        assert [hit.memory for hit in other.lexical_search("咖啡", "third").items] == [
            "咖啡 coffee"
        ]
        assert other.generation("third") != before["second"]
        assert other.search(asked, user_id="first")


def test_a_backup_is_a_cut_through_what_goes_on(tmp_path: Path) -> None:
    """Of three writers all that was acknowledged before is in it, nothing begun after, no half."""
    begun: dict[str, int] = {}
    acknowledged: dict[str, int] = {}
    stop = threading.Event()

    def write(name: str) -> None:
        for number in itertools.count(1):
            if stop.is_set():
                return
            begun[name] = number
            batch = [
                {"content": f"火锅 {part}", "message_id": f"{name}-{number}-{part}"}
                for part in range(5)
            ]
            opened.ingest(batch, name, session_id=f"第{number}")  # in another table
            acknowledged[name] = number

    names = ("甲", "b", "c")
    with memory_without_vectors(tmp_path) as opened, ThreadPoolExecutor(3) as pool:
        writers = [pool.submit(write, name) for name in names]
        cuts: list[tuple[dict[str, int], Backup, dict[str, int]]] = []
        try:
            while len(cuts) < 4:
                before = dict(acknowledged)
                made = opened.backup()
                cuts.append((before, made, dict(begun)))
        finally:
            stop.set()
        for writer in writers:
            writer.result()
    with memory_without_vectors(tmp_path / "other") as other:
        for before, made, after in cuts:
            other.restore(made.path)
            for name in names:
                ids = [it.message_id for it in every_message(other, name)]
                numbers = {int(it.split("-")[1]) for it in ids}
                assert len(ids) == 5 * len(numbers)
                assert before.get(name, 0) <= len(numbers) <= after.get(name, 0)
                assert numbers == set(range(1, len(numbers) + 1))


def memory_without_vectors(directory: Path) -> Memory:
    return Memory(settings=load(data_dir=directory, embedder="none", llm="none"))


def every_message(memory: Memory, user: str) -> Iterator[Message]:
    cursor = None
    while True:
        page = memory.messages(user, page_size=1000, cursor=cursor)
        yield from page.items
        cursor = page.next_cursor
        if cursor is None:
            return


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
async def test_restores_at_the_same_time_take_turns(
    tmp_path: Path, fresh_database: Callable[[], str], engine: str
) -> None:
    """What is added meanwhile is replaced or stays, what is read is of one state; all succeeds."""
    url = fresh_database() if engine == "postgresql" else None
    chosen = load(data_dir=tmp_path, database_url=url, embedder="none", llm="none")
    async with AsyncMemory(settings=chosen) as memory:
        made = []
        for name in ("一", "two"):
            await memory.delete_all("u")
            await memory.ingest([{"content": name}] * 3, "u")
            (await memory.workspaces()).put("t", "f", 0o600, [name.encode()])
            made.append(await memory.backup())

        async def read() -> None:
            for _ in range(10):
                texts = [it.content for it in (await memory.messages("u")).items]
                assert texts in (["一"] * 3, ["two"] * 3)

        news = [memory.ingest([{"content": f"新 {n}"}], "v") for n in range(20)]
        await asyncio.gather(
            *(memory.restore(it.path) for it in made * 2), *news, read(), memory.backup()
        )
        (text,) = {it.content for it in (await memory.messages("u")).items}
        (file,) = (await memory.workspaces()).files()
        assert b"".join(file.chunks()).decode() == text
        await memory.ingest("最后 last", "v")
        assert "最后 last" in {it.content for it in (await memory.messages("v")).items}


def test_another_embedder_makes_new_vectors_after_a_restore(tmp_path: Path) -> None:
    with at(tmp_path) as memory:
        memory.add("我不吃辣", user_id="u")
        made = memory.backup()
    wider = HashingEmbedder(width=32, name="wider")
    with Memory(data_dir=tmp_path / "other", embedder=wider) as other:
        other.add("hello I like tea", user_id="v")
        other.restore(made.path)
        assert {job.kind for job in other.jobs()} == {"reembed"}
        other.run_jobs()
        assert other.semantic_search("我不吃辣", "u")


def test_the_commands_back_up_and_restore(tmp_path: Path) -> None:
    """What they print names the file; nothing is replaced without consent."""
    with memory_without_vectors(tmp_path / "data") as memory:
        memory.ingest("我不吃辣 no spice", "u")
    made = json.loads(kemem(tmp_path, "backup", "--to", "mine.json", "--json").stdout)
    assert (made["messages"], made["path"]) == (1, str(tmp_path / "mine.json"))
    other = {"KEMEM_DATA_DIR": str(tmp_path / "other")}
    refused = kemem(tmp_path, "restore", "mine.json", typed="n\n", **other)
    assert refused.returncode == 1 and not (tmp_path / "other").exists()
    done = kemem(tmp_path, "restore", "mine.json", "--yes", **other)
    assert done.stdout.splitlines()[0] == made["path"]
    with memory_without_vectors(tmp_path / "other") as memory:
        assert contents(memory) == ["我不吃辣 no spice"]
