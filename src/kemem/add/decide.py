"""What becomes of facts, decided by what is stored already: new, known, or instead of another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kemem.add.announced import (
    are_off,
    from_their_day,
    held_again,
    lies_ahead,
    put_off,
)
from kemem.add.extract import digest, new_note, verbatim_fact
from kemem.add.merge import SAME
from kemem.add.parse import Task
from kemem.add.rules import VERBATIM, Fact
from kemem.facts.endings import (
    Told,
    as_of_user,
    ended_notes,
    is_lost_in_part,
    is_namesake,
    likely_ended,
    says_instead,
)
from kemem.facts.kinds import tells_other_kind
from kemem.records import Message, Micros, Note, Scope, Vector
from kemem.records.batch import merge_notes
from kemem.records.ontology import OWN_TYPE
from kemem.text.language import is_chinese
from kemem.text.segment import STOPS, fingerprint, search_text
from kemem.text.turns import NOT_SAID

_SEVERAL = frozenset({"work", "residence", "education", "possession", "relationship"})  # at once
_OF_THINGS = frozenset(
    {"habit", "date", "amount"}
)  # topics of which more than one kind of value is told
_NO_TEXTS: Mapping[str, Sequence[str]] = {}
_NO_VECTORS: Mapping[str, Vector] = {}


@dataclass(slots=True)
class Decision:
    """What becomes of one fact, and the notes that change with it."""

    fact: Fact
    note: Note | None  # new, or the stored one that says it already; None: only an end was told
    known: bool = False
    ended: list[Note] = field(default_factory=list)  # as they are from now on
    heir: Note | None = None  # the stored one that has been true since the new one ended
    claimed: tuple[str, ...] = ()  # ids of notes that a model says to be untrue
    reopened: list[Note] = field(default_factory=list)  # that were to end, and do not

    @property
    def changed(self) -> dict[str, Note]:
        """The notes as they are from now on, by their ids."""
        notes = [*self.reopened, *self.ended, *(it for it in (self.note, self.heir) if it)]
        return {note.note_id: note for note in notes}


def reconcile(
    facts: Sequence[Fact],
    stored: Sequence[Note],
    times: Mapping[str, Micros],
    task: Task,
    scope: Scope,
    now: Micros,
    earlier: Mapping[str, Sequence[str]] = _NO_TEXTS,
    vectors: Mapping[str, Vector] = _NO_VECTORS,
) -> list[Decision]:
    """Decide fact by fact; one decision is known to the next. `times` are those of messages.

    `earlier` are texts that notes had before they were corrected; `vectors` are those of notes.
    """
    known = dict(vectors)
    notes = {note.note_id: note for note in stored}
    decisions = []
    for fact in from_their_day(facts, times):
        since = max((times[name] for name in fact.sources if name in times), default=now)
        fact = put_off(fact, notes.values(), since)
        begins = max(since, fact.since or since)  # later than it was told, where it is announced
        over, likely = _over(fact, since, list(notes.values()), known)
        if off := are_off(fact, notes.values(), since):
            over, likely = off, None  # not what was to end by it
        if listing := _lost_in_part(fact, since, list(notes.values())):
            fact, over, likely = _restated(fact, listing), (listing.note_id,), None
        rivals = (it for it in notes.values() if fact.topic and it.topic == fact.topic)
        if fact.tentative and not over and not likely and all(it.ended(since) for it in rivals):
            continue
        claimed, fact = fact.replaces, replace(fact, replaces=(*fact.replaces, *over))
        again = held_again(fact, notes.values(), since, now)
        fresh = new_note(fact, task, scope, begins, now)
        others = list({**notes, **again}.values())
        decided = _dated(_decide(fact, fresh, others, since, now, earlier))
        if decided.ended:
            left = [it for name, it in again.items() if name not in decided.changed]
            decided = replace(decided, reopened=left)
        if likely and decided.note and not decided.known and not decided.note.supersedes:
            decided = replace(decided, note=replace(decided.note, supersedes=likely))
        decisions.append(replace(decided, claimed=claimed))
        notes |= decisions[-1].changed
        if fact.told and fact.told.vector is not None:
            known[fresh.note_id] = fact.told.vector
    return _with_successors(decisions)


def _with_successors(decisions: Sequence[Decision]) -> list[Decision]:
    """Decisions in which notes are replaced by what is told instead of them, if anything is.

    "Dr Huber retired. My new vet is Dr Ng" ends "User's vet is Dr Huber" by its first sentence; the
    second one says who is it now.
    """
    settled = list(decisions)
    for at, first in enumerate(settled):
        if len(first.ended) != 1 or first.note is None or first.known or first.heir:
            continue
        old = first.ended[0]
        if old.topic and old.topic == first.fact.topic:  # it says itself what holds instead
            continue
        for place in range(at + 1, len(settled)):
            second = settled[place]
            if second.note is None or second.known or second.ended or second.heir:
                continue
            if second.fact.memory_type == "plan":
                continue
            if says_instead(old.content, first.note.content, second.note.content):
                heir = replace(second.note, supersedes=old.note_id)
                settled[place] = replace(second, note=heir, ended=[old], claimed=first.claimed)
                told = replace(first.note, supersedes=None)
                settled[at] = replace(first, note=told, ended=[], claimed=())
                break
    return settled


def _lost_in_part(fact: Fact, since: Micros, stored: Sequence[Note]) -> Note | None:
    """The note that lists several things, of which a fact says that one is gone."""
    if fact.told is None or not fact.told.changes:
        return None
    notes = [it for it in stored if it.valid_from < since and not it.ended(since)]
    return next((it for it in notes if is_lost_in_part(fact.told, it.content)), None)


def _restated(fact: Fact, note: Note) -> Fact:
    """A fact that says again what a note lists, and that a part of it is over."""
    joint = "；" if is_chinese(note.content) else "; "
    known = fact.text in note.content  # who says it again adds nothing
    return replace(
        fact,
        text=note.content if known else f"{note.content}{joint}{fact.text}",
        sources=(*note.sources, *fact.sources),
        memory_type=note.memory_type or fact.memory_type,
        keywords=note.keywords,
        topic=note.topic,
        when=None,
        tentative=False,
        own_type=fact.own_type or str(note.metadata.get(OWN_TYPE, "")),
    )


def _over(
    fact: Fact, since: Micros, stored: Sequence[Note], vectors: Mapping[str, Vector]
) -> tuple[tuple[str, ...], str | None]:
    """The ids of the notes that a fact makes untrue, beside those of its topic.

    Where it makes none untrue for certain, also that of the one with which it likely does so.
    """
    if fact.told is None or not fact.told.changes:
        return (), None
    notes = [
        note
        for note in stored
        if not note.ended(since) and note.valid_from < since and note.digest != digest(fact)
        if not {*fact.sources} & {*note.sources}  # which may hold since long before it was said
    ]
    if fact.told.message_vector is not None:  # what is far away has no vector here
        notes = [note for note in notes if note.note_id in vectors]
    new, name = fact.told, fact.told.speaker
    if name:  # in a talk of several people each changes only what is told of them
        notes = [note for note in notes if note.content.startswith(name)]
    told = [
        Told(note.content, note.memory_type or "general", vectors.get(note.note_id))
        for note in notes
    ]
    if name:
        new, told = as_of_user(new, name), [as_of_user(it, name) for it in told]
    over = tuple(notes[at].note_id for at in ended_notes(new, told))
    likely = None if over else likely_ended(new, told)
    return over, None if likely is None else notes[likely].note_id


def _decide(
    fact: Fact,
    fresh: Note,
    stored: Sequence[Note],
    told: Micros,
    now: Micros,
    earlier: Mapping[str, Sequence[str]],
) -> Decision:
    """A fact is new, known already, or makes notes untrue: those of its topic, or that it names.

    `told` is when it was said; what is announced begins later.
    """
    since = fresh.valid_from
    rivals = [it for it in stored if _competes(it, fact)]
    dropped = [it for it in rivals if it.note_id in fact.replaces and lies_ahead(it, told)]
    rivals = [it for it in rivals if it not in dropped]
    over = [it for it in rivals if it.valid_from <= since and not it.ended(since)]
    ended = [replace(it, valid_until=since, updated=now) for it in over]
    ended += [replace(it, valid_until=told, updated=now) for it in dropped]
    if not fact.text:
        return Decision(fact, None, ended=ended)
    same = [note for note in stored if _says_same(note, fresh) and _holds(note, since, now)]
    if same:
        cited = _with_own_type(merge_notes(same[0], fresh), fresh)
        # Who repeats something ends nothing; a model may see later what it has replaced.
        ended = [it for it in ended if not fact.own and it.note_id != cited.note_id]
        if ended and cited.supersedes is None:
            cited = replace(cited, supersedes=ended[0].note_id)
        is_changed = replace(cited, updated=same[0].updated) != same[0]
        return Decision(fact, cited if is_changed else same[0], known=True, ended=ended)
    for note in stored:
        texts = earlier.get(note.note_id, ()) if {*fact.sources} & {*note.sources} else ()
        if any(_repeats(fact.text, text) for text in texts):  # what was corrected stays corrected
            return Decision(replace(fact, relations=()), note, known=True)
    drawn = [it for it in rivals if it.created < now and set(fact.sources) <= set(it.sources)]
    if drawn:  # from the same messages before, and perhaps corrected by its owner since
        relations = () if earlier.get(drawn[0].note_id) else fact.relations
        return Decision(replace(fact, relations=relations), drawn[0], known=True)
    if fact.stored:
        return Decision(replace(fact, relations=()), None, ended=ended)
    if ended:
        fresh = replace(fresh, supersedes=ended[0].note_id)
    later = [note for note in rivals if note.valid_from > since]
    if not later:
        return Decision(fact, fresh, ended=ended)
    # Told afterwards: it was true only until what is known began.
    heir = min(later, key=lambda note: note.valid_from)
    fresh = replace(fresh, valid_until=heir.valid_from)
    if heir.supersedes is None or heir.supersedes in {it.note_id for it in ended}:
        heir = replace(heir, supersedes=fresh.note_id)
    return Decision(fact, fresh, ended=ended, heir=heir)


def _competes(note: Note, fact: Fact) -> bool:
    """Whether a note says what a fact makes untrue, or what makes the fact untrue."""
    if note.note_id in fact.replaces or _is_corrected(note, fact):
        return True
    more = fact.told is not None and fact.told.adds and fact.memory_type in _SEVERAL
    is_same = fact.topic is not None and note.topic == fact.topic
    return is_same and fact.own and not more and not _is_of_another(fact, note)


def _with_own_type(note: Note, fresh: Note) -> Note:
    """A note that is said again, with the own type that it is given now if it has none."""
    if OWN_TYPE in note.metadata or OWN_TYPE not in fresh.metadata:
        return note
    return replace(note, metadata={**note.metadata, OWN_TYPE: fresh.metadata[OWN_TYPE]})


def _is_of_another(fact: Fact, note: Note) -> bool:
    """Whether a fact tells of somebody else, or of something else of an activity or a date."""
    of_thing = _OF_THINGS.intersection((fact.topic or "").split("/"))
    is_other = bool(of_thing) and tells_other_kind(fact.text, note.content)
    return is_other or is_namesake(fact.text, note.content)


def _says_same(note: Note, fresh: Note) -> bool:
    """Whether a note says what a new one does; one of a topic is kept beside verbatim words."""
    words = note.topic if note.memory_type == VERBATIM and fresh.topic is None else note.digest
    return fresh.digest in (note.digest, words)


def _holds(note: Note, since: Micros, now: Micros) -> bool:
    """Whether a note is true now, or was at the time that a message speaks of."""
    return not note.ended(now) or (note.valid_from <= since and not note.ended(since))


def _is_corrected(note: Note, fact: Fact) -> bool:
    """Whether a fact corrects what the message before it said."""
    message_id, wrong = fact.corrects or ("", "")
    return message_id in note.sources and wrong.casefold() in note.content.casefold()


def _dated(decision: Decision) -> Decision:
    """A decision by which a new note holds since when its text says, what it ended until then."""
    note, since = decision.note, decision.fact.since
    if note is None or decision.known or since is None or since >= note.valid_from:
        return decision
    ended = [
        replace(it, valid_until=since) if it.valid_from < since else it for it in decision.ended
    ]
    return replace(decision, note=replace(note, valid_from=since), ended=ended)


def _repeats(text: str, earlier: str) -> bool:
    """Whether a text says what an earlier one did, in the same words or nearly."""
    new, old = ({*search_text(it).split()} - STOPS for it in (text, earlier))
    return len(new & old) >= SAME * len(new | old)


def verbatim(messages: Sequence[Message], task: Task, now: Micros) -> list[Decision]:
    """Each message a note of its own, but for what tools said; two that are equal stay two."""
    decisions = []
    for message in (it for it in messages if it.content_type not in NOT_SAID):
        fact = verbatim_fact(message)
        scope = Scope(message.agent_id, message.user_id, message.session_id)
        note = new_note(fact, task, scope, message.ts, now)
        metadata = {**message.metadata, **note.metadata, "role": message.role}
        # Its statement is the topic, by which a quotation of it is recognised.
        own = fingerprint(f"{message.message_id} {message.content}")
        note = replace(note, metadata=metadata, digest=own, topic=note.digest)
        decisions.append(Decision(fact, note))
    return decisions
