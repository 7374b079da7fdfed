"""Facts compared with what is known: each is new, known already, or makes a note untrue."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kemem.add.facts import Decision, Fact, Task, digest, new_note
from kemem.records import Message, Micros, Note, Scope
from kemem.text.fingerprint import fingerprint


def marks(facts: Sequence[Fact]) -> frozenset[str]:
    """What to look known notes up by: statements that are the same, and topics."""
    digests = {digest(fact) for fact in facts if fact.text}
    return frozenset(digests | {fact.topic for fact in facts if fact.topic is not None})


def reconcile(
    facts: Sequence[Fact],
    known: Sequence[Note],
    said: Mapping[str, Micros],
    task: Task,
    scope: Scope,
    now: Micros,
) -> list[Decision]:
    """Decide fact by fact; one decision is known to the next. `said` gives each message's time."""
    notes = {note.note_id: note for note in known}
    decisions = []
    for fact in facts:
        decision = _decide(fact, list(notes.values()), said, task, scope, now)
        decisions.append(decision)
        changed = [*decision.ended, *([decision.note] if decision.note else [])]
        notes |= {note.note_id: note for note in changed}
    return decisions


def _decide(
    fact: Fact,
    known: Sequence[Note],
    said: Mapping[str, Micros],
    task: Task,
    scope: Scope,
    now: Micros,
) -> Decision:
    since = max((said[name] for name in fact.sources if name in said), default=now)
    rivals = _replaced(fact, known)
    if not fact.text:
        return Decision(fact, None, ended=_ended(rivals, since, now))
    fresh = new_note(fact, task, scope, since, now)
    same = [it for it in known if it.digest == fresh.digest and not it.ended(now)]
    if same:
        return Decision(fact, _cite(same[0], fresh), known=True)
    drawn = [it for it in rivals if it.created < now and set(fact.sources) <= set(it.sources)]
    if drawn:  # from the same messages before, and perhaps corrected by its owner since
        return Decision(fact, drawn[0], known=True)
    later = [note.valid_from for note in rivals if note.valid_from > since]
    ended = _ended(rivals, since, now)
    if later:  # told afterwards: it was true only until what is known began
        return Decision(fact, replace(fresh, valid_until=min(later)), ended=ended)
    if ended:
        fresh = replace(fresh, supersedes=ended[0].note_id)
    return Decision(fact, fresh, ended=ended)


def _replaced(fact: Fact, known: Sequence[Note]) -> list[Note]:
    """Notes that a fact speaks of anew: named by the model, or of the same topic."""
    return [
        note
        for note in known
        if note.note_id in fact.replaces or (fact.topic is not None and note.topic == fact.topic)
    ]


def _ended(notes: Sequence[Note], at: Micros, now: Micros) -> list[Note]:
    """Notes that were true at a time, ending then."""
    return [
        replace(note, valid_until=at, updated=now)
        for note in notes
        if note.valid_from <= at and not note.ended(at)
    ]


def _cite(note: Note, repeated: Note) -> Note:
    """A known note that is repeated: its sources grow, and it lasts as long as either."""
    more = tuple(name for name in repeated.sources if name not in note.sources)
    lasting = None in (note.expires, repeated.expires)
    changed = replace(
        note,
        sources=note.sources + more,
        importance=max(note.importance, repeated.importance),
        sensitive=note.sensitive or repeated.sensitive,
        expires=None if lasting else max(note.expires or 0, repeated.expires or 0),
    )
    return note if changed == note else replace(changed, updated=repeated.updated)


def verbatim_fact(message: Message) -> Fact:
    """A message as a fact of its own."""
    return Fact(message.content, (message.message_id,), memory_type="verbatim")


def verbatim(messages: Sequence[Message], task: Task, now: Micros) -> list[Decision]:
    """Each message a note of its own; two that are equal stay two."""
    decisions = []
    for message in messages:
        fact = verbatim_fact(message)
        scope = Scope(message.agent_id, message.user_id, message.session_id)
        note = new_note(fact, task, scope, message.ts, now)
        metadata = {**message.metadata, **note.metadata, "role": message.role}
        # Its statement is the topic, by which a quotation of it is recognised.
        own = fingerprint(f"{message.message_id} {message.content}")
        note = replace(note, metadata=metadata, digest=own, topic=note.digest)
        decisions.append(Decision(fact, note))
    return decisions
