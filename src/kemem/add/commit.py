"""Facts become notes: compared with what is known, then written as one batch."""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kemem.add.embed import embed_rows
from kemem.add.facts import Decision, Extraction, Fact, Work
from kemem.add.forget import expiry_jobs
from kemem.add.mirror import mirror_jobs
from kemem.add.reconcile import marks, reconcile, verbatim
from kemem.errors import Unavailable
from kemem.ports import Deps, read_messages, read_notes
from kemem.records import SHORT_TERM, Change, Link, Message, Micros, Note, Scope, Where
from kemem.records.batch import Batch, Expected, Job
from kemem.results import Outcome

_TRIES = 20  # of a decision whose premises change while it is written
_PAUSE = 0.01  # seconds, times the number of the try, at most
_RIVALS = 1000  # known notes that facts are compared with


@dataclass(frozen=True, slots=True)
class Committed:
    """What was written, and whether its vectors follow later."""

    outcomes: tuple[Outcome, ...] = ()
    links: tuple[Link, ...] = ()
    pending: bool = False
    inserted: tuple[Message, ...] = ()  # messages that were stored with the notes


class OrderUnknown(Exception):
    """Messages are not later than notes they compete with: only a store can say which is newer.

    It moves messages of the same time apart.
    """


async def apply_facts(extraction: Extraction, work: Work, deps: Deps) -> Committed:
    """Make facts into notes, one owner at a time, so that equal facts meet each other.

    Optimistic: where another process has changed what a decision is based on, or has deleted what
    it cites, the store refuses the batch, and it is decided again.
    """
    facts: Sequence[Fact] = extraction.facts
    async with deps.locks.for_owner(work.owner):
        async for number in _tries():
            if number and work.job:
                facts, work = await _without_deleted(facts, work, deps)
            now, expects = deps.clock(), await _rivals(facts, work, deps)
            known = [note for each in expects for note in each.notes]
            times = {message.message_id: message.ts for message in work.messages}
            if work.new_messages and any(it.valid_from >= min(times.values()) for it in known):
                raise OrderUnknown
            decisions = reconcile(facts, known, times, work.task, work.scope, now)
            if not work.task.infer:
                decisions = verbatim(work.messages, work.task, now)
            committed = await commit(decisions, extraction.entities, work, deps, expects)
            if committed is not None:
                return committed
    raise Unavailable("conflicting updates, retry")


async def _tries() -> AsyncIterator[int]:
    """A number for each try, with a random pause in between, so that two processes part."""
    for number in range(_TRIES):
        if number:
            await asyncio.sleep(random.uniform(0, _PAUSE * number))
        yield number


async def _without_deleted(
    facts: Sequence[Fact], work: Work, deps: Deps
) -> tuple[list[Fact], Work]:
    """Facts and messages without those that have been deleted since they were read."""
    ids = frozenset(message.message_id for message in work.messages)
    ids |= {name for fact in facts for name in fact.sources}
    stored = await read_messages(deps.store, Where(work.owner, ids=ids), limit=len(ids))
    present = {message.message_id for message in stored}
    left = tuple(message for message in work.messages if message.message_id in present)
    return [it for it in facts if present.issuperset(it.sources)], replace(work, messages=left)


async def _rivals(facts: Sequence[Fact], work: Work, deps: Deps) -> tuple[Expected, ...]:
    """Known notes that facts may repeat or replace."""
    task = work.task
    # What is short-term belongs to its session; all else is known of a user once.
    scope = work.scope if task.kind == "short_term" else work.owner
    where = Where(scope, kinds=frozenset({task.kind}))
    replaced = frozenset(name for fact in facts for name in fact.replaces)
    reads = [(replace(where, marks=marks(facts)), _RIVALS)] if facts else []
    if replaced:
        reads.append((replace(where, ids=replaced), len(replaced)))
    return tuple(
        [
            Expected(each, tuple(await read_notes(deps.store, each, limit=limit)), limit)
            for each, limit in reads
        ]
    )


async def commit(
    decisions: Sequence[Decision],
    entities: Mapping[str, str],
    work: Work,
    deps: Deps,
    expects: tuple[Expected, ...] = (),
) -> Committed | None:
    """Write decisions and finish their job; None: what they are based on has changed meanwhile.

    If the job is gone, so is its user, and nothing is written. With an ending the session goes
    in the same batch, and its short-term notes with it.
    """
    now, job, ending = deps.clock(), work.job, work.ending
    fresh = [each.note for each in decisions if each.note and not each.known]
    new = {note.note_id for note in fresh}
    vectors, embed_jobs = await embed_rows([*work.new_messages, *fresh], now, deps)
    notes = _notes(decisions)
    changed = [note.note_id for note in notes]
    if deps.vectors:
        changed += [message.message_id for message in work.new_messages]
    links = tuple(link for each in decisions for link in _links(each, entities))
    applied = await deps.store.apply(
        Batch(
            put=work.new_messages,
            notes=notes,
            links=links,
            changes=tuple(line for each in decisions for line in _history(each, now)),
            vectors=vectors,
            jobs=(*embed_jobs, *_mirror(changed, work, now, deps), *await _expiry(fresh, deps)),
            drop=(Where(ending.scope, kinds=SHORT_TERM),) if ending else (),
            at=now,
            reason="session ended",
            ended=(ending,) if ending else (),
            done=(job.job_id,) if job else (),
            only_if=job.job_id if job else None,
            present=tuple(note for note in notes if note.note_id not in new),
            expects=expects,
        )
    )
    if applied.refused:
        return Committed() if applied.refused == "job" else None
    again = mirror_jobs(work.owner, list(applied.merged.values()), now, deps)
    if applied.merged and again:
        await deps.store.apply(Batch(jobs=again))
    outcomes = tuple(outcome for each in decisions for outcome in _outcomes(each, applied.merged))
    return Committed(outcomes, links, bool(embed_jobs), applied.inserted)


def _notes(decisions: Sequence[Decision]) -> tuple[Note, ...]:
    """Every note that changes, as the last decision leaves it."""
    final: dict[str, Note] = {}
    for each in decisions:
        final |= {note.note_id: note for note in each.ended}
        if each.note:
            final[each.note.note_id] = each.note
    return tuple(final.values())


async def _expiry(notes: Sequence[Note], deps: Deps) -> tuple[Job, ...]:
    """Notes that expire are forgotten when their time has come."""
    ends: dict[Scope, Micros] = {}
    for note in notes:
        owner = Scope(note.agent_id, note.user_id)
        if note.expires is not None:
            ends[owner] = min(note.expires, ends.get(owner, note.expires))
    planned = [await expiry_jobs(owner, end, deps) for owner, end in ends.items()]
    return tuple(job for jobs in planned for job in jobs)


def _mirror(ids: Sequence[str], work: Work, now: Micros, deps: Deps) -> tuple[Job, ...]:
    """Jobs that carry changed rows, and the end of a session, over to databases beside."""
    jobs = mirror_jobs(work.owner, ids, now, deps) if ids else ()
    return (*jobs, *(mirror_jobs(work.ending.scope, (), now, deps) if work.ending else ()))


def _links(decision: Decision, entities: Mapping[str, str]) -> list[Link]:
    if decision.note is None:
        return []
    return [
        Link(
            decision.note.note_id,
            it.source,
            it.relationship,
            it.destination,
            entities.get(it.source, "thing"),
            entities.get(it.destination, "thing"),
        )
        for it in decision.fact.relations
    ]


def _history(decision: Decision, now: Micros) -> list[Change]:
    note = decision.note
    lines = [
        Change(
            *(old.agent_id, old.user_id, old.note_id, "update", now),
            before=old.content,  # and not what came after: that is another note's text
            reason=f"replaced by {note.note_id}" if note else "told to be over",
        )
        for old in decision.ended
    ]
    if note and not decision.known:
        reason = f"replaces {note.supersedes}" if note.supersedes else None
        added = Change(note.agent_id, note.user_id, note.note_id, "add", now)
        lines.append(replace(added, after=note.content, reason=reason))
    return lines


def _outcomes(decision: Decision, merged: Mapping[str, str]) -> list[Outcome]:
    note, ended = decision.note, decision.ended
    # Whoever adds may not be one to whom sensitive notes are shown: they hear their own words.
    if note is None:
        return [
            Outcome(old.note_id, "" if old.sensitive else old.content, "DELETE") for old in ended
        ]
    if decision.known or note.note_id in merged:
        text = decision.fact.text if note.sensitive else note.content
        return [Outcome(merged.get(note.note_id, note.note_id), text, "NONE")]
    if ended:
        before = None if ended[0].sensitive else ended[0].content
        return [Outcome(note.note_id, note.content, "UPDATE", before)]
    return [Outcome(note.note_id, note.content, "ADD")]
