"""Facts, and how rules read them without a model in what people say of themselves and of others.

"我叫李明，在北京大学学习" -> 用户叫李明; 用户在北京大学学习, (李明, studies_at, 北京大学)
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import NamedTuple

from kemem.facts.grammar import ME, Discourse, Statement, Subject
from kemem.facts.readers import statements_of
from kemem.facts.sentences import dated, sentences
from kemem.records import Message, Micros
from kemem.text.segment import STOP_WORDS

MOST_FACTS = 50  # of one message
_MOST_KEYWORDS = 6
_USER = {"zh": "用户", "en": "User"}
_NAMELESS = "user"  # in relations: one person is one entity, whatever the language
_DATE = {"zh": "{}（{}）", "en": "{} ({})"}
_IMPORTANCE = {
    **{"identity": 0.9, "health": 0.9, "residence": 0.8, "work": 0.8, "contact": 0.8},
    **{"relationship": 0.7, "education": 0.7, "user_preference": 0.7, "skill": 0.6, "plan": 0.6},
    **{"setting": 0.6, "event": 0.5, "possession": 0.5, "general": 0.3},
}
# What is said of a later day is not so yet: "下个月搬到成都" is a plan, not an address.
_STATES = {"identity", "residence", "work", "education", "possession", "relationship", "event"}
_TIMELESS = {"user_preference", "setting", "skill", "contact"}
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
    replaces: tuple[str, ...] = ()  # ids of notes that it makes untrue
    relations: tuple[Triple, ...] = ()


@dataclass(frozen=True, slots=True)
class Extraction:
    """The facts of some messages, and the types of the entities that they speak of."""

    facts: tuple[Fact, ...] = ()
    entities: Mapping[str, str] = field(default_factory=dict)  # name -> person, place, …


@dataclass(slots=True)
class _Speaker:
    """One who talks: the discourse in each language, and the name once it is stated."""

    label: str | None  # None: the user
    name: str | None = None
    discourses: dict[str, Discourse] = field(default_factory=dict)

    def discourse(self, language: str) -> Discourse:
        me = Subject(self.label or _USER[language], self.label or ME, self.label or "user")
        return self.discourses.setdefault(language, Discourse(me))


def extract_by_rules(messages: Sequence[Message], me: str | None = None) -> Extraction:
    """The facts that the messages state, in order, with their relations and entities.

    `me` is the user's name as known from before; a name that the messages tell is newer.
    """
    speakers: dict[str | None, _Speaker] = {None: _Speaker(None, me)}
    stated: list[tuple[Message, _Speaker, Statement, str]] = []
    for message in messages:
        named = message.metadata.get("speaker")
        label = (named.strip() or None) if isinstance(named, str) else None
        if message.role == "user" or (label and message.role == "assistant"):
            speaker = speakers.setdefault(label, _Speaker(label))
            statements = islice(_statements(message, speaker), MOST_FACTS)
            stated += [(message, speaker, *each) for each in statements]
    entities: dict[str, str] = {}
    facts = [  # last, as a speaker may tell the name late
        _fact(statement, message, language, speaker.name or _NAMELESS, entities)
        for message, speaker, statement, language in stated
    ]
    return Extraction(tuple(facts), entities)


def _statements(message: Message, speaker: _Speaker) -> Iterator[tuple[Statement, str]]:
    """What a message states, each thing once, with its language."""
    seen: set[str] = set()
    for discourse in speaker.discourses.values():
        discourse.next_message()
    for sentence in sentences(message.content):
        discourse = speaker.discourse(sentence.language)
        for statement in statements_of(sentence, discourse):
            if statement.name and not (speaker.name and statement.topic == "user/nickname"):
                speaker.name = statement.name
            if statement.text not in seen:
                seen.add(statement.text)
                yield statement, sentence.language


def _fact(
    statement: Statement, message: Message, language: str, me: str, entities: dict[str, str]
) -> Fact:
    """A statement as a fact; the entities of its relations are noted."""
    statement, when = _in_time(statement, message.ts, language)
    if statement.name:
        entities.setdefault(me, "person")
    triples = []
    for relation in statement.relations:
        source, target = (name.replace(ME, me) for name in (relation.source, relation.target))
        entities.setdefault(source, relation.source_type)
        entities.setdefault(target, relation.target_type)
        triples.append(Triple(source, relation.name, target))
    return Fact(
        statement.text,
        (message.message_id,),
        statement.memory_type,
        _keywords(statement, language),
        _IMPORTANCE[statement.memory_type],
        when,
        statement.topic,
        relations=tuple(dict.fromkeys(triples)),
    )


def _in_time(statement: Statement, ts: Micros, language: str) -> tuple[Statement, Micros | None]:
    """The statement with its date written out, and the time of an event or a plan."""
    kind, birthday = statement.memory_type, (statement.topic or "").endswith("/birthday")
    time = None if kind in _TIMELESS or birthday else dated(statement.text, ts)
    if time is None:
        return statement, None
    if kind == "general":
        statement = replace(statement, memory_type="plan" if time.tense > 0 else "event")
    elif kind == "plan" and time.tense < 0:
        visited = [
            replace(it, name=it.name.replace("plans_to_visit", "visited"))
            for it in statement.relations
        ]
        statement = replace(statement, memory_type="event", relations=tuple(visited))
    elif kind in _STATES and time.tense > 0:
        statement = replace(statement, memory_type="plan", topic=None, relations=())
    if time.written:
        statement = replace(statement, text=_DATE[language].format(statement.text, time.written))
    return statement, time.since if statement.memory_type in ("event", "plan") else None


def _keywords(statement: Statement, language: str) -> tuple[str, ...]:
    """The values that a rule found, else the words that carry meaning."""
    text = statement.text.replace(_USER[language], " ")
    words = [word for word in _WORD.findall(text) if word.lower() not in STOP_WORDS]
    pieces = [piece for piece in _FUNCTION.split(text) if 2 <= len(piece) <= 6]
    values = [value for value in statement.values if ME not in value]
    keywords = values or (*words, *(pieces if language == "zh" else ()))
    return tuple(dict.fromkeys(keywords))[:_MOST_KEYWORDS]
