"""Notes that their owner writes, changes or deletes, and notes that are forgotten."""

import heapq
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any

from kemem.add import parse
from kemem.add.embed import by_owner, embed_rows, mirror_jobs, read_all, read_pages
from kemem.add.extract import new_note
from kemem.add.reopen import echoes, reopen
from kemem.add.rules import VERBATIM, Fact
from kemem.errors import InvalidArgument, NotFound, Unavailable
from kemem.ports import Deps, read_messages, read_notes
from kemem.ports.entries import check_enabled
from kemem.records import CHECKPOINTS_KEPT, NOTES, Change, Message, Micros, Note, Row, Scope, Where
from kemem.records.batch import Batch, Expected, Job
from kemem.records.privacy import ContentPolicy
from kemem.results import Deletion
from kemem.scope import check_flag
from kemem.text.ids import new_id
from kemem.text.personal import apply_policy
from kemem.text.segment import fingerprint

FADING = frozenset({"user_info", "experience"})  # knowledge goes only when it expires
_DAY: Micros = 86_400_000_000
_PAGE = 200  # notes that are judged at once
_TRIES = 20  # of a write whose premises change meanwhile


async def rewrite(
    note: Row,
    content: str | None,
    metadata: Mapping[str, Any] | None,
    policy: ContentPolicy,
    deps: Deps,
) -> Note:
    """Change the text or the metadata of a note; its history keeps the text before.

    Tags that were given stay; a summary of the text before goes, and so do derived keywords.
    """
    if not isinstance(note, Note):
        raise InvalidArgument(f"{note.id} is a message, and messages never change")
    text, fields, is_marked = note.content, note.metadata, note.sensitive
    if content is not None:
        text, is_marked = parse.allowed_text(content, "content", policy)
    if metadata is not None:
        fields, has_mark = parse.allowed_metadata(metadata, "metadata", policy)
        is_marked |= has_mark
    await check_enabled(deps.store, Scope(note.agent_id, note.user_id, note.session_id))
    now = deps.clock()
    sensitive = note.sensitive or is_marked  # once sensitive, a note stays so
    changed = replace(note, metadata=fields, updated=now, sensitive=sensitive)
    batch = Batch(notes=(changed,))
    if text != note.content:
        tags = note.keywords if note.kind == "knowledge" else ()
        digest = fingerprint(text)
        changed = replace(changed, content=text, digest=digest, keywords=tags, summary=None)
        line = Change(note.agent_id, note.user_id, note.note_id, "update", now, note.content, text)
        batch = await _batch(changed, line, deps)
    if (await deps.store.apply(replace(batch, present=(note,)))).refused:
        raise NotFound(f"no memory {note.note_id!r:.80}", memory_id=note.note_id)
    return changed


async def learn(
    content: str,
    summary: str | None,
    tags: Sequence[str],
    agent_id: str,
    policy: ContentPolicy,
    deps: Deps,
) -> str:
    """Store a knowledge entry as a note; returns its id, or that of an equal entry."""
    (text, is_marked), now = parse.allowed_text(content, "content", policy), deps.clock()
    await check_enabled(deps.store, Scope(agent_id))
    if summary is not None:
        label = parse.check_label(summary, "summary", parse.MAX_SUMMARY)
        summary, has_mark = apply_policy(label, policy, "summary")
        is_marked |= has_mark
    fact = Fact(text, (), keywords=parse.check_tags(tags), topic=fingerprint(text))
    task = parse.Task("knowledge", sensitive=is_marked)
    note = new_note(fact, task, Scope(agent_id, ""), now, now)
    exact = repr((text, summary, note.keywords)).encode()  # verbatim: it may be code
    digest = blake2b(exact, digest_size=16).hexdigest()
    note = replace(note, digest=digest, summary=summary)
    line = Change(agent_id, "", note.note_id, "add", now, after=text)
    applied = await deps.store.apply(await _batch(note, line, deps))
    return applied.merged.get(note.note_id, note.note_id)


async def _batch(note: Note, line: Change, deps: Deps) -> Batch:
    return await notes_batch([note], [line], line.at, deps)


async def notes_batch(
    notes: Sequence[Note], changes: Sequence[Change], now: Micros, deps: Deps
) -> Batch:
    """Notes with their history, their vectors, or jobs that make these, and jobs for a mirror."""
    vectors, jobs = await embed_rows(notes, now, deps)
    mirrored = [
        job
        for owner, own in by_owner(notes).items()
        for job in mirror_jobs(owner, [note.note_id for note in own], now, deps)
    ]
    return Batch(
        notes=tuple(notes), changes=tuple(changes), vectors=vectors, jobs=(*mirrored, *jobs)
    )


async def erase(row: Row, deps: Deps, *, sources: bool = False) -> Deletion:
    """One memory. The messages that a note cites are withdrawn, or erased with `sources`.

    So are replies right after them that repeat it; those to a message that is erased are
    withdrawn. With erased messages go the notes that cite no other, with either the experiences
    that cite them and notes with the text of the one that is deleted, and with a verbatim note
    those that cite nothing else, and the other way round. Notes that a deleted one had ended hold
    again, unless it retells them.
    """
    check_flag(sources, "sources")
    scope = Scope(row.agent_id, row.user_id)
    own = Where(scope, kinds=NOTES, ids=frozenset([row.id]))
    for _ in range(_TRIES):
        now, expects = deps.clock(), []
        gone, cited = set[str](), frozenset([row.id])  # notes, messages
        current: list[Note] = []
        repeating: frozenset[str] = frozenset()  # replies to a message that is erased
        if isinstance(row, Message):
            repeating = frozenset(it.id for it in await echoes(row.content, [row], deps))
        else:
            current = await read_notes(deps.store, own, limit=1)
            if not current:
                raise NotFound(f"no memory {row.id!r:.80}", memory_id=row.id)
            gone, cited = {row.id}, frozenset(current[0].sources)
            said_in = Where(scope, ids=cited, withdrawn=True)
            messages = await read_messages(deps.store, said_in, limit=len(cited)) if cited else []
            cited |= {it.id for it in await echoes(row.content, messages, deps)}
            # It may cite more by now, or others may: then this is decided again.
            expects.append(Expected(own, tuple(current), 1))
        where = Where(scope, kinds=NOTES, sources=cited)
        citing = tuple(await read_all(Note, where, deps.store))
        expects.append(Expected(where, citing, len(citing) + 1))
        is_erased = sources or isinstance(row, Message)
        said = fingerprint(row.content) if isinstance(row, Note) else None
        is_whole = any(it.memory_type == VERBATIM for it in current)  # all that a message says
        for note in citing:
            retells = is_erased or is_whole or note.memory_type == VERBATIM
            is_alone = retells and cited.issuperset(note.sources)
            if is_alone or note.kind == "experience" or fingerprint(note.content) == said:
                gone.add(note.id)
        gone |= _retold(current, citing, cited)
        dropped = {it.id: it for it in (*current, *citing) if it.id in gone}
        again = await reopen([*dropped.values()], now, deps)
        drop = [Where(scope, kinds=NOTES, ids=frozenset(gone))]
        erased, hidden = (cited, repeating) if is_erased else (frozenset[str](), cited)
        changed = gone | cited | {it.id for it in again.notes}
        batch = Batch(
            notes=again.notes,
            changes=again.changes,
            drop=(*drop, *([Where(scope, ids=erased)] if erased else ())),
            withdraw=(Where(scope, ids=hidden),) if hidden else (),
            at=now,
            reason="deleted",
            jobs=mirror_jobs(scope, sorted(changed), now, deps),
            expects=(*expects, *again.expects),
        )
        applied = await deps.store.apply(batch)
        if not applied.refused:
            return Deletion(applied.dropped, tuple(sorted(hidden)), tuple(sorted(erased)))
    raise Unavailable("conflicting updates, retry")


def _retold(current: Sequence[Note], citing: Sequence[Note], cited: Set[str]) -> set[str]:
    """The notes that a deleted one retells: it took their places, and cites all that they do.

    "User has two dogs, Rex and Lulu; Rex died" retells "User has two dogs, Rex and Lulu".
    """
    retold, latest = set[str](), [*current]
    while latest:
        before = {it.supersedes for it in latest}
        latest = [it for it in citing if it.id in before - retold and cited >= {*it.sources}]
        retold |= {it.id for it in latest}
    return retold


async def erase_all(where: Where, deps: Deps) -> int:
    """Everything that a Where admits; returns how many rows went.

    Notes that stay and that a deleted one had ended hold again.
    """
    is_part = where.scope.session_id is not None or not where.everything
    notes = replace(where, kinds=where.kinds & NOTES)
    for _ in range(_TRIES):
        now = deps.clock()
        gone = await read_all(Note, notes, deps.store) if is_part and notes.kinds else []
        again = await reopen(gone, now, deps)
        batch = Batch(
            notes=again.notes,
            changes=again.changes,
            drop=(where,),
            at=now,
            reason="deleted",
            jobs=mirror_jobs(where.scope, (), now, deps),
            expects=again.expects,
        )
        applied = await deps.store.apply(batch)
        if not applied.refused:
            return applied.dropped
    raise Unavailable("conflicting updates, retry")


@dataclass(frozen=True, slots=True)
class Policy:
    """When notes are forgotten, besides those that expire; the default is never."""

    limit: int = 0  # notes that a user keeps; 0: no limit
    below: float = 0.0  # a strength, 0-1; weaker notes go; 0: none
    half_life_days: float = 90

    def __post_init__(self) -> None:
        if not isinstance(self.limit, int) or self.limit < 0:
            parse.refuse("limit", "be 0 or more", self.limit)
        if not 0 <= self.below <= 1:
            parse.refuse("below", "be 0-1", self.below)
        if not 0 < self.half_life_days < math.inf:
            parse.refuse("half_life_days", "be more than 0", self.half_life_days)


def strength(note: Note, now: Micros, policy: Policy) -> float:
    """How firmly a note is held, 0-1: important, lately touched and often used ones most."""
    age = max(now - max(note.used or 0, note.updated), 0) / _DAY
    recency = math.pow(0.5, age / policy.half_life_days)
    return min(max(note.importance, 0.0) * recency * (1 + math.log1p(note.uses)), 1.0)


async def run_forget(job: Job, policy: Policy, deps: Deps) -> None:
    """Carry out a `forget` job, and plan the next one for when the next note expires."""
    _, expires = await _forget(job.scope, policy, deps)
    planned = await expiry_jobs(job.scope, expires, deps, running=job.job_id)
    is_again = bool(planned) and planned[0].job_id == job.job_id
    await deps.store.apply(Batch(jobs=planned, done=() if is_again else (job.job_id,)))


def check_policy(policy: Policy | None, default: Policy) -> Policy:
    """The policy that a call names, or the default."""
    if not isinstance(policy, Policy | None):
        parse.refuse("policy", "be a Policy such as Policy(limit=1000)", policy)
    return default if policy is None else policy


async def forget(scope: Scope, policy: Policy, deps: Deps) -> dict[str, str]:
    """Delete what the policy gives up: note id -> "expired", "decayed" or "limit".

    Messages stay, and so do notes that were superseded: they are the past. Age is told by the
    clock alone: run it with a clock that is set right, as one that is ahead ages every note.
    """
    return (await _forget(scope, policy, deps))[0]


async def _forget(scope: Scope, policy: Policy, deps: Deps) -> tuple[dict[str, str], Micros | None]:
    """What was forgotten, and when the next of those that are left expires."""
    now = deps.clock()
    expires: list[Micros] = []
    forgotten: dict[str, str] = {}
    # The strongest notes of each owner so far; one too many pushes the weakest out.
    strongest: dict[tuple[str, str], list[tuple[float, Micros, str, Note]]] = defaultdict(list)
    async for page in read_pages(Where(scope, kinds=NOTES), deps.store, _PAGE):
        gone: dict[str, list[Note]] = {"expired": [], "decayed": [], "limit": []}
        for note in (row for row in page if isinstance(row, Note)):
            if note.expires is not None and note.expires <= now:
                gone["expired"].append(note)
                continue
            expires += [note.expires] if note.expires else []
            if note.kind not in FADING or note.ended(now):
                continue
            held, own = strength(note, now, policy), strongest[note.agent_id, note.user_id]
            if held < policy.below:
                gone["decayed"].append(note)
            elif policy.limit:
                heapq.heappush(own, (held, note.updated, note.id, note))
                if len(own) > policy.limit:
                    gone["limit"].append(heapq.heappop(own)[-1])
        for reason, notes in gone.items():
            if notes:
                await _drop(notes, reason, now, deps)
                forgotten |= {note.id: reason for note in notes}
    return forgotten, min(expires, default=None)


async def expiry_jobs(
    owner: Scope, due: Micros | None, deps: Deps, running: str | None = None
) -> tuple[Job, ...]:
    """The job that forgets what has expired: one for each owner, due when the next note expires."""
    if due is None:
        return ()
    name = blake2b(repr(owner).encode(), digest_size=15).hexdigest()
    job = Job(f"f_{name}", "forget", owner, due)
    for planned in await deps.store.jobs(ids=[job.job_id]):
        if planned.attempts and planned.job_id != running:  # it may have looked already
            return (replace(job, job_id=new_id("j", deps.clock())),)
        if planned.due <= due and planned.job_id != running:
            return ()
    return (job,)


async def _drop(notes: Sequence[Note], reason: str, now: Micros, deps: Deps) -> None:
    """Delete notes, and write the checkpoints that go with rows of their session again without."""
    owned = {owner: frozenset(it.id for it in own) for owner, own in by_owner(notes).items()}
    drop = tuple(Where(owner, ids=ids, kinds=NOTES) for owner, ids in owned.items())
    mirrored = [mirror_jobs(owner, sorted(ids), now, deps) for owner, ids in owned.items()]
    jobs = tuple(job for each in mirrored for job in each)
    batch = Batch(drop=drop, jobs=jobs, at=now, reason=reason)
    gone = {note.id for note in notes}
    sessions = {Scope(it.agent_id, it.user_id, it.session_id) for it in notes if it.session_id}
    for _ in range(_TRIES):
        saved = [await deps.store.checkpoints(it, limit=CHECKPOINTS_KEPT) for it in sessions]
        left = [
            replace(one, notes=tuple(note for note in one.notes if note.id not in gone))
            for own in saved
            for one in reversed(own)
        ]
        newest = tuple(own[0] for own in saved if own)  # where these are gone, so is the rest
        again = replace(batch, checkpoints=tuple(left), present=newest)
        if not (await deps.store.apply(again)).refused:
            return
    raise Unavailable("conflicting updates, retry")
