"""Facts, and how rules read them without a model in what people say of themselves and of others.

"我叫李明，在北京大学学习" -> 用户叫李明; 用户在北京大学学习, (李明, studies_at, 北京大学)
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from math import inf
from typing import Literal, NamedTuple

from kemem.facts.edges import certain
from kemem.facts.endings import TELLING, Told
from kemem.facts.frames import is_correction
from kemem.facts.grammar import ME, Discourse, Part, Statement, Subject
from kemem.facts.kinds import signs
from kemem.facts.readers import hands_over, parts_of
from kemem.facts.sentences import sentences
from kemem.facts.times import in_time
from kemem.facts.types import OwnTypes
from kemem.facts.worth import MOST_CHARACTERS, Ratings, Unit, Vectors, Weights, mean, weights
from kemem.records import Message, Micros
from kemem.text.attachments import without_attachments
from kemem.text.segment import STOP_WORDS

MOST_FACTS = 50  # of one message
_MOST_UNITS = 60  # clauses of a message that are embedded
# Ratings from which a clause is kept, with and without embeddings: one that no rule knows, one that
# tells something of somebody, one of a certain kind.
_LEAST_RELATED = 0.5  # of one whose relations are kept
_LEAST_CHANGED = {True: -4.0, False: -6.0}  # of one that is kept only if it ends a note
_LEAST_CERTAIN = -3.0  # of one that may end what was true before
_LESS = 1.4  # is enough for a clause that adds to the one before
_DETAIL = 10  # characters of one that always does: 雅思出分了，7.5
_LEAST = {True: (2.2, 2.0, 0.0), False: (2.4, -2.5, -4.0)}
_MOST_KEYWORDS = 6
_USER = {"zh": "用户", "en": "User"}
NAMELESS = "user"  # in relations: one person is one entity, whatever the language
_JOINT = {"zh": "，", "en": ", "}
VERBATIM = "verbatim"  # the type of a fact in the words of its message
_IMPORTANCE = {
    **{"identity": 0.9, "health": 0.9, "residence": 0.8, "work": 0.8, "contact": 0.8},
    **{"relationship": 0.7, "education": 0.7, "user_preference": 0.7, "skill": 0.6, "plan": 0.6},
    **{"setting": 0.6, "event": 0.5, "possession": 0.5, "general": 0.3},
}
_WORD = re.compile(r"[A-Za-z][\w+#.-]*\w|《[^》]+》")
_FUNCTION = re.compile(
    "[的了是在和跟与把被给对从到去来会要都也还就很不没有着过我他她它们（），、\\W\\da-zA-Z]+"
)


class Triple(NamedTuple):
    """One relation by the names of its ends.  李明 --studies_at--> 北京大学"""

    source: str
    relationship: str
    destination: str


@dataclass(frozen=True, slots=True)
class Fact:
    """One thing worth remembering, understandable by itself, in the language it was said in."""

    text: str  # empty: what it replaces is over, and nothing is in its place
    sources: tuple[str, ...]  # ids of the messages that say it
    memory_type: str = "general"
    keywords: tuple[str, ...] = ()
    importance: float = 0.5  # 0-1
    when: Micros | None = None  # when it happens or happened; None: when it was said
    topic: str | None = None  # facts of one topic replace each other: "user/lives_in"
    since: Micros | None = None  # from when on it holds; None: from when it was said
    replaces: tuple[str, ...] = ()  # ids of notes that it makes untrue
    proposes: tuple[str, ...] = ()  # ids of notes that a model says to be untrue, and nothing shows
    model: str = ""  # that says so
    own: bool = True  # KeMem reads it itself: it ends notes of its topic
    stored: bool = False  # it is a note already, or was one until its owner deleted it
    corrects: tuple[str, str] | None = None  # the id of a message, and a value in it that is wrong
    relations: tuple[Triple, ...] = ()
    own_type: str = ""  # one that the user has defined
    told: Told | None = field(default=None, compare=False)  # what stored notes are compared with
    tentative: bool = False  # worth keeping only if it ends a note


@dataclass(frozen=True, slots=True)
class Extraction:
    """The facts of some messages, and the types of the entities that they speak of."""

    facts: tuple[Fact, ...] = ()
    entities: Mapping[str, str] = field(default_factory=dict)  # name -> person, place, …
    changes: tuple[Fact, ...] = ()  # tentative ones


@dataclass(slots=True)
class _Speaker:
    """One who talks: the discourse in each language, and the name once it is stated."""

    label: str | None  # None: the user
    name: str | None = None
    discourses: dict[str, Discourse] = field(default_factory=dict)

    def discourse(self, language: str) -> Discourse:
        me = Subject(self.label or _USER[language], self.label or ME, self.label or "user")
        return self.discourses.setdefault(language, Discourse(me))


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence with its clauses, as rules read them."""

    language: Literal["zh", "en"]
    asks: bool
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """What rules make of messages, before it is rated what of it is worth keeping."""

    messages: tuple[tuple[Message, _Speaker, tuple[_Sentence, ...]], ...]

    def texts(self) -> list[str]:
        """What to embed so that clauses are rated by their meaning, too."""
        texts: list[str] = []
        for message, _, read in self.messages:
            parts = [part for sentence in read for part in sentence.parts]
            units = [part.note for part in parts if not part.silent]
            texts += [message.content[:MOST_CHARACTERS], *units[:_MOST_UNITS]] if units else []
        return [*dict.fromkeys(texts)]


def extract_by_rules(messages: Sequence[Message], me: str | None = None) -> Extraction:
    """The facts that the messages state, rated without embeddings."""
    return rate(read_by_rules(messages, me))


def read_by_rules(messages: Sequence[Message], me: str | None = None) -> Reading:
    """The clauses of messages and what rules read in them.

    `me` is the user's name as known from before; a name that the messages tell is newer.
    """
    speakers: dict[str | None, _Speaker] = {None: _Speaker(None, me)}
    read = []
    for message in messages:
        label = message.speaker or None
        if message.role == "user" or (label and message.role == "assistant"):
            speaker = speakers.setdefault(label, _Speaker(label))
            read.append((message, speaker, tuple(_sentences(message.content, speaker))))
    return Reading(tuple(read))


def _sentences(content: str, speaker: _Speaker) -> Iterator[_Sentence]:
    for discourse in speaker.discourses.values():
        discourse.next_message()
    for sentence in sentences(without_attachments(content)):
        if hands_over(sentence):  # what follows is the material: "translate this: …"
            return
        parts = parts_of(sentence, speaker.discourse(sentence.language))
        yield _Sentence(sentence.language, sentence.asks, tuple(parts))


def units_of(sentences: Sequence[_Sentence]) -> Iterator[list[Unit]]:
    """Each sentence and its clauses, as units that are rated."""
    texts = [", ".join(part.text for part in it.parts) for it in sentences]
    for number, sentence in enumerate(sentences):
        parts, count = sentence.parts, len(sentence.parts)
        around = [None, *(part.text for part in parts), None]
        types = tuple({made.memory_type: None for part in parts for made in part.statements})
        whole = Unit(
            texts[number],
            tuple(part.note for part in parts if not part.silent),
            sentence.language,
            before=texts[number - 1] if number else None,
            after=texts[number + 1] if number + 1 < len(texts) else None,
            asks=sentence.asks,
            position=(0, count, number),
            types=types,
            silent=all(part.silent for part in parts),
        )
        yield [
            whole,
            *(
                Unit(
                    *(part.text, (part.note,), sentence.language, around[at], around[at + 2]),
                    asks=sentence.asks,
                    position=(at, count, number),
                    types=tuple({made.memory_type: None for made in part.statements}),
                    silent=part.silent,
                )
                for at, part in enumerate(parts)
            ),
        ]


_NO_TYPES = OwnTypes()


def rate(
    reading: Reading,
    vectors: Vectors | None = None,
    learned: Weights | None = None,
    own: OwnTypes = _NO_TYPES,
) -> Extraction:
    """The facts that are worth keeping, in order, with their relations and entities."""
    stated: list[tuple[Message, _Speaker, _Kept, str]] = []
    for message, speaker, read in reading.messages:
        statements = islice(
            _worth_keeping(message, read, vectors, learned or weights(), own), MOST_FACTS
        )
        for kept, language in statements:
            statement = kept.statement
            if statement.name and not (speaker.name and statement.topic == "user/nickname"):
                speaker.name = statement.name
            stated.append((message, speaker, kept, language))
    entities: dict[str, str] = {}
    facts = []
    clauses: dict[str, list[str]] = {}
    for message, _, kept, _ in stated:
        clauses.setdefault(message.message_id, []).extend(kept.notes)
    for message, speaker, kept, language in stated:  # last, as a speaker may tell the name late
        statement = own.related(kept.statement, kept.notes)
        fact = fact_of(statement, message, language, speaker.name or NAMELESS, entities)
        fact = replace(fact, own_type=kept.own_type)
        for name in {it.destination for it in fact.relations}:
            entities[name] = own.of_entity(name, entities[name], kept.notes, kept.sentence)
        others = tuple(it for it in clauses[message.message_id] if it not in kept.notes)
        told = _told(kept, message, vectors)
        told = replace(told, memory_type=fact.memory_type, others=others, speaker=speaker.label)
        facts.append(replace(fact, told=told, tentative=kept.tentative))
    worth = tuple(fact for fact in facts if not fact.tentative)
    return Extraction(worth, entities, tuple(fact for fact in facts if fact.tentative))


def _least(part: Part, is_embedded: bool) -> float:
    unknown, general, known = _LEAST[is_embedded]
    if not part.statements:
        return unknown
    first = part.statements[0]
    if first.ends:
        return -inf
    if first.state:  # its form leaves little doubt
        return known - _LESS
    return general if first.memory_type == "general" and not first.topic else known


@dataclass(frozen=True, slots=True)
class _Kept:
    """A statement with its rating and the clauses that it is made of."""

    statement: Statement
    rating: float
    notes: tuple[str, ...]
    tentative: bool = False
    sentence: tuple[str, ...] = ()  # all clauses of its sentence
    own_type: str = ""


def _worth_keeping(
    message: Message,
    read: Sequence[_Sentence],
    vectors: Vectors | None,
    learned: Weights,
    own: OwnTypes,
) -> Iterator[tuple[_Kept, str]]:
    """The statements of a message that are worth keeping, each once, with their language.

    A sentence that is not, but tells of a change, is kept for the case that it ends a note.
    """
    seen: set[str] = set()
    ratings = Ratings(message.content[:MOST_CHARACTERS], learned)
    rated, is_embedded, corrects = 0, vectors is not None, is_correction(message.content)
    for sentence, (whole, *units) in zip(read, units_of(read), strict=True):
        if whole.silent or (rated > _MOST_UNITS and not whole.types):
            continue
        rated += len(units)
        around = ratings.rate(whole, "sentence", vectors)
        values = [
            -inf if part.silent else around + ratings.rate(unit, "clause", vectors)
            for part, unit in zip(sentence.parts, units, strict=True)
        ]
        kept = _kept_clauses(sentence, values, is_embedded)
        if not kept and own.draws(whole.notes):
            kept = [_as_said(sentence, max(values))]
        kept = kept or _tentative(sentence, max(values), _LEAST_CHANGED[is_embedded], corrects)
        for it in kept:
            if it.statement.text not in seen:
                seen.add(it.statement.text)
                own_type = own.of_note(it.notes, whole.notes, len(kept) == 1)
                yield replace(it, sentence=whole.notes, own_type=own_type), sentence.language


def _as_said(sentence: _Sentence, rating: float) -> _Kept:
    """A sentence as one statement."""
    notes = tuple(part.note for part in sentence.parts if not part.silent)
    return _Kept(Statement(_JOINT[sentence.language].join(notes), "general"), rating, notes)


def _tentative(sentence: _Sentence, rating: float, least: float, corrects: bool) -> list[_Kept]:
    """A sentence that tells of a change, as one statement: of its topic where it has one."""
    spoken = [part for part in sentence.parts if not part.silent]
    told = signs(", ".join(part.text for part in spoken))
    topics = [it for part in spoken for it in part.statements if it.topic]
    has_topic = len(topics) == len(spoken) == 1
    certain = has_topic or told & {"LOST", "GONE", "PARTED", "TAKEN_BACK", "STAYS", "PUT_OFF"}
    if not corrects and (not told & TELLING or (rating < least and not certain)):
        return []
    kept = replace(_as_said(sentence, rating), tentative=True)
    return [replace(kept, statement=replace(topics[0], relations=())) if has_topic else kept]


def _kept_clauses(sentence: _Sentence, ratings: Sequence[float], is_embedded: bool) -> list[_Kept]:
    """The clauses of a sentence that are worth keeping.

    A clause that no rule knows is kept as it was said; one that cannot stand alone goes on with
    the clause before it.
    """
    kept: list[_Kept] = []
    goes_on, doubtful = False, ""  # a clause before that is kept if the next one needs it
    joint = _JOINT[sentence.language]
    for part, rating in zip(sentence.parts, ratings, strict=True):
        adds = goes_on and not part.stands and not part.silent  # to the clause before
        least = _least(part, is_embedded) - (_LESS if adds else 0)
        if rating < least and not (adds and len(part.text) <= _DETAIL):
            goes_on = False
            doubtful = part.note if rating >= least - 2 * _LESS else ""
            continue
        if part.statements:
            related = not is_embedded or rating >= _LEAST_RELATED
            kept += [
                _Kept(it if related else _unrelated(it, rating), rating, (part.note,))
                for it in part.statements
            ]
        elif goes_on and not part.stands:
            last = kept[-1]
            statement = replace(last.statement, text=f"{last.statement.text}{joint}{part.note}")
            kept[-1] = _Kept(statement, max(last.rating, rating), (*last.notes, part.note))
        else:
            needed = "" if part.stands else part.introduction or doubtful
            text = f"{needed}{joint}{part.note}" if needed else part.note
            edges = part.about.relations if part.about else ()
            kept.append(_Kept(Statement(text, "general", relations=edges), rating, (part.note,)))
        goes_on, doubtful = True, ""
    return kept


def _unrelated(statement: Statement, rating: float) -> Statement:
    """A statement that is not certain enough for relations, or even for its topic."""
    topic = statement.topic if rating >= _LEAST_CERTAIN or statement.ends else None
    return replace(statement, relations=(), topic=topic)


def _told(kept: _Kept, message: Message, vectors: Vectors | None) -> Told:
    """What decides which notes a statement ends."""
    content = message.content[:MOST_CHARACTERS]
    return Told(
        kept.statement.text,
        vector=mean([vectors[it] for it in kept.notes if it in vectors]) if vectors else None,
        message=content,
        message_vector=vectors.get(content) if vectors else None,
        rating=kept.rating,
        clauses=kept.notes if len(kept.notes) > 1 else (),
    )


def fact_of(
    statement: Statement, message: Message, language: str, me: str, entities: dict[str, str]
) -> Fact:
    """A statement as a fact; the entities of its relations are noted."""
    statement, times = in_time(statement, message.ts, language)
    if statement.name:
        entities.setdefault(me, "person")
    triples = []
    checked = [certain(relation, statement.text) for relation in statement.relations]
    for relation in filter(None, checked):
        source, target = (name.replace(ME, me) for name in (relation.source, relation.target))
        entities.setdefault(source, relation.source_type)
        entities.setdefault(target, relation.target_type)
        triples.append(Triple(source, relation.name, target))
    return Fact(
        statement.text,
        (message.message_id,),
        statement.memory_type,
        _keywords(statement, language),
        _IMPORTANCE.get(statement.memory_type, 0.5),
        times.when,
        statement.topic,
        since=times.since,
        relations=tuple(dict.fromkeys(triples)),
    )


def _keywords(statement: Statement, language: str) -> tuple[str, ...]:
    """The values that a rule found, else the words that carry meaning."""
    text = statement.text.replace(_USER[language], " ")
    words = [word for word in _WORD.findall(text) if word.lower() not in STOP_WORDS]
    pieces = [piece for piece in _FUNCTION.split(text) if 2 <= len(piece) <= 6]
    values = [value for value in statement.values if ME not in value]
    keywords = values or (*words, *(pieces if language == "zh" else ()))
    return tuple(dict.fromkeys(keywords))[:_MOST_KEYWORDS]
