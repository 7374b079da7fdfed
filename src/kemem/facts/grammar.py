"""What both languages share: subjects, rules that read a predicate, and what they yield.

A table of rules is text. A line at the margin says what its patterns mean: memory type, topic,
relations, and if needed the list slot (`each:thing`) and the builder (`by:naming`), "-" for
nothing. A line indented by two is a pattern, deeper lines go on with it. `<place>` is a slot, and
the name of a slot is the type of the entity in it; a pattern that opens with "@" reads a whole
clause, every other one what follows the subject.

    residence {s}/lives_in lives_in:place
      lives? in <place>
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from kemem.facts.roles import Role
from kemem.text.patterns import words

_MUTUAL = words("""
sibling_of relative_of friend_of classmate_of roommate_of colleague_of neighbor_of married_to dating
partner_of
""")
_SHARED = ("吃", "喝", "eat", "drink")  # verbs that go with everything in a list
_PASSING = ("event", "plan")  # no states: they do not end, they fail to happen
ME = "\ue000"  # the speaker in names of entities, until the talk has told the name


@dataclass(frozen=True, slots=True)
class Relation:
    """An edge between two typed names.  李明 (person) --studies_at--> 北京大学 (organization)"""

    source: str
    name: str
    target: str
    source_type: str
    target_type: str


@dataclass(frozen=True, slots=True)
class Subject:
    """Who or what a clause speaks of, as text, as an entity and as a topic."""

    label: str  # "用户的妈妈"
    entity: str  # "李明的妈妈"
    topic: str  # "user/mother"
    kind: str = "person"
    role: Role | None = None
    owner: "Subject | None" = None
    relations: tuple[Relation, ...] = ()  # told by the way: "my sister Anna"


@dataclass(frozen=True, slots=True)
class Statement:
    """What one clause says; the text is whole and in the third person."""

    text: str
    memory_type: str
    topic: str | None = None
    values: tuple[str, ...] = ()
    relations: tuple[Relation, ...] = ()
    about: Subject | None = None  # whom the next clause means if it names nobody
    name: str | None = None  # the speaker's own


@dataclass(frozen=True, slots=True)
class Rule:
    """Reads one kind of predicate."""

    pattern: re.Pattern[str]
    memory_type: str
    topic: str | None  # "{s}/lives_in", "{s}/like/{thing}"
    relations: tuple[str, ...]  # "lives_in:place", "has_pet:name|animal"
    each: str | None  # the slot that may list several things: one statement for each
    build: "Build"


@dataclass(frozen=True, slots=True)
class Language:
    """What the rules need to know of a language."""

    rules: Sequence[Rule]
    roles: Mapping[str, Role]
    of: str  # "{}的{}"
    listing: re.Pattern[str]  # what stands between the things of a list
    trim: re.Pattern[str]  # what is no part of a value: articles, measures, particles
    names: Sequence[re.Pattern[str]]  # of people, where a clause opens
    role: re.Pattern[str]  # the one in a role, behind an owner: 的导师张教授, 's advisor Anna
    mine: re.Pattern[str]  # the speaker's own people, wherever they are mentioned
    ended: re.Pattern[str]  # opens a state that is over: no longer, 不再
    still: re.Pattern[str]  # what such a state holds besides: any more

    def one_of(self, owner: Subject, word: str) -> Subject:
        """The one in a role of an owner.  (用户, 妈妈) -> 用户的妈妈"""
        role = self.roles[word]
        label, entity = self.of.format(owner.label, word), self.of.format(owner.entity, word)
        return Subject(label, entity, f"{owner.topic}/{role.name}", role.kind, role, owner)


@dataclass(frozen=True, slots=True)
class Reading:
    """A rule that matched: its subject, its slots (trimmed), the clause as text."""

    rule: Rule
    subject: Subject
    slots: Mapping[str, str]
    text: str
    language: Language
    me: Subject


class Clause(NamedTuple):
    """One way to take a clause apart; no words: the subject is not said."""

    subject: Subject
    words: str
    predicate: str


Build = Callable[[Reading], Statement | None]


@dataclass(slots=True)
class Talk:
    """What is known while a talk is read: the speaker, and who was spoken of."""

    me: Subject
    names: dict[str, Subject] = field(default_factory=dict)  # by topic: "user/mother" -> 王芳
    known: set[str] = field(default_factory=set)  # names of people
    _now: dict[str, Subject] = field(default_factory=dict)  # by pronoun, in this message
    _before: dict[str, Subject] = field(default_factory=dict)  # in the one before

    def turn(self) -> None:
        """A new message: pronouns reach one message back."""
        self._before, self._now = self._now, {}

    def meant(self, pronoun: str) -> Subject | None:
        """Whom he, she, it or they means."""
        return self._now.get(pronoun) or self._before.get(pronoun)

    def latest(self) -> Subject | None:
        """Who was spoken of last."""
        return next(reversed(self._now.values()), None)

    def heard(self, subject: Subject | None) -> None:
        """Pronouns now mean this subject, and a role has its name."""
        if subject is None or subject.topic == self.me.topic:
            return
        told = subject.role.pronoun if subject.role else ""
        kinds = {"person": ("he", "she"), "animal": ("it", "he", "she")}
        for pronoun in (told,) if told and told != "it" else kinds.get(subject.kind, ()):
            self._now.pop(pronoun, None)
            self._now[pronoun] = subject
        if subject.entity == subject.topic:
            self.known.add(subject.entity.partition(" ")[0])
            if subject.role and subject.owner:
                self.names[f"{subject.owner.topic}/{subject.role.name}"] = subject


def named(name: str, kind: str = "person") -> Subject:
    """Somebody by name."""
    return Subject(name, name, name, kind)


def related(owner: Subject, role: Role, name: str) -> tuple[Relation, ...]:
    """The edge between an owner and the one in a role.  (user, mother, 王芳) -> 王芳 parent_of"""
    if role.relation == "-":
        return ()
    ends = [(owner.entity, owner.kind), (name, role.kind)]
    (source, source_type), (target, target_type) = ends[:: -1 if role.relation[0] == "<" else 1]
    return (Relation(source, role.relation.lstrip("<"), target, source_type, target_type),)


def in_role(owner: Subject, role: Role, name: str) -> Subject:
    """Somebody whose role and name are known."""
    return replace(named(name, role.kind), role=role, owner=owner)


def in_roles(
    owner: Subject, opening: str, rest: str, talk: Talk, language: Language
) -> Iterator[Clause]:
    """A clause as one of somebody in a role of the owner, whose name is said, known, or unknown."""
    match = language.role.match(rest)
    if match is None:
        return
    end = match.end("role")
    one = language.one_of(owner, match["role"])
    label = owner.label + rest[:end] if rest.startswith(("的", "'s")) else one.label
    after = rest[end:].lstrip(", ")
    for found in filter(None, (each.match(after) for each in language.names)):
        name, role = found.group(), language.roles[match["role"]]
        gap = rest[end : len(rest) - len(after)]
        known = replace(in_role(owner, role, name), label=f"{label}{gap}{name}")
        known = replace(known, relations=related(owner, role, name))
        yield Clause(known, f"{opening}{rest[:end]}{gap}{name}", after[len(name) :].lstrip(", "))
    if one.topic in talk.names:
        one = replace(one, entity=talk.names[one.topic].entity)
    yield Clause(replace(one, label=label), opening + rest[:end], rest[match.end() :].lstrip())


def normal(value: str) -> str:
    """A value as part of a topic.  "Spicy  Food" -> "spicy food" """
    return " ".join(value.casefold().replace("'s ", " ").replace("/", " ").split())


def _plain(reading: Reading) -> Statement:
    """What the table says."""
    rule, subject, slots = reading.rule, reading.subject, reading.slots
    parts = {name: normal(value) for name, value in slots.items()}
    return Statement(
        reading.text,
        rule.memory_type,
        rule.topic and rule.topic.format(s=subject.topic, **parts),
        tuple(slots.values()),
        tuple(each for row in rule.relations for each in _relation(row, subject, slots)),
        subject,
    )


def _relation(row: str, subject: Subject, slots: Mapping[str, str]) -> Iterator[Relation]:
    name, _, wanted = row.partition(":")
    kinds = wanted.split("|")
    for slot in [each for each in kinds if each in slots][:1]:
        yield Relation(subject.entity, name, slots[slot], subject.kind, kinds[-1])


def _known(reading: Reading, owner: Subject, word: str, name: str) -> Statement:
    """Somebody is in a role, by name or not."""
    role = reading.language.roles[word]
    return Statement(
        reading.text,
        "identity" if role.kind == "animal" else "relationship",
        f"{owner.topic}/{role.name}" if role.one else None,
        tuple(value for value in (word, name) if value),
        related(owner, role, name) if name else (),
        in_role(owner, role, name) if name else reading.language.one_of(owner, word),
    )


def _naming(reading: Reading) -> Statement | None:
    """A name: the speaker's, or that of somebody in a role.  我叫李明; 我的导师是张教授"""
    subject, name = reading.subject, reading.slots["person"]
    if subject.role and subject.owner:
        word = next(word for word, role in reading.language.roles.items() if role is subject.role)
        known = _known(reading, subject.owner, word, name)
        return known if subject.role.relation != "-" else replace(known, memory_type="general")
    if subject.entity == subject.label:
        return None
    return replace(_plain(reading), name=name if subject.entity == ME else None)


def _role_of(reading: Reading) -> Statement:
    """The subject is something to somebody.  李雷是韩梅梅的哥哥"""
    said, subject = reading.slots["owner"], reading.subject
    owner = reading.me if said in ("我", "user", reading.me.label) else named(said)
    made = _known(reading, owner, reading.slots["role"], subject.entity)
    relations = tuple(
        replace(it, source=it.target, target=it.source) if it.name in _MUTUAL else it
        for it in made.relations
    )
    return replace(made, about=subject, relations=relations)


def _has_role(reading: Reading) -> Statement:
    """The subject has somebody.  有一个妹妹，叫小雨; 和张伟是同学"""
    return _known(reading, reading.subject, reading.slots["role"], reading.slots.get("person", ""))


def _pet(reading: Reading) -> Statement:
    """The subject has an animal.  养了一只橘猫，叫咪咪"""
    subject, animal = reading.subject, reading.slots["animal"]
    if "name" in reading.slots:
        return replace(_plain(reading), about=named(reading.slots["name"], "animal"))
    label, entity = (
        reading.language.of.format(it, animal) for it in (subject.label, subject.entity)
    )
    return replace(_plain(reading), about=Subject(label, entity, f"{subject.topic}/pet", "animal"))


def _setting(reading: Reading) -> Statement:
    """A thing and its value; the next clause may say more of it.  的数据库用的是 PostgreSQL"""
    subject, name = reading.subject, reading.slots["name"]
    if subject.kind == "setting":
        return replace(_plain(reading), topic=f"{subject.topic}/{normal(name)}")
    label, entity = (reading.language.of.format(it, name) for it in (subject.label, subject.entity))
    topic = f"{subject.topic}/setting/{normal(name)}"
    return replace(
        _plain(reading), topic=topic, about=Subject(label, entity, topic, "setting", owner=subject)
    )


_BUILDS: dict[str, Build] = {
    "plain": _plain,
    "naming": _naming,
    "role_of": _role_of,
    "has_role": _has_role,
    "pet": _pet,
    "setting": _setting,
}


def rules(table: str, slots: Mapping[str, str], around: str) -> list[Rule]:
    """The rules of a table; `around` is a pattern with "%s" for each row's own."""
    made: list[Rule] = []
    for heading, patterns in _rows(table):
        memory_type, topic, relations, *rest = heading.split()
        options = dict(option.split(":") for option in rest)
        for pattern in patterns:
            # A slot at the front must not take the mark of a whole clause for its first character.
            guard = "" if pattern.startswith("@") else "(?!@)"
            made.append(
                Rule(
                    re.compile(guard + around % _expand(pattern, slots)),
                    memory_type,
                    None if topic == "-" else topic,
                    () if relations == "-" else tuple(relations.split(",")),
                    options.get("each"),
                    _BUILDS[options.get("by", "plain")],
                )
            )
    return made


def _rows(table: str) -> Iterator[tuple[str, list[str]]]:
    heading, patterns = "", list[str]()
    for line in table.strip("\n").split("\n"):
        if line.startswith("    "):
            patterns[-1] += line.strip()
        elif line.startswith("  "):
            patterns.append(line.strip())
        else:
            if heading:
                yield heading, patterns
            heading, patterns = line, []
    yield heading, patterns


def _expand(pattern: str, slots: Mapping[str, str]) -> str:
    """Slots and macros written out; "<city as place>" fills the slot place with a city."""

    def write(match: re.Match[str]) -> str:
        what, slot = match.group(1), match.group(2) or match.group(1)
        return f"(?P<{slot}>{slots[what]})" if what.islower() else f"(?:{slots[what]})"

    return re.sub(r"(?<!\?P)<(\w+)(?: as (\w+))?>", write, pattern)


def read(clause: Clause, text: str, language: Language, me: Subject) -> list[Statement]:
    """What the rules make of a clause; the end of a state has its topic, not its relations."""
    if match := language.ended.match(clause.predicate):
        rest = language.still.sub("", clause.predicate[match.end() :])
        lasting = clause._replace(predicate=f"{match['be'] or ''}{rest}".lstrip())
        over = _fitting(lasting, text, language, me)
        if over and not over[0].name and over[0].memory_type not in _PASSING:
            return [replace(it, relations=clause.subject.relations) for it in over]
    return _fitting(clause, text, language, me)


def _fitting(clause: Clause, text: str, language: Language, me: Subject) -> list[Statement]:
    """What the first fitting rule makes of a clause; nothing if none fits."""
    for rule in language.rules:
        match = rule.pattern.fullmatch(clause.predicate)
        if match is None:
            continue
        said = {slot: _own(value, me, language) for slot, value in match.groupdict("").items()}
        parts = _parts(said, text, rule.each, language)
        readings = [Reading(rule, clause.subject, *part, language, me) for part in parts]
        built = [made for reading in readings if (made := rule.build(reading))]
        if built:
            told = clause.subject.relations + built[0].relations
            return [replace(built[0], relations=told), *built[1:]]
    return []


def _own(value: str, me: Subject, language: Language) -> str:
    """A value without the speaker as its owner.  "user's job" -> "job" """
    mine = language.of.format(me.label, "")
    return value.strip().removeprefix("我的").removeprefix(mine).removeprefix(mine.lower())


def _parts(
    said: Mapping[str, str], text: str, each: str | None, language: Language
) -> Iterator[tuple[Mapping[str, str], str]]:
    """Slots and text, once for every thing of a list.  喜欢打球和游泳 -> 喜欢打球, 喜欢游泳"""
    named = said.get(each) if each else None
    if named is not None and not named.strip():
        return  # "喜欢 了" names nothing
    full = {slot: value for slot, value in said.items() if value}
    verb = full.pop("verb", "")
    slots = {slot: language.trim.sub("", value) for slot, value in full.items()}
    if each not in slots:
        yield slots, text
        return
    listed = full[each]
    for at, part in enumerate(filter(None, map(str.strip, language.listing.split(listed)))):
        spoken = verb + part if at == 0 or verb.startswith(_SHARED) else part
        one = language.trim.sub("", part)
        if one:
            yield {**slots, each: one}, text.replace(verb + listed, spoken)
