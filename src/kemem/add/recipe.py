"""The recipe of add: parse, store, embed, extract, reconcile, commit."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b

from kemem.add.branch import Branch, by_session, has_moved, leave, read_branch
from kemem.add.embed import embed_rows, put_back, read_pages, run_embed, vector_jobs
from kemem.add.experience import extract_experience
from kemem.add.extract import READ, Work, extract_facts, mark_corrections, readable
from kemem.add.parse import Parsed, Task, parse_turns, to_list, with_defaults
from kemem.add.reconcile import OrderUnknown, Written, apply_facts
from kemem.add.rules import Extraction
from kemem.add.summarize import summarize_session
from kemem.errors import InvalidArgument, KeMemError, PermissionDenied, Unavailable
from kemem.hooks import Hooks
from kemem.ports import Deps, ReadOptions, read_messages, read_notes
from kemem.ports.entries import check_enabled
from kemem.records import MESSAGES, SHORT_TERM, Message, Messages, Micros, Scope, Where
from kemem.records.batch import Applied, Batch, Job
from kemem.records.branches import current
from kemem.results import Added, Ingested
from kemem.scope import Owner, Time, check_flag, to_time
from kemem.settings import Settings
from kemem.text.ids import new_id
from kemem.text.turns import Reading, read_turns

_READ_AT_ONCE = 16_000  # characters of a session that are extracted from together
_WRITTEN_AT_ONCE = 100  # messages that are stored together with their notes
_EMBEDDED_AT_ONCE = 1_000  # messages that are embedded before they are stored: two seconds
_PAGE = 20  # stored messages that notes are extracted from again together
_STATE_INTERVAL = 8  # messages of a session between two updates of its State
_EXPERIENCE_MESSAGES = 200  # the newest of a session, which its experience is extracted from

log = logging.getLogger("kemem")


async def add(
    messages: Messages,
    owner: Owner,
    task: Task,
    settings: Settings,
    hooks: Hooks,
    deps: Deps,
    *,
    ts: Time | None = None,
    wait: bool = True,
) -> Added:
    """Store messages and remember what they say, with the user's hooks around it."""
    check_flag(wait, "wait")
    to_time(ts, "timestamp")  # checked here, so that an error names the argument
    policy = settings.content_policy
    reading = await _read(messages, settings, hooks)
    turns, skipped = with_defaults(reading.turns, task.metadata, ts), reading.skipped
    parsed = parse_turns(turns, owner, deps.clock(), policy)
    items = [turn.fields for turn in turns]
    changed, problems = await hooks.before(items) if items else (items, [])
    problems = [*reading.problems, *problems]
    if changed and changed is not items:
        try:
            read = read_turns(to_list(changed))
            parsed, skipped = parse_turns(read.turns, owner, deps.clock(), policy), read.skipped
        except KeMemError as error:
            problems.append(f"a hook's messages cannot be stored: {error.message}")
    if not changed or not parsed.messages:
        return Added(problems=tuple(problems), skipped=skipped)
    await _check_parents(parsed.messages, deps)
    parsed = parsed._replace(messages=await mark_corrections(parsed.messages, deps))
    added, stored = await _remember(parsed, task, deps, wait)
    due = [message for message in stored if message.sequence_no % _STATE_INTERVAL == 0]
    for scope in {Scope(it.agent_id, it.user_id, it.session_id) for it in due}:
        await _update_state(scope, settings.state_tokens, task, deps)
    problems += await hooks.after(added)
    return replace(added, problems=(*added.problems, *problems), skipped=skipped)


async def ingest(
    messages: Messages, owner: Owner, settings: Settings, hooks: Hooks, deps: Deps
) -> Ingested:
    """Store messages as one batch and make them searchable."""
    reading = await _read(messages, settings, hooks)
    parsed = parse_turns(reading.turns, owner, deps.clock(), settings.content_policy)
    ingested = Ingested((), (), problems=reading.problems, skipped=reading.skipped)
    if not parsed.messages:
        return ingested
    await _check_parents(parsed.messages, deps)
    stored = await mark_corrections(parsed.messages, deps)
    applied, _, failures = await _store(stored, (), deps)
    for scope, own in by_session(applied.inserted).items():
        branch = await read_branch(scope, own, deps)
        await leave(branch.left, replace(scope, session_id=None), deps)
    ids, cut = tuple(message.message_id for message in applied.inserted), parsed.truncated
    ingested = replace(ingested, problems=(*ingested.problems, *failures), pending=bool(failures))
    return replace(ingested, inserted=ids, ignored=applied.ignored, truncated=cut)


async def _read(messages: Messages, settings: Settings, hooks: Hooks) -> Reading:
    """What messages of any shape say, their attachments described by the user's hooks."""
    items, thinking = to_list(messages), settings.store_thinking
    reading = read_turns(items, thinking=thinking)
    described, problems = await hooks.describe(reading.attachments)
    if described:
        reading = read_turns(items, thinking=thinking, descriptions=described)
    return replace(reading, problems=(*reading.problems, *problems))


async def _remember(parsed: Parsed, task: Task, deps: Deps, wait: bool) -> Written:
    """What became of messages, and those that were stored."""
    # Where no model has to be waited for, one write stores messages and notes together. Else, or if
    # that fails, the messages are durable before a model is asked, with a job that asks it again.
    messages = [replace(it, sensitive=it.sensitive or task.sensitive) for it in parsed.messages]
    works = _split(messages, task)
    is_local = deps.embeds_in_process and (deps.llm is None or not task.infer)
    is_small = len(works) == 1 and len(messages) <= _WRITTEN_AT_ONCE
    has_parents = any(message.parent_message_id for message in messages)
    spread = _spread(messages) if is_small and not has_parents else None
    if spread and wait and is_local and not parsed.has_ids:
        try:
            added, stored = await _run(replace(works[0], messages=spread), deps)
            return replace(added, truncated=parsed.truncated), stored
        except PermissionDenied:  # who is disabled
            raise
        except OrderUnknown:
            log.debug("messages as old as what is known are stored first")
        except Exception as error:  # whatever is wrong with notes, messages must not be lost
            log.warning("%s; the messages are stored first", type(error).__name__)
    now = deps.clock()
    jobs = tuple(
        work.to_job("extract", now, now + deps.grace(place) if wait else now)
        for place, work in enumerate(works)
    )
    applied, jobs, failures = await _store(messages, jobs, deps)
    ids, cut = tuple(it.message_id for it in applied.inserted), parsed.truncated
    pending = bool(failures or (jobs and not wait))
    added = Added(message_ids=ids, ignored=applied.ignored, truncated=cut, pending=pending)
    added = replace(added, problems=failures)
    inserted = {message.message_id: message for message in applied.inserted}
    given = [Work.of(job, [inserted[name] for name in job.ids]) for job in jobs if wait]
    return await _try(added, given, deps), applied.inserted


def _spread(messages: Sequence[Message]) -> tuple[Message, ...] | None:
    """Messages of one session at different times, as a store keeps those without a chosen time.

    None where chosen times are equal: such messages have an order only once they are stored.
    """
    spread: dict[Micros, Message] = {}
    for message in messages:
        ts = message.ts
        if ts in spread and ts != message.ingest_time:
            return None
        while ts in spread:
            ts += 1
        spread[ts] = replace(message, ts=ts)
    return tuple(spread.values())


async def _store(
    messages: Sequence[Message], jobs: tuple[Job, ...], deps: Deps
) -> tuple[Applied, tuple[Job, ...], tuple[str, ...]]:
    """Store messages with their jobs; the jobs that are left, and why vectors follow later."""
    now = deps.clock()
    # An embedder in this process comes first; another is asked once the messages are durable.
    is_embedded_first = deps.embeds_in_process and len(messages) <= _EMBEDDED_AT_ONCE
    vectors, embed_jobs = await embed_rows(messages if is_embedded_first else (), now, deps)
    if deps.embedder is not None and not is_embedded_first:
        ids = tuple(message.message_id for message in messages)
        scope = Scope(user_id=messages[0].user_id)
        embed_jobs = (Job(new_id("j", now), "embed", scope, now + deps.grace(), ids),)
    promised = (*embed_jobs, *jobs)
    mirrored = vector_jobs(vectors, now, deps)
    batch = Batch(put=tuple(messages), vectors=vectors, jobs=(*promised, *mirrored))
    applied = await deps.store.apply(batch)
    promised = replace(batch, jobs=promised).jobs_of(applied.inserted)
    embed_jobs = tuple(job for job in promised if job.kind == "embed")
    failures = [job.error for job in embed_jobs]
    if not is_embedded_first:
        failures = [await run_embed(applied.inserted, job, deps) for job in embed_jobs]
    left_jobs = tuple(job for job in promised if job.kind != "embed")
    return applied, left_jobs, tuple(dict.fromkeys(it for it in failures if it))


def _split(messages: Sequence[Message], task: Task) -> list[Work]:
    """Messages of one session together, as many as a model reads at once."""
    parts: list[list[Message]] = []
    current: dict[tuple[Scope, bool], list[Message]] = {}
    for message in messages:
        scope = Scope(message.agent_id, message.user_id, message.session_id)
        key = (scope, message.sensitive)  # no other note can be extracted from what is sensitive
        part = current.get(key)
        if part is None or sum(len(it.content) for it in (*part, message)) > _READ_AT_ONCE:
            part = current[key] = []
            parts.append(part)
        part.append(message)
    works = []
    for part in parts:
        first = part[0]
        is_shared = not first.user_id and task.kind == "user_info"  # what nobody owns is knowledge
        kind = "knowledge" if is_shared else task.kind
        own = replace(task, kind=kind, sensitive=task.sensitive or first.sensitive)
        scope = Scope(first.agent_id, first.user_id, first.session_id)
        works.append(Work(scope, own, tuple(part)))
    return works


async def _run(work: Work, deps: Deps, branches: dict[Scope, Branch] | None = None) -> Written:
    """Write the notes that messages give, or end a session with its experience, in one batch.

    `branches` are those that the same call has read of sessions.
    """
    if work.job and work.job.kind == "end":
        return await _run_end(work, deps)
    branches, added = {} if branches is None else branches, Added()
    branch = branches.get(work.scope)
    if branch is None:
        branch = await read_branch(work.scope, work.messages, deps)
        if branch.newest is not None:
            branches[work.scope] = branch
        added = await _change_branch(branch, work, deps, branches)
    messages = tuple(it for it in work.messages if it.message_id not in branch.gone)
    counted = replace(work, messages=messages)
    extraction = await extract_facts(counted, deps)
    if work.rest:  # what rules are not sure of waits for the model
        extraction = replace(extraction, changes=())
    done, stored = await apply_facts(extraction, counted, deps)
    if await has_moved(branch, work.scope, deps):  # while a model was asked
        branches.pop(work.scope, None)
        again = await read_branch(work.scope, work.messages, deps)
        added = replace(added, results=(*added.results, *await leave(again.left, work.owner, deps)))
    return _joined(done, added), stored


async def _run_rules(work: Work, deps: Deps, branches: dict[Scope, Branch]) -> tuple[Work, Added]:
    """Write what rules read before a model is asked; the work that is left is the model's."""
    job, now = work.job, deps.clock()
    if deps.llm is None or job is None or not work.keeps_rules or not work.unread:
        return work, Added()
    due = job.due if job.due > now else now + deps.lease  # one that is claimed stays hidden
    rest = replace(_as_read(job), due=due)
    own = replace(work, messages=work.unread, rest=rest)
    added, _ = await _run(own, replace(deps, llm=None), branches)
    return replace(work, job=rest), added


def _as_read(job: Job) -> Job:
    return replace(job, details={**job.details, READ: list(job.ids)})


async def _change_branch(
    branch: Branch, work: Work, deps: Deps, branches: dict[Scope, Branch]
) -> Added:
    """Delete what is told on other branches alone, and extract notes again from one taken up."""
    added, now = Added(await leave(branch.left, work.owner, deps)), deps.clock()
    works = _split(branch.resumed, work.task)
    jobs = tuple(it.to_job("extract", now, now + deps.grace(at)) for at, it in enumerate(works))
    if jobs:
        await deps.store.apply(Batch(jobs=jobs))
    for each, job in zip(works, jobs, strict=True):
        own = replace(each, job=job, rest=_as_read(job) if work.rest else None)
        done, _ = await _run(own, deps, branches)
        added = replace(_joined(added, done), pending=done.pending or own.rest is not None)
    return added


async def _run_end(work: Work, deps: Deps) -> Written:
    # What is sensitive teaches nothing, so that an experience can be told to everyone.
    where = Where(work.scope, kinds=MESSAGES | SHORT_TERM, sensitive=False)
    newest = await read_messages(deps.store, where, limit=_EXPERIENCE_MESSAGES)
    notes = await read_notes(deps.store, where, limit=_EXPERIENCE_MESSAGES)
    work = replace(work, messages=tuple(current(newest[::-1])))
    fact = await extract_experience(readable(work.messages), notes, deps)
    return await apply_facts(Extraction((fact,) if fact else ()), work, deps)


async def _check_parents(messages: Sequence[Message], deps: Deps) -> None:
    """Refuse a parent that is neither stored nor among the messages before, in the same session."""
    sessions: dict[str, Scope] = {}  # of the messages that can be parents
    attached = list[tuple[str, Scope]]()
    missing = set[str]()
    for message in messages:
        own = Scope(message.agent_id, message.user_id, message.session_id)
        if (parent := message.parent_message_id) is not None:
            attached.append((parent, own))
            missing |= {parent} - sessions.keys()
        sessions[message.message_id] = own
    where = Where(Scope(user_id=messages[0].user_id), ids=frozenset(missing), withdrawn=True)
    stored = await read_messages(deps.store, where, limit=len(missing)) if missing else []
    for it in stored:
        sessions[it.id] = Scope(it.agent_id, it.user_id, it.session_id)
    unknown = missing - {it.id for it in stored}
    for parent, own in attached:
        problem = ""
        if parent in unknown:
            problem = "is not the id of a stored message"
        elif sessions[parent] != own:
            problem = f"is a message of another session, not of {own.session_id!r:.80}"
        if problem:
            raise InvalidArgument(
                f"parent_message_id {parent!r:.80} {problem}", field="parent_message_id"
            )


async def _try(
    added: Added, works: Sequence[Work], deps: Deps, branches: dict[Scope, Branch] | None = None
) -> Added:
    """Do the work of jobs now, or leave them to be tried again; rules wait for no model."""
    branches, begun = {} if branches is None else branches, list[tuple[Work, Added]]()
    for work in works:
        try:
            begun.append(await _run_rules(work, deps, branches))
        except Unavailable as error:
            log.warning("%s; rules are asked together with the model", error.message)
            begun.append((work, Added()))
    for work, read in begun:
        assert work.job is not None
        try:
            done, _ = await _run(work, deps, branches)
            added = _joined(added, _told_once(read, done))
        except Unavailable as error:
            stored = "what rules read" if work.keeps_rules else "what was said"
            log.warning("%s; %s is stored, a job asks again", error.message, stored)
            await put_back(work.job, error, deps)
            added = replace(_joined(added, read), pending=True)
            added = replace(added, problems=(*added.problems, error.message))
    return added


def _told_once(read: Added, done: Added) -> Added:
    """What rules and then a model made of messages: of one note the last that happened to it."""
    known = {it.id for it in read.results}
    later = {it.id: it for it in done.results if it.id in known and it.event != "NONE"}
    results = [later.get(it.id, it) for it in read.results]
    results += [it for it in done.results if it.id not in known]
    return _joined(replace(read, results=tuple(results)), replace(done, results=()))


def _joined(added: Added, done: Added) -> Added:
    """What a call has done so far, with what one more work has given."""
    return replace(
        added,
        results=(*added.results, *done.results),
        relations=(*added.relations, *done.relations),
        pending=added.pending or done.pending,
    )


async def run_extract(job: Job, deps: Deps) -> None:
    """Carry out an `extract` or an `end` job."""
    await _run(await _stored(job, deps), deps)


async def run_rules(job: Job, deps: Deps) -> Job:
    """Do the part of a job that needs no model, and return what is left of it."""
    if job.kind != "extract" or deps.llm is None:
        return job
    work, _ = await _run_rules(await _stored(job, deps), deps, {})
    return work.job or job


async def _stored(job: Job, deps: Deps) -> Work:
    where = Where(job.scope, ids=frozenset(job.ids))
    options: ReadOptions = {"limit": len(job.ids), "newest_first": False}
    messages = await read_messages(deps.store, where, **options) if job.ids else []
    return Work.of(job, messages)


async def reextract(where: Where, task: Task, deps: Deps) -> Added:
    """Extract notes again from stored messages, oldest first; each page has its jobs first."""
    await check_enabled(deps.store, where.scope)
    added, branches = Added(), dict[Scope, Branch]()
    async for page in read_pages(where, deps.store, _PAGE, newest_first=False):
        now = deps.clock()
        works = _split([it for it in page if isinstance(it, Message)], task)
        jobs = tuple(it.to_job("extract", now, now + deps.grace(at)) for at, it in enumerate(works))
        await deps.store.apply(Batch(jobs=jobs))
        given = [replace(it, job=job) for it, job in zip(works, jobs, strict=True)]
        added = await _try(added, given, deps, branches)
    return added


async def end_session(scope: Scope, deps: Deps) -> Added:
    """End a session; its job is durable first, so that a crash cannot leave it half ended."""
    now = deps.clock()
    job = Work(scope, Task(kind="experience")).to_job("end", now, now + deps.grace())
    await deps.store.apply(Batch(jobs=(job,)))
    return await _try(Added(), [Work.of(job)], deps)


async def _update_state(scope: Scope, budget: int, task: Task, deps: Deps) -> None:
    """Update the State of a session: by rules now, by a model later, as add asks it only once."""
    if deps.llm is None or not task.infer:
        await summarize_session(scope, replace(deps, llm=None), budget=budget)
        return
    name = blake2b(repr(scope).encode(), digest_size=15).hexdigest()  # one job for each session
    job = Job(f"c_{name}", "condense", scope, deps.clock(), details={"budget": budget})
    await deps.store.apply(Batch(jobs=(job,)))
