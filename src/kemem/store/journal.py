"""Lines of the journal as rows."""

import json
from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, delete, select

from kemem.records import Line, Micros, Scope
from kemem.records.batch import Trim
from kemem.store.database import Database, upsert
from kemem.store.schema import dump_json, journal, space

_newest_first = (journal.c.create_time.desc(), journal.c.line_id)


def append(connection: Connection, database: Database, lines: Sequence[Line]) -> None:
    """Write lines, each in the place of one of its kind and id."""
    statement = upsert(database.insert, journal, "create_time", "user_id", "body")
    rows = [
        {
            "kind": line.kind,
            "line_id": line.id,
            "create_time": line.ts,
            "user_id": line.user_id,
            "body": dump_json(dict(line.body)),
        }
        # In one order, so that two writers of the same lines do not wait for each other.
        for line in sorted(lines, key=lambda line: (line.kind, line.id))
    ]
    if rows:
        connection.execute(statement, rows)


def read(
    connection: Connection,
    kind: str,
    since: Micros | None,
    until: Micros | None,
    user_id: str | None,
    limit: int,
) -> list[Line]:
    """Lines of a kind, newest first."""
    wanted: list[ColumnElement[bool]] = [journal.c.kind == kind]
    if since is not None:
        wanted.append(journal.c.create_time >= since)
    if until is not None:
        wanted.append(journal.c.create_time < until)
    if user_id is not None:
        wanted.append(journal.c.user_id == user_id)
    found = connection.execute(
        select(journal.c.line_id, journal.c.create_time, journal.c.body, journal.c.user_id)
        .where(*wanted)
        .order_by(*_newest_first)
        .limit(limit)
    )
    return [Line(kind, name, ts, json.loads(body), whose) for name, ts, body, whose in found]


def trim(connection: Connection, wanted: Trim) -> int:
    """Erase the lines from before a time, and all but the newest; returns how many went."""
    gone, this_kind = 0, journal.c.kind == wanted.kind
    if wanted.before is not None:
        old = delete(journal).where(this_kind, journal.c.create_time < wanted.before)
        gone += connection.execute(old).rowcount
    if wanted.keep is not None:
        kept = select(journal.c.line_id).where(this_kind).order_by(*_newest_first)
        beyond = kept.offset(wanted.keep)
        surplus = delete(journal).where(this_kind, journal.c.line_id.in_(beyond))
        gone += connection.execute(surplus).rowcount
    return gone


def erase(connection: Connection, scope: Scope) -> None:
    """Remove what is told of the users of a scope; a line does not say of which session it is."""
    if scope.session_id is not None:
        return
    told = journal.c.user_id == scope.user_id
    if scope.user_id is None:
        users = select(space.c.user_id).where(space.c.agent_id == scope.agent_id)
        told = journal.c.user_id.in_(users)
    connection.execute(delete(journal).where(told, journal.c.user_id != ""))
