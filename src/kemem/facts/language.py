"""The rules of a language as data: `zh.rules`, `en.rules` and `roles.tsv` explain their formats."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from kemem.text.lexicon import Lexicon, load

_LANGUAGES = {"zh": ("{}的{}", ["NAME", "LONG_NAME"]), "en": ("{}'s {}", ["OPENING_NAME"])}
_BUILDS = (
    "plain",
    "naming",
    "role_of",
    "has_role",
    "pet",
    "setting",
    "ending",
)  # methods of Reader


@dataclass(frozen=True, slots=True)
class Role:
    """What somebody is to an owner.  mother: 妈妈, mom; X --parent_of--> the owner"""

    kind: str
    name: str  # in topics: "user/mother"
    pronoun: str  # he, she, it, they; "" where only the name could tell
    relation: str  # from the owner to the one in the role; "<" turns it round, "=" is mutual
    one: bool  # a new one takes the place of the old
    words: Mapping[str, tuple[str, ...]]  # by language


@dataclass(frozen=True, slots=True)
class Rule:
    """Reads one kind of predicate."""

    pattern: re.Pattern[str]
    memory_type: str
    topic: str | None  # "{s}/lives_in", "{s}/like/{thing}"
    relations: tuple[str, ...]  # "lives_in:place", "has_pet:name|animal"
    each: str | None  # the slot that may list several things: one statement for each
    build: str  # the method of a Reader that makes the statement
    state: str  # what holds since: "works at {organization}[ as {occupation}]"


@dataclass(frozen=True, slots=True)
class Language:
    """The rules of a language and what they need to know of it."""

    rules: Mapping[bool, Sequence[Rule]]  # True: for whole clauses; False: what follows a subject
    roles: Mapping[str, Role]
    possessive: str  # "{}的{}"
    names: Sequence[re.Pattern[str]]  # of people, where a clause opens
    patterns: Lexicon


@cache
def _roles() -> list[Role]:
    roles = []
    lines = (files(__package__) / "roles.tsv").read_text("utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        cells = line.split("\t")
        if not line or line[0] == "#":
            continue
        if len(cells) != 7 or not all(cells) or cells[4] not in ("one", "many"):
            problem = f"expected seven columns, see its head: {line!r:.80}"
            raise ValueError(f"roles.tsv:{number}: {problem}")
        kind, name, pronoun, relation, count, *words = cells
        chinese, english = (tuple(it.split("|")) for it in words)
        both = {"zh": chinese, "en": english}
        roles.append(Role(kind, name, pronoun.strip("-"), relation, count == "one", both))
    return roles


def _rules(patterns: Lexicon) -> Mapping[bool, Sequence[Rule]]:
    """The rules that read whole clauses, marked by "@", and those that read predicates."""
    rules: dict[bool, list[Rule]] = {True: [], False: []}
    before, after, loose = (patterns.pattern(it).pattern for it in ("BEFORE", "AFTER", "LOOSE"))
    for heading, lines in patterns.rules:  # "residence {s}/lives_in lives_in:place"
        fields = heading.text.split()
        options = {name: value for name, _, value in (it.partition(":") for it in fields[3:])}
        if len(fields) < 3 or not options.keys() <= {"each", "by", "state"}:
            problem = f"expected type, topic, relations, options, not {heading.text!r}"
            patterns.refuse(heading, problem)
        build = options.get("by", "plain")
        if build not in _BUILDS:
            patterns.refuse(heading, f"by:{build} is not one of {', '.join(_BUILDS)}")
        memory_type, topic, relations = fields[:3]
        end = after if "each" in options else loose
        for line in lines:
            rule = Rule(
                patterns.compile(line, f"{before}{patterns.expand(line)}(?P<after>{end})"),
                memory_type,
                None if topic == "-" else topic,
                () if relations == "-" else tuple(relations.split(",")),
                options.get("each"),
                build,
                options.get("state", "").replace("_", " "),
            )
            rules[line.text.startswith("@")].append(rule)
    return rules


@cache  # not at import: compiling takes time
def language(code: str) -> Language:
    """The rules of zh or en, ready."""
    words = {word: role for role in _roles() for word in role.words[code]}
    any_role = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    patterns = load(__package__, f"{code}.rules", ROLE=any_role)
    possessive, names = _LANGUAGES[code]
    return Language(_rules(patterns), words, possessive, [*map(patterns.pattern, names)], patterns)
