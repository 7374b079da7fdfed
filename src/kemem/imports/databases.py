"""Stores of others on SQLite: mem0's in Qdrant's local mode, its history, LangGraph's store."""

import io
import json
import pickle
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from kemem.imports.files import MAX_WHOLE
from kemem.imports.items import Item, readable, wrong
from kemem.imports.memories import mem0_item, read_langgraph
from kemem.text.parts import Fields

MAGIC = b"SQLite format 3\0"
_OWN = ("user_id", "agent_id", "run_id", "created_at", "updated_at", "expiration_date")
_OF_MEM0 = {*_OWN, "data", "hash", "text_lemmatized", "attributed_to"}


class Inert:
    """Stands for an object of any class in a pickle: keeps its state and runs nothing."""

    def __init__(self, *_: object, **__: object) -> None:
        self.state: Any = None

    def __setstate__(self, state: object) -> None:
        self.state = state


class Unpickler(pickle._Unpickler):
    """Reads pickles of others without importing or calling anything that they name.

    It is the one in Python: in C, a pickle of a few bytes can ask for gigabytes of memo.
    """

    def find_class(self, module: str, name: str) -> type[Inert]:
        """Whatever is named, an inert object takes its place."""
        return Inert


class Table(NamedTuple):
    """A table that is known, by the columns that it must have."""

    name: str
    columns: frozenset[str]
    read: Callable[[sqlite3.Connection, str], Iterator[Item]]


def read_database(path: Path, name: str) -> Iterator[Item] | None:
    """The memories of a database; None where it has no table that is known."""
    uri = f"file:{quote(str(path.absolute()))}?mode=ro"
    try:
        with closing(_connect(uri)) as connection:
            tables = _tables(connection)
    except sqlite3.Error as error:
        raise wrong(name, f"expected an SQLite database: {error}") from None
    known = next((it for it in TABLES if it.columns <= tables.get(it.name, set())), None)
    return None if known is None else _rows(uri, known, name)


def _connect(uri: str) -> sqlite3.Connection:
    """A connection that trusts nothing in the file: neither its schema nor the size of a value."""
    connection = sqlite3.connect(uri, uri=True)
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_WHOLE)
    return connection


def _tables(connection: sqlite3.Connection) -> dict[str, set[str]]:
    rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    known = [name for (name,) in rows if name in {it.name for it in TABLES}]
    return {
        name: {row[1] for row in connection.execute(f"PRAGMA table_info({name})")} for name in known
    }


def _rows(uri: str, table: Table, name: str) -> Iterator[Item]:
    try:
        with closing(_connect(uri)) as connection:
            yield from table.read(connection, name)
    except sqlite3.Error as error:
        raise wrong(name, f"table {table.name} cannot be read: {error}") from None


def _points(connection: sqlite3.Connection, name: str) -> Iterator[Item]:
    """Memories of mem0 as Qdrant's local mode keeps them: a pickled point in each row."""
    for number, (raw,) in enumerate(connection.execute("SELECT point FROM points"), start=1):
        place = f"{name}: point {number}"
        try:
            point = _fields(Unpickler(io.BytesIO(raw)).load())
        except Exception:  # whatever the bytes of a pickle may cause
            raise wrong(place, "expected a pickled point of Qdrant") from None
        payload = point.get("payload")
        if isinstance(payload, dict) and (text := readable(payload.get("data")).strip()):
            rest = {key: it for key, it in payload.items() if key not in _OF_MEM0}
            own = {key: payload.get(key) for key in _OWN}
            yield mem0_item({"id": point.get("id"), **own, "metadata": rest}, text, place)


def _fields(point: object) -> dict[str, Any]:
    """The fields of a pydantic model that was pickled."""
    state = point.state if isinstance(point, Inert) else None
    fields = state.get("__dict__", state) if isinstance(state, dict) else None
    if not isinstance(fields, dict):
        raise TypeError(f"no fields in {point!r:.40}")
    return fields


def _history(connection: sqlite3.Connection, name: str) -> Iterator[Item]:
    """The last text of each memory in mem0's history that was not deleted."""
    last: dict[str, tuple[int, str | None, object, object]] = {}
    query = "SELECT rowid, memory_id, new_memory, event, created_at FROM history ORDER BY rowid"
    for row, memory, text, event, created in connection.execute(query):
        began = last[memory][3] if memory in last else created
        last[memory] = (row, None if event == "DELETE" else text, event, began)
    for memory, (row, text, _, began) in last.items():
        if written := readable(text).strip():
            yield mem0_item({"id": memory, "created_at": began}, written, f"{name}: row {row}")


def _store(connection: sqlite3.Connection, name: str) -> Iterator[Item]:
    """Rows of LangGraph's store."""
    connection.row_factory = sqlite3.Row
    for number, row in enumerate(connection.execute("SELECT * FROM store"), start=1):
        place, fields = f"{name}: row {number}", dict(row)
        try:
            value = json.loads(fields["value"])
        except (TypeError, ValueError, RecursionError):
            raise wrong(place, "expected JSON in the column value") from None
        if isinstance(value, dict | str):
            found: Fields = {**fields, "value": value}
            yield from read_langgraph(found, place)


TABLES = (
    Table("points", frozenset({"id", "point"}), _points),
    Table("history", frozenset({"memory_id", "new_memory", "event", "created_at"}), _history),
    Table("store", frozenset({"prefix", "key", "value"}), _store),
)
