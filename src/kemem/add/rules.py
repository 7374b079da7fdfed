"""Facts without a model: rules read what people say of themselves and of others.

"我叫李明，在北京大学学习" -> 用户叫李明; 用户在北京大学学习, (李明, studies_at, 北京大学)
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from kemem.add.facts import Extraction, Fact, Triple
from kemem.facts.chinese import chinese_statements
from kemem.facts.dates import dated
from kemem.facts.english import english_statements
from kemem.facts.grammar import ME, Discourse, Relation, Statement, Subject
from kemem.facts.sentences import sentences
from kemem.records import Message, Micros
from kemem.text.segment import STOP_WORDS

MOST_FACTS = 50  # of one message
_MOST_KEYWORDS = 6
_READERS = {"zh": chinese_statements, "en": english_statements}
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


@dataclass(slots=True)
class _Speaker:
    """One who talks: what is known in each language, and the name once it is known."""

    label: str | None  # None: the user
    discourses: dict[str, Discourse] = field(default_factory=dict)
    name: str | None = None

    def discourse(self, language: str) -> Discourse:
        me = Subject(self.label or _USER[language], self.label or ME, self.label or "user")
        return self.discourses.setdefault(language, Discourse(me))


@dataclass(frozen=True, slots=True)
class _Stated:
    """A statement, and where it was made."""

    statement: Statement
    message: Message
    language: str
    speaker: _Speaker


def extract_by_rules(messages: Sequence[Message], me: str | None = None) -> Extraction:
    """The facts that the messages state, in order, with their relations and entities.

    `me` is the user's name as known from before; a name that the messages tell is newer.
    """
    speakers: dict[str | None, _Speaker] = {None: _Speaker(None, name=me)}
    stated: list[_Stated] = []
    for message in messages:
        label = _label(message)
        if message.role == "user" or (label and message.role == "assistant"):
            speaker = speakers.setdefault(label, _Speaker(label))
            stated += islice(_statements(message, speaker), MOST_FACTS)
    entities: dict[str, str] = {}
    facts = [_fact(each, entities) for each in stated]
    return Extraction(tuple(facts), entities)


def _label(message: Message) -> str | None:
    speaker = message.metadata.get("speaker")
    return (speaker.strip() or None) if isinstance(speaker, str) else None


def _statements(message: Message, speaker: _Speaker) -> Iterator[_Stated]:
    """What a message states, each thing once."""
    seen: set[str] = set()
    for discourse in speaker.discourses.values():
        discourse.next_message()
    for sentence in sentences(message.content):
        discourse = speaker.discourse(sentence.language)
        for statement in _READERS[sentence.language](sentence, discourse):
            if statement.name and not (speaker.name and statement.topic == "user/nickname"):
                speaker.name = statement.name
            if statement.text not in seen:
                seen.add(statement.text)
                yield _Stated(statement, message, sentence.language, speaker)


def _fact(stated: _Stated, entities: dict[str, str]) -> Fact:
    """A statement as a fact; the entities of its relations are noted."""
    statement, when = _in_time(stated.statement, stated.message.ts, stated.language)
    me = stated.speaker.name or _NAMELESS
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
        (stated.message.message_id,),
        statement.memory_type,
        _keywords(statement, stated.language),
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
        visited = tuple(map(_visited, statement.relations))
        statement = replace(statement, memory_type="event", relations=visited)
    elif kind in _STATES and time.tense > 0:
        statement = replace(statement, memory_type="plan", topic=None, relations=())
    if time.written:
        statement = replace(statement, text=_DATE[language].format(statement.text, time.written))
    return statement, time.since if statement.memory_type in ("event", "plan") else None


def _visited(relation: Relation) -> Relation:
    return replace(relation, name=relation.name.replace("plans_to_visit", "visited"))


def _keywords(statement: Statement, language: str) -> tuple[str, ...]:
    """The values that a rule found, else the words that carry meaning."""
    text = statement.text.replace(_USER[language], " ")
    words = [word for word in _WORD.findall(text) if word.lower() not in STOP_WORDS]
    pieces = [piece for piece in _FUNCTION.split(text) if 2 <= len(piece) <= 6]
    values = [value for value in statement.values if ME not in value]
    found = values or (*words, *(pieces if language == "zh" else ()))
    return tuple(dict.fromkeys(found))[:_MOST_KEYWORDS]
