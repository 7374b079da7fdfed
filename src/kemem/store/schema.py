"""The tables, for SQLite and PostgreSQL alike.

A space is one (agent, user) pair. Every row of a space has the key (space_no, id) with
id = space_no << 32 | seq: one key that isolates, clusters, bounds full-text searches and shards.
Indexes of the meta tables lead with the space because no read goes without one.
"""

import json
from typing import Any

import sqlalchemy as sa
from sqlalchemy import BigInteger, Column, Float, Index, Integer, SmallInteger, String, Text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.types import UserDefinedType

from kemem.store.halfvec import HalfVector

SEQ_BITS = 32
DISABLED_SESSION = -1  # a status; 0: ended, 1: open. Of agents and users 0 is disabled, 1 is not.

metadata = sa.MetaData()


class Verbatim(sa.TypeDecorator[str]):
    """Text that comes back exactly as it went in, NUL included, which PostgreSQL cannot hold."""

    impl = Text
    cache_ok = True

    def load_dialect_impl(self, dialect: sa.Dialect) -> sa.types.TypeEngine[Any]:
        order = "C" if dialect.name == "postgresql" else None  # by code point, as SQLite orders
        return dialect.type_descriptor(Text(collation=order))

    _ESCAPE = "\U000f5c5c"  # private use; doubled where a text contains it

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        if value is None or ("\0" not in value and self._ESCAPE not in value):
            return value
        return value.replace(self._ESCAPE, self._ESCAPE * 2).replace("\0", self._ESCAPE + "0")

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> str | None:
        if value is None or self._ESCAPE not in value:
            return value
        parts = value.split(self._ESCAPE * 2)
        return self._ESCAPE.join(part.replace(self._ESCAPE + "0", "\0") for part in parts)


class RowNumber(UserDefinedType[int]):
    """The number of a row, which is unique in a store; on SQLite the table is in its order."""

    cache_ok = True

    @property
    def python_type(self) -> type[int]:
        return int

    def get_col_spec(self, **options: Any) -> str:
        return "BIGINT"


@compiles(RowNumber, "sqlite")
def _rowid(element: RowNumber, compiler: Any, **options: Any) -> str:
    return "INTEGER PRIMARY KEY"


def dump_json(value: Any) -> str:
    """JSON as both engines take it; NaN and infinity are refused."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


# Collation "C" orders as SQLite and Python do: by code point.
Id = String(255).with_variant(String(255, collation="C"), "postgresql")
Serial = BigInteger().with_variant(Integer, "sqlite")
Json = sa.JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")


def _columns(kind: Any, *names: str, **options: Any) -> list[Column[Any]]:
    """Columns of one type that hold no NULL, unless the options say otherwise."""
    return [Column(name, kind, **{"nullable": False, **options}) for name in names]


def _unique(name: str, *columns: str) -> Index:
    return Index(name, *columns, unique=True)


def _space_key() -> tuple[Column[int], Column[int]]:
    return (
        Column("space_no", BigInteger, sa.ForeignKey("space.space_no"), primary_key=True),
        Column("id", BigInteger, primary_key=True, autoincrement=False),
    )


def _checked_on_sqlite(column: str, referred: str) -> sa.ForeignKeyConstraint:
    """A foreign key that other ones imply, or that points to what is never deleted.

    PostgreSQL looks up what each new row refers to; without these a batch takes it a fifth less.
    """
    return sa.ForeignKeyConstraint([column], [referred]).ddl_if(dialect="sqlite")


def _table(name: str, *items: Any) -> sa.Table:
    """A table stored in the order of its primary key."""
    return sa.Table(name, metadata, *items, sqlite_with_rowid=False)


def _sensitive_rows(table: sa.Table) -> Index:
    """An index of a table's sensitive rows alone, which are few."""
    return Index(
        f"idx_{table.name}_sensitive",
        *(table.c.space_no, table.c.id),
        sqlite_where=sa.text("sensitive = 1"),  # in the words of the statements that can use it
        postgresql_where=table.c.sensitive,
    )


meta = _table(
    "meta", Column("key", String(64), primary_key=True), Column("value", Text, nullable=False)
)

agent = _table(
    "agent",
    Column("agent_id", Id, primary_key=True),
    Column("agent_name", String(255), nullable=False),
    Column("agent_type", String(50)),
    Column("description", Text),
    Column("config", Json),
    Column("status", SmallInteger, nullable=False, server_default="1"),
    *_columns(BigInteger, "create_time", "update_time"),
    Column("creator", String(64)),
    Index("idx_agent_status", "status"),
    Index("idx_agent_create_time", "create_time"),
)

app_user = _table(
    "app_user",
    Column("user_id", Id, primary_key=True),
    Column("agent_id", Id, sa.ForeignKey("agent.agent_id"), nullable=False),
    Column("user_name", String(255)),
    Column("user_type", String(50)),
    Column("profile", Json),
    Column("status", SmallInteger, nullable=False, server_default="1"),
    *_columns(BigInteger, "create_time", "update_time"),
    Column("last_active_time", BigInteger),
    Index("idx_user_agent_status", "agent_id", "status"),
    Index("idx_user_last_active_time", "last_active_time"),
)

space = sa.Table(
    "space",
    metadata,
    Column("space_no", Serial, primary_key=True),
    Column("agent_id", Id, sa.ForeignKey("agent.agent_id"), nullable=False),
    Column("user_id", Id, nullable=False),  # empty: the part that an agent's users share
    sa.UniqueConstraint("agent_id", "user_id"),
    Index("idx_space_user", "user_id"),
)

space_state = _table(
    "space_state",
    Column("space_no", BigInteger, sa.ForeignKey("space.space_no"), primary_key=True),
    Column("next_seq", BigInteger, nullable=False, server_default="1"),
    Column("epoch", BigInteger, nullable=False, server_default="0"),  # bumped when rows go
    Column("vector_writes", BigInteger, nullable=False, server_default="0"),
)

session = _table(
    "session",
    Column("space_no", BigInteger, sa.ForeignKey("space.space_no"), primary_key=True),
    Column("session_id", Id, primary_key=True),
    Column("agent_id", Id, sa.ForeignKey("agent.agent_id"), nullable=False),
    Column("user_id", Id, nullable=False),
    Column("session_name", String(255)),
    Column("session_type", String(50)),
    Column("context", Json),
    Column("status", SmallInteger, nullable=False, server_default="1"),
    *_columns(BigInteger, "create_time", "update_time"),
    Column("end_time", BigInteger),
    Index("idx_session_id", "session_id"),
    agents_sessions := Index("idx_session_agent", "agent_id", "session_id", "user_id"),
    Index("idx_session_user", "user_id"),
    Index("idx_session_status_create_time", "status", "create_time"),
    Index("idx_session_create_time", "create_time"),
)

message = _table(
    "message",
    *_columns(BigInteger, "space_no", "id", primary_key=True, autoincrement=False),
    _checked_on_sqlite("space_no", "space.space_no"),  # as its session does
    Column("message_id", Id, nullable=False),
    Column("agent_id", Id, sa.ForeignKey("agent.agent_id"), nullable=False),
    *_columns(Id, "user_id", "session_id"),
    Column("role", String(20), nullable=False),
    Column("content", Verbatim, nullable=False),
    Column("content_type", String(50), nullable=False, server_default="text"),
    Column("metadata", Json),
    Column("parent_message_id", Id),
    Column("create_time", BigInteger, nullable=False),  # when it was said, microseconds
    *_columns(BigInteger, "ingest_time", "sequence_no"),
    Column("length", Integer, nullable=False),  # in search tokens
    Column("sensitive", sa.Boolean, nullable=False, server_default=sa.false()),
    Column("withdrawn", sa.Boolean, nullable=False, server_default=sa.false()),
    Column("valid_until", BigInteger),  # when its session took another branch
    _unique("uk_message_id", "space_no", "message_id"),
    # Two messages may tell of the same time.
    _unique("uk_agent_user_session_time", "space_no", "session_id", "create_time", "sequence_no"),
    _unique("uk_session_sequence", "space_no", "session_id", "sequence_no"),
    sa.ForeignKeyConstraint(["space_no", "session_id"], ["session.space_no", "session.session_id"]),
    Index("idx_message_user_create_time", "space_no", "create_time", "id"),
    Index("idx_message_create_time", "create_time"),
)
sensitive_messages = _sensitive_rows(message)
replaced_messages = Index(
    "idx_message_valid_until",
    *(message.c.space_no, message.c.valid_until),
    sqlite_where=message.c.valid_until.is_not(None),
    postgresql_where=message.c.valid_until.is_not(None),
)
child_messages = Index(
    "idx_message_parent",
    *(message.c.space_no, message.c.parent_message_id),
    sqlite_where=message.c.parent_message_id.is_not(None),
    postgresql_where=message.c.parent_message_id.is_not(None),
)

embedding_model = sa.Table(
    "embedding_model",
    metadata,
    Column("model_no", Serial, primary_key=True),
    Column("name", String(255), nullable=False),
    Column("width", Integer, nullable=False),
    sa.UniqueConstraint("name", "width"),
)

# Vectors live apart: inside a wide row they cost three times as much to read. Messages and notes
# of a space draw their ids from one sequence, so one table of vectors and one of words serve both.
# In a table without rowid, which is an index, SQLite would give each of 1 KB a page of its own.
row_vector = sa.Table(
    "row_vector",
    metadata,
    Column("space_no", BigInteger, nullable=False),
    Column("id", RowNumber, nullable=False),
    Column("model_no", Integer, nullable=False),
    _checked_on_sqlite("model_no", "embedding_model.model_no"),
    Column("vector", HalfVector, nullable=False),
    sa.PrimaryKeyConstraint("space_no", "id").ddl_if(dialect="postgresql"),
)


def key_of(table: sa.Table, dialect: str) -> list[Column[Any]]:
    """The primary key of a table as an engine has it."""
    by_number = table is row_vector and dialect == "sqlite"
    return [row_vector.c.id] if by_number else list(table.primary_key)


# What segments.py tells of: derived, and in no backup. In a table without rowid, SQLite would read
# each body a second time only to compare its key.
space_segment = sa.Table(
    "space_segment",
    metadata,
    Column("space_no", BigInteger, sa.ForeignKey("space.space_no"), primary_key=True),
    *_columns(Integer, "model_no", "number", primary_key=True, autoincrement=False),
    Column("body", sa.LargeBinary, nullable=False),
)

# What postings.py tells of: derived, and in no backup.
space_posting = sa.Table(
    "space_posting",
    metadata,
    Column("space_no", BigInteger, sa.ForeignKey("space.space_no"), primary_key=True),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("phrase", Id, primary_key=True),
    Column("body", sa.LargeBinary, nullable=False),
)

job = _table(
    "job",
    Column("job_id", Id, primary_key=True),
    Column("kind", String(32), nullable=False),
    *_columns(Id, "agent_id", "user_id", "session_id", nullable=True),
    Column("payload", Json, nullable=False),
    Column("state", String(16), nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("due_time", BigInteger, nullable=False),
    Column("error", Text),
    Index("idx_job_state_due_time", "state", "due_time"),
    jobs_in_order := Index("idx_job_due_time", "due_time", "job_id"),
)

note = _table(
    "note",
    *_space_key(),
    Column("note_id", Id, nullable=False),
    Column("agent_id", Id, sa.ForeignKey("agent.agent_id"), nullable=False),
    Column("user_id", Id, nullable=False),
    Column("session_id", Id),
    Column("kind", String(32), nullable=False),  # user_info, knowledge, experience, short_term
    Column("content", Verbatim, nullable=False),
    Column("digest", String(32), nullable=False),
    *_columns(BigInteger, "event_time", "create_time", "update_time", "valid_from"),
    *_columns(BigInteger, "valid_until", "expire_time", nullable=True),
    Column("memory_type", String(64), nullable=False),
    Column("summary", Verbatim),
    *_columns(Json, "keywords", "metadata", nullable=True),
    Column("topic", String(255)),
    Column("supersedes", Id),
    Column("importance", Float(53), nullable=False),
    Column("sensitive", sa.Boolean, nullable=False),
    Column("use_count", BigInteger, nullable=False),
    Column("use_time", BigInteger),
    Column("length", Integer, nullable=False),  # in search tokens
    Column("arrival", BigInteger, nullable=False),  # its first id: other words get it a new one
    _unique("uk_note_id", "space_no", "note_id"),
    Index("idx_note_id", "note_id"),
    Index("idx_note_time", "space_no", "event_time", "arrival"),
    Index("idx_note_digest", "space_no", "digest"),
    Index("idx_note_topic", "space_no", "topic"),
    Index("idx_note_valid_until", "space_no", "valid_until"),
    Index("idx_note_expire_time", "space_no", "expire_time"),
    superseding_notes := Index("idx_note_supersedes", "space_no", "supersedes"),
)
sensitive_notes = _sensitive_rows(note)

note_source = _table(  # the messages that a note cites, in the order of `position`
    "note_source",
    *_columns(BigInteger, "space_no", "note_row", primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("message_id", Id, nullable=False),
    sa.ForeignKeyConstraint(
        ["space_no", "note_row"], ["note.space_no", "note.id"], ondelete="CASCADE"
    ),
    sa.ForeignKeyConstraint(
        ["space_no", "message_id"], ["message.space_no", "message.message_id"], ondelete="CASCADE"
    ),
    Index("idx_note_source_message", "space_no", "message_id", "note_row"),
)

note_history = _table(
    "note_history",
    *_space_key(),
    Column("note_id", Id, nullable=False),
    Column("event", String(16), nullable=False),  # add, update, delete
    Column("create_time", BigInteger, nullable=False),
    *_columns(Verbatim, "before", "after", nullable=True),
    Column("reason", Text),
    Index("idx_note_history_note", "space_no", "note_id"),
)

entity = _table(
    "entity",
    *_space_key(),
    Column("name", Verbatim, nullable=False),
    Column("name_key", Verbatim, nullable=False),  # folded; what makes two names one entity
    Column("type", String(64), nullable=False),
    _unique("idx_entity_name", "space_no", "name_key"),
)

relation = _table(
    "relation",
    *_space_key(),
    Column("source_id", BigInteger, nullable=False),
    Column("relationship", Verbatim, nullable=False),
    Column("destination_id", BigInteger, nullable=False),
    _unique("idx_relation_source", "space_no", "source_id", "relationship", "destination_id"),
    Index("idx_relation_destination", "space_no", "destination_id"),
)

relation_source = _table(  # which notes say so; a relation is true while one of them is
    "relation_source",
    *_columns(BigInteger, "space_no", "relation_id", "note_row", primary_key=True),
    Index("idx_relation_source_note", "space_no", "note_row"),
)

journal = _table(  # of no space: operators read it, backups leave it out
    "journal",
    Column("kind", String(32), primary_key=True),
    Column("line_id", Id, primary_key=True),
    Column("create_time", BigInteger, nullable=False),
    Column("user_id", Id, nullable=False),  # whose data it tells of; empty: nobody's
    Column("body", Verbatim, nullable=False),  # JSON
    Index("idx_journal_time", "kind", "create_time", "line_id"),
    Index("idx_journal_user", "user_id"),
)

checkpoint = _table(
    "checkpoint",
    *_space_key(),
    *_columns(Id, "checkpoint_id", "session_id"),
    Column("state", Verbatim, nullable=False),  # JSON
    Column("create_time", BigInteger, nullable=False),
    sa.ForeignKeyConstraint(["space_no", "session_id"], ["session.space_no", "session.session_id"]),
    Index("idx_checkpoint_session", "space_no", "session_id", "create_time"),
)
