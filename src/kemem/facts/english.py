"""English sentences read clause by clause: who is spoken of, and what is said of them.

A clause is put into the third person first: "I don't like my job" -> "User doesn't like user's job"
"""

import re
from collections.abc import Iterator
from dataclasses import replace

from kemem.facts.dates import without_times
from kemem.facts.grammar import (
    Clause,
    Discourse,
    Statement,
    Subject,
    language,
    named,
    read,
    role_clauses,
)
from kemem.facts.sentences import Sentence

# What only people do: here the first word of a sentence may be trusted to be a name.
_PERSONAL = {"work", "residence", "education", "relationship", "identity", "health", "contact"}


def _pattern(name: str) -> re.Pattern[str]:
    return language("en").patterns.pattern(name)


def _words(name: str) -> frozenset[str]:
    return language("en").patterns.words(name)


def english_statements(sentence: Sentence, discourse: Discourse) -> list[Statement]:
    """What a sentence states.  I'm Emma and I live in Rome -> User is Emma; User lives in Rome"""
    text = sentence.text
    if _pattern("SUPPOSED").search(text) or _pattern("ORDER").match(text):
        return []
    if _pattern("STANDING").fullmatch(text) and not sentence.asks:
        wish = third_person(text[:1].lower() + text[1:], discourse.me.label)
        return [Statement(f"{discourse.me.label} wants this: {wish}", "user_preference")]
    statements: list[Statement] = []
    for clause in _clauses(sentence, discourse):
        new = _read(clause, discourse)
        statements += new
        for match in _pattern("MINE").finditer(third_person(clause, "User")):
            discourse.mention(language("en").in_role(discourse.me, match["role"]))
        discourse.mention(new[-1].about if new else None)
    return statements


def _clauses(sentence: Sentence, discourse: Discourse) -> Iterator[str]:
    """The clauses that tell something, each with its subject; a question does not."""
    introduced = _pattern("THIS").sub(r"\1I'm ", sentence.text)
    parts = _parts(_pattern("NAMED").sub(r"\1, I'm ", introduced))
    if sentence.asks and not _pattern("QUESTION").match(parts.pop()):
        return
    subject = ""
    for part in filter(None, parts):
        clause = part.removeprefix("who ").removeprefix("which ")
        if clause != part and (latest := discourse.latest()):
            subject = latest.label
        elif match := _pattern("SUBJECT").match(without_times(part)):
            subject = match.group()
        elif _pattern("QUESTION").match(part) and not (subject and _pattern("DROPPED").match(part)):
            continue
        dropped = subject and _pattern("DROPPED").match(clause)
        yield f"{subject} {clause}" if dropped else clause


def _parts(text: str) -> list[str]:
    """A sentence at its borders; "my wife and I" has none inside."""
    first, *rest = _pattern("BORDER").split(text)
    parts = [language("en").without_opener(first.strip(" ,."))]
    for border, part in zip(rest[::2], rest[1::2], strict=True):
        if "and" in border and part[:2] in ("I ", "i ") and _pattern("MY").fullmatch(parts[-1]):
            parts[-1] += f" and {part}"
        elif parts[-1] and not without_times(parts[-1]):  # Last Friday, I went
            parts[-1] = f"{part} {parts[-1][0].lower()}{parts[-1][1:]}"
        else:
            parts.append(language("en").without_opener(part.strip(" ,.")))
    return parts


def _read(clause_text: str, discourse: Discourse) -> list[Statement]:
    """The statements of a clause by the first reading that a rule knows."""
    text = _expanded(third_person(clause_text, discourse.me.label), discourse.me.label)
    bare = without_times(text)
    whole = Clause(discourse.me, "", f"@{bare}")
    timed = _readings(text, discourse) if text != bare else ()
    for clause in [*_readings(bare, discourse), whole, *timed]:
        if _pattern("YOU").search(clause.predicate) and clause.predicate[0] != "@":
            continue
        new = read(clause, _text(text, clause), language("en"), discourse.me)
        if new and (new[0].memory_type in _PERSONAL or _sure(clause.subject, discourse)):
            return new
    return _general(text, bare, discourse)


def _expanded(text: str, me: str) -> str:
    """The first "'s" as a verb where it is one.  "Anna's from Rome" -> "Anna is from Rome" """
    match = _pattern("CONTRACTED").match(text)
    if match and match.group() != f"{me}'s ":
        return f"{match.group()[:-3]} is {text[match.end() :]}"
    return text


def _readings(text: str, discourse: Discourse) -> Iterator[Clause]:
    """The clause by its subject: the speaker, a pronoun, a name, or somebody in a role of these."""
    for subject, opening in _openings(text, discourse):
        rest = _pattern("ADVERB").sub(r"\1", text[len(opening) :])
        yield from role_clauses(subject, opening, rest, discourse, language("en"))
        yield Clause(subject, opening, rest.lstrip(" ,"))


def _openings(text: str, discourse: Discourse) -> Iterator[tuple[Subject, str]]:
    me = discourse.me.label
    name, own = _pattern("NAME").pattern, re.escape(me)
    both = re.match(rf"(?:{own}'s [\w ]{{2,20}}|{name}) and {own}(?= )", text)
    group = both.group() if both else f"{me} and others"
    if text.startswith(f"{group} "):
        yield replace(discourse.me, label=group), group
    elif text.startswith((f"{me} ", f"{me}'s ")):
        yield discourse.me, me
    elif match := _pattern("PRONOUN").match(text):
        if subject := discourse.resolve(match.group().lower()):
            yield subject, match.group()
    elif match := _pattern("BARE").match(text):
        yield language("en").in_role(discourse.me, match.group().lower()), match.group()
    elif (match := language("en").names[0].match(text)) and _can_be_name(match.group()):
        yield named(match.group()), match.group()


def _can_be_name(text: str) -> bool:
    return _words("NOT_NAMES").isdisjoint(text.split())


def _sure(subject: Subject, discourse: Discourse) -> bool:
    """Whether a subject is somebody, not just the first word of a sentence."""
    first, blank, _ = subject.entity.partition(" ")
    named_so = bool(blank) or first in _words("FIRST_NAMES") or first in discourse.people
    return named_so or "/" in subject.topic or subject.topic == discourse.me.topic


def _text(text: str, clause: Clause) -> str:
    """The clause with its subject in full."""
    if clause.words and clause.subject.label != clause.words:
        return text.replace(clause.words, clause.subject.label, 1)
    return text


def _general(text: str, bare: str, discourse: Discourse) -> list[Statement]:
    """A statement that no rule knows, if it tells something of somebody."""
    for clause in _readings(bare, discourse):
        rest = clause.predicate
        timed, subject = bare != text, clause.subject
        long = len(rest.split()) >= (1 if timed else 2) and _pattern("VERB").match(rest)
        passing = not timed and _pattern("PASSING").match(rest)
        idle = passing or _pattern("TRIVIAL").match(rest) or _pattern("VAGUE").search(rest)
        own = rest.replace(discourse.me.label, "")
        telling = timed or _pattern("CONCRETE").search(own) or _pattern("TELLING").match(rest)
        if long and telling and not idle and _sure(subject, discourse):
            full = _text(text, clause)
            return [Statement(full, "general", relations=subject.relations, about=subject)]
    return []


def _verb_s(verb: str) -> str:
    """The third person of a verb.  "live" -> "lives", "study" -> "studies", "went" -> "went" """
    if form := language("en").patterns.table("THIRD_PERSON").get(verb):
        return form
    past = verb.endswith("ed") and verb not in ("need", "feed", "breed", "speed")
    if past or verb in _words("SAME_FORM"):
        return verb
    if verb.endswith("y") and verb[-2:-1] not in "aeiou":
        return verb[:-1] + "ies"
    return verb + ("es" if verb.endswith(("s", "x", "z", "ch", "sh", "o")) else "s")


def third_person(text: str, me: str) -> str:
    """A clause as said of the speaker.  "I'm glad I moved" -> "User is glad User moved" """
    text = _pattern("ME").sub(lambda match: _spoken(match, me), text)
    text = _pattern("OWN").sub(lambda match: _own(match, me), text)
    return text[:1].upper() + text[1:] if text.startswith("user's ") else text


def _spoken(match: re.Match[str], me: str) -> str:
    joined, rest, tables = match["joined"] or "", match["rest"], language("en").patterns
    if match["me"].lower() == "we":
        plural = tables.table("PLURAL").get(joined)
        return f"{me} and others {plural}{rest}" if plural else f"{me} and others{rest}"
    if joined:
        return f"{me} {tables.table('THIRD_PERSON').get(joined, 'is')}{rest}"
    words = rest.split()
    if match.string[: match.start()].endswith("and "):  # my husband and I live
        return " ".join([me, *words])
    for at, word in enumerate(words):
        if word in _words("NO_ADVERB") or not _pattern("BEFORE_VERB").fullmatch(word):
            words[at] = _verb_s(word)
            break
    return " ".join([me, *words])


def _own(match: re.Match[str], me: str) -> str:
    who = "user" if me == "User" and match.group()[0].islower() else me
    return f"{who}'s" if match["owner"] else who
