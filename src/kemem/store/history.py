"""The small tables that a batch writes besides rows: histories, checkpoints, jobs, the journal."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from functools import cache
from typing import Any

import sqlalchemy as sa

from kemem import records
from kemem.errors import InvalidArgument
from kemem.ports.lines import ANSWER, AUDIT
from kemem.records.batch import Ending, Job, JobKind, Trim
from kemem.store.database import COUNTED, Statement, Values, bound, equal, group, in_list, upsert
from kemem.store.schema import (
    DISABLED_SESSION,
    checkpoint,
    dump_json,
    job,
    journal,
    note_history,
    session,
    space,
)
from kemem.store.spaces import Transaction, find_spaces, ids_of, routed

# Columns of the history, in the order of the fields that they hold.
_CHANGE = {"note_id": "note_id", "event": "event", "create_time": "at"}
_CHANGE |= {name: name for name in ("before", "after", "reason")}
_insert_changes, _insert_checkpoint = sa.insert(note_history), sa.insert(checkpoint)
_this_session = bound(checkpoint, space_no="of_space", session_id="of_session")
_drop_checkpoints = sa.delete(checkpoint).where(*_this_session)
_newest_first = (checkpoint.c.create_time.desc(), checkpoint.c.id.desc())
_outdated = (
    sa.select(checkpoint.c.id)
    .where(*_this_session)
    .order_by(*_newest_first)
    .offset(records.CHECKPOINTS_KEPT)
)
_end_session = (
    sa.update(session)
    .where(*bound(session, space_no="of_space", session_id="of_session"))
    .values(
        status=sa.case((session.c.status == DISABLED_SESSION, DISABLED_SESSION), else_=0),
        end_time=sa.bindparam("at"),
    )
)


def put_changes(transaction: Transaction, changes: Iterable[records.Change]) -> None:
    """Lines of histories."""
    for owner, own in group(changes, lambda it: (it.agent_id, it.user_id)).items():
        space = transaction.space(*owner)
        rows = [
            {"space_no": space.space_no, "id": number}
            | {column: getattr(each, name) for column, name in _CHANGE.items()}
            for number, each in enumerate(own, transaction.reserve(space, len(own)))
        ]
        transaction.connection.execute(_insert_changes, rows)


def history(
    connection: sa.Connection,
    scope: records.Scope,
    limit: int,
    note_id: str | None = None,
    event: str | None = None,
    reason: str | None = None,
) -> list[records.Change]:
    """Lines of the histories of a scope's notes, newest first."""
    if scope.session_id is not None:
        raise InvalidArgument("a history belongs to a user or agent, not to a session")
    owner, columns = (space.c.agent_id, space.c.user_id), [note_history.c[it] for it in _CHANGE]
    lines = equal(note_history, note_id=note_id, event=event, reason=reason)
    lines += routed(connection, note_history, scope)
    statement = (
        sa.select(*owner, *columns)
        .join_from(space, note_history)
        .where(*equal(space, **ids_of(scope)), *lines)
        .order_by(note_history.c.create_time.desc(), note_history.c.id.desc())
        .limit(limit)
    )
    return [records.Change(*row) for row in connection.execute(statement)]


def put_checkpoints(transaction: Transaction, checkpoints: Iterable[records.Checkpoint]) -> None:
    """States of sessions; only the newest of each session are kept."""
    connection = transaction.connection
    for each in checkpoints:
        space = transaction.space(each.agent_id, each.user_id)
        transaction.ensure_sessions(space, {each.session_id: (each.created, each.created)})
        state = {name: [asdict(it) for it in getattr(each, name)] for name in ("layers", "notes")}
        row: Values = {"space_no": space.space_no, "id": transaction.reserve(space, 1)}
        row |= {"checkpoint_id": each.checkpoint_id, "session_id": each.session_id}
        row |= {"state": dump_json(state), "create_time": each.created}
        connection.execute(_insert_checkpoint, row)
        values = {"of_space": space.space_no, "of_session": each.session_id}
        outdated = connection.execute(_outdated, values).scalars().all()
        this_space = checkpoint.c.space_no == space.space_no
        connection.execute(sa.delete(checkpoint).where(this_space, checkpoint.c.id.in_(outdated)))


def checkpoints(
    connection: sa.Connection, scope: records.Scope, limit: int
) -> list[records.Checkpoint]:
    """States of a scope's sessions, newest first."""
    own = equal(space, agent_id=scope.agent_id, user_id=scope.user_id)
    own += equal(checkpoint, session_id=scope.session_id) + routed(connection, checkpoint, scope)
    statement = sa.select(checkpoint, space.c.agent_id, space.c.user_id).join_from(
        space, checkpoint
    )
    saved = []
    rows = connection.execute(statement.where(*own).order_by(*_newest_first).limit(limit))
    for row in rows:
        state, owner = json.loads(row.state), (row.agent_id, row.user_id)
        layers = tuple(records.Layer(**it) for it in state["layers"])
        lists = [{key: tuple(it[key]) for key in ("keywords", "sources")} for it in state["notes"]]
        notes = tuple(
            records.Note(**{**it, **own}) for it, own in zip(state["notes"], lists, strict=True)
        )
        times = (row.session_id, row.create_time)
        saved.append(records.Checkpoint(row.checkpoint_id, *owner, *times, layers, notes))
    return saved


def drop_checkpoints(connection: sa.Connection, sessions: set[tuple[int, str]]) -> None:
    """Forget the states of sessions, which quote what was said in them."""
    rows = [{"of_space": space_no, "of_session": name} for space_no, name in sorted(sessions)]
    if rows:
        connection.execute(_drop_checkpoints, rows)


def end_sessions(transaction: Transaction, endings: Iterable[Ending]) -> None:
    """Mark sessions as ended and forget their states."""
    connection = transaction.connection
    for ending in endings:
        for each in find_spaces(connection, ending.scope, with_rows=False):
            values = {"of_space": each.space_no, "of_session": ending.scope.session_id}
            connection.execute(_end_session, {**values, "at": ending.at})
            connection.execute(_drop_checkpoints, values)
            transaction.reserve(each, 1)


def erase_scope(transaction: Transaction, scope: records.Scope) -> None:
    """Remove histories, states, sessions, jobs and journal lines of a scope that is erased."""
    connection = transaction.connection
    spaces = find_spaces(connection, scope, with_rows=False)
    for each in spaces:
        transaction.reserve(each, 1)
    numbers = [each.space_no for each in spaces]
    for table in (checkpoint, session):
        own = (table.c.space_no.in_(numbers), *equal(table, session_id=scope.session_id))
        connection.execute(sa.delete(table).where(*own))
    if scope.session_id is None:  # neither histories nor the journal say of which session they are
        connection.execute(sa.delete(note_history).where(note_history.c.space_no.in_(numbers)))
        of_users, of_nobody = journal.c.user_id == scope.user_id, journal.c.user_id == ""
        if scope.user_id is None:
            users = sa.select(space.c.user_id).where(space.c.agent_id == scope.agent_id)
            of_users = journal.c.user_id.in_(users)
            shared = sa.and_(of_nobody, journal.c.kind == ANSWER)  # of some agent's users
            connection.execute(sa.delete(journal).where(shared))
        goes = (of_users, ~of_nobody, journal.c.kind != AUDIT)
        connection.execute(sa.delete(journal).where(*goes))
    # Deliveries hold ids and no text: who has copies is still to hear what was deleted.
    own = (job.c.kind != "webhook", *equal(job, **ids_of(scope)))
    connection.execute(sa.delete(job).where(*own))


_next_job = (
    sa.select(job)
    .where(job.c.state == "pending", job.c.due_time <= sa.bindparam("now"))
    .order_by(job.c.due_time, job.c.job_id)
    .limit(1)
    .with_for_update(skip_locked=True)
)
(_this_job,) = bound(job, job_id="of_job")
_lease = sa.update(job).where(_this_job)
_lease = _lease.values(due_time=sa.bindparam("until"), attempts=job.c.attempts + 1)
_oldest_first = sa.select(job).order_by(job.c.due_time, job.c.job_id)
_still = sa.select(job).where(in_list(job.c.job_id, "names")).order_by(job.c.job_id)
_still = _still.with_for_update()
_finish = sa.delete(job).where(_this_job)


def put_jobs(connection: sa.Connection, jobs: Iterable[Job]) -> None:
    """Add jobs, or change those that are there."""
    rows = []
    for each in jobs:
        after = [each.after.ts, each.after.arrival] if each.after else None
        row = {
            name: getattr(each, name) for name in ("job_id", "kind", "state", "attempts", "error")
        }
        row |= {name: getattr(each.scope, name) for name in ("agent_id", "user_id", "session_id")}
        payload = {"ids": each.ids, "after": after, "details": dict(each.details)}
        rows.append({**row, "due_time": each.due, "payload": payload})
    upsert(connection, job, rows, *job.c.keys())


def finish_jobs(connection: sa.Connection, job_ids: Iterable[str]) -> None:
    """Remove jobs that are done."""
    rows = [{"of_job": job_id} for job_id in job_ids]
    if rows:
        connection.execute(_finish, rows)


_NO_DELIVERY = (job.c.kind != "webhook",)


def claim(
    connection: sa.Connection,
    now: records.Micros,
    lease: records.Micros,
    conditions: Sequence[sa.ColumnElement[bool]] = _NO_DELIVERY,
) -> Job | None:
    """The job that has been due longest, hidden from others until the lease ends."""
    row = connection.execute(_next_job.where(*conditions), {"now": now}).first()
    if row is None:
        return None
    connection.execute(_lease, {"of_job": row.job_id, "until": now + lease})
    return replace(_job(row), attempts=row.attempts + 1)


def list_jobs(
    connection: sa.Connection,
    limit: int | None,
    ids: Sequence[str] | None = None,
    kinds: Sequence[JobKind] | None = None,
) -> list[Job]:
    """Jobs that wait or have failed, all or those of some ids or kinds."""
    statement = _oldest_first.limit(limit)
    if ids is not None:
        statement = statement.where(job.c.job_id.in_(ids))
    if kinds is not None:
        statement = statement.where(job.c.kind.in_(kinds))
    return [_job(row) for row in connection.execute(statement)]


def _job(row: sa.Row[*tuple[Any, ...]]) -> Job:
    # A place from schema version 5 or before holds an id and means the start.
    after = row.payload["after"]
    return Job(
        row.job_id,
        row.kind,
        records.Scope(row.agent_id, row.user_id, row.session_id),
        row.due_time,
        tuple(row.payload["ids"]),
        records.Position(*after) if after and isinstance(after[1], int) else None,
        row.attempts,
        row.state,
        row.error,
        row.payload["details"],
    )


def are_open(connection: sa.Connection, jobs: Sequence[Job]) -> bool:
    """Whether jobs are still open, and nobody has given one of them more to do."""
    if not jobs:
        return True
    rows = connection.execute(_still, {"names": [it.job_id for it in jobs]})
    ids = {row.job_id: {*row.payload["ids"]} for row in rows}
    return all(it.job_id in ids and ids[it.job_id] <= {*it.ids} for it in jobs)


def remove_from_jobs(connection: sa.Connection, messages: Iterable[records.Message]) -> None:
    """Take messages out of the jobs of their users; a job that names no other goes."""
    for user_id, own in group(messages, lambda it: it.user_id).items():
        removed = {message.message_id for message in own}
        jobs = map(_job, connection.execute(_oldest_first.where(job.c.user_id == user_id)).all())
        changed = [
            replace(each, ids=tuple(it for it in each.ids if it not in removed))
            for each in jobs
            if removed & {*each.ids}
        ]
        put_jobs(connection, [each for each in changed if each.ids])
        finish_jobs(connection, [each.job_id for each in changed if not each.ids])


_newest_line_first = (journal.c.create_time.desc(), journal.c.line_id)


def put_lines(connection: sa.Connection, lines: Iterable[records.Line]) -> None:
    """Write lines of the journal, each in the place of one of its kind and id."""
    # In one order, so that two writers of the same lines do not wait for each other.
    rows = [_line_row(it) for it in sorted(lines, key=lambda line: (line.kind, line.id))]
    upsert(connection, journal, rows, "create_time", "user_id", "body")


def _line_row(line: records.Line) -> Values:
    place = {"kind": line.kind, "line_id": line.id, "create_time": line.ts}
    return {**place, "user_id": line.user_id, "body": dump_json(dict(line.body))}


def _line(row: sa.Row[*tuple[Any, ...]]) -> records.Line:
    body = json.loads(row.body)
    return records.Line(row.kind, row.line_id, row.create_time, body, row.user_id)


def exchange_line(
    connection: sa.Connection, before: records.Line | None, after: records.Line | None
) -> records.Line | None:
    """Put a line in the place of what was read before, unless that has changed since."""
    line = after or before
    if line is None:
        return None
    this = equal(journal, kind=line.kind, line_id=line.id)
    if before is None:
        upsert(connection, journal, [_line_row(line)])
    else:
        same = equal(journal, **_line_row(before))
        change = sa.update(journal).values(_line_row(after)) if after else sa.delete(journal)
        connection.execute(change.where(*same))
    row = connection.execute(sa.select(journal).where(*this)).first()
    return None if row is None else _line(row)


@cache
def _lines(bounds: frozenset[str]) -> Statement:
    """The statement for lines within some bounds, built once."""
    conditions = {
        "of_user": journal.c.user_id == sa.bindparam("of_user"),
        "since": journal.c.create_time >= sa.bindparam("since"),
        "until": journal.c.create_time < sa.bindparam("until"),
    }
    own = [conditions[name] for name in sorted(bounds)]
    lines = sa.select(journal).where(journal.c.kind == sa.bindparam("of_kind"), *own)
    return lines.order_by(*_newest_line_first).limit(sa.bindparam("most"))


def ask_lines(
    connection: sa.Connection,
    kind: str,
    since: records.Micros | None,
    until: records.Micros | None,
    user_id: str | None,
    limit: int,
) -> Callable[[], list[records.Line]]:
    """Lines of the journal of a kind, newest first, when it is called."""
    values = {"of_kind": kind, "of_user": user_id, "since": since, "until": until, "most": limit}
    bounds = frozenset(name for name in ("of_user", "since", "until") if values[name] is not None)
    rows = connection.execute(_lines(bounds), values)
    return lambda: [_line(row) for row in rows]


def trim_lines(connection: sa.Connection, trim: Trim) -> int:
    """Erase the lines from before a time, and all but the newest; returns how many went."""
    count, this_kind = 0, journal.c.kind == trim.kind
    if trim.before is not None:
        old = sa.delete(journal).where(this_kind, journal.c.create_time < trim.before)
        count += connection.execute(old, execution_options=COUNTED).rowcount
    if trim.keep is not None:
        names = sa.select(journal.c.line_id).where(this_kind).order_by(*_newest_line_first)
        surplus = journal.c.line_id.in_(names.offset(trim.keep))
        excess = sa.delete(journal).where(this_kind, surplus)
        count += connection.execute(excess, execution_options=COUNTED).rowcount
    return count
