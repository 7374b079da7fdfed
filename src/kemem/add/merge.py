"""The facts of a model beside those that KeMem reads itself: each once, and none ends a note alone.

What a model says to be untrue is ended only where the conversation shows it; else it is proposed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from kemem.add.grounding import AND, DAY, Heard, is_grounded, likeness, values_of, words_of
from kemem.add.rules import NAMELESS, Extraction, Fact, Triple, fact_of, rate, read_by_rules
from kemem.facts.endings import Told, plausible
from kemem.facts.grammar import Statement
from kemem.facts.sentences import dated
from kemem.facts.worth import MOST_CHARACTERS, Vectors
from kemem.records import Message, Note
from kemem.text.language import is_chinese
from kemem.text.reading import people_of

SAME = 0.6  # share of common words from which on two texts say the same
_COVERED = 0.8  # of the words of a fact, where others say them already
_THE_USER = ("user", "the user", "用户")
_NEAR = 0.87  # similarity from which on two texts say the same in other words


@dataclass(frozen=True, slots=True)
class Claim:
    """A fact as a model states it."""

    text: str  # empty: what it replaces is over
    memory_type: str = "general"
    date: str = ""  # as it was said
    replaces: tuple[int, ...] = ()  # places of notes among those that were shown
    own_type: str = ""  # one that the user has defined
    entities: tuple[tuple[str, ...], ...] = ()  # names and their own types
    relations: tuple[tuple[str, ...], ...] = ()  # source, own type and target


def texts_of(claims: Sequence[Claim], heard: Heard) -> list[str]:
    """What to embed so that claims are compared by their meaning, too."""
    named = {at for claim in claims for at in claim.replaces}
    notes = [note.content for note in heard.notes] if named else []
    local = [fact.text for fact in (*heard.local.facts, *heard.local.changes)]
    messages = [it.content[:MOST_CHARACTERS] for it in heard.messages]
    return [*dict.fromkeys([*(it.text for it in claims if it.text), *local, *notes, *messages])]


def merge(
    claims: Sequence[Claim],
    heard: Heard,
    model: str,
    vectors: Vectors | None = None,
    *,
    kept: bool = True,
) -> Extraction:
    """All facts that KeMem reads, and those of a model that say more than these.

    Where they are not to be `kept`, those of the model alone.
    """
    known, own = vectors or {}, heard.local if kept else Extraction()
    facts, changes, entities = [*own.facts], [*own.changes], dict(own.entities)
    for claim in claims:
        if claim.text and not is_grounded(claim.text, heard, known):
            continue
        fact, own_entities = _described(claim, heard)
        ended, proposed = _verified(claim, fact, heard, vectors)
        fact = replace(fact, replaces=ended, proposes=proposed, model=model, own=False)
        if not fact.text:
            facts += [fact] if fact.replaces else []
            continue
        related = _related(claim, heard.name or NAMELESS)
        at = _same(fact.text, [it.text for it in facts], known)
        at = _same_topic(fact, facts) if at is None else at
        at = _covering(fact.text, facts) if at is None else at
        late = _same(fact.text, [it.text for it in changes], known)
        if at is not None:
            facts[at] = _joined(facts[at], fact, related)
        elif late is not None:  # two agree that it is worth keeping
            facts.append(_joined(replace(changes.pop(late), tentative=False), fact, related))
        else:
            facts.append(replace(fact, relations=(*fact.relations, *related)))
            entities = {**own_entities, **entities}
        entities |= _named(claim, heard.name or NAMELESS)
    return Extraction(tuple(facts), entities, tuple(changes))


def added_by_model(merged: Extraction, local: Extraction) -> Extraction:
    """What a model adds to facts that are stored already: others, and what these replace.

    A fact that both tell is judged no more: its owner may have changed or deleted it meanwhile.
    """
    known = {it.text: it for it in local.facts}
    facts = [
        replace(it, own=False, told=None, stored=True) if it.text in known else it
        for it in merged.facts
        if it.text not in known
        or it.replaces
        or it.proposes
        or _is_typed(it, known[it.text])
        or any(merged.entities.get(name) != local.entities.get(name) for name in _ends(it))
    ]
    return replace(merged, facts=tuple(facts))


def _joined(own: Fact, claimed: Fact, related: tuple[Triple, ...]) -> Fact:
    """A fact with what a model says that it replaces, its own type and relations of such types."""
    replaces = tuple(dict.fromkeys((*own.replaces, *claimed.replaces)))
    proposes = tuple(dict.fromkeys((*own.proposes, *claimed.proposes)))
    relations = tuple(dict.fromkeys((*own.relations, *related)))
    own = replace(own, own_type=claimed.own_type or own.own_type, relations=relations)
    return replace(own, replaces=replaces, proposes=proposes, model=claimed.model)


def _is_typed(fact: Fact, before: Fact) -> bool:
    """Whether a model has given a fact an own type, or relations of one."""
    return fact.own_type != before.own_type or fact.relations != before.relations


def _ends(fact: Fact) -> set[str]:
    return {name for it in fact.relations for name in (it.source, it.destination)}


def _named(claim: Claim, me: str) -> dict[str, str]:
    """The own types of names that are in the text of a claim."""
    return {name: own for name, own in claim.entities if name in claim.text and name != me}


def _related(claim: Claim, me: str) -> tuple[Triple, ...]:
    """The relations of own types between names that are in the text of a claim."""
    triples = list[Triple]()
    for source, own, target in claim.relations:
        ends = [me if it.casefold() in _THE_USER else it for it in (source, target)]
        told = all(it == me or it in claim.text for it in ends)
        triples += [Triple(ends[0], own, ends[1])] if told and ends[0] != ends[1] else []
    return tuple(triples)


def _described(claim: Claim, heard: Heard) -> tuple[Fact, dict[str, str]]:
    """A claim with what is ours to tell: sources, dates, topic, keywords, weight, relations."""
    cited = _cited(claim.text, heard.messages)
    ids, entities = tuple(it.message_id for it in cited), dict[str, str]()
    if not claim.text:
        return Fact("", ids), entities
    message = replace(cited[-1], role="user", metadata={})
    text = _with_own_dates(claim, cited)
    read = rate(read_by_rules([replace(message, content=text)], heard.name))
    own = read.facts[0] if len(read.facts) == 1 else None
    kind = own.memory_type if own and claim.memory_type == "general" else claim.memory_type
    language = "zh" if is_chinese(text) else "en"
    fact = fact_of(Statement(text, kind), message, language, heard.name or NAMELESS, entities)
    relations = tuple(dict.fromkeys(it for each in read.facts for it in each.relations))
    fact = replace(fact, sources=ids, relations=relations, own_type=claim.own_type)
    if own:
        fact = replace(fact, topic=own.topic, keywords=own.keywords, since=own.since)
    return fact, dict(read.entities)


def _cited(text: str, messages: Sequence[Message]) -> list[Message]:
    """The messages that say what a fact does: those with most of its words, else the user's."""
    words = words_of(text)
    users = [it for it in messages if it.role == "user"]
    shares = {it.message_id: len(words & words_of(it.content)) for it in messages}
    best = max((*reversed(users), *messages), key=lambda it: shares[it.message_id])
    return [best] if shares[best.message_id] else [*(users or messages)]


def _with_own_dates(claim: Claim, cited: Sequence[Message]) -> str:
    """The text of a claim with the date that was said; one that the model worked out is ours."""
    said = "\n".join(message.content for message in cited)
    text = claim.text
    for day in DAY.findall(text):
        if day not in said and (time := dated(said, cited[-1].ts)):
            text = text.replace(day, time.began)
    date = claim.date.casefold()
    is_said = date and date in said.casefold() and date not in text.casefold()
    if is_said and not dated(text, cited[-1].ts):
        text = f"{text.rstrip('.。')}{AND[is_chinese(text)]}{claim.date}"
    return text


def _verified(
    claim: Claim, fact: Fact, heard: Heard, vectors: Vectors | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Which notes a claim ends, as the conversation shows, and which it only may."""
    ended, proposed = list[str](), list[str]()
    sources = [it for it in heard.messages if it.message_id in fact.sources]
    told = [_told(fact, it, heard, vectors) for it in sources]
    speakers = {it.label for each, it, _ in heard.reading.messages if each in sources and it.label}
    notes = [
        Told(it.content, it.memory_type or "general", (vectors or {}).get(it.content))
        for it in heard.notes
    ]
    cited = {*fact.sources}
    topics = {it.topic for it in heard.local.facts if it.topic and cited & {*it.sources}}
    for at in claim.replaces:
        note = heard.notes[at]
        if words_of(fact.text) == words_of(note.content) and values_of(fact.text) == values_of(
            note.content
        ):
            continue  # the same statement: nothing has ended
        shown = any(it.message and plausible(it, notes, at) for it in told)
        shown = shown or _topic(note, heard) in topics
        if fact.topic and not shown and fact.topic == _topic(note, heard):
            shown = any(not it.adds and _is_covered(fact.text, [it.message]) for it in told)
        own = all(note.content.startswith(name) for name in speakers)
        (ended if shown and own else proposed).append(note.note_id)
    return tuple(ended), tuple(proposed)


def _told(fact: Fact, message: Message, heard: Heard, vectors: Vectors | None) -> Told:
    """What a fact is compared by: its text, or the message where it has none."""
    stated, known = heard.stated(message), vectors or {}
    text = fact.text or stated
    return Told(
        text,
        fact.memory_type,
        known.get(text),
        stated,
        known.get(message.content[:MOST_CHARACTERS]),
    )


def _topic(note: Note, heard: Heard) -> str | None:
    """The topic of a note, by its text where it was stored without one."""
    if note.topic:
        return note.topic
    message = Message("", "", "", "", "user", note.content, note.ts, note.ts)
    return next((it.topic for it in rate(read_by_rules([message], heard.name)).facts), None)


def _same(text: str, others: Sequence[str], vectors: Vectors) -> int | None:
    """The place of the text that says the same, in the same or in other words."""
    return next((at for at, it in enumerate(others) if _is_same(text, it, vectors)), None)


def _is_same(text: str, other: str, vectors: Vectors) -> bool:
    if values_of(text) != values_of(other) or people_of(text) != people_of(other):
        return False
    one, two = words_of(text), words_of(other)
    if len(one & two) >= SAME * len(one | two):
        return True
    return likeness(text, other, vectors) >= _NEAR


def _same_topic(fact: Fact, others: Sequence[Fact]) -> int | None:
    """The place of the fact that the same message tells of the same topic."""
    own, cited = fact.topic, {*fact.sources}
    alike = (
        at for at, it in enumerate(others) if own and it.topic == own and cited & {*it.sources}
    )
    return next(alike, None)


def _covering(text: str, others: Sequence[Fact]) -> int | None:
    """The place of the fact that says most of a text, where facts together say all of it."""
    if not _is_covered(text, [it.text for it in others]):
        return None
    words = words_of(text)
    return max(range(len(others)), key=lambda at: len(words & words_of(others[at].text)))


def _is_covered(text: str, others: Iterable[str]) -> bool:
    """Whether texts together say what another one says."""
    values, words = {*values_of(text)}, words_of(text)
    own = [it for it in others if {*values_of(it)} <= values]
    said = {word for it in own for word in words_of(it)}
    return (
        bool(words)
        and len(words & said) >= _COVERED * len(words)
        and values <= {value for it in own for value in values_of(it)}
    )
