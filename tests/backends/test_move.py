"""A store that is moved to another database while it is in use: nothing is lost."""

import asyncio
import gc
import json
import shutil
import signal
import sqlite3
import subprocess
import time
import warnings
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


@pytest.mark.parametrize("known", [0, 4_000_000])
def test_what_is_cited_again_under_its_id_is_copied(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: int
) -> None:
    """The message that had the id is another row, which takes its citations along when it goes."""

    def decide() -> None:
        with closing(sqlite3.connect(filled / FILE)) as store:
            store.execute("CREATE TEMP TABLE cited AS SELECT * FROM note_source")
            store.execute("PRAGMA foreign_keys = ON")
            store.execute("CREATE TEMP TABLE said AS SELECT * FROM message")
            store.execute("DELETE FROM message")
            store.execute("UPDATE said SET id = id + 1000")
            store.execute("INSERT INTO message SELECT * FROM said")
            store.execute("INSERT INTO note_source SELECT * FROM cited")
            store.execute("UPDATE space_state SET epoch = epoch + 1")
            store.commit()

    monkeypatch.setattr(move, "_LARGE", 0)
    monkeypatch.setattr(move, "_MOST_KNOWN", known)
    moved = admin.move(str(filled), str(tmp_path / "new"), no_report, decide)
    assert moved.rows["note_source"] >= 20


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
        ("en", "pass 1: copied {} of {} messages, notes and vectors"),
        ("zh", "第 1 轮：已复制 {} / {} 条消息、笔记和向量"),
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
    with pytest.raises(Conflict, match=r"was moved to .*, not here; delete this half-filled"):
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
    with pytest.raises(Conflict, match="was moved to there, not here; delete this half-filled"):
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
    with pytest.raises(Conflict, match="not here; delete this half-filled destination"):
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


def test_a_move_names_its_passes(
    filled: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And says when it compares; one is no plural."""
    monkeypatch.setattr(move, "_SILENCE", -1.0)
    monkeypatch.setattr(move, "_LARGE", 0)
    new = str(tmp_path / "new")
    with pytest.raises(Killed):
        admin.move(str(filled), new, no_report, kill)
    with Memory(settings=load(data_dir=filled, embedder="none", llm="none")) as memory:
        memory.add("好。 I see.", "u1", infer=False)
    operate.move(str(filled), new, yes=True)
    shown = capsys.readouterr().out
    assert "pass 1: comparing with what was copied\n" in shown
    assert "rows of 1 space, " in shown and "pass 2: copied 0 rows of 0 spaces, " in shown
    monkeypatch.setattr("kemem.serve.cli.language._current", "zh")
    assert operate._pass_line(1, 2, 0.5) == "已复制 2 个空间的 1 行，0.5 秒"
    assert operate._pass_line(2, 1, 0.5) == "已复制 1 个空间的 2 行，0.5 秒"


def at_once(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Two copies of large spaces in parts of a few rows; the rows that are written."""
    written = list[Any]()
    put = copier.Copier._put

    def noted(self: Any, connection: Any, table: Any, page: Any, updated: Any) -> None:
        put(self, connection, table, page, updated)
        written.extend((table.name, key) for key in page)

    monkeypatch.setattr(copier.Copier, "_put", noted)
    monkeypatch.setattr(copier, "_PAGE", 5)
    monkeypatch.setattr(copier, "_PART", 10)
    return written


@pytest.mark.parametrize("order", [1, -1])
def test_a_move_that_was_killed_within_a_user_copies_the_rest(
    tmp_path: Path, places: list[str], order: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not what was committed before, and nothing of it counts as a copy of the user."""
    old, place = str(tmp_path / "old"), places[::order][0]
    with Memory(settings=load(data_dir=old, embedder="none", llm="none")) as memory:
        talk = [{"role": "user", "content": f"Line {it} of 茶."} for it in range(100)]
        memory.add(talk, "u1", infer=False)
    written = at_once(monkeypatch)
    monkeypatch.setattr(move, "_SILENCE", -1.0)

    def stop(done: Pass | Progress) -> None:
        if isinstance(done, Progress) and done.rows >= 160:  # all notes, and some messages
            raise Killed

    with pytest.raises(Killed):
        admin.move(old, place, stop, no_report)
    with pytest.raises(Unavailable, match="has not finished"):
        opened_by_anybody(place)
    written.clear()
    assert admin.move(old, place, no_report, no_report).rows["message"] == 100
    names = [name for name, _ in written]
    assert "note" not in names and 40 <= names.count("message") <= 50
    options = {"database_url": place} if "://" in place else {"data_dir": place}
    with Memory(settings=load(**options, embedder="none", llm="none")) as memory:
        assert len([*all_messages(memory, "u1")]) == 100
        assert memory.search("茶 99", user_id="u1").items


@pytest.mark.parametrize("order", [1, -1])
def test_two_moves_do_not_fill_one_destination(filled: Path, places: list[str], order: int) -> None:
    """The second says so at once, whoever began it; where the first has ended, it goes on."""
    place = places[::order][0]

    def meanwhile() -> None:
        with pytest.raises(Conflict, match="another kemem move is filling the destination"):
            admin.move(str(filled), place, refused, refused)
        raise Killed

    with pytest.raises(Killed):
        admin.move(str(filled), place, no_report, meanwhile)
    assert admin.move(str(filled), place, no_report, no_report).rows["message"] == 20


def test_what_is_not_finished_says_which_command_does_it(
    filled: Path, tmp_path: Path, store_database: str
) -> None:
    """Without a password; and the old store does not send anybody there for good."""
    with pytest.MonkeyPatch.context() as patched, pytest.raises(Killed):
        patched.setattr(Postgres, "after_restore", kill)
        admin.move(str(filled), store_database, no_report, no_report)
    shown = make_url(store_database).render_as_string(hide_password=True)
    with pytest.raises(Unavailable) as caught:
        opened_by_anybody(store_database)
    assert f"to go on: kemem move --from {filled} --to '{shown}'" in caught.value.message
    assert "postgres:postgres@" not in caught.value.message
    with pytest.raises(Unavailable, match="or run kemem move again if that is not finished"):
        opened_by_anybody(str(filled))


def test_a_write_to_a_store_that_was_moved_says_where(
    filled: Path, tmp_path: Path, store_database: str
) -> None:
    """On both engines, also where the path has quotation marks."""
    third = tmp_path / "it's 50% 新"
    settings = dict(embedder="none", llm="none")
    with Memory(settings=load(data_dir=filled, **settings)) as memory:
        memory.add("Early enough. 还早。", "u1")
        admin.move(str(filled), store_database, no_report, no_report)
        with pytest.raises(Unavailable, match=r"was moved to postgresql://.*:\*\*\*@.*; nothing"):
            memory.add("Too late. 太晚了。", "u1")
    with Memory(settings=load(database_url=store_database, **settings)) as memory:
        memory.add("Early enough. 还早。", "u2")
        admin.move(store_database, str(third), no_report, no_report)
        with pytest.raises(Unavailable) as caught:
            memory.add("Too late. 太晚了。", "u1")
    assert caught.value.message == f"the store was moved to {third}; nothing was written"
    with Memory(settings=load(data_dir=third, **settings)) as memory:
        memory.add("Early enough. 还早。", "u3")
        admin.move(str(third), str(tmp_path / "it's"), no_report, no_report)
        with pytest.raises(Unavailable, match=r"was moved to .*it's; nothing was written"):
            memory.add("Too late. 太晚了。", "u1")


def reason_of_failure(source: str, destination: str, report: move.Report) -> str:
    """Why a move ends; what it leaves behind is collected here.

    SQLAlchemy does not close the cursors of a connection that is lost, and the driver warns.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        try:
            admin.move(source, destination, report, no_report)
        except Unavailable as error:
            reason = error.message
        gc.collect()
    return reason


@pytest.mark.parametrize("back", [False, True])
def test_a_move_that_loses_its_server_says_that_it_goes_on(
    filled: Path, tmp_path: Path, store_database: str, back: bool
) -> None:
    """Whichever side the server is; so does the lock of the destination, which is gone then."""
    source, destination = str(filled), store_database
    if back:
        admin.move(source, destination, no_report, no_report)
        source, destination = store_database, str(tmp_path / "new")
    gone = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )

    def stop(done: Pass | Progress) -> None:
        with psycopg.connect(store_database, autocommit=True) as server:
            server.execute(gone)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(move, "_SILENCE", -1.0)
        reason = reason_of_failure(source, destination, stop)
    assert reason.startswith("PostgreSQL at ")
    assert reason.endswith("; run kemem move again, it goes on from there")
    assert admin.move(source, destination, no_report, no_report).rows["message"] == 20


@pytest.mark.parametrize(("language", "line"), [("en", "Interrupted. Run"), ("zh", "已中断。")])
def test_ctrl_c_ends_a_move(filled: Path, tmp_path: Path, language: str, line: str) -> None:
    """With the code that other commands end with, and how to go on."""
    words = ("move", "--from", str(filled), "--to", str(tmp_path / "new"), "--yes")
    with pytest.MonkeyPatch.context() as patched:

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        patched.setattr(Move, "catch_up", interrupt)
        ended = kemem(tmp_path, *words, KEMEM_LANGUAGE=language)
    assert ended.returncode == 130 and ended.stderr.startswith(line)
    assert kemem(tmp_path, *words).returncode == 0


def test_a_place_that_cannot_be_is_refused(filled: Path, tmp_path: Path) -> None:
    """Nothing is overwritten, made up or moved onto itself; nothing secret is shown."""
    other = tmp_path / "other"
    with Memory(settings=load(data_dir=other, embedder="none", llm="none")) as memory:
        memory.add("Somebody else's. 别人的。", "x")
    copied, foreign = shutil.copytree(filled, tmp_path / "copied"), tmp_path / "foreign"
    foreign.mkdir()
    with closing(sqlite3.connect(foreign / FILE)) as program:
        program.execute("CREATE TABLE meta (key TEXT, value TEXT)")
        program.execute("INSERT INTO meta VALUES ('schema_version', '3')")
        program.commit()
    hidden = "mysql://me:秘密secret@host/db"
    for old, new, error, reason in (
        (tmp_path / "none", tmp_path / "new", NotFound, "no store in"),
        (filled, other, Conflict, "not empty: it holds users: 1, messages: 1"),
        (filled, filled, Conflict, "this store or a copy of it"),
        (filled, copied, Conflict, "this store or a copy of it"),
        (filled, foreign, Unavailable, "tables of another program"),
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
