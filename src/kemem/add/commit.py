"""What was decided, written as one batch: notes, vectors, links and history together."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kemem.add.task import Decision, expiry_jobs, mirror_jobs
from kemem.batch import Batch, Ending, Expected, Job
from kemem.errors import Unavailable
from kemem.ports import Deps
from kemem.records import SHORT_TERM, Change, Embedded, Link, Micros, Note, Scope, Where
from kemem.results import Outcome
from kemem.text.ids import new_id

log = logging.getLogger("kemem")


@dataclass(frozen=True, slots=True)
class Committed:
    """What was written, and whether its vectors follow later."""

    outcomes: tuple[Outcome, ...] = ()
    links: tuple[Link, ...] = ()
    pending: bool = False


async def commit(
    decisions: Sequence[Decision],
    entities: Mapping[str, str],
    job: Job,
    deps: Deps,
    ending: Ending | None = None,
    expects: tuple[Expected, ...] = (),
) -> Committed | None:
    """Write decisions and finish their job; None: what they are based on has changed meanwhile.

    If the job is gone, so is its user, and nothing is written. With an ending the session goes
    in the same batch, and its short-term notes with it.
    """
    now = deps.clock()
    fresh = [each.note for each in decisions if each.note and not each.known]
    new = {note.note_id for note in fresh}
    vectors, later = await _vectors(fresh, now, deps)
    notes = _notes(decisions)
    links = tuple(link for each in decisions for link in _links(each, entities))
    applied = await deps.store.apply(
        Batch(
            notes=notes,
            links=links,
            changes=tuple(line for each in decisions for line in _history(each, now)),
            vectors=vectors,
            jobs=(*later, *_mirror(notes, ending, now, deps), *await _forget(fresh, deps)),
            drop=(Where(ending.scope, kinds=SHORT_TERM),) if ending else (),
            at=now,
            reason="session ended",
            ended=(ending,) if ending else (),
            done=(job.job_id,),
            only_if=job.job_id,
            present=tuple(note for note in notes if note.note_id not in new),
            expects=expects,
        )
    )
    if applied.refused:
        return Committed() if applied.refused == "job" else None
    if applied.merged:
        owner = Scope(notes[0].agent_id, notes[0].user_id)
        again = mirror_jobs(owner, list(applied.merged.values()), now, deps)
        await deps.store.apply(Batch(jobs=again))
    outcomes = tuple(outcome for each in decisions for outcome in _outcomes(each, applied.merged))
    return Committed(outcomes, links, bool(later))


def _notes(decisions: Sequence[Decision]) -> tuple[Note, ...]:
    """Every note that changes, as the last decision leaves it."""
    final: dict[str, Note] = {}
    for each in decisions:
        final |= {note.note_id: note for note in each.ended}
        if each.note:
            final[each.note.note_id] = each.note
    return tuple(final.values())


async def _vectors(
    notes: Sequence[Note], now: Micros, deps: Deps
) -> tuple[tuple[Embedded, ...], tuple[Job, ...]]:
    """Vectors of new notes, or a job that makes them later."""
    if not notes or deps.model is None:
        return (), ()
    scope = Scope(notes[0].agent_id, notes[0].user_id)
    ids = tuple(note.note_id for note in notes)
    try:
        matrix = await deps.embed([note.content for note in notes], purpose="passage")
    except Unavailable as error:
        log.warning("%s; vectors follow later", error.message)
        return (), (Job(new_id("j", now), "embed", scope, now, ids, error=error.message[:500]),)
    return (Embedded(scope, deps.model, ids, matrix),), ()


async def _forget(notes: Sequence[Note], deps: Deps) -> tuple[Job, ...]:
    """Notes that expire are forgotten when their time has come."""
    ends: dict[Scope, Micros] = {}
    for note in notes:
        owner = Scope(note.agent_id, note.user_id)
        if note.expires is not None:
            ends[owner] = min(note.expires, ends.get(owner, note.expires))
    planned = [await expiry_jobs(owner, end, deps) for owner, end in ends.items()]
    return tuple(job for jobs in planned for job in jobs)


def _mirror(
    notes: Sequence[Note], ending: Ending | None, now: Micros, deps: Deps
) -> tuple[Job, ...]:
    """Jobs that carry changed notes, and the end of a session, over to a graph database."""
    jobs: tuple[Job, ...] = ()
    if notes:
        owner = Scope(notes[0].agent_id, notes[0].user_id)
        jobs = mirror_jobs(owner, [note.note_id for note in notes], now, deps)
    return (*jobs, *(mirror_jobs(ending.scope, (), now, deps) if ending else ()))


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
