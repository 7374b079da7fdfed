"""Facts become notes: compared with what is stored already, then written as one batch."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kemem.add.announced import CALLED_OFF, is_announced
from kemem.add.decide import Decision, reconcile, verbatim
from kemem.add.edit import expiry_jobs
from kemem.add.embed import embed_rows, mirror_jobs
from kemem.add.extract import Work, digest
from kemem.add.reopen import ended_by, held_without, over_by, replaced_by
from kemem.add.rules import Extraction, Fact
from kemem.errors import Unavailable
from kemem.facts.endings import NEAREST, Told
from kemem.facts.kinds import signs
from kemem.ports import Deps, read_messages, read_notes
from kemem.ports.request import Candidates, Context, SearchRequest, key_of
from kemem.records import (
    SHORT_TERM,
    Change,
    Link,
    Match,
    Message,
    Micros,
    Note,
    Vector,
    Where,
)
from kemem.records.batch import Batch, Ending, Expected
from kemem.results import Added, Outcome
from kemem.text.query import plain

_TRIES = 20  # of a decision whose premises change while it is written
_PAUSE = 0.01  # seconds, times the number of the try, at most
_RIVALS = 1000  # stored notes that facts are compared with
# Topics of the user that changes are announced of.
_OWN = frozenset(f"user/{it}" for it in ("lives_in", "works_at", "works_as", "job", "studies_at"))

Written = tuple[Added, tuple[Message, ...]]  # and the messages that were stored with the notes


class OrderUnknown(Exception):
    """Messages are not later than notes they compete with: a store must first move them apart."""


async def apply_facts(extraction: Extraction, work: Work, deps: Deps) -> Written:
    """Make facts into notes, one owner at a time, so that equal facts meet each other.

    Where another process has changed what a decision is based on, or has deleted what it cites, the
    store refuses the batch, and it is decided again.
    """
    facts: Sequence[Fact] = (*extraction.facts, *extraction.changes)
    async with deps.lock(work.owner):
        for number in range(_TRIES):
            if number:  # a random pause, so that two processes part
                await asyncio.sleep(random.uniform(0, _PAUSE * number))
            if number and work.job:
                facts, work = await _still_stored(facts, work, deps)
            now, vectors = deps.clock(), dict[str, Vector]()
            expects = await _rivals(facts, work, deps, vectors)
            notes = [note for each in expects for note in each.notes]
            times = {message.message_id: message.ts for message in work.messages}
            told = [it for it in notes if not is_announced(it)]
            if work.job is None and any(it.valid_from >= min(times.values()) for it in told):
                raise OrderUnknown
            if work.task.infer:
                earlier = await _earlier_texts(facts, notes, work, deps)
                decisions = reconcile(
                    facts, notes, times, work.task, work.scope, now, earlier, vectors
                )
            else:
                decisions = verbatim(work.messages, work.task, now)
            committed = await commit(decisions, extraction.entities, work, deps, expects)
            if committed is not None:
                return committed
    raise Unavailable("conflicting updates, retry")


async def _still_stored(facts: Sequence[Fact], work: Work, deps: Deps) -> tuple[list[Fact], Work]:
    """Facts and messages without those that have been deleted or withdrawn since they were read."""
    ids = frozenset(message.message_id for message in work.messages)
    ids |= {name for fact in facts for name in fact.sources}
    stored = await read_messages(deps.store, Where(work.owner, ids=ids), limit=len(ids))
    present = {message.message_id for message in stored}
    left = tuple(message for message in work.messages if message.message_id in present)
    return [it for it in facts if present.issuperset(it.sources)], replace(work, messages=left)


async def _rivals(
    facts: Sequence[Fact], work: Work, deps: Deps, vectors: dict[str, Vector]
) -> tuple[Expected, ...]:
    """Stored notes that facts may repeat or replace; vectors of some are noted by their ids."""
    # What is short-term belongs to its session; all else is known of a user once.
    scope = work.scope if work.task.kind == "short_term" else work.owner
    where = Where(scope, kinds=frozenset({work.task.kind}))
    replaced = frozenset(name for fact in facts for name in fact.replaces)
    reads = [(replace(where, marks=marks(facts)), _RIVALS)] if facts else []
    told = {it.told.message: it.told for it in facts if it.told and it.told.changes}
    near = [await _nearest(it, replace(where, valid_at=deps.clock()), deps) for it in told.values()]
    vectors |= {
        name: vector for some in near for name, vector in some.items() if vector is not None
    }
    replaced |= {name for some in near for name in some}
    if replaced:
        reads.append((replace(where, ids=replaced), len(replaced)))
    if wrong := frozenset(fact.corrects[0] for fact in facts if fact.corrects):
        reads.append((replace(where, sources=wrong), _RIVALS))
    if facts and work.job:  # the messages are stored already: notes may have been drawn from them
        cited = frozenset(name for fact in facts for name in fact.sources)
        reads.append((replace(where, sources=cited), _RIVALS))
    if any(signs(fact.text) & CALLED_OFF for fact in facts):  # what it may be is announced
        reads.append((replace(where, marks=_OWN), _RIVALS))
    rivals = [(it, await read_notes(deps.store, it, limit=most), most) for it, most in reads]
    ahead = {it.topic for _, notes, _ in rivals for it in notes if it.topic and is_announced(it)}
    if ahead := ahead - {fact.topic for fact in facts}:  # what one of them takes back holds again
        waiting = replace(where, marks=frozenset(ahead))
        rivals.append((waiting, await read_notes(deps.store, waiting, limit=_RIVALS), _RIVALS))
    return tuple(Expected(it, tuple(notes), most) for it, notes, most in rivals)


async def _nearest(told: Told, where: Where, deps: Deps) -> dict[str, Vector | None]:
    """The ids of the notes that may be about what a message tells, with their vectors."""

    def select(candidates: Candidates) -> Sequence[Match]:
        return candidates.vectors[0] if candidates.vectors else candidates.words[0].matches

    request = SearchRequest(where, limit=NEAREST, select=select, before=1)
    if told.message_vector is None:
        request = replace(request, queries=(plain(told.message),))
    else:
        request = replace(request, vectors=told.message_vector[None], model=deps.model)
    response = await deps.store.search(request)
    keys = [key_of(match) for match in select(response.candidates)]
    contexts = {key[-1]: response.contexts.get(key, Context()) for key in keys}
    return {name: context.vector for name, context in contexts.items()}


async def _earlier_texts(
    facts: Sequence[Fact], notes: Sequence[Note], work: Work, deps: Deps
) -> dict[str, list[str]]:
    """What notes of the same messages said before their owner corrected them, by their ids."""
    ids = {message.message_id for message in work.messages} if work.job else set[str]()
    repeated = {digest(fact) for fact in facts}
    drawn = {
        it.note_id
        for it in notes
        if ids & {*it.sources} and (it.updated > it.created or it.digest not in repeated)
    }
    texts: dict[str, list[str]] = {}
    for note_id in sorted(drawn):
        lines = await deps.store.history(work.owner, note_id=note_id, event="update")
        texts[note_id] = [it.before for it in lines if it.before and it.after]
    return texts


def marks(facts: Sequence[Fact]) -> frozenset[str]:
    """What to look stored notes up by: statements that are the same, and topics."""
    digests = {digest(fact) for fact in facts if fact.text}
    return frozenset(digests | {fact.topic for fact in facts if fact.topic is not None})


async def commit(
    decisions: Sequence[Decision],
    entities: Mapping[str, str],
    work: Work,
    deps: Deps,
    expects: tuple[Expected, ...] = (),
) -> Written | None:
    """Write decisions and finish their job; None: what they are based on has changed meanwhile.

    An `end` job ends the session in the same batch, and its short-term notes go with it.
    """
    now, job = deps.clock(), work.job
    is_end = job is not None and job.kind == "end"
    messages = () if job else work.messages  # they are stored together with their notes
    new = {it.note.note_id: it.note for it in decisions if it.note and not it.known}
    vectors, embed_jobs = await embed_rows([*messages, *new.values()], now, deps)
    final: dict[str, Note] = {}
    for each in decisions:
        final |= each.changed
    changed = [*final, *(it.message_id for it in messages if deps.vectors)]
    jobs = [*embed_jobs, *(mirror_jobs(work.owner, changed, now, deps) if changed else ())]
    jobs += mirror_jobs(work.scope, (), now, deps) if is_end else ()
    jobs += await expiry_jobs(work.owner, work.task.expires if new else None, deps)
    types = defaultdict(lambda: "thing", entities)
    links = tuple(
        Link(each.note.note_id, *it, types[it.source], types[it.destination])
        for each in decisions
        if each.note
        for it in each.fact.relations
    )
    sources = {name for each in decisions for name in each.fact.sources} if job else set[str]()
    cited = [it for it in work.messages if it.message_id in sources]  # one may be withdrawn by now
    applied = await deps.store.apply(
        Batch(
            put=messages,
            notes=tuple(final.values()),
            links=links,
            changes=tuple(line for each in decisions for line in _history(each, now)),
            vectors=vectors,
            jobs=(*jobs, *((work.rest,) if work.rest else ())),
            drop=(Where(work.scope, kinds=SHORT_TERM),) if is_end else (),
            at=now,
            reason="session ended",
            ended=(Ending(work.scope, now),) if is_end else (),
            done=(job.job_id,) if job and not work.rest else (),
            only_if=(job,) if job else (),
            present=(*(note for name, note in final.items() if name not in new), *cited),
            expects=expects,
        )
    )
    if applied.refused:  # if the job is gone, so is its user
        return (Added(), ()) if applied.refused == "job" else None
    merged = list(applied.merged.values())
    if merged and (again := mirror_jobs(work.owner, merged, now, deps)):
        await deps.store.apply(Batch(jobs=again))
    outcomes = tuple(outcome for each in decisions for outcome in _outcomes(each, applied.merged))
    ids = tuple(message.message_id for message in applied.inserted)
    return Added(outcomes, links, ids, pending=bool(embed_jobs)), applied.inserted


def _history(decision: Decision, now: Micros) -> list[Change]:
    note = decision.note
    reason = replaced_by(note.note_id) if note else over_by(decision.fact.sources[-1])
    lines = [  # without what came after: that is another note's text
        Change(it.agent_id, it.user_id, it.note_id, "update", now, it.content, reason=reason)
        for it in decision.ended
    ]
    by_model = ended_by(decision.fact.model)
    told = [replace(it, reason=by_model) for it in lines if it.note_id in decision.claimed]
    lines = [*told, *lines]
    for it in decision.reopened:
        line = Change(it.agent_id, it.user_id, it.note_id, "update", now, after=it.content)
        lines.append(replace(line, reason=held_without(decision.ended[0].note_id)))
    proposes = decision.fact.proposes
    may = f"may replace {', '.join(proposes)}, by the model {decision.fact.model}"
    if note:
        added = Change(note.agent_id, note.user_id, note.note_id, "add", now, after=note.content)
    if note and decision.known and proposes and decision.fact.stored:
        lines.append(replace(added, event="update", reason=may))
    if note and not decision.known:
        how = "replaces" if decision.ended else "likely replaces"
        replaced = f"{how} {note.supersedes}" if note.supersedes else None
        lines.append(replace(added, reason=replaced or (may if proposes else None)))
        if decision.heir is not None:
            ended = replace(added, event="update", before=note.content, after=None)
            lines.append(replace(ended, reason=replaced_by(decision.heir.note_id)))
    return lines


def _outcomes(decision: Decision, merged: Mapping[str, str]) -> list[Outcome]:
    note, ended = decision.note, decision.ended
    # Whoever adds may not be one to whom sensitive notes are shown: they hear their own words.
    if note is None:
        return [Outcome(it.note_id, "" if it.sensitive else it.content, "DELETE") for it in ended]
    if (decision.known and not ended) or note.note_id in merged:
        text = decision.fact.text if note.sensitive else note.content
        return [Outcome(merged.get(note.note_id, note.note_id), text, "NONE")]
    if ended:
        before = None if ended[0].sensitive else ended[0].content
        return [Outcome(note.note_id, note.content, "UPDATE", before)]
    return [Outcome(note.note_id, note.content, "ADD")]
