"""What both languages share: subjects, how rules read a predicate, and what they yield."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from kemem.facts.language import Role, Rule, language

_SHARED = ("吃", "喝", "eat", "drink")  # verbs that go with everything in a list
_PASSING = ("event", "plan")  # no states: they do not end, they fail to happen
_OPTIONAL = re.compile(
    r"\[([^]|]*)\|?([^]]*)\]"
)  # of a state: "[ as {occupation}]", "[担任{job}|工作]"
_ADDED = re.compile(r",? (?:with|because|for|so) .*")  # to what an event began; the rest is of it
_ASIDE = re.compile(
    r",? (?:since|which|that|when|after|before|while|al?though|as(?! well)|but) .*|.*年.*"
)
_NAMED = re.compile(r"\d|\b(?!User\b|I\b)[A-Z]")  # "moved to a new city, Ghent"
_LOCATED = {"lives in": "is in", "住在": "在"}  # of what has a place, and no home
_PRONOUNS = {"person": ("he", "she"), "animal": ("it", "he", "she")}
_PLURAL = {"is": "are", "has": "have", "does": "do", "goes": "go"}
ME = "\ue000"  # the speaker in names of entities, until the speaker's name is known

Slots = Mapping[str, str]


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
    relations: tuple[Relation, ...] = ()  # mentioned in passing: "my sister Anna"


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
    state: str = ""  # what holds since the event that the text tells of
    ends: bool = False  # it tells that what held of its topic is over
    begins: "Statement | None" = None  # what holds once the day that it tells has come


@dataclass(frozen=True, slots=True)
class Part:
    """A clause of a sentence: as it was said, as it would be kept, and what rules read in it."""

    text: str
    note: str
    statements: tuple[Statement, ...] = ()
    about: Subject | None = None
    stands: bool = True  # it names its subject, so that it can be understood alone
    silent: bool = False  # a question, a supposition or filler: it states nothing
    introduction: str = ""  # the clause that names whom it tells of: 有个老顾客


class Clause(NamedTuple):
    """One way to take a clause apart; no words: the subject is not said."""

    subject: Subject
    words: str
    predicate: str


@dataclass(slots=True)
class Discourse:
    """What is known while messages are read: the speaker, and whom pronouns and roles mean."""

    me: Subject
    names: dict[str, Subject] = field(default_factory=dict)  # by topic: "user/mother" -> 王芳
    people: set[str] = field(default_factory=set)  # their names
    subject: Subject | None = None  # of the sentence before, in this message
    introduced: str = ""  # who came up as somebody new, and is spoken of: 有个老顾客
    other: bool = False  # somebody of whom rules know nothing is spoken of: 前房东
    _pronouns: dict[str, Subject | None] = field(default_factory=dict)  # in this message
    _before: dict[str, Subject | None] = field(default_factory=dict)  # in the one before

    def introduce(self, subject: Subject | None, kind: str, pronoun: str) -> None:
        """Somebody comes up in passing: None without a name, "" where only that tells the pronoun.

        A pronoun that may mean two means nobody; "my sister is seeing Tom, she …" is clear.
        """
        for each in (pronoun,) if pronoun else _PRONOUNS.get(kind, ()):
            held = self._pronouns.get(each)
            sure = held and held.role and held.role.pronoun == each
            if pronoun or not sure:
                self._refer(subject if pronoun or not held else None, each)
        if subject:
            self.people.add(subject.entity.partition(" ")[0])

    def _refer(self, subject: Subject | None, pronoun: str) -> None:
        self._pronouns.pop(pronoun, None)
        self._pronouns[pronoun] = subject

    def next_message(self) -> None:
        """A new message: pronouns reach one message back."""
        self._before, self._pronouns, self.subject = self._pronouns, {}, None
        self.introduced, self.other = "", False

    def resolve(self, pronoun: str) -> Subject | None:
        """Whom he, she, it or they means; None where that is not clear."""
        return self._pronouns.get(pronoun, self._before.get(pronoun))

    def mentioned(self) -> list[Subject]:
        """Whom pronouns may mean."""
        subjects = (*self._before.values(), *self._pronouns.values())
        return list({it.label: it for it in subjects if it}.values())

    def latest(self) -> Subject | None:
        """Who was mentioned last."""
        return next(filter(None, reversed(self._pronouns.values())), None)

    def mention(self, subject: Subject | None) -> None:
        """Pronouns now mean this subject, and a role has its name."""
        if subject is None or subject.topic == self.me.topic:
            return
        own = subject.role.pronoun if subject.role else ""
        for pronoun in (own,) if own and own != "it" else _PRONOUNS.get(subject.kind, ()):
            self._refer(subject, pronoun)
        if subject.entity == subject.topic:
            self.people.add(subject.entity.partition(" ")[0])
            if subject.role and subject.owner:
                self.names[f"{subject.owner.topic}/{subject.role.name}"] = subject


def named(name: str, kind: str = "person") -> Subject:
    """Somebody by name."""
    return Subject(name, name, name, kind)


def _related(owner: Subject, role: Role, name: str) -> tuple[Relation, ...]:
    """The edge between an owner and the one in a role.  (user, mother, 王芳) -> 王芳 parent_of"""
    if role.relation == "-":
        return ()
    ends = [(owner.entity, owner.kind), (name, role.kind)]
    (source, source_type), (target, target_type) = ends[:: -1 if role.relation[0] == "<" else 1]
    return (Relation(source, role.relation.lstrip("<="), target, source_type, target_type),)


def _in_role(owner: Subject, role: Role, name: str) -> Subject:
    return replace(named(name, role.kind), role=role, owner=owner)


def _normal(value: str) -> str:
    """A value as part of a topic.  "Spicy  Food" -> "spicy food" """
    return " ".join(value.casefold().replace("'s ", " ").replace("/", " ").split())


def _plain(rule: Rule, subject: Subject, slots: Slots, text: str) -> Statement:
    relations = []
    for row in rule.relations:
        name, _, kinds = row.partition(":")
        *_, kind = choices = kinds.split("|")
        if slot := next((it for it in choices if it in slots), None):
            relations.append(Relation(subject.entity, name, slots[slot], subject.kind, kind))
    parts = {name: _normal(value) for name, value in slots.items()}
    topic = rule.topic and rule.topic.format(s=subject.topic, **parts)
    values = tuple(slots.values())
    return Statement(text, rule.memory_type, topic, values, tuple(relations), subject)


def _state(template: str, subject: Subject, values: Slots, after: str) -> str:
    """What holds since an event; "" where it would lose what else is said.

    ("works at {organization}[ as {occupation}]", …) -> "User works at Fiat as a welder"
    """
    if _ASIDE.fullmatch(after) or (after.startswith(", ") and _NAMED.search(after)):
        return ""

    slots = defaultdict(str, values)
    if subject.kind not in ("person", "animal"):
        for lives, located in _LOCATED.items():
            template = template.replace(lives, located)

    def filled(match: re.Match[str]) -> str:
        names = re.findall(r"\{(\w+)", match[1])
        return match[1].format_map(slots) if all(slots[it] for it in names) else match[2]

    state = _OPTIONAL.sub(filled, template).format_map(slots)
    verb, blank, rest = state.partition(" ")
    if not verb.isascii():
        return f"{subject.label}{state}"
    if " and " in subject.label:
        verb = _PLURAL.get(verb) or re.sub("ies$", "ys", verb).removesuffix("s")
    added = after if _ADDED.fullmatch(after) else ""
    return f"{subject.label} {verb}{blank}{rest}{added}"


class Reader:
    """Reads what one speaker says in a language, by its rules."""

    def __init__(self, discourse: Discourse, code: str) -> None:
        self.discourse = discourse
        self.me = discourse.me
        self.language = language(code)
        self.pattern = self.language.patterns.pattern
        self.tables = self.language.patterns.tables

    def in_role(self, owner: Subject, word: str) -> Subject:
        """The one in a role of an owner.  (用户, 妈妈) -> 用户的妈妈"""
        role = self.language.roles[word]
        topic = f"{owner.topic}/{role.name}"
        return Subject(*self.owned(owner, word), topic, role.kind, role, owner)

    def owned(self, owner: Subject, word: str) -> tuple[str, str]:
        """Something of an owner, as label and as entity.  用户的猫, 李明的猫"""
        of = self.language.possessive.format
        return of(owner.label, word), of(owner.entity, word)

    def without_opener(self, clause: str) -> str:
        """A clause without words that only lead to it.  "其实，我住在北京" -> "我住在北京" """
        while match := self.pattern("OPENER").match(clause):
            clause = clause[match.end() :]
        return clause

    def mention(self, clause: str, statements: Sequence[Statement]) -> None:
        """Pronouns now mean those in a role of the speaker, and whom the statements are about."""
        for match in self.pattern("MINE").finditer(clause):
            role, name = match["role"], match.groupdict().get("name")
            known = _in_role(self.me, self.language.roles[role], name) if name else None
            self.discourse.mention(known or self.in_role(self.me, role))
        self.discourse.mention(statements[-1].about if statements else None)
        for match in self.pattern("INTRODUCED").finditer(clause):
            what = match["what"] or ""
            role = self.language.roles.get(what)
            kind = role.kind if role else "animal" if what in self.tables["PETS"] else "person"
            pronoun = self.tables["GENDERS"].get(what) or (role.pronoun if role else "")
            one = named(match["name"], kind) if match["name"] else None
            self.discourse.introduce(one, kind, pronoun.removeprefix("it"))

    def role_clauses(self, owner: Subject, opening: str, rest: str) -> Iterator[Clause]:
        """A clause as one of somebody in a role of the owner: the name is said, known, or not."""
        match = self.pattern("ROLE_OF").match(rest)
        if match is None:
            return
        end, role = match.end("role"), self.language.roles[match["role"]]
        unnamed = self.in_role(owner, match["role"])
        label = owner.label + rest[:end] if rest.startswith(("的", "'s")) else unnamed.label
        after = rest[end:].lstrip(", ")
        gap = rest[end : len(rest) - len(after)]
        for name in [it.group() for each in self.language.names if (it := each.match(after))]:
            full, edge = f"{label}{gap}{name}", _related(owner, role, name)
            one = replace(_in_role(owner, role, name), label=full, relations=edge)
            yield Clause(one, f"{opening}{rest[:end]}{gap}{name}", after[len(name) :].lstrip(", "))
        entity = self.discourse.names.get(unnamed.topic, unnamed).entity
        unnamed = replace(unnamed, label=label, entity=entity)
        yield Clause(unnamed, opening + rest[:end], rest[match.end() :].lstrip())

    def read(self, clause: Clause, text: str) -> list[Statement]:
        """What the rules make of a clause; the end of a state has its topic, not its relations."""
        if not clause.predicate:
            return []
        if match := self.pattern("ENDED").match(clause.predicate):
            rest = self.pattern("STILL").sub("", clause.predicate[match.end() :])
            lasting = clause._replace(predicate=f"{match['be'] or ''}{rest}".lstrip())
            over = self._fitting(lasting, text)
            if over and not over[0].name and over[0].memory_type not in _PASSING:
                return [replace(it, relations=clause.subject.relations, state="") for it in over]
        return self._fitting(clause, text)

    def _fitting(self, clause: Clause, text: str) -> list[Statement]:
        """What the first fitting rule makes of a clause; nothing if none fits."""
        subject, mine = clause.subject, self.language.possessive.format(self.me.label, "")
        for rule in self.language.rules[clause.predicate.startswith("@")]:
            match = rule.pattern.fullmatch(clause.predicate)
            if match is None:
                continue
            values = {slot: value.strip() for slot, value in match.groupdict("").items()}
            values.pop("after")
            state = rule.state and _state(rule.state, subject, values, match["after"])
            for own in ("我的", mine, mine.lower()):  # "user's job" -> "job"
                values = {slot: value.removeprefix(own) for slot, value in values.items()}
            statements: list[Statement] = []
            for slots, part in self._parts(values, text, rule.each):
                plain = _plain(rule, subject, slots, part)
                made = (
                    plain
                    if rule.build == "plain"
                    else getattr(self, rule.build)(plain, subject, slots)
                )
                statements += [replace(made, state=state)] if made else []
            if statements:
                relations = subject.relations + statements[0].relations
                return [replace(statements[0], relations=relations), *statements[1:]]
        return []

    def _parts(self, values: Slots, text: str, each: str | None) -> Iterator[tuple[Slots, str]]:
        """Slots and text, once for every thing of a list.  喜欢打球和游泳 -> 喜欢打球, 喜欢游泳"""
        things = values.get(each) if each else None
        if things is not None and not things.strip():
            return  # "喜欢 了" names nothing
        trim = partial(self.pattern("TRIM").sub, "")  # articles, measures, particles
        filled = {slot: value for slot, value in values.items() if value}
        verb = filled.pop("verb", "")
        slots = {slot: trim(value) for slot, value in filled.items()}
        if each not in slots:
            yield slots, text
            return
        listed = filled[each]
        items = self.pattern("LISTING").split(listed)
        if any(self.goes_on(item) for item in items[1:]):
            yield {**slots, each: trim(items[0].strip())}, text
            return
        for at, item in enumerate(filter(None, map(str.strip, items))):
            spoken = verb + item if at == 0 or verb.startswith(_SHARED) else item
            if thing := trim(item):
                yield {**slots, each: thing}, text.replace(verb + listed, spoken)

    def goes_on(self, item: str) -> bool:
        """Whether what follows in a list is no further thing.  "can't stand coffee, tea only" """
        return self.pattern("CONTRAST").search(item) is not None

    def _role_fact(self, text: str, owner: Subject, word: str, name: str) -> Statement:
        role = self.language.roles[word]
        return Statement(
            text,
            "identity" if role.kind == "animal" else "relationship",
            f"{owner.topic}/{role.name}" if role.one else None,
            tuple(value for value in (word, name) if value),
            _related(owner, role, name) if name else (),
            _in_role(owner, role, name) if name else self.in_role(owner, word),
        )

    def naming(self, plain: Statement, subject: Subject, slots: Slots) -> Statement | None:
        """A name: the speaker's, or that of somebody in a role.  我叫李明; 我的导师是张教授"""
        name = slots["person"]
        if subject.role and subject.owner:
            roles = self.language.roles.items()
            word = next(word for word, role in roles if role is subject.role)
            statement = self._role_fact(plain.text, subject.owner, word, name)
            related = subject.role.relation != "-"
            return statement if related else replace(statement, memory_type="general")
        if subject.entity == subject.label:
            return None
        return replace(plain, name=name if subject.entity == ME else None)

    def role_of(self, plain: Statement, subject: Subject, slots: Slots) -> Statement:
        """The subject is something to somebody.  李雷是韩梅梅的哥哥"""
        name, word = slots["owner"], slots["role"]
        owner = self.me if name in ("我", "user", self.me.label) else named(name)
        statement = self._role_fact(plain.text, owner, word, subject.entity)
        relations = statement.relations
        if self.language.roles[word].relation[0] == "=":
            relations = tuple(replace(it, source=it.target, target=it.source) for it in relations)
        return replace(statement, about=subject, relations=relations)

    def has_role(self, plain: Statement, subject: Subject, slots: Slots) -> Statement:
        """The subject has somebody.  有一个妹妹，叫小雨; 和张伟是同学"""
        return self._role_fact(plain.text, subject, slots["role"], slots.get("person", ""))

    def pet(self, plain: Statement, subject: Subject, slots: Slots) -> Statement:
        """The subject has an animal.  养了一只橘猫，叫咪咪"""
        if "name" in slots:
            return replace(plain, about=named(slots["name"], "animal"))
        owner = self.me if subject.topic == self.me.topic else subject  # "User and others"
        animal, roles = slots["animal"], self.language.roles
        role = next((roles[it] for it in roles if animal.endswith(it)), None)
        topic = f"{owner.topic}/pet"
        about = Subject(*self.owned(owner, animal), topic, "animal", role, owner)
        return replace(plain, about=about)

    def ending(self, plain: Statement, subject: Subject, slots: Slots) -> Statement:
        """What held is over, and nothing is in its place.  "quit my job last week" """
        return replace(plain, about=subject, ends=True)

    def setting(self, plain: Statement, subject: Subject, slots: Slots) -> Statement:
        """A thing and its value; the next clause may say more of it.  的数据库用的是 PostgreSQL"""
        name = slots["name"]
        if subject.kind == "setting":
            return replace(plain, topic=f"{subject.topic}/{_normal(name)}")
        topic = f"{subject.topic}/setting/{_normal(name)}"
        thing = Subject(*self.owned(subject, name), topic, "setting", owner=subject)
        return replace(plain, topic=topic, about=thing)
