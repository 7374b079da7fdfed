"""The word index derived again from messages and notes."""

from collections.abc import Callable
from typing import Any

from sqlalchemy import Connection, Table, select, tuple_

from kemem.store import notes, scan
from kemem.store.database import Database, IndexedText
from kemem.store.noting import note_texts
from kemem.store.rows import message_texts
from kemem.store.schema import message, note


def rebuild_words(connection: Connection, database: Database) -> None:
    """Empty the word index and fill it from the rows."""
    database.clear_words(connection)
    _add(connection, database, message, scan.COLUMNS, _of_messages)
    _add(connection, database, note, notes.COLUMNS, _of_notes)


def _of_messages(rows: Any) -> list[IndexedText]:
    return message_texts(scan.to_stored(rows))


def _of_notes(rows: Any) -> list[IndexedText]:
    return note_texts(notes.to_notes(rows))


def _add(
    connection: Connection,
    database: Database,
    table: Table,
    columns: tuple[Any, ...],
    texts_of: Callable[[Any], list[IndexedText]],
) -> None:
    key = tuple_(table.c.space_no, table.c.id)
    page = select(*columns).order_by(table.c.space_no, table.c.id).limit(scan.CHUNK)
    texts = texts_of(connection.execute(page))
    while texts:
        database.add_words(connection, texts)
        last = tuple_(texts[-1].space_no, texts[-1].id)
        texts = texts_of(connection.execute(page.where(key > last)))
