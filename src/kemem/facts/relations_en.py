"""English relations of users' own types: the phrases that say them, and who is meant.

"Priya mentors Tom" -> the verb "mentor": "Greg is being mentored by Simone" is (Simone, Greg)
"Nadia is a tenant of Greystone" -> the noun "tenant" of: "Dario is a tenant of the university"
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

from kemem.facts.grammar import ME
from kemem.facts.language import language
from kemem.text.lexicon import Lexicon, load
from kemem.text.segment import stem

_LONGEST = 5  # words of an end
_REACH = 5  # words from "is" to a noun: "is the one and only sponsor"
_BE = frozenset({"is", "are", "'s", "am"})
_HELPERS = _BE | {"been", "being", "has", "have"}
_ARTICLES = frozenset({"the", "a", "an", "both"})
_MINE = frozenset({"User's", "user's"})
_NAMED = frozenset({"called", "named"})
_RELATIVE = frozenset({"who", "that", "which"})
_ANYTHING = "*"  # one to three words: "supplies (glass) to"
_SIGN = re.compile(r"[,;:()–—]")

Pair = tuple[str, str]
Form = Literal["finite", "ing", "past"]
Voice = Literal["active", "passive", "perfect", "none"]


@dataclass(frozen=True, slots=True)
class Phrase:
    """One way to say a relation: a verb or noun, and the words up to its object."""

    head: str  # a stem
    rest: tuple[str, ...] = ()  # stems behind it: ("to",), ("next", "to")
    is_noun: bool = False  # or an adjective: "allergic to"
    before: tuple[str, ...] = ()  # stems before a noun: ("account",) of "account manager of"
    is_weak: bool = False  # a verb that only an example has: "needs"
    takes_to: bool = False  # an example goes on with "to": "needs Redis to start"


def tokens_of(note: str) -> list[str]:
    """The words of a clause in the third person."""
    rules = _rules()
    whole = rules.pattern("EN_NOT").sub(" not", note)
    whole = rules.pattern("EN_CONTRACTED").sub(" is", whole)
    return rules.pattern("EN_TOKEN").findall(whole)


def stems_of(tokens: Sequence[str]) -> set[str]:
    """What heads of phrases can be found in a clause."""
    return {make(it.lower()) for it in tokens for make in (stem, _verb_stem)}


def is_person(name: str) -> bool:
    """Whether a name is somebody's by its form."""
    patterns = language("en").patterns
    first = name.partition(" ")[0]
    return bool(patterns.pattern("TITLED").match(name)) or first in patterns.tables["FIRST_NAMES"]


def is_participle(word: str) -> bool:
    """Whether a word tells what is done, not who does it."""
    return _form(word) == "past"


def phrases(name: str, description: str, examples: Sequence[str]) -> tuple[Phrase, ...]:
    """How a type's name and its examples, given in the third person, say a relation."""
    words = name.split("_")
    own = _of_name(words)
    known = {_verb_stem(it.lower()) for it in (*words, *tokens_of(description))}
    learned = [it for text in examples if (it := _of_example(tokens_of(text), known))]
    # The longest first: "supplies bolts to Henley" is not (…, supplies, bolts).
    return tuple(sorted(dict.fromkeys((*own, *learned)), key=lambda it: -len(it.rest)))


def pairs(tokens: Sequence[str], phrase: Phrase) -> Iterator[Pair]:
    """Who does what a phrase says, or is what its noun says, and to whom."""
    return (_by_noun if phrase.is_noun else _by_verb)(tokens, phrase)


def _rules() -> Lexicon:
    return load(__package__, "relations.rules")


def _is(table: str, word: str) -> bool:
    return word.lower() in _rules().tables[f"EN_{table}"]


def _is_adverb(word: str) -> bool:
    return _is("ADVERBS", word) or (word.endswith("ly") and word.islower())


def _stops(word: str) -> bool:
    """Whether a word is no part of a noun phrase; a name like "Will" is."""
    return word == word.lower() and _is("STOPS", word)


def _verb_stem(word: str) -> str:
    return stem(_rules().tables["EN_BASES"].get(word, word))


def _form(word: str) -> Form:
    if word.endswith("ing"):
        return "ing"
    return "past" if word.endswith("ed") or word in _rules().tables["EN_BASES"] else "finite"


# How phrases are learned.


def _base(verb: str) -> str:
    """The infinitive of a third person.  supplies -> supply, coaches -> coach"""
    if verb.endswith("ies"):
        return f"{verb[:-3]}y"
    if verb.endswith(("ches", "shes", "sses", "xes", "zes", "oes")):
        return verb[:-2]
    return verb if verb.endswith("ss") else verb.removesuffix("s")


def _agents(verb: str) -> list[str]:
    """Who does what a verb says.  supply -> supplier, sponsor -> sponsor"""
    base = _base(verb)
    if base.endswith(("or", "er")):
        return [base]
    short = re.sub("(?<![aeiou])y$", "i", base).removesuffix("e")
    return [f"{short}er", f"{short}or"]


def _of_name(words: list[str]) -> list[Phrase]:
    """reports_to, treats -> a verb; tenant_of, allergic_to_food -> a noun; managed_by -> a verb"""
    words = words[1:] if words[0] in ("is", "are", "has") and len(words) > 1 else words
    at = next((at for at, it in enumerate(words) if at and _is("PREPOSITIONS", it)), len(words))
    rest = tuple(takewhile(lambda it: _is("PREPOSITIONS", it), words[at:]))
    if rest == ("by",):
        return [Phrase(_verb_stem(words[0]))]
    if len(words) == 1:
        nouns = [Phrase(stem(it), ("of",), is_noun=True) for it in _agents(words[0])]
        return [Phrase(stem(words[0])), *nouns]
    if at == 1 and rest and words[0].endswith("s") and not words[0].endswith("ss"):
        return [Phrase(stem(words[0]), rest)]
    *before, head = map(stem, words[:at])
    return [Phrase(head, rest, is_noun=True, before=tuple(before))] if rest else []


def _of_example(tokens: Sequence[str], known: set[str]) -> Phrase | None:
    """The phrase of an example; None where it is not certain which end is the source."""
    for at, word in enumerate(tokens):
        if not at or not word.islower() or not _left(tokens[:at]):
            continue
        if word in _BE:
            return _after_be(tokens[at + 1 :], known)
        if word.endswith("s") and word.isalpha() and not _is("STOPS", word):
            return _of_verb(word, tokens[at + 1 :], known)
    return None


def _after_be(tokens: Sequence[str], known: set[str]) -> Phrase | None:
    """The phrase of what follows "is".  "held up by …", "a tenant of …", "allergic to …" """
    words = [it for it in tokens if it not in _HELPERS and not _is_adverb(it)]
    at = next((at for at, it in enumerate(words) if at and _is("PREPOSITIONS", it)), None)
    if at is None:
        return None
    if _form(words[0]) == "past" and "by" in words[:4]:
        return Phrase(_verb_stem(words[0]), tuple(map(stem, words[1 : words.index("by")])))
    if _form(words[0]) == "ing":
        return _of_verb(words[0], words[1:], known)
    is_noun = words[0] in _ARTICLES | _MINE or stem(words[at - 1]) in known
    return Phrase(stem(words[at - 1]), (words[at],), is_noun=True) if is_noun else None


def _of_verb(verb: str, after: Sequence[str], known: set[str]) -> Phrase | None:
    """The phrase of a verb.  "needs (Redis)", "has the desk beside (Ines)" """
    words = [it for it in after if not _is_adverb(it)]
    is_light = _is("LIGHT", _base(verb))
    behind = [at for at in range(1, len(words)) if _is("PREPOSITIONS", words[at - 1])]
    objects = behind if is_light else [at for at, it in enumerate(words) if _opens(it)] or behind
    if not objects:
        return None
    rest = tuple(stem(it.lower()) for it in words[: objects[0]] if it not in _ARTICLES)
    if len(rest) > 1 and not is_light and not _is("PREPOSITIONS", rest[0]):
        rest = (_ANYTHING, rest[-1])  # "supplies bolts to"
    is_known = _verb_stem(verb) in known
    _, size = _extent(words[objects[0] :])
    tail = words[objects[0] + size :]
    is_whole = not tail or _stops(tail[0]) or _SIGN.match(tail[0])  # "gives Dad hives" is not
    if is_known or (not rest and not is_light and is_whole):
        takes_to = tail[:1] == ["to"]
        return Phrase(_verb_stem(verb), rest, is_weak=not is_known, takes_to=takes_to)
    return None


def _opens(word: str) -> bool:
    """Whether a word surely opens an end: a name, "user's", "the", a ticket."""
    return word != word.lower() or not word.isalpha() or word == "user" or word in _ARTICLES


# How clauses are read.


def _by_verb(tokens: Sequence[str], phrase: Phrase) -> Iterator[Pair]:
    for at, word in enumerate(tokens):
        if not at or not word.islower() or _verb_stem(word) != phrase.head:
            continue
        start, voice = _voice(tokens, at)
        after = _behind(tokens[at + 1 :], phrase.rest)
        if after is None or voice == "none":
            continue
        left = _left(tokens[:start])
        if voice == "passive":
            by = _behind(after, ("by",)) or []
            yield from ((one, other) for other in left for one in _right(by))
        elif voice == "perfect" and not {"since", "for"} & {*after}:
            continue  # "has treated us" may be over
        elif _agree(tokens[:start], word) and (
            phrase.rest or phrase.takes_to or not _is_given(after)
        ):
            yield from ((one, other) for one in left for other in _right(after))


def _voice(tokens: Sequence[str], at: int) -> tuple[int, Voice]:
    """Where the words that belong to a verb begin, and how it is said, if it says what is so."""
    start = at
    while start and (tokens[start - 1] in _HELPERS or _is_adverb(tokens[start - 1])):
        start -= 1
    helpers = _HELPERS.intersection(tokens[start:at])
    form, has = _form(tokens[at]), bool(helpers & {"has", "have"})
    is_being = bool(helpers & (_BE | {"been"}))
    if form == "ing":
        return start, "active" if is_being else "none"
    if form == "past" and is_being and (not has or "been" in helpers):
        return start, "passive"
    if form == "past":
        return start, "perfect" if has else "none"
    return start, "none" if helpers else "active"


def _agree(subject: Sequence[str], verb: str) -> bool:
    """Whether a verb without -s has a subject of several.  "Eli and Noor report to" """
    several = "and" in subject or subject[-1].endswith("s")
    return several or verb.endswith("s") or _form(verb) != "finite"


def _is_given(after: Sequence[str]) -> bool:
    """Whether an object is followed by "to", in another role.  "treats me to lunch" """
    return after[_extent(after)[1] :][:1] == ["to"]


def _by_noun(tokens: Sequence[str], phrase: Phrase) -> Iterator[Pair]:
    """By a noun: "X is the main sponsor of Y", "Y's sponsor is X", "X is Y's sponsor"."""
    for at, word in enumerate(tokens):
        near = tuple(stem(it.lower()) for it in tokens[max(at - len(phrase.before), 0) : at])
        if stem(word.lower()) != phrase.head or near != phrase.before:
            continue
        before = range(at - 1, max(at - _REACH, 0) - 1, -1)
        be = next((it for it in before if it and tokens[it] in _BE), at)
        owner = next((it for it in before if tokens[it].endswith("'s")), at)
        after = _behind(tokens[at + 1 :], phrase.rest)
        ones, others = list[str](), list[str]()
        if after and not _is_given(after) and be < at and _modify(tokens[be + 1 : at]):
            ones, others = _left(tokens[:be]), _right(after)
        elif phrase.rest == ("of",) and owner < at and _modify(tokens[owner + 1 : at]):
            named, rest = [tokens[owner][:-2]], tokens[at + 1 :]
            if be < owner and (not rest or _stops(rest[0]) or _SIGN.match(rest[0])):
                ones, others = _left(tokens[:be]), _ends([*tokens[be + 1 : owner], *named])
            elif be == at and rest and rest[0] in _BE:
                ones, others = _right(rest[1:]), _left([*tokens[:owner], *named])
        yield from ((one, other) for one in ones for other in others)


def _modify(words: Sequence[str]) -> bool:
    return not any(_stops(it) for it in words if it not in _ARTICLES and it != "one")


def _behind(tokens: Sequence[str], rest: Sequence[str]) -> list[str] | None:
    """What follows some words; None where they are not said. Nouns may have words before them."""
    left = [*tokens]
    if rest[:1] == (_ANYTHING,):
        at = left.index(rest[1]) if rest[1] in left[1:4] else 0
        return left[at + 1 :] if at and _ends(left[:at]) else None
    for number, word in enumerate(rest):
        left = _without_adverbs(left)
        gap = 0 if number + 1 == len(rest) or _is("PREPOSITIONS", word) else 2
        said = [stem(it.lower()) for it in left[: gap + 1]]
        if word not in said:
            return None
        left = left[said.index(word) + 1 :]
    return _without_adverbs(left)


def _without_adverbs(tokens: Sequence[str]) -> list[str]:
    first = next((at for at, it in enumerate(tokens) if not _is_adverb(it)), len(tokens))
    return [*tokens[first:]]


# Who or what is meant.


def _left(tokens: Sequence[str]) -> list[str]:
    """Who a clause speaks of, by what stands before its verb."""
    for start in range(len(tokens)):
        before, ends = tokens[:start], _ends(tokens[start:])
        if ends:
            opens = before and (before[-1] == "," or _is("OPENERS", before[0]))
            told = before and before[-1] == "that" and any(_is("FACTIVE", it) for it in before)
            return ends if not before or opens or told else []
    return []


def _right(tokens: Sequence[str]) -> list[str]:
    """Whom a phrase leads to, by what follows it."""
    ends, size = _extent(tokens)
    more = tokens[size + 1 :]
    if tokens[size : size + 1] == ["and"] and more and _opens(more[0]):
        ends += _right(more)
    return ends


def _extent(tokens: Sequence[str]) -> tuple[list[str], int]:
    """The end that tokens begin with, and how many of them it takes."""
    size = 0
    for at, word in enumerate(tokens):
        joins = word in _NAMED or word == "of" or (word == "both" and not at)
        if _SIGN.match(word) or (_stops(word) and not (joins and tokens[at + 1 :])):
            break
        size = at + 1
    after = tokens[size:]
    if tokens[0:1] and tokens[0] in ("a", "an") and after[:1] == [","] and _is_name(after[1:2]):
        name, more = _extent(after[1:])  # "a student, Lina"
        return name, size + 1 + more
    if after and after[0] in _RELATIVE and tokens[0] in _ARTICLES:  # "the guy who built it"
        return [], size
    return _ends(tokens[:size]), size


def _is_name(words: Sequence[str]) -> bool:
    return bool(words) and all(it[0].isupper() for it in words)


def _ends(tokens: Sequence[str]) -> list[str]:
    """What noun phrases mean; nothing where they are none.  "user's vet Dr. Moss" -> Dr. Moss"""
    words = [*tokens]
    if words[:3] == ["User", "and", "others"]:
        words[1:3] = []
    if words and words[0].lower() == "both":
        words = words[1:]
    if "and" in words:
        at = words.index("and")
        first, second = _ends(words[:at]), _ends(words[at + 1 :])
        return [*first, *second] if first and second else []
    if words and words[0].lower() in _ARTICLES:
        words = words[1:]
    called = next((at for at, it in enumerate(words) if at and it in _NAMED), -1)
    return [end] if (end := _end(words[called + 1 :])) else []


def _end(words: list[str]) -> str:
    wrong = any((_stops(it) and it != "of") or it in _ARTICLES or _SIGN.match(it) for it in words)
    if wrong or not 0 < len(words) <= _LONGEST or "of" in (words[0], words[-1]):
        return ""
    if words[-1].endswith("'s"):
        return ""
    if words in (["User"], ["user"]):
        return ME
    if words[0] in ("User", "This", "That", "It") or {"User", "user", *_MINE}.intersection(
        words[1:]
    ):
        return ""
    title = next((at for at, it in enumerate(words) if it.endswith(".")), 0)
    if words[0] not in _MINE:
        return "" if title or _is("STOPS", words[0]) else " ".join(words)
    name = next((at for at, it in enumerate(words) if at > 1 and it[0].isupper()), 0)
    if name and _is_name(words[name:]):
        return " ".join(words[name:])
    return " ".join([f"{ME}'s", *words[1:]]) if len(words) > 1 else ""
