"""Jobs as rows."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Row, bindparam, delete, select, update

from kemem.records import Message, Micros, Position, Scope
from kemem.records.batch import Job, JobKind
from kemem.store.database import Database, upsert
from kemem.store.schema import job

_next = (
    select(job)
    .where(job.c.state == "pending", job.c.due_time <= bindparam("now"))
    .order_by(job.c.due_time, job.c.job_id)
    .limit(1)
    .with_for_update(skip_locked=True)
)
_hide = (
    update(job)
    .where(job.c.job_id == bindparam("of_job"))
    .values(due_time=bindparam("until"), attempts=job.c.attempts + 1)
)
_oldest_first = select(job).order_by(job.c.due_time, job.c.job_id)
_exists = select(job.c.job_id).where(job.c.job_id == bindparam("of_job")).with_for_update()
_finish = delete(job).where(job.c.job_id == bindparam("of_job"))


def put_jobs(connection: Connection, database: Database, jobs: Sequence[Job]) -> None:
    """Add jobs, or change those that are there."""
    statement = upsert(database.insert, job, *job.c.keys())
    connection.execute(statement, [_row(each) for each in jobs])


def finish_jobs(connection: Connection, job_ids: Sequence[str]) -> None:
    """Remove jobs that are done."""
    connection.execute(_finish, [{"of_job": job_id} for job_id in job_ids])


def claim(connection: Connection, now: Micros, lease: Micros) -> Job | None:
    """The job that has been due longest, hidden from others until the lease ends."""
    row = connection.execute(_next, {"now": now}).first()
    if row is None:
        return None
    connection.execute(_hide, {"of_job": row.job_id, "until": now + lease})
    return _job(row, attempts=row.attempts + 1)


def list_jobs(
    connection: Connection,
    limit: int,
    ids: Sequence[str] | None = None,
    kinds: Sequence[JobKind] | None = None,
) -> list[Job]:
    """Jobs that wait or have failed, all or those of some ids or kinds."""
    statement = _oldest_first.limit(limit)
    if ids is not None:
        statement = statement.where(job.c.job_id.in_(ids))
    if kinds is not None:
        statement = statement.where(job.c.kind.in_(kinds))
    return [_job(row, row.attempts) for row in connection.execute(statement)]


def _row(each: Job) -> dict[str, Any]:
    after = [each.after.ts, each.after.arrival] if each.after else None
    return {
        "job_id": each.job_id,
        "kind": each.kind,
        "agent_id": each.scope.agent_id,
        "user_id": each.scope.user_id,
        "session_id": each.scope.session_id,
        "payload": {"ids": each.ids, "after": after, "details": dict(each.details)},
        "state": each.state,
        "attempts": each.attempts,
        "due_time": each.due,
        "error": each.error,
    }


def _job(row: Row[*tuple[Any, ...]], attempts: int) -> Job:
    return Job(
        job_id=row.job_id,
        kind=row.kind,
        scope=Scope(row.agent_id, row.user_id, row.session_id),
        due=row.due_time,
        ids=tuple(row.payload["ids"]),
        after=_position(row.payload["after"]),
        attempts=attempts,
        state=row.state,
        error=row.error,
        details=row.payload["details"],
    )


def _position(place: list[Any] | None) -> Position | None:
    """Where a job continues; a place from version 5 or before holds an id and means the start."""
    return Position(*place) if place and isinstance(place[1], int) else None


def forget_messages(
    connection: Connection, database: Database, messages: Sequence[Message]
) -> None:
    """Take messages out of the jobs of their users; a job that names no other goes."""
    for user_id in {message.user_id for message in messages}:
        gone = {message.message_id for message in messages if message.user_id == user_id}
        rows = connection.execute(_oldest_first.where(job.c.user_id == user_id))
        jobs = [_job(row, row.attempts) for row in rows]
        naming = [each for each in jobs if gone & {*each.ids}]
        left = [
            replace(each, ids=tuple(it for it in each.ids if it not in gone)) for each in naming
        ]
        if kept := [each for each in left if each.ids]:
            put_jobs(connection, database, kept)
        if done := [each.job_id for each in left if not each.ids]:
            finish_jobs(connection, done)


def has_job(connection: Connection, job_id: str) -> bool:
    """Whether a job is still open."""
    return connection.execute(_exists, {"of_job": job_id}).first() is not None


def drop_jobs(connection: Connection, scope: Scope) -> None:
    """Remove the jobs that carry every id of the scope."""
    given = {
        "agent_id": scope.agent_id,
        "user_id": scope.user_id,
        "session_id": scope.session_id,
    }
    conditions = [job.c[name] == value for name, value in given.items() if value is not None]
    connection.execute(delete(job).where(*conditions))
