"""The recipe of add: keep the messages, embed them, draw notes from them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

from kemem.add.condense import condense
from kemem.add.draw import draw
from kemem.add.embed import embed, later
from kemem.add.end import end
from kemem.add.keep import GRACE, embed_job, extract_jobs, keep
from kemem.add.parse import Parsed, parse_messages, with_defaults
from kemem.add.task import Task
from kemem.batch import Batch, Job
from kemem.errors import KeMemError, Unavailable
from kemem.hooks import Hooks
from kemem.ports import Deps, read_messages
from kemem.records import Message, Messages, Position, Scope, Where
from kemem.results import Added
from kemem.scope import Owner, Time
from kemem.text.ids import new_id

_PAGE = 20  # stored messages that are drawn from at once
_EVERY = 8  # messages of a session between two looks at its State


@dataclass(frozen=True, slots=True)
class Limits:
    """The settings that `add` needs."""

    max_content_bytes: int
    state_tokens: int


async def add(
    messages: Messages,
    owner: Owner,
    task: Task,
    limits: Limits,
    hooks: Hooks,
    deps: Deps,
    *,
    ts: Time | None = None,
    wait: bool = True,
) -> Added:
    """Store messages, then remember what they say, with the user's hooks around it."""
    most = limits.max_content_bytes
    given = with_defaults(messages, task.metadata, ts)
    parsed = parse_messages(given, owner, deps.clock(), most)
    wanted, problems = await hooks.before(given)
    if not wanted:
        return Added(problems=tuple(problems))
    if wanted is not given:
        try:
            parsed = parse_messages(wanted, owner, deps.clock(), most)
        except KeMemError as error:
            problems.append(f"a hook's messages cannot be stored: {error.message}")
    added = await store_and_remember(parsed, task, limits.state_tokens, deps, wait=wait)
    problems += await hooks.after(added)
    return replace(added, problems=(*added.problems, *problems))


async def store_and_remember(
    parsed: Parsed, task: Task, state_tokens: int, deps: Deps, *, wait: bool = True
) -> Added:
    """Store messages, then remember what they say; a model that fails is asked again later.

    Without `wait` it is not asked now, either: its job is due at once.
    """
    now = deps.clock()
    messages = [replace(message, sensitive=task.sensitive) for message in parsed.messages]
    drawing = extract_jobs(messages, task, now, GRACE if wait else 0)
    applied, jobs = await keep(messages, (*embed_job(messages, now, deps), *drawing), deps)
    done = Added(
        message_ids=tuple(message.message_id for message in applied.inserted),
        ignored=applied.ignored,
        truncated=parsed.truncated,
    )
    for job in jobs:
        if job.kind == "embed":
            done = replace(done, pending=not await embed(applied.inserted, job, deps))
        elif not wait:
            done = replace(done, pending=True)
        else:
            own = [it for it in applied.inserted if it.message_id in job.ids]
            done = await _remember(done, job, deps, own)
    for scope in _grown(applied.inserted):
        await _summarise(scope, state_tokens, deps if task.infer else replace(deps, llm=None))
    return done


async def _summarise(scope: Scope, budget: int, deps: Deps) -> None:
    """The State of a session by rules now, by a model later: add asks it no second question."""
    if deps.llm is None:
        await condense(scope, deps, budget=budget)
        return
    now = deps.clock()
    name = blake2b(repr(scope).encode(), digest_size=15).hexdigest()  # one job for each session
    job = Job(f"c_{name}", "condense", scope, now, details={"budget": budget})
    await deps.store.apply(Batch(jobs=(job,)))


def _grown(messages: Sequence[Message]) -> set[Scope]:
    """Sessions whose State is worth a look: it need not be one at every message."""
    return {
        Scope(message.agent_id, message.user_id, message.session_id)
        for message in messages
        if message.sequence_no % _EVERY == 0
    }


async def _remember(
    done: Added, job: Job, deps: Deps, messages: Sequence[Message] | None = None
) -> Added:
    """One job carried out now, or left to be tried again."""
    try:
        made = await (end(job, deps) if job.kind == "end" else draw(job, deps, messages))
    except Unavailable as error:
        await deps.store.apply(later(job, error, deps.clock()))
        return replace(done, pending=True, problems=(*done.problems, error.message))
    return replace(
        done,
        results=(*done.results, *made.outcomes),
        relations=(*done.relations, *made.links),
        pending=done.pending or made.pending,
    )


async def draw_again(where: Where, task: Task, deps: Deps) -> Added:
    """Draw notes anew from stored messages, oldest first, each page promised before it is done."""
    done = Added()
    after: Position | None = None
    while page := await read_messages(
        deps.store, where, after=after, limit=_PAGE, newest_first=False
    ):
        jobs = extract_jobs(page, task, deps.clock())
        await deps.store.apply(Batch(jobs=jobs))
        for job in jobs:
            done = await _remember(done, job, deps)
        after = Position(page[-1].ts, page[-1].id)
    return done


async def end_now(scope: Scope, deps: Deps) -> Added:
    """End a session; its job is durable first, so that a crash cannot leave it half ended."""
    now = deps.clock()
    task = Task(kind="experience").to_details()
    job = Job(new_id("j", now), "end", scope, now + GRACE, details=task)
    await deps.store.apply(Batch(jobs=(job,)))
    return await _remember(Added(), job, deps)
