"""Stores of earlier versions open with this one and lose nothing."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from kemem import AsyncMemory, InvalidArgument, Memory, NotFound
from kemem.records import Line
from kemem.settings import Settings, load
from kemem.store.migrate import STEPS
from kemem.store.sqlite import FILE
from kemem.testing import FakeClock, HashingEmbedder

pytestmark = pytest.mark.usefixtures("no_copies")
LATER = 1_900_000_000_000_000
NEWEST = 1 + len(STEPS)

BACK_TO_NINE = "UPDATE meta SET value = '9' WHERE key = 'schema_version';"
# Version 9 had vectors of SQLite in a table without rowid.
NINTH = f"""
ALTER TABLE row_vector RENAME TO vectors;
CREATE TABLE row_vector (space_no BIGINT NOT NULL, id BIGINT NOT NULL, model_no INTEGER NOT NULL,
    vector BLOB NOT NULL, PRIMARY KEY (space_no, id)) WITHOUT ROWID;
INSERT INTO row_vector SELECT * FROM vectors;
DROP TABLE vectors;
{BACK_TO_NINE}
"""
# Version 16 had segments in one, too.
SIXTEENTH = """
DROP TABLE space_segment;
CREATE TABLE space_segment (space_no BIGINT NOT NULL, model_no INTEGER NOT NULL,
    number INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (space_no, model_no, number),
    FOREIGN KEY(space_no) REFERENCES space (space_no)) WITHOUT ROWID;
INSERT INTO space_segment VALUES (1, 0, 0, 'columns');
UPDATE meta SET value = '16' WHERE key = 'schema_version';
"""
# Version 8 did not keep which messages a session had left; a downgrade of a store on either
# database to it.
EIGHTH = """
DROP INDEX idx_message_valid_until;
DROP INDEX idx_message_parent;
ALTER TABLE message DROP COLUMN valid_until;
UPDATE meta SET value = '8' WHERE key = 'schema_version';
"""
# Version 7 could not look up which note replaced another.
SEVENTH = f"""
{EIGHTH}
DROP INDEX idx_note_supersedes;
UPDATE meta SET value = '7' WHERE key = 'schema_version';
"""
# Version 6 had no withdrawn messages.
SIXTH = f"""
{SEVENTH}
ALTER TABLE message DROP COLUMN withdrawn;
UPDATE meta SET value = '6' WHERE key = 'schema_version';
"""
# Version 5 ordered equal times by id; a downgrade of a store on PostgreSQL to it.
FIFTH = f"""
{SIXTH}
DROP INDEX uk_agent_user_session_time, idx_message_user_create_time, idx_note_time;
CREATE UNIQUE INDEX uk_agent_user_session_time ON message (space_no, session_id, create_time);
CREATE INDEX idx_message_user_create_time ON message (space_no, create_time, message_id);
CREATE INDEX idx_note_time ON note (space_no, event_time, note_id);
ALTER TABLE note DROP COLUMN arrival;
UPDATE meta SET value = '5' WHERE key = 'schema_version';
"""
# Version 4 had a list of message ids in each note.
FOURTH = f"""
{FIFTH}
ALTER TABLE note ADD COLUMN sources JSONB;
UPDATE note SET sources = (
    SELECT jsonb_agg(message_id ORDER BY position) || '["gone"]' FROM note_source
    WHERE note_source.space_no = note.space_no AND note_source.note_row = note.id
);
DROP TABLE note_source;
UPDATE meta SET value = '4' WHERE key = 'schema_version';
"""
# Version 3 had no journal.
THIRD = f"""
{FOURTH}
DROP TABLE journal;
UPDATE meta SET value = '3' WHERE key = 'schema_version';
"""
# Version 2 knew sensitive notes only.
SECOND = f"""
{THIRD}
ALTER TABLE message DROP COLUMN sensitive;
DROP INDEX idx_note_sensitive;
UPDATE meta SET value = '2' WHERE key = 'schema_version';
"""


def opened(directory: Path, version: int) -> Memory:
    """A memory over a store that was written at a version."""
    script = Path(__file__).parent / f"store_v{version}.sql"
    with closing(sqlite3.connect(directory / FILE)) as database, database:
        database.executescript(script.read_text("utf-8"))
    return Memory(data_dir=directory, embedder=HashingEmbedder(width=8), clock=FakeClock(LATER))


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    """A memory over a store of version 1."""
    with opened(tmp_path, 1) as memory:
        yield memory


@pytest.fixture
def second(tmp_path: Path) -> Iterator[Memory]:
    """A memory over a store of version 2."""
    with opened(tmp_path, 2) as memory:
        yield memory


@pytest.fixture
def third(tmp_path: Path) -> Iterator[Memory]:
    """A memory over a store of version 3."""
    with opened(tmp_path, 3) as memory:
        yield memory


@pytest.fixture
def fourth(tmp_path: Path) -> Iterator[Memory]:
    """A memory over a store of version 4."""
    with opened(tmp_path, 4) as memory:
        yield memory


@pytest.fixture
def fifth(tmp_path: Path) -> Iterator[Memory]:
    """A memory over a store of version 5."""
    with opened(tmp_path, 5) as memory:
        yield memory


@pytest.mark.parametrize("asked, found", [("不吃辣", "zh"), ("hotpots", "en")])
def test_messages_are_there_and_found(memory: Memory, asked: str, found: str) -> None:
    assert [item.message_id for item in memory.messages("小明").items] == ["late", "en", "zh"]
    assert [hit.id for hit in memory.lexical_search(asked, "小明").items] == [found]
    assert memory.semantic_search(asked, "小明", top_k=2)
    assert memory.health().schema_version == NEWEST
    assert len(memory.for_user("小明").messages().items) == 3


def test_work_that_waited_is_done(memory: Memory) -> None:
    """The job of a message that had no vector yet."""
    (job,) = memory.jobs()
    assert job.ids == ("late",)
    assert memory.run_jobs() == 1
    assert memory.health().vectors == 3


@pytest.mark.parametrize("text", ["用户喜欢爬山", "User likes hiking"])
def test_notes_can_be_kept_from_then_on(memory: Memory, text: str) -> None:
    (outcome,) = memory.add(text, user_id="小明", infer=False).results
    assert memory.get(outcome.id).memory == text
    assert memory.search(text, user_id="小明", limit=1)[0].id == outcome.id


@pytest.mark.parametrize(
    ("word", "message"), [("血压", "密"), ("salary", "secret"), ("血糖", "t1"), ("少吃糖", "t2")]
)
def test_what_sensitive_notes_were_drawn_from_becomes_sensitive(
    second: Memory, word: str, message: str
) -> None:
    """And what else was drawn from that, as an experience is; to the application all is there."""
    assert second.health().schema_version == NEWEST
    assert second.get(message, user_id="小明").row.sensitive
    found = second.search(word, user_id="小明", kinds=["message", "user_info", "experience"])
    assert any(word in hit.memory for hit in found)
    handle = second.for_user("小明")
    kinds = ["message", "user_info", "experience"]
    shown = (handle.search(word, kinds=kinds), handle.get_all(kinds=kinds), handle.messages())
    assert word not in str(shown)
    seen = {item.message_id for item in handle.messages().items}
    assert seen == {"zh", "en", "other", "t0", "t3"}


@pytest.mark.parametrize(("session", "kept"), [("default", False), ("另", True)])
def test_a_state_that_may_retell_what_is_sensitive_goes(
    second: Memory, session: str, kept: bool
) -> None:
    """Those of other sessions stay."""
    if kept:
        assert second.restore_checkpoint(session, user_id="小明")
    else:
        with pytest.raises(NotFound):
            second.restore_checkpoint(session, user_id="小明")


@pytest.mark.parametrize("text", ["我的血压有点高", "My salary is 5000"])
def test_a_server_of_version_2_is_brought_forward(
    fresh_database: Callable[[], str], text: str
) -> None:
    """With the index that finds the sensitive rows."""
    url = fresh_database()
    settings = load(database_url=url, embedder="none", llm="none")
    with Memory(settings=settings) as memory:
        memory.add(text, "小明", infer=False, sensitive=True)
        memory.add("火锅 hotpot", "小明", infer=False)
    with psycopg.connect(url, autocommit=True) as other:
        other.execute(SECOND)
    with Memory(settings=settings) as memory:
        assert memory.health().schema_version == NEWEST
        assert len(memory.messages("小明").items) == 2
        assert [it.content for it in memory.for_user("小明").messages().items] == ["火锅 hotpot"]
        assert len(memory.for_user("小明").search(text, kinds=["message", "user_info"])) == 0
    with psycopg.connect(url) as other:
        found = other.execute("SELECT indexname FROM pg_indexes WHERE indexname LIKE '%sensitive'")
        assert {row[0] for row in found} == {"idx_message_sensitive", "idx_note_sensitive"}


@pytest.mark.parametrize(("asked", "found"), [("不吃辣", "zh"), ("hiking", "en1")])
def test_a_store_of_version_3_loses_nothing(third: Memory, asked: str, found: str) -> None:
    """Messages, notes, graph, states and the work that waits are as they were."""
    health = third.health()
    assert health.schema_version == NEWEST
    assert (health.messages, health.notes, health.vectors) == (7, 5, 11)
    assert [hit.id for hit in third.lexical_search(asked, "小明").items] == [found]
    (note,) = third.search(asked, user_id="小明", kinds=["user_info"], limit=1)
    assert [message.message_id for message in third.sources(note.id)] == [found]
    assert asked in note.memory
    seen = {item.message_id for item in third.for_user("小明").messages().items}
    assert seen == {"zh", "en1", "late"}
    assert {relation.relationship for relation in third.graph("Ann")} == {"studies", "studies_at"}
    assert third.restore_checkpoint("default", user_id="小明")
    assert third.run_jobs() == 1
    assert third.health().vectors == 12


LINES = [Line("trace", "行 line", LATER, {"question": "火锅 hotpot"}, "小明")]


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
async def test_a_journal_can_be_kept_from_then_on(tmp_path: Path, version: int) -> None:
    opened(tmp_path, version).close()
    async with AsyncMemory(data_dir=tmp_path, embedder=HashingEmbedder(width=8)) as memory:
        await memory.journal.note(LINES)
        assert await memory.journal.lines("trace") == LINES
        await memory.delete_all(user_id="小明")
        assert await memory.journal.lines("trace") == []


@pytest.mark.parametrize("text", ["火锅", "hotpot"])
async def test_a_server_of_version_3_is_brought_forward(
    fresh_database: Callable[[], str], text: str
) -> None:
    url = fresh_database()
    settings = load(database_url=url, embedder="none", llm="none")
    async with AsyncMemory(settings=settings) as memory:
        await memory.add(text, "小明", infer=False)
    with psycopg.connect(url, autocommit=True) as other:
        other.execute(THIRD)
    async with AsyncMemory(settings=settings) as memory:
        assert (await memory.health()).schema_version == NEWEST
        assert [hit.memory for hit in await memory.search(text, "小明", limit=1)] == [text]
        await memory.journal.note(LINES)
        assert await memory.journal.lines("trace") == LINES


SOURCES = {"我不吃辣，周末想吃火锅": ["zh2", "zh"], "I like hiking in the hills": ["en"]}
ORPHAN = "用户住在上海 lives in Shanghai"  # its message was deleted


def cited(memory: Memory) -> dict[str, list[str]]:
    """What each note of a user cites; of equal texts the first that was told."""
    notes = memory.get_all(user_id="小明", kinds=["user_info"], limit=20).items
    return {item.memory: list(item.sources) for item in notes}


def test_notes_of_version_4_cite_the_messages_that_are_there(fourth: Memory) -> None:
    """In their order; a note whose message was deleted stays, and cites nothing."""
    health = fourth.health()
    assert health.schema_version == NEWEST
    assert (health.messages, health.notes, health.vectors) == (4, 6, 10)
    assert cited(fourth) == {**SOURCES, ORPHAN: []}
    (note,) = fourth.search("学习", user_id="Ann", kinds=["user_info"], limit=1)
    assert [message.content for message in fourth.sources(note.id)] == ["我在清华大学学习"]
    fourth.delete("zh", user_id="小明")
    assert cited(fourth)["我不吃辣，周末想吃火锅"] == ["zh2"]


def test_a_backup_of_version_4_can_be_restored(tmp_path: Path) -> None:
    """Its notes list the ids of messages, some of which were deleted."""
    backup = Path(__file__).parent / "backup_v4.json"
    with Memory(data_dir=tmp_path / "new", embedder=HashingEmbedder(width=8)) as memory:
        memory.restore(backup)
        health = memory.health()
        assert (health.messages, health.notes, health.vectors) == (4, 6, 10)
        assert cited(memory) == {**SOURCES, ORPHAN: []}


async def test_a_server_of_version_4_is_brought_forward(
    fresh_database: Callable[[], str],
) -> None:
    url = fresh_database()
    settings = load(database_url=url, embedder="none", llm="none")
    async with AsyncMemory(settings=settings) as memory:
        for text in ("火锅", "hotpot"):
            await memory.add(text, "小明", infer=False)
    with psycopg.connect(url, autocommit=True) as other:
        other.execute(FOURTH)
    async with AsyncMemory(settings=settings) as memory:
        assert (await memory.health()).schema_version == NEWEST
        for text in ("火锅", "hotpot"):
            (note,) = await memory.search(text, "小明", kinds=["user_info"], limit=1)
            assert [message.content for message in await memory.sources(note.id)] == [text]


# Version 17 looked up the space and the model of each row on PostgreSQL.
SEVENTEENTH = """
ALTER TABLE message ADD CONSTRAINT message_space_no_fkey
    FOREIGN KEY (space_no) REFERENCES space (space_no);
ALTER TABLE row_vector ADD CONSTRAINT row_vector_model_no_fkey
    FOREIGN KEY (model_no) REFERENCES embedding_model (model_no);
UPDATE meta SET value = '17' WHERE key = 'schema_version';
"""
KEYS = """
SELECT conname FROM pg_constraint WHERE contype = 'f'
    AND conrelid IN ('message'::regclass, 'row_vector'::regclass)
"""


async def test_a_server_of_version_17_is_brought_forward(
    fresh_database: Callable[[], str],
) -> None:
    """It refers to what a new one refers to."""
    url = fresh_database()
    settings = load(database_url=url, llm="none")
    async with AsyncMemory(settings=settings, embedder=HashingEmbedder()) as memory:
        await memory.add("火锅 hotpot", "小明", infer=False)
    with psycopg.connect(url, autocommit=True) as other:
        new = {*other.execute(KEYS)}
        other.execute(SEVENTEENTH)
        assert {*other.execute(KEYS)} > new
    async with AsyncMemory(settings=settings, embedder=HashingEmbedder()) as memory:
        assert (await memory.health()).schema_version == NEWEST
        assert [hit.memory for hit in await memory.search("火锅", "小明", limit=1)] == [
            "火锅 hotpot"
        ]
    with psycopg.connect(url) as other:
        assert {*other.execute(KEYS)} == new


AT = "2026-01-26T10:42:00Z"  # of the messages of version 5
CURSOR = "c__wGF8jc0MUKmZ5uOww8m6FsxNzY5NDI0MTIwMDAwMDAxLCJiIl0="
BY_ARRIVAL = ["a", "b", "c", "y", "z"]  # newest first; z, y and c have the same time
INDEXES = {
    "uk_agent_user_session_time": "space_no, session_id, create_time, sequence_no",
    "idx_message_user_create_time": "space_no, create_time, id",
    "idx_note_time": "space_no, event_time, arrival",
}


def test_rows_of_version_5_with_equal_times_are_ordered_by_arrival(
    fifth: Memory, tmp_path: Path
) -> None:
    """Nothing is lost; from then on messages of a session may share a time."""
    health = fifth.health()
    assert health.schema_version == NEWEST
    assert (health.messages, health.notes, health.vectors) == (5, 5, 10)
    assert paged(fifth) == BY_ARRIVAL
    notes = fifth.get_all(user_id="小明", kinds=["user_info"]).items
    assert [item.sources[0] for item in notes] == BY_ARRIVAL
    fifth.ingest([{"message_id": name, "content": name, "ts": AT} for name in "xk"], "小明")
    assert paged(fifth) == ["a", "b", "k", "x", "c", "y", "z"]
    with closing(sqlite3.connect(tmp_path / FILE)) as other:
        found = dict(other.execute("SELECT name, sql FROM sqlite_master WHERE type = 'index'"))
    assert all(f"({columns})" in found[name] for name, columns in INDEXES.items())


def paged(memory: Memory) -> list[str]:
    """The ids of a transcript, read in pages of two."""
    page = memory.messages("小明", page_size=2)
    found = list(page.items)
    while page.next_cursor is not None:
        page = memory.messages("小明", page_size=2, cursor=page.next_cursor)
        found += page.items
    return [item.message_id for item in found]


def test_a_job_of_version_5_starts_again(fifth: Memory) -> None:
    """Its place among the rows was an id."""
    (job,) = fifth.jobs()
    assert job.kind == "reembed"
    assert job.after is None
    assert fifth.run_jobs() == 1
    assert fifth.health().vectors == 10


def test_a_cursor_of_version_5_is_refused(fifth: Memory) -> None:
    """As any other that is not ours; it was returned for this query by the program of that time."""
    with pytest.raises(InvalidArgument, match="start again without a cursor"):
        fifth.messages("小明", page_size=2, cursor=CURSOR)


# Version 13 had ids of at most 64 characters.
THIRTEENTH = """
ALTER TABLE message ALTER COLUMN message_id TYPE VARCHAR(64) COLLATE "C",
    ALTER COLUMN user_id TYPE VARCHAR(64) COLLATE "C";
ALTER TABLE session ALTER COLUMN session_id TYPE VARCHAR(64) COLLATE "C";
UPDATE meta SET value = '13' WHERE key = 'schema_version';
"""


@pytest.mark.parametrize("letter", ["x", "用"])
async def test_a_server_of_version_13_gets_longer_ids(
    fresh_database: Callable[[], str], letter: str
) -> None:
    """As long as every id may be, in each place at once; what is there stays."""
    url, long = fresh_database(), letter * 255
    settings = load(database_url=url, embedder="none", llm="none")
    async with AsyncMemory(settings=settings) as memory:
        await memory.ingest([{"message_id": "m_1", "content": "火锅 hotpot"}], "u")
    with psycopg.connect(url, autocommit=True) as other:
        other.execute(THIRTEENTH)
    async with AsyncMemory(settings=settings) as memory:
        assert (await memory.health()).schema_version == NEWEST
        said = {"message_id": long, "content": "我住在北京。 I live in Rome."}
        await memory.add([said], long, long, long)
        await memory.checkpoint(long, long, long)
        assert [it.message_id for it in (await memory.messages(long)).items] == [long]
        assert [it.user_id for it in (await memory.users()).items] == ["u", long]
        assert {it.row.session_id for it in await memory.search("Rome", long, long)} == {long}
        assert [it.message_id for it in (await memory.messages("u")).items] == ["m_1"]
        assert await memory.delete_all(long) > 0


async def test_a_server_of_version_5_is_brought_forward(
    fresh_database: Callable[[], str],
) -> None:
    url = fresh_database()
    settings = load(database_url=url, embedder="none", llm="none")
    async with AsyncMemory(settings=settings) as memory:
        await memory.ingest([{"message_id": "z", "content": "火锅", "ts": AT}], "小明")
    with psycopg.connect(url, autocommit=True) as other:
        other.execute(FIFTH)
    async with AsyncMemory(settings=settings) as memory:
        assert (await memory.health()).schema_version == NEWEST
        more = [{"message_id": name, "content": "hotpot", "ts": AT} for name in "ba"]
        await memory.ingest(more, "小明")
        assert [it.message_id for it in (await memory.messages("小明")).items] == ["a", "b", "z"]
    with psycopg.connect(url) as other:
        rows = other.execute("SELECT indexname, indexdef FROM pg_indexes").fetchall()
    found = {str(name): str(sql) for name, sql in rows}
    assert all(f"({columns})" in found[name] for name, columns in INDEXES.items())


def execute(settings: Settings, script: str) -> None:
    """Run statements on the database of a store."""
    if settings.database_url is None:
        with closing(sqlite3.connect(settings.data_dir / FILE)) as database, database:
            database.executescript(script)
    else:
        with psycopg.connect(settings.database_url, autocommit=True) as other:
            other.execute(script.encode())


def test_messages_of_version_6_can_be_withdrawn(either_settings: Settings) -> None:
    """A store from before loses nothing, and its messages are served until then."""
    with Memory(settings=either_settings) as memory:
        memory.add("我不吃辣 hotpot", "小明", infer=False)
    execute(either_settings, SIXTH)
    with Memory(settings=either_settings) as memory:
        assert memory.health().schema_version == NEWEST
        assert [hit.kind for hit in memory.search("hotpot", "小明", kinds=["message"])] == [
            "message"
        ]
        (note,) = memory.get_all("小明")
        assert len(memory.delete(note.id).withdrawn) == 1
        assert len(memory.search("hotpot", "小明")) == 0
        assert [it.withdrawn for it in memory.messages("小明").items] == [True]


def test_a_store_of_version_7_gets_an_index(either_settings: Settings) -> None:
    """By it a search looks up what replaced what it finds."""
    with Memory(settings=either_settings) as memory:
        memory.add("I live in Berlin.", "小明")
        memory.add("I moved to Munich.", "小明")
    execute(either_settings, SEVENTH)
    with Memory(settings=either_settings) as memory:
        assert memory.health().schema_version == NEWEST
        (old,) = memory.search("Berlin", "小明")
        assert old.superseded_by == memory.get_all("小明")[0].id
    wanted = "SELECT note_id FROM note WHERE space_no IN (1) AND supersedes IN ('a', 'b')"
    if either_settings.database_url is None:
        with closing(sqlite3.connect(either_settings.data_dir / FILE)) as database:
            plan = database.execute(f"EXPLAIN QUERY PLAN {wanted}").fetchall()
    else:
        with psycopg.connect(either_settings.database_url) as other:
            other.execute("SET enable_seqscan = off")
            plan = other.execute(f"EXPLAIN {wanted}").fetchall()
    assert "idx_note_supersedes" in str(plan)


def test_segments_of_version_16_are_made_again(tmp_path: Path) -> None:
    """Of a table without rowid SQLite would read each body twice."""
    settings = load(data_dir=tmp_path, llm="none")
    with Memory(settings=settings) as memory:
        memory.ingest([{"content": "火锅"}], "小明")
    execute(settings, SIXTEENTH)
    with Memory(settings=settings) as memory:
        assert memory.health().schema_version == NEWEST
        assert [it.id for it in memory.search("火锅", "小明")]
    with closing(sqlite3.connect(tmp_path / FILE)) as database:
        assert database.execute("SELECT rowid, body FROM space_segment").fetchall() == []


def test_vectors_of_version_9_are_moved(either_settings: Settings) -> None:
    """The nearest message is still the nearest, and can be erased."""
    embedder = HashingEmbedder(width=8)
    with Memory(settings=either_settings, embedder=embedder) as memory:
        memory.ingest([{"content": "火锅"}, {"content": "hotpot"}], "小明")
        before = [(hit.id, hit.score) for hit in memory.semantic_search("火锅", "小明")]
    execute(either_settings, NINTH if either_settings.database_url is None else BACK_TO_NINE)
    with Memory(settings=either_settings, embedder=embedder) as memory:
        assert memory.health().vectors == 2
        hits = memory.semantic_search("火锅", "小明")
        assert [(hit.id, hit.score) for hit in hits] == before
        memory.delete_all("小明")
        assert memory.health().vectors == 0


@pytest.mark.parametrize(
    "said, left", [("我住在上海", "我住在北京"), ("I am in Rome", "I am in Paris")]
)
def test_a_store_of_version_8_learns_which_messages_were_left(
    either_settings: Settings, said: str, left: str
) -> None:
    """Those that another message of the same parent had replaced."""
    names = {"q": None, "old": "q", "new": "q"}
    texts = {"q": "?", "old": left, "new": said}
    with Memory(settings=either_settings) as memory:
        for name, parent in names.items():
            own = {"message_id": name, "parent_message_id": parent, "content": texts[name]}
            memory.ingest([own], "小明")
    execute(either_settings, EIGHTH)
    with Memory(settings=either_settings) as memory:
        assert memory.health().schema_version == NEWEST
        assert [hit.id for hit in memory.lexical_search(f"{left} {said}", "小明").items] == ["new"]
        shown = {it.message_id: it.valid_until for it in memory.messages("小明").items}
        assert shown == {"q": None, "new": None, "old": memory.messages("小明").items[0].ts}
