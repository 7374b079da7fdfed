"""A store that is moved to another database while it is in use: nothing is lost."""

import asyncio
import json
import signal
import sqlite3
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy.engine import make_url

from kemem import Conflict, InvalidArgument, KeMemError, Memory, NotFound, Unavailable, admin
from kemem.records import Message
from kemem.records.batch import Batch
from kemem.records.keys import ApiKey
from kemem.records.webhooks import Webhook
from kemem.serve.cli import operate
from kemem.settings import load
from kemem.store import copier, move
from kemem.store.archive import stored_rows
from kemem.store.database import Database
from kemem.store.move import Move, Pass, Progress
from kemem.store.postgres import Postgres
from kemem.store.sqlite import FILE, Sqlite
from kemem.store.store import SqlStore
from kemem_conformance.note_world import note_batches
from tests import warm
from tests.command import command, environment, kemem
from tests.fixtures import EXAMPLES_ON_POSTGRES, drop_databases, new_database
from tests.snapshots import picture

WRITER = """
import json, sys
from kemem import Memory, Unavailable
from kemem.settings import load

def main(places):
    number = 0
    for options in places:
        try:
            with Memory(settings=load(**options, embedder="none", llm="none")) as memory:
                while True:
                    number += 1
                    user = f"u{number % 10}"
                    text = f"I moved to town {number}." if number % 2 else f"我搬到了{number}号。"
                    added = memory.add(text, user)
                    print(json.dumps([user, added.message_ids[0], None]), flush=True)
                    if number % 7 == 0:
                        memory.delete(added.message_ids[0], user_id=user)
                        print(json.dumps([user, added.message_ids[0], "gone"]), flush=True)
        except Unavailable as error:
            print(json.dumps(error.message), flush=True)

main(json.loads(sys.argv[1]))
"""
WORLDS = st.lists(note_batches(), min_size=1, max_size=3)


def refused(*_: object) -> None:
    raise AssertionError("nothing is to be asked or reported")


def no_report(*_: object) -> None:
    """Neither reports nor questions."""


async def apply_all(store: SqlStore, batches: list[Batch]) -> None:
    for batch in batches:
        try:
            await store.apply(batch)
        except KeMemError:  # some of them are to be refused
            continue


def all_messages(memory: Memory, user_id: str) -> Iterator[Message]:
    cursor: str | None = None
    while True:
        page = memory.messages(user_id, page_size=1000, cursor=cursor)
        yield from page.items
        if (cursor := page.next_cursor) is None:
            return


def opened(database: Database) -> Database:
    database.open(moving=True)
    return database


@pytest.mark.parametrize("back", [False, True])
@settings(max_examples=EXAMPLES_ON_POSTGRES)
@given(
    before=WORLDS, meanwhile=WORLDS, at_last=WORLDS, is_large=st.booleans(), killed=st.booleans()
)
def test_a_copy_that_catches_up_is_the_store(
    postgres: str,
    tmp_path_factory: pytest.TempPathFactory,
    before: list[Batch],
    meanwhile: list[Batch],
    at_last: list[Batch],
    back: bool,
    is_large: bool,
    killed: bool,
) -> None:
    """What was added, changed and dropped between two passes, and until the last; both ways.

    Of large spaces the copied rows are remembered, unless the move was killed.
    """
    url = new_database(postgres)

    def places() -> list[Database]:
        pair: list[Database] = [Sqlite(tmp_path_factory.mktemp("a")), Postgres(make_url(url))]
        return pair[::-1] if back else pair

    source, target = places()

    async def scenario() -> None:
        store = SqlStore(source, 1 << 20)
        await apply_all(store, before)
        work = Move(source, opened(target))
        work.catch_up(no_report)
        await apply_all(store, meanwhile)
        work = Move(source, target) if killed else work
        work.catch_up(no_report)
        await apply_all(store, at_last)
        expected = await picture(store)
        work = Move(source, target) if killed else work
        work.switch("there")
        target.close()
        with pytest.raises(Unavailable, match="moved"):
            await store.claim(1, 1)
            await store.apply(before[0])
        assert await picture(store) == expected
        moved = SqlStore(target, 1 << 20)
        assert await picture(moved) == expected
        assert (await moved.info()).secret == (await store.info()).secret
        await apply_all(moved, [*before, *meanwhile])  # it goes on
        await store.close()
        with pytest.raises(Unavailable, match="moved to there"):
            source.open()
        await moved.close()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(move, "_LARGE", 0 if is_large else 1_000)
        asyncio.run(scenario())
    drop_databases(postgres, [url])


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Path]:
    """The directory of a store of 20 users."""
    directory = tmp_path / "old"
    with Memory(settings=load(data_dir=directory, embedder="none", llm="none")) as memory:
        for number in range(20):
            memory.add(f"I like tea {number}. 我喜欢茶。", f"u{number}")
    yield directory


@pytest.mark.parametrize("rows", [0, 1_500])
def test_no_acknowledged_write_is_lost(
    tmp_path: Path, store_database: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that never pauses is told that the store moved, and goes on at the new place.

    So it is where one of its users has more rows than are copied together.
    """
    places = [{"data_dir": str(tmp_path / "old")}, {"database_url": store_database}]
    monkeypatch.setattr(move, "_MOST_ROWS", 500)
    monkeypatch.setattr(move, "_LARGE", 200)
    if rows:
        with Memory(settings=load(**places[0], embedder="none", llm="none")) as memory:
            talk = [
                {"role": "user", "content": f"Line {it} of town. 第{it}行。"} for it in range(rows)
            ]
            memory.add(talk, "u1", infer=False)
    arguments = [*warm.python(), "-c", WRITER, json.dumps(places)]
    writer = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    assert writer.stdout
    lines = [json.loads(writer.stdout.readline()) for _ in range(40)]
    moved = admin.move(str(tmp_path / "old"), store_database, no_report, no_report)
    assert moved.rows["message"] > 20 + rows
    while isinstance(lines[-1], list):
        lines.append(json.loads(writer.stdout.readline()))
    assert "moved" in lines[-1]
    lines += [json.loads(writer.stdout.readline()) for _ in range(20)]
    writer.kill()
    lines += map(json.loads, writer.communicate()[0].splitlines())
    written = [line for line in lines if isinstance(line, list)]
    kept = {(user, name): gone for user, name, gone in written}
    with Memory(settings=load(**places[1], embedder="none", llm="none")) as memory:
        for user in {user for user, _ in kept}:
            there = {it.message_id for it in all_messages(memory, user)}
            own = {name: gone for (owner, name), gone in kept.items() if owner == user}
            assert {name for name, gone in own.items() if not gone} <= there
            assert not {name for name, gone in own.items() if gone} & there
        assert memory.search("town", user_id="u1").items


async def test_keys_and_webhooks_move(tmp_path: Path, store_database: str) -> None:
    """With what they have and have not; what is used or deleted meanwhile, too."""
    keys = [
        ApiKey("key_1", "Ops 运维", "admin", "d1", "abcd", 1),
        ApiKey("key_2", "a", "user", "d2", "efgh", 2, user_id="u", sensitive=True, expires=9),
    ]
    store = SqlStore(Sqlite(tmp_path), 1 << 20)
    await store.change_keys(add=keys)
    hook = Webhook("wh_1", "https://example.com/钩", ("memory.added",), "secret", 3)
    await store.change_webhooks(add=[hook])
    source, target = Sqlite(tmp_path), Postgres(make_url(store_database))
    work = Move(opened(source), opened(target))
    work.catch_up(no_report)
    await store.change_keys(remove=["key_1"], used={"key_2": 5})
    work.switch("there")
    target.close()
    source.close()
    moved = SqlStore(target, 1 << 20)
    assert await moved.keys() == [replace(keys[1], used=5)]
    assert await moved.webhooks() == [hook]
    await moved.close()
    await store.close()


def test_a_move_that_was_killed_goes_on(filled: Path, tmp_path: Path, store_database: str) -> None:
    """Until then the destination opens to nobody; the second run copies only the rest."""
    home, words = environment(tmp_path), ("--from", str(filled), "--to", store_database, "--yes")
    with psycopg.connect(store_database, autocommit=True) as other:
        # A move that waits for this lock has copied who has spaces, and not all of them yet.
        other.execute("BEGIN; LOCK TABLE note_history IN ACCESS EXCLUSIVE MODE")
        run = subprocess.Popen(command("move", *words), env=home, cwd=tmp_path)
        waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
        with psycopg.connect(store_database, autocommit=True) as watching:
            while watching.execute(waiting).fetchone() != (1,):
                assert run.poll() is None
                time.sleep(0.05)
        run.send_signal(signal.SIGKILL)
        run.wait()
        other.execute("ROLLBACK")
    with pytest.raises(Unavailable, match="has not finished"):
        SqlStore(Postgres(make_url(store_database)), 1 << 20)
    done = kemem(tmp_path, "move", *words, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rows"]["message"] == 20
    again = kemem(tmp_path, "move", *words, "--json")
    assert json.loads(again.stdout)["rows"] == json.loads(done.stdout)["rows"]
    with Memory(settings=load(database_url=store_database, embedder="none")) as memory:
        assert len(memory.search("茶 tea", user_id="u7").items)


def test_a_copy_that_differs_is_not_switched_to(filled: Path, tmp_path: Path) -> None:
    """Counts and checksums are compared; whoever declines leaves the store as it is."""
    target = str(tmp_path / "new")
    declined = kemem(tmp_path, "move", "--from", str(filled), "--to", target, typed="n\n")
    assert declined.returncode == 1
    lose = "CREATE TRIGGER lose AFTER INSERT ON note BEGIN UPDATE note SET content = ''; END"
    with closing(sqlite3.connect(tmp_path / "new" / FILE)) as damaged:
        damaged.execute(lose)
    with Memory(settings=load(data_dir=filled, embedder="none", llm="none")) as memory:
        memory.add("我不吃辣。 I like hotpot.", "u1")
        with pytest.raises(Unavailable, match="copy of note"):
            admin.move(str(filled), target, no_report, no_report)
        memory.add("I still write here.", "u1")


def test_what_was_copied_is_not_read_again(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a large space, what came since is read, and its copy to compare the two."""
    read, told = list[str](), list[Pass | Progress]()

    def counted(connection: Any, database: Any, table: Any, *conditions: Any) -> Iterator[Any]:
        for row in stored_rows(connection, database, table, *conditions):
            read.append(table.name)
            yield row

    def decide() -> None:
        with Memory(settings=load(data_dir=filled, embedder="none", llm="none")) as memory:
            memory.add("I live in Porto. 我住在波尔图。", "u1")
        read.clear()
        told.clear()

    monkeypatch.setattr(move, "_LARGE", 0)
    monkeypatch.setattr(copier, "stored_rows", counted)
    admin.move(str(filled), str(tmp_path / "new"), told.append, decide)
    (done,) = told
    assert isinstance(done, Pass) and done.spaces == 1
    assert read.count("message") == 2 and len(read) == 2 * done.rows


def test_a_fault_after_the_first_pass_is_found(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although the move knows what it has copied until then."""
    lose = "CREATE TRIGGER lose AFTER INSERT ON note BEGIN DELETE FROM note WHERE id < new.id; END"

    def decide() -> None:
        with closing(sqlite3.connect(tmp_path / "new" / FILE)) as damaged:
            damaged.execute(lose)
        with Memory(settings=load(data_dir=filled, embedder="none", llm="none")) as memory:
            memory.add("我不吃辣。 I like hotpot.", "u1")

    monkeypatch.setattr(move, "_LARGE", 0)
    with pytest.raises(Unavailable, match="copy of note"):
        admin.move(str(filled), str(tmp_path / "new"), no_report, decide)
    with Memory(settings=load(data_dir=filled, embedder="none", llm="none")) as memory:
        memory.add("I still write here.", "u1")


def test_a_store_that_is_always_written_to_is_caught_up_with(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No pass is short enough, and each finds something: it ends nevertheless."""
    monkeypatch.setattr(move, "_SHORT", 0.0)
    with Memory(settings=load(data_dir=filled, embedder="none", llm="none")) as memory:

        def go_on(done: Pass | Progress) -> None:
            memory.add("One more. 还有一句。", "u1")

        moved = admin.move(str(filled), str(tmp_path / "new"), go_on, lambda: None)
    assert moved.rows["message"] > 21


def test_rows_that_are_not_remembered_are_compared(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There are more of them than the memory of the move may have."""
    monkeypatch.setattr(move, "_LARGE", 0)
    monkeypatch.setattr(move, "_MOST_KNOWN", 0)

    def decide() -> None:
        with Memory(settings=load(data_dir=filled, embedder="none", llm="none")) as memory:
            memory.delete_all("u1")
            memory.add("I live in Porto. 我住在波尔图。", "u2")

    moved = admin.move(str(filled), str(tmp_path / "new"), no_report, decide)
    assert moved.rows["message"] == 20


@pytest.mark.parametrize(
    ("language", "line"),
    [
        ("en", "copied {} of {} messages, notes and vectors"),
        ("zh", "已复制 {} / {} 条消息、笔记和向量"),
    ],
)
def test_it_says_how_far_it_is(
    filled: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    language: str,
    line: str,
) -> None:
    """Now and then, until all rows are copied; as JSON there is only the result."""
    monkeypatch.setattr(move, "_SILENCE", -1.0)
    monkeypatch.setattr("kemem.serve.cli.language._current", language)
    operate.move(str(filled), str(tmp_path / "new"), yes=True)
    with Memory(settings=load(data_dir=tmp_path / "new", embedder="none", llm="none")) as memory:
        notes = memory.health().notes
    shown = capsys.readouterr().out
    for rows in (0, notes, notes + 20):
        assert line.format(rows, notes + 20) in shown
    operate.move(str(tmp_path / "new"), str(tmp_path / "newer"), as_json=True, yes=True)
    assert json.loads(capsys.readouterr().out)["rows"]["message"] == 20


class Killed(Exception):
    """What ends a move in the middle of its work."""


def kill(*_: object) -> None:
    raise Killed


def opened_by_anybody(place: str) -> None:
    database = admin._database(place, "to")
    database.open()
    database.close()


@pytest.fixture
def places(tmp_path: Path, store_database: str) -> list[str]:
    """Two destinations, one on each engine."""
    return [store_database, str(tmp_path / "new")]


@pytest.mark.parametrize("order", [1, -1])
def test_a_store_that_was_moved_is_not_moved_elsewhere(
    filled: Path, places: list[str], order: int
) -> None:
    """Nor to where a move that was declined has copied it before: there would be two stores."""
    first, second = places[::order]
    with pytest.raises(Killed):
        admin.move(str(filled), second, no_report, kill)
    admin.move(str(filled), first, no_report, no_report)
    with pytest.raises(Conflict, match=r"was moved to .* already; move it from there"):
        admin.move(str(filled), second, refused, refused)
    assert admin.move(str(filled), first, refused, refused).seconds == 0
    with pytest.raises(Unavailable, match="has not finished"):
        opened_by_anybody(second)


def test_of_two_moves_of_a_store_one_arrives(filled: Path, places: list[str]) -> None:
    """The other one was copying while the store was closed."""
    source, *targets = (opened(admin._database(it, "to")) for it in (str(filled), *places))
    works = [Move(source, it) for it in targets]
    for work in works:
        work.catch_up(no_report)
    works[0].switch("there")
    with pytest.raises(Conflict, match="was moved to there already; move it from there"):
        works[1].switch("elsewhere")
    for database in (source, *targets):
        database.close()
    with pytest.raises(Unavailable, match="has not finished"):
        targets[1].open()


@pytest.mark.parametrize("order", [1, -1])
def test_a_move_that_was_killed_during_the_switch_goes_on(
    filled: Path, places: list[str], order: int
) -> None:
    """The old store is closed then, and the new one not open: only that one takes it up."""
    first, second = places[::order]
    with pytest.raises(Killed):
        admin.move(str(filled), second, no_report, kill)
    with pytest.MonkeyPatch.context() as patched, pytest.raises(Killed):
        patched.setattr(Postgres, "after_restore", kill)
        patched.setattr(Sqlite, "after_restore", kill)
        admin.move(str(filled), first, no_report, no_report)
    with pytest.raises(Conflict, match="already; move it from there"):
        admin.move(str(filled), second, refused, refused)
    assert admin.move(str(filled), first, no_report, no_report).rows["message"] == 20
    opened_by_anybody(first)


def test_what_an_older_version_has_closed_is_copied_nowhere(filled: Path, tmp_path: Path) -> None:
    """It did not write down for which destination."""
    new = str(tmp_path / "new")
    with pytest.raises(Killed):
        admin.move(str(filled), new, no_report, kill)
    with closing(sqlite3.connect(filled / FILE)) as old:
        old.execute("INSERT INTO meta (key, value) VALUES ('moved_to', 'somewhere')")
        old.commit()
    with pytest.raises(Conflict, match="was moved to somewhere already; move it from there"):
        admin.move(str(filled), new, refused, refused)


def test_a_place_that_cannot_be_is_refused(filled: Path, tmp_path: Path) -> None:
    """Nothing is overwritten, made up or moved onto itself; nothing secret is shown."""
    other = tmp_path / "other"
    with Memory(settings=load(data_dir=other, embedder="none", llm="none")) as memory:
        memory.add("Somebody else's. 别人的。", "x")
    hidden = "mysql://me:秘密secret@host/db"
    for old, new, error, reason in (
        (tmp_path / "none", tmp_path / "new", NotFound, "no store in"),
        (filled, other, Conflict, "not empty: it holds users: 1, messages: 1"),
        (filled, filled, Conflict, "same store"),
        (filled, hidden, InvalidArgument, "--to must be a directory or begin with postgresql"),
        (hidden, filled, InvalidArgument, "--from must be a directory or begin with postgresql"),
    ):
        with pytest.raises(error, match=reason) as caught:
            admin.move(str(old), str(new), refused, refused)
        assert "secret" not in caught.value.message
    assert not (tmp_path / "none").exists()
    admin.move(str(filled), str(tmp_path / "new"), no_report, no_report)
    with pytest.raises(Conflict, match="new already"):
        admin.move(str(filled), str(tmp_path / "newer"), refused, refused)
    with pytest.raises(Conflict, match="what was left of this store; name an empty one"):
        admin.move(str(tmp_path / "new"), str(filled), refused, refused)
    with pytest.raises(Conflict, match="not empty"):
        admin.move(str(other), str(filled), refused, refused)
