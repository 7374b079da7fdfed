"""Messages made durable, with the later work they ask for, before any model is asked."""

from collections.abc import Sequence
from dataclasses import replace

from kemem.add.task import Place, Task
from kemem.batch import Applied, Batch, Job
from kemem.ports import Deps
from kemem.records import Message, Micros, Scope
from kemem.text.ids import new_id

READ_AT_ONCE = 16_000  # characters
GRACE: Micros = 60_000_000  # in which only the writer itself works on its jobs

_Alike = tuple[Place, bool]  # where messages belong, and whether they are sensitive


def embed_job(messages: Sequence[Message], now: Micros, deps: Deps) -> tuple[Job, ...]:
    """The promise of vectors, where there is a model for them."""
    if deps.embedder is None:
        return ()
    ids = tuple(message.message_id for message in messages)
    scope = Scope(user_id=messages[0].user_id)
    return (Job(new_id("j", now), "embed", scope, now + GRACE, ids),)


def extract_jobs(
    messages: Sequence[Message], task: Task, now: Micros, wait: Micros = GRACE
) -> tuple[Job, ...]:
    """The promise of notes: a job for each session, several where a model could not read it all.

    What is sensitive has jobs of its own, so that no other note can be drawn from it.
    """
    return tuple(
        Job(
            job_id=new_id("j", now),
            kind="extract",
            scope=Scope(place.agent_id, place.user_id, place.session_id),
            due=now + wait,
            ids=tuple(ids),
            details=_fitting(task, place, sensitive).to_details(),
        )
        for (place, sensitive), ids in _portions(messages)
    )


def _portions(messages: Sequence[Message]) -> list[tuple[_Alike, list[str]]]:
    """Messages of one session side by side, as many as a model reads at once."""
    portions: list[tuple[_Alike, list[str]]] = []
    room: dict[_Alike, int] = {}
    current: dict[_Alike, list[str]] = {}
    for message in messages:
        place = Place(message.agent_id, message.user_id, message.session_id)
        alike = (place, message.sensitive)
        room[alike] = room.get(alike, 0) - len(message.content)
        if room[alike] < 0 or alike not in current:
            current[alike] = []
            portions.append((alike, current[alike]))
            room[alike] = READ_AT_ONCE - len(message.content)
        current[alike].append(message.message_id)
    return portions


def _fitting(task: Task, place: Place, sensitive: bool) -> Task:
    """The task for some messages: what nobody owns is knowledge."""
    shared = not place.user_id and task.kind == "user_info"
    kind = "knowledge" if shared else task.kind
    return replace(task, kind=kind, sensitive=task.sensitive or sensitive)


async def keep(
    messages: Sequence[Message], jobs: tuple[Job, ...], deps: Deps
) -> tuple[Applied, tuple[Job, ...]]:
    """Messages and jobs in one batch; jobs that are left are those for messages that are new."""
    applied = await deps.store.apply(Batch(put=tuple(messages), jobs=jobs))
    if not applied.ignored:
        return applied, jobs
    new = {message.message_id for message in applied.inserted}
    left = [replace(job, ids=tuple(name for name in job.ids if name in new)) for job in jobs]
    needed = tuple(job for job in left if job.ids)
    done = tuple(job.job_id for job in left if not job.ids)
    await deps.store.apply(Batch(jobs=needed, done=done))
    return applied, needed
