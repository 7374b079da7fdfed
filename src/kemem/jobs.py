"""The outbox: later work that was promised in the same transaction as the data that needs it."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace

from kemem.add.edit import Policy, run_forget
from kemem.add.embed import (
    mirror_jobs,
    prepare,
    put_back,
    read_pages,
    reschedule,
    run_embed,
    run_mirror,
)
from kemem.add.extract import READ, SINCE, asked
from kemem.add.recipe import run_extract, run_rules
from kemem.add.summarize import summarize_session
from kemem.errors import NotFound, Unavailable
from kemem.ports import Deps, read_owners
from kemem.ports.turns import QUIET, Turns
from kemem.records import MESSAGES, NOTES, Micros, Scope, Where
from kemem.records.batch import Batch, Job
from kemem.text.ids import new_id

PAGE = 256
_WAITING = 1000  # jobs among which those of one session are looked for
_MOST_JOINED = 20  # of these
_LONGEST_TALK: Micros = 30_000_000  # then a model is asked about a session that is not quiet
_ASKING = ("extract", "condense", "end")  # kinds of jobs that ask the model
_LONGEST_DELAY: Micros = 60_000_000  # then a job is done though somebody waits for a reply
RunJob = Callable[[Job], Awaitable[None]]

log = logging.getLogger("kemem")


async def ask_to_forget(deps: Deps) -> None:
    """A job for each owner, which applies the policy of forgetting, unless one is due anyway."""
    now = deps.clock()
    jobs = [Job(new_id("j", now), "forget", scope, now) for scope in await read_owners(deps.store)]
    due = {it.scope for it in await deps.store.jobs(None, kinds=("forget",)) if it.due <= now}
    await deps.store.apply(Batch(jobs=tuple(job for job in jobs if job.scope not in due)))


async def mirror_all(deps: Deps, before: Iterable[Scope] = ()) -> None:
    """Carry the whole graph over to the database beside the store, if there is one.

    Owners of `before` who have nothing any more have nothing there, either.
    """
    now = deps.clock()
    scopes = {*before, *await read_owners(deps.store)}
    jobs = [mirror_jobs(scope, (), now, deps) for scope in scopes]
    await deps.store.apply(Batch(jobs=tuple(job for each in jobs for job in each)))


async def renew(deps: Deps, before: Iterable[Scope] = (), *, again: bool = False) -> None:
    """Ask for what is derived from rows: vectors, a mirrored graph; `again` for words, too."""
    if again:
        await deps.store.apply(Batch(rebuild_words=True))
    await prepare(deps, again=again)
    await mirror_all(deps, before)


async def retry(job_id: str, deps: Deps) -> Job:
    """Try a job again now, from the first attempt on."""
    jobs = await _retry(await deps.store.jobs(ids=[job_id]), deps)
    if not jobs:
        raise NotFound(f"no job {job_id!r:.80}", job_id=job_id)
    return jobs[0]


async def retry_failed(deps: Deps) -> int:
    """Try every job that was given up again now; returns how many."""
    failed = [job for job in await deps.store.jobs(None) if job.state == "failed"]
    return len(await _retry(failed, deps))


async def _retry(jobs: Sequence[Job], deps: Deps) -> tuple[Job, ...]:
    now = deps.clock()
    again = tuple(replace(job, state="pending", due=now, attempts=0) for job in jobs)
    if again:
        await deps.store.apply(Batch(jobs=again))
    return again


async def run_due(
    deps: Deps,
    policy: Policy,
    run_import: RunJob,
    turns: Turns | None = None,
    *,
    debounce: bool = False,
) -> int:
    """Work through the jobs that are due; returns how many steps were done.

    While somebody waits for a reply of the model, jobs that ask it are left for later. With
    `debounce` the model is asked about a session once that is quiet, so that a burst of messages
    is one question; without, also what waits for that is done now.
    """
    done = 0
    turns = turns or Turns()
    if not debounce and deps.llm is not None:
        await _stop_waiting(deps)
    await _take_up(deps)
    while job := await _claim(deps):
        due, gives_way = job.due, deps.llm is not None and job.kind in _ASKING
        gives_way = gives_way and deps.clock() - due < _LONGEST_DELAY
        try:
            job, quiet_at = await _with_waiting(job, deps)
            job = await run_rules(job, deps)
            if debounce and quiet_at > deps.clock():
                waiting = replace(job, attempts=job.attempts - 1, due=quiet_at)
                await deps.store.apply(Batch(jobs=(waiting,), only_if=(job,)))
            elif not gives_way:
                await _run(job, policy, run_import, deps)
            elif turns.waiting or not await turns.run(_run(job, policy, run_import, deps)):
                again = replace(job, attempts=job.attempts - 1, due=due)
                await deps.store.apply(Batch(jobs=(again,), only_if=(job,)))
                return done  # whoever has replied runs jobs again
        except Exception as error:  # one job's fault must not keep the others waiting
            if not isinstance(error, Unavailable):
                error = Unavailable(f"the job failed: {type(error).__name__}")
            log.warning("%s; job %s will try again", error.message, job.job_id)
            await put_back(job, error, deps)
        done += 1
    return done


async def _claim(deps: Deps) -> Job | None:
    now = deps.clock()
    try:
        return await deps.store.claim(now, deps.lease)
    except Unavailable:  # perhaps after it was claimed
        deps.held.add_claim(now + deps.lease)
        raise


async def _take_up(deps: Deps) -> None:
    """Let the jobs that the store went away from be due now, instead of after their lease.

    One that saw that more than once may be the cause, and is tried after a pause.
    """
    held, now = deps.held.take(), deps.clock()
    if held is None:
        return
    try:
        for job in await deps.store.jobs(None, ids=held.ids):
            if job.state == "pending" and job.due > now and held.has(job):
                batch = Batch(jobs=(replace(job, due=now),), only_if=(job,))
                if job.attempts > 1:
                    batch = reschedule(job, Unavailable("the store went away meanwhile"), now)
                await deps.store.apply(batch)
    except Unavailable:
        deps.held.join(held)
        raise


async def _with_waiting(job: Job, deps: Deps) -> tuple[Job, Micros]:
    """A job that reads what others of its session would, and when its session will be quiet.

    Whoever has begun one of the others meanwhile finds it gone, and writes nothing.
    """
    if job.kind != "extract" or deps.llm is None or job.scope.session_id is None:
        return job, job.due
    now, jobs = deps.clock(), [job]
    for it in await deps.store.jobs(_WAITING, kinds=("extract",)):
        alike = (it.scope, asked(it), it.attempts) == (job.scope, asked(job), 0)
        ready = it.due <= now or SINCE in it.details
        if alike and ready and it.job_id != job.job_id and len(jobs) <= _MOST_JOINED:
            jobs.append(it)
    ids = tuple(name for it in jobs for name in it.ids)
    read = [name for it in jobs for name in it.details.get(READ, ())]
    since = min(it.details.get(SINCE, it.due) for it in jobs)
    quiet_at = max(it.due if SINCE in it.details else it.due + QUIET for it in jobs)
    is_retry = job.attempts > 1 or job.error is not None
    if is_retry or len(ids) >= _MOST_JOINED or not job.details.get("infer", True):
        quiet_at = now
    details = {**asked(job), SINCE: since, **({READ: read} if read else {})}
    joined = replace(job, ids=ids, details=details)
    if len(jobs) > 1:
        joined, done = replace(joined, due=now + deps.lease), tuple(it.job_id for it in jobs[1:])
        applied = await deps.store.apply(Batch(jobs=(joined,), done=done, only_if=tuple(jobs)))
        if applied.refused:  # another worker has done one of them, or joined it to its own
            joined = replace(job, details={**job.details, SINCE: since})
    return joined, min(quiet_at, since + _LONGEST_TALK)


async def _stop_waiting(deps: Deps) -> None:
    """Let the jobs that wait for a session to become quiet be due now."""
    now = deps.clock()
    for job in await deps.store.jobs(None, kinds=("extract",)):
        if SINCE in job.details and not job.attempts and job.due > now:
            await deps.store.apply(Batch(jobs=(replace(job, due=now),), only_if=(job,)))


async def _run(job: Job, policy: Policy, run_import: RunJob, deps: Deps) -> None:
    match job.kind:
        case "embed" | "reembed":
            await _embed(job, deps)
        case "extract" | "end":
            await run_extract(job, deps)
        case "condense":
            await summarize_session(job.scope, deps, budget=job.details["budget"])
            await deps.store.apply(Batch(done=(job.job_id,)))
        case "forget":
            await run_forget(job, policy, deps)
        case "mirror":
            await run_mirror(job, deps)
        case "import":
            await run_import(job)


async def _embed(job: Job, deps: Deps) -> None:
    """Vectors for the rows that a job names, or for a page of its scope; then for the next page."""
    is_page = job.kind == "reembed"
    where = Where(job.scope, ids=None if is_page else frozenset(job.ids), kinds=MESSAGES | NOTES)
    if is_page and job.progress is None:
        total = sum([len(page) async for page in read_pages(where, deps.store)])
        job = replace(job, details={"done": 0, "total": total})
    limit = PAGE if is_page else 2 * len(job.ids)  # a message and a note can have the same id
    rows = await deps.store.read(where, after=job.after, limit=limit)
    rest = None
    if is_page and len(rows) == PAGE:
        details = {**job.details, "done": job.details["done"] + PAGE}
        rest = replace(job, after=rows[-1].position, details=details)
    await run_embed(rows, job, deps, rest)
