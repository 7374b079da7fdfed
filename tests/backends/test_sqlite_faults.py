"""What the embedded store survives: killed processes, full disks, damaged and foreign files."""

import asyncio
import gc
import json
import os
import random
import resource
import shutil
import signal
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Connection, event
from sqlalchemy.dialects import sqlite

from kemem import Memory, Unavailable
from kemem.records import Embedded, Message, Model, Scope, Where
from kemem.records.batch import Batch, Job
from kemem.settings import load
from kemem.store import migrate
from kemem.store.index import SpaceCache
from kemem.store.migrate import STEPS, bring_up_to_date
from kemem.store.read import _by_values
from kemem.store.search import _hidden_and_ended
from kemem.store.spaces import find_spaces
from kemem.store.sqlite import FILE, Sqlite
from kemem.store.store import SqlStore, apply
from kemem.store.tables import messages
from kemem.text.query import parse
from kemem_conformance.suite import ranking
from tests import warm

pytestmark = pytest.mark.usefixtures("no_copies")
ME = Where(Scope(user_id="小明"))
NOW = 1_767_225_600_000_000

# Adds batches of five until it is killed; a line is printed only after an add has returned.
WRITER = """
import sys
from kemem import Memory
from kemem.settings import load
memory = Memory(settings=load(data_dir=sys.argv[1], embedder="none"))
print("ready", flush=True)
number = 0
while True:
    name = f"{sys.argv[2]}-{number}"
    memory.ingest([{"role": "user", "content": f"火锅 hotpot {name} {part}",
                    "message_id": f"{name}-{part}"} for part in range(5)], user_id="小明")
    print(name, flush=True)
    number += 1
"""


# Opens a store as a user who may only read it; the first memory loads all modules while it can.
STRANGER = """
import os, sys, tempfile
from kemem import Memory, Unavailable
from kemem.settings import load
with tempfile.TemporaryDirectory() as warm:
    with Memory(settings=load(data_dir=warm, embedder="none")) as memory:
        memory.ingest("火锅", "u")
if os.geteuid() == 0:
    os.setuid(65534)
memory = Memory(settings=load(data_dir=sys.argv[1], embedder="none"))
try:
    memory.ingest("火锅", "u")
except Unavailable as error:
    print(error.message)
"""


def memory_at(directory: Path) -> Memory:
    return Memory(settings=load(data_dir=directory, embedder="none"))


@contextmanager
def changing(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection of another program; its changes are committed and it is closed."""
    with closing(sqlite3.connect(path)) as connection, connection:
        yield connection


def message(name: str, content: str = "我不吃辣 no spice", user_id: str = "小明") -> Message:
    return Message(name, "agent", user_id, "s", "user", content, ts=NOW, ingest_time=NOW)


Start = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def start_writer(tmp_path: Path) -> Iterator[Start]:
    """Starts writers to one directory; none outlives the test."""
    started: list[subprocess.Popen[str]] = []

    def start(name: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [*warm.python(), "-c", WRITER, str(tmp_path), name], stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        assert process.stdout and process.stdout.readline() == "ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def kill_after(process: "subprocess.Popen[str]", lines: int) -> list[str]:
    """Let a writer acknowledge some batches, kill it, and return all it acknowledged."""
    assert process.stdout
    acknowledged = [process.stdout.readline().strip() for _ in range(lines)]
    process.send_signal(signal.SIGKILL)
    rest = process.stdout.read()
    # The last line may have been cut by the kill.
    return acknowledged + rest.split("\n")[:-1]


def stored_ids(memory: Memory) -> list[str]:
    found: list[str] = []
    cursor = None
    while True:
        page = memory.messages("小明", page_size=500, cursor=cursor)
        found += [item.message_id for item in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return found


@pytest.mark.parametrize("round_", range(4))
def test_what_was_acknowledged_survives_kill_9(
    tmp_path: Path, start_writer: Start, round_: int
) -> None:
    """Every acknowledged batch is there and found by words; no batch is there in part."""
    chance = random.Random(round_)
    acknowledged = kill_after(start_writer(f"r{round_}"), chance.randrange(1, 40))
    with memory_at(tmp_path) as memory:
        ids = stored_ids(memory)
        batches = {name.rsplit("-", 1)[0] for name in ids}
        assert set(acknowledged) <= batches
        assert len(ids) == 5 * len(batches)
        listed = memory.lexical_search("火锅 AND hotpot", "小明", page_size=1000)
        assert {hit.id for hit in listed.items} == set(ids[:1000])


def test_three_processes_can_write_to_one_directory(tmp_path: Path, start_writer: Start) -> None:
    """All that they acknowledged is there."""
    with memory_at(tmp_path) as memory:
        memory.health()
    writers = [start_writer(f"p{number}") for number in range(3)]
    acknowledged = [name for writer in writers for name in kill_after(writer, 10)]
    with memory_at(tmp_path) as memory:
        assert {f"{name}-{part}" for name in acknowledged for part in range(5)} <= set(
            stored_ids(memory)
        )


def test_another_process_sees_what_one_dropped(tmp_path: Path) -> None:
    """Warm columns never serve a row that another process removed."""

    async def scenario() -> None:
        ours, theirs = (SqlStore(Sqlite(tmp_path), 1 << 20) for _ in range(2))
        await ours.apply(Batch(put=(message("a"), message("乙", "喜欢火锅"))))
        query = parse("火锅")
        assert (await ranking(theirs, ME, query, limit=9)).total == 1
        await ours.apply(Batch(drop=(Where(ME.scope, ids=frozenset({"乙"})),)))
        assert (await ranking(theirs, ME, query, limit=9)).total == 0
        await ours.apply(Batch(put=(message("丙", "火锅店"),)))
        assert (await ranking(theirs, ME, query, limit=9)).matches[0].id == "丙"
        before = await theirs.generation(ME)
        assert await ours.generation(ME) == before
        await ours.apply(Batch(drop=(ME,)))
        assert await theirs.generation(ME) == await ours.generation(ME) != before
        await ours.close()
        await theirs.close()

    asyncio.run(scenario())


def test_a_reader_that_began_before_a_drop_brings_nothing_back(tmp_path: Path) -> None:
    """Its snapshot still has the row; the copy that later readers share must not."""

    async def scenario() -> None:
        database = Sqlite(tmp_path)
        store = SqlStore(database, 1 << 20)
        await store.apply(Batch(put=(message("a"), message("乙"))))
        with database.reading() as early:
            (before,) = find_spaces(early, ME.scope)
            await store.apply(Batch(drop=(Where(ME.scope, ids=frozenset({"乙"})),)))
            with database.reading() as late:
                (after,) = find_spaces(late, ME.scope)
                cache = SpaceCache(database, 1 << 20)
                cache._entry(after)  # the later reader came first, but has not read yet
                assert len(cache.snapshot(early, before).ids) == 2
                assert len(cache.snapshot(late, after).ids) == 1
        await store.close()

    asyncio.run(scenario())


def test_vectors_take_the_room_of_their_numbers(tmp_path: Path) -> None:
    """Those of the default width, too, and when they are replaced; in version 9 it was a page."""
    model, names = Model("m", 512), [f"{number}" for number in range(300)]

    async def scenario() -> None:
        store = SqlStore(Sqlite(tmp_path), 1 << 20)
        await store.apply(Batch(put=tuple(message(name) for name in names)))
        for number in (1.0, 2.0):
            matrix = np.full((300, 512), number, np.float32)
            embedded = Embedded(Scope("agent", "小明"), model, tuple(names), matrix)
            await store.apply(Batch(vectors=(embedded,)))
        await store.close()

    asyncio.run(scenario())
    with closing(sqlite3.connect(tmp_path / FILE)) as database:
        (pages,) = database.execute(
            "SELECT count(*) FROM dbstat WHERE name = 'row_vector'"
        ).fetchone()
        (count,) = database.execute("SELECT count(*) FROM row_vector").fetchone()
    assert (count, pages * 4096 < 1.5 * 300 * 1024) == (300, True)


def test_columns_stay_within_their_budget(tmp_path: Path) -> None:
    """Those not used for longest go first; the answers stay the same."""

    async def scenario() -> None:
        store = SqlStore(Sqlite(tmp_path), cache_bytes=20_000)
        for number in range(12):
            said = replace(message(f"{number}", "火锅 hotpot"), user_id=f"u{number}")
            await store.apply(Batch(put=(said,)))
        for number in (*range(12), 0, 5):
            where = Where(Scope(user_id=f"u{number}"))
            found = await ranking(store, where, parse("火锅"), limit=9)
            assert [match.id for match in found.matches] == [f"{number}"]
        cache = store._cache
        assert cache._used == sum(entry.bytes for entry in cache._entries.values()) <= 20_000
        assert list(cache._entries)[-1] == 6
        await store.close()

    asyncio.run(scenario())


def test_waiting_writers_share_one_commit(tmp_path: Path) -> None:
    """Group commit: what arrives while the disk is busy costs one more fsync, not one each."""

    async def scenario() -> None:
        database = Sqlite(tmp_path)
        store = SqlStore(database, 1 << 20)
        commits: list[Connection] = []
        event.listen(database._writer, "commit", commits.append)
        begun, busy = threading.Barrier(2), threading.Event()
        first = database.write(lambda connection: begun.wait(10) + busy.wait(10))
        begun.wait(10)
        writes = [
            asyncio.ensure_future(store.apply(Batch(put=(message(f"{n}"),)))) for n in range(60)
        ]
        while database._queue.qsize() < 60:
            await asyncio.sleep(0)
        busy.set()
        applied = await asyncio.gather(*writes)
        assert first.result() and sum(len(each.inserted) for each in applied) == 60
        assert len(commits) == 2
        await store.close()

    asyncio.run(scenario())


def test_commits_reach_the_disk_before_they_are_acknowledged(tmp_path: Path) -> None:
    """A write-ahead log with synchronous=FULL, on the connection that really writes."""
    database = Sqlite(tmp_path)
    database.open()
    settings = database.write(
        lambda connection: [
            connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "secure_delete")
        ]
    ).result()
    database.close()
    assert settings == ["wal", 2, 1, 1]


def test_only_what_can_be_derived_again_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    """Messages, drops and jobs are synced (2); vectors alone are not (1), and the next sync is."""
    vectors = Embedded(ME.scope, Model("m", 2), ("a",), np.ones((1, 2), np.float32))
    batches = (
        Batch(put=(message("a"),)),
        Batch(vectors=(vectors,), done=("j",)),
        Batch(jobs=(Job("j", "embed", ME.scope, NOW),)),
        Batch(vectors=(vectors,)),
        Batch(drop=(ME,)),
    )

    async def scenario() -> list[int]:
        database = Sqlite(tmp_path)
        store = SqlStore(database, 1 << 20)
        levels: list[int] = []

        def note(connection: Connection) -> None:
            levels.append(connection.exec_driver_sql("PRAGMA synchronous").scalar_one())

        event.listen(database._writer, "commit", note)
        for batch in batches:
            await store.apply(batch)
        await store.close()
        return levels

    assert asyncio.run(scenario())[:5] == [2, 1, 2, 1, 2]  # then dropped words are erased


@pytest.mark.parametrize("opened", ["created", "reopened"])
def test_rows_are_looked_up_by_their_ids(tmp_path: Path, opened: str) -> None:
    """A batch costs the same however many messages a user has: no plan reads a whole space."""
    if opened == "reopened":
        filled(tmp_path)
    database = Sqlite(tmp_path)
    database.open()

    def to_text(statement: Any) -> str:
        one_space = statement.params(spaces=[1], values=["x"])
        compiled = one_space.compile(
            dialect=sqlite.dialect(), compile_kwargs={"render_postcompile": True}
        )
        return str(compiled).replace("?", "1")

    def plan(connection: Connection, query: str) -> str:
        return str(connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}").all())

    def plans(connection: Connection) -> list[str]:
        ids = ", ".join("'x'" for _ in range(16))
        return [
            plan(connection, to_text(_by_values(messages, messages.name))),
            plan(connection, f"SELECT * FROM row_vector WHERE space_no = 1 AND id IN ({ids})"),
            plan(connection, to_text(_hidden_and_ended((), False, False, False))),
        ]

    writing = database.write(plans).result()
    with database.reading() as connection:
        assert writing == plans(connection)
    database.close()
    assert "uk_message_id (space_no=? AND message_id=?)" in writing[0]
    assert "INTEGER PRIMARY KEY (rowid=?)" in writing[1]
    assert "idx_message_sensitive" in writing[2] and "idx_note_sensitive" in writing[2]


@pytest.fixture
def small_files() -> Iterator[None]:
    """A process that cannot write files beyond 2 MiB, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_refuses_and_recovers(tmp_path: Path, small_files: None) -> None:
    """No acknowledgement without room; reads go on; with room again the same process writes."""
    with memory_at(tmp_path) as memory:
        memory.ingest({"role": "user", "content": "我不吃辣", "message_id": "first"}, "小明")
        large = "火锅 hotpot " * 4000
        with pytest.raises(Unavailable, match="nothing was written"):
            for number in range(60):
                memory.ingest({"role": "user", "content": f"{number} {large}"}, "小明")
        kept = len(stored_ids(memory))
        assert memory.lexical_search("不吃辣", "小明").items[0].id == "first"
        resource.setrlimit(
            resource.RLIMIT_FSIZE,
            (resource.RLIM_INFINITY, resource.getrlimit(resource.RLIMIT_FSIZE)[1]),
        )
        memory.ingest({"role": "user", "content": large, "message_id": "last"}, "小明")
        assert len(stored_ids(memory)) == kept + 1
    with memory_at(tmp_path) as memory:
        assert len(stored_ids(memory)) == kept + 1


def filled(directory: Path) -> Path:
    with memory_at(directory) as memory:
        memory.ingest([{"role": "user", "content": f"火锅 {n}"} for n in range(50)], "小明")
    return directory / FILE


def test_a_damaged_file_is_named_and_left_alone(tmp_path: Path) -> None:
    """A flipped byte in the header: a clear error, not a new empty store."""
    path = filled(tmp_path)
    damaged = bytearray(path.read_bytes())
    damaged[3] ^= 0xFF
    path.write_bytes(damaged)
    with memory_at(tmp_path) as memory, pytest.raises(Unavailable, match="restore a backup"):
        memory.health()
    assert path.read_bytes() == damaged


def test_a_foreign_file_is_not_touched(tmp_path: Path) -> None:
    """A text file, and a database of another program."""
    path = tmp_path / FILE
    path.write_text("这不是数据库 not a database\n" * 200)
    with memory_at(tmp_path) as memory, pytest.raises(Unavailable, match="not a KeMem store"):
        memory.health()
    assert path.read_text().startswith("这不是数据库")
    path.unlink()
    with changing(path) as other:
        other.execute("CREATE TABLE recipe (name TEXT)")
    with memory_at(tmp_path) as memory, pytest.raises(Unavailable, match="another program"):
        memory.health()
    with changing(path) as other:
        assert [row[0] for row in other.execute("SELECT name FROM sqlite_master")] == ["recipe"]


def test_a_directory_in_its_place_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    with memory_at(tmp_path) as memory, pytest.raises(Unavailable, match="cannot be opened"):
        memory.health()


def test_a_store_that_may_not_be_written_is_a_clear_error(tmp_path: Path) -> None:
    """Opened by a user without rights to it."""
    filled(tmp_path)
    for path in (tmp_path, *tmp_path.iterdir()):
        path.chmod(0o555 if path.is_dir() else 0o444)
    for parent in tmp_path.parents:
        if parent.stat().st_uid == os.geteuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    done = subprocess.run(
        [*warm.python(), "-c", STRANGER, str(tmp_path)], capture_output=True, text=True, check=False
    )
    tmp_path.chmod(0o755)
    assert "read-only" in done.stdout or "cannot be opened" in done.stdout, done.stderr


def test_a_log_that_lost_its_end_leaves_a_prefix(tmp_path: Path, start_writer: Start) -> None:
    """The write-ahead log of a killed process cut to two thirds: what is left is the beginning."""
    kill_after(start_writer("w"), 20)
    log = tmp_path / f"{FILE}-wal"
    log.write_bytes(log.read_bytes()[: log.stat().st_size * 2 // 3])
    with memory_at(tmp_path) as memory:
        left = [name for name in stored_ids(memory) if name.startswith("w-")]
        numbers = sorted({int(name.split("-")[1]) for name in left})
        assert numbers == list(range(len(numbers)))
        assert len(left) == 5 * len(numbers)


def test_a_newer_store_is_refused_untouched(tmp_path: Path) -> None:
    """A downgrade does not damage anything."""
    path = filled(tmp_path)
    with changing(path) as other:
        other.execute("UPDATE meta SET value = '99' WHERE key = 'schema_version'")
    before = path.read_bytes()
    with memory_at(tmp_path) as memory, pytest.raises(Unavailable, match="newer KeMem"):
        memory.health()
    assert path.read_bytes() == before


def test_a_migration_happens_wholly_or_not_at_all(tmp_path: Path) -> None:
    """A step that fails leaves the old version; the next attempt brings the new one."""
    filled(tmp_path)
    database = Sqlite(tmp_path)
    database.open()

    def add_column(connection: Connection, _: object) -> None:
        connection.exec_driver_sql("ALTER TABLE agent ADD COLUMN colour TEXT")

    def fail(connection: Connection, _: object) -> None:
        raise RuntimeError("the last step failed")

    def run(*steps: migrate.Step) -> None:
        database.write(
            lambda connection: bring_up_to_date(connection, database, (*STEPS, *steps))
        ).result()

    def version_and_columns() -> tuple[str, bool]:
        with changing(tmp_path / FILE) as other:
            (version,) = other.execute("SELECT value FROM meta WHERE key = 'schema_version'")
            columns = [row[1] for row in other.execute("PRAGMA table_info(agent)")]
        return version[0], "colour" in columns

    with pytest.raises(RuntimeError):
        run(add_column, fail)
    assert version_and_columns() == (str(1 + len(STEPS)), False)
    run(add_column)
    assert version_and_columns() == (str(2 + len(STEPS)), True)
    database.close()


def test_a_new_text_version_indexes_all_words_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change of the tokeniser is noticed at opening."""
    path = filled(tmp_path)
    with changing(path) as other:
        other.execute("INSERT INTO row_words(row_words) VALUES ('delete-all')")
        other.execute("UPDATE meta SET value = '0' WHERE key = 'text_version'")
    with memory_at(tmp_path) as memory:
        assert len(memory.lexical_search("火锅", "小明").items) == 50


def test_dropped_words_leave_the_files(tmp_path: Path) -> None:
    """After a drop no file of the store holds the text, in any spelling we write."""
    secret = "密码是swordfish吗"

    async def scenario() -> None:
        store = SqlStore(Sqlite(tmp_path), 1 << 20)
        await store.apply(Batch(put=(message("a", secret), message("b", "保留这一句 keep"))))
        await store.apply(Batch(drop=(Where(ME.scope, ids=frozenset({"a"})),)))
        await store.close()

    asyncio.run(scenario())
    everything = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    for trace in (secret.encode(), b"swordfish", json.dumps(secret).encode(), "密码".encode()):
        assert trace not in everything
    assert "保留".encode() in everything


def in_files(directory: Path, trace: bytes) -> bool:
    """Whether any file of a store, or its log, holds a trace."""
    return any(trace in path.read_bytes() for path in directory.iterdir())


def test_dropped_words_leave_the_files_while_the_store_is_open(tmp_path: Path) -> None:
    """Within moments; the log is emptied here, as it would be in time."""

    async def scenario() -> None:
        store = SqlStore(Sqlite(tmp_path), 1 << 20)
        kept = [message(f"m{n}", f"保留这一句 keep {n}", user_id=f"u{n % 7}") for n in range(500)]
        await store.apply(Batch(put=(message("a", "swordfish"), *kept)))
        await store.apply(Batch(drop=(Where(ME.scope, ids=frozenset({"a"})),)))
        for _ in range(100):
            with changing(tmp_path / FILE) as other:
                other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            if not in_files(tmp_path, b"swordfish"):
                break
            await asyncio.sleep(0.05)
        assert not in_files(tmp_path, b"swordfish")
        await store.close()

    asyncio.run(scenario())


@pytest.mark.skipif(sqlite3.sqlite_version_info >= (3, 42), reason="words are erased at once")
def test_words_that_a_killed_process_did_not_erase_go_later(tmp_path: Path) -> None:
    async def scenario(*, is_killed: bool) -> None:
        database = Sqlite(tmp_path)
        store = SqlStore(database, 1 << 20)
        if is_killed:
            await store.apply(Batch(put=(message("a", "swordfish"), message("b", "keep"))))
            database._erase_words = lambda: setattr(database, "_erasure", None)  # type: ignore[method-assign]
            await store.apply(Batch(drop=(Where(ME.scope, ids=frozenset({"a"})),)))
        await store.close()

    asyncio.run(scenario(is_killed=True))
    assert in_files(tmp_path, b"swordfish")
    asyncio.run(scenario(is_killed=False))
    assert not in_files(tmp_path, b"swordfish")


@pytest.mark.skipif(sqlite3.sqlite_version_info >= (3, 42), reason="no format is too new")
def test_a_word_index_of_a_newer_sqlite_is_written_anew(tmp_path: Path) -> None:
    """Once words were erased at once, an older SQLite cannot read the index."""
    filled(tmp_path)
    with changing(tmp_path / FILE) as other:
        other.execute("UPDATE row_words_config SET v = 5 WHERE k = 'version'")
    with memory_at(tmp_path) as memory:
        assert len(memory.lexical_search("火锅", "小明").items) == 50


def test_a_drop_costs_the_same_however_much_others_have_said(tmp_path: Path) -> None:
    """Rows that are changed for one message of one user, beside 20 or 4,000 of others."""

    async def changed(directory: Path, others: int) -> int:
        database = Sqlite(directory)
        store = SqlStore(database, 1 << 20)
        mine = [message(f"a{n}", "我的 my own") for n in range(0, others, 10)]
        theirs = [
            message(f"m{n}", f"火锅 {n} hotpot {n % 97}", user_id="别人") for n in range(others)
        ]
        everything = (*mine, *theirs)
        for start in range(0, len(everything), 200):
            await store.apply(Batch(put=everything[start : start + 200]))
        where = Where(ME.scope, ids=frozenset({"a0"}))

        def drop(connection: Connection) -> int:
            driver: Any = connection.connection.driver_connection
            before = driver.total_changes
            assert apply(connection, database, Batch(drop=(where,))).dropped == 1
            return int(driver.total_changes - before)

        rows = await asyncio.wrap_future(database.write(drop))
        await store.close()
        return rows

    few, many = (asyncio.run(changed(tmp_path / f"{others}", others)) for others in (20, 4_000))
    assert many <= few + 5


def test_paths_may_hold_blanks_and_any_script(tmp_path: Path) -> None:
    directory = tmp_path / "my 数据 100% #1?" / ("长" * 60)
    with memory_at(directory) as memory:
        memory.ingest("火锅", "小明")
    assert (directory / FILE).exists()


def test_opening_and_closing_leaks_nothing(tmp_path: Path) -> None:
    """There are no more file descriptors and threads after thirty memories than after one."""

    def use() -> tuple[int, int]:
        with memory_at(tmp_path) as memory:
            memory.ingest("火锅", "小明")
            memory.lexical_search("火锅", "小明")
        return len(os.listdir("/proc/self/fd")), threading.active_count()

    gc.collect()  # what earlier tests left behind must not be counted
    files, threads = use()
    files_later, threads_later = [use() for _ in range(30)][-1]
    assert files_later <= files and threads_later <= threads


def test_a_copy_of_the_directory_is_a_store(tmp_path: Path) -> None:
    """After closing, nothing is left in side files that a copy would miss."""
    filled(tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    with memory_at(tmp_path / "two") as memory:
        assert len(stored_ids(memory)) == 50
