"""Chinese sentences read clause by clause: who is spoken of, and what is said of them."""

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

_SUBJECTLESS = {"user_preference", "residence", "health"}  # as answers often are: 不吃辣


def _pattern(name: str) -> re.Pattern[str]:
    return language("zh").patterns.pattern(name)


def chinese_statements(sentence: Sentence, discourse: Discourse) -> list[Statement]:
    """What a sentence states.  我叫李明，住在北京 -> 用户叫李明; 用户住在北京"""
    if _pattern("SUPPOSED").search(sentence.text):
        return []
    statements: list[Statement] = []
    for clause in _clauses(sentence):
        if _pattern("STANDING").fullmatch(clause):
            wish = f"{discourse.me.label}希望{_third(clause, discourse)}"
            new = [Statement(wish, "user_preference")]
        elif _pattern("ORDER").match(clause) or re.search("[你您]", clause):
            continue
        else:
            new = _read(clause, discourse, statements[-1].about if statements else None)
        if new:
            statements += new
        elif statements and not any(_openings(clause, discourse)):
            statements[-1] = _with(statements[-1], clause, discourse)
        for match in _pattern("MINE").finditer(clause):
            discourse.mention(language("zh").in_role(discourse.me, match["role"]))
        discourse.mention(new[-1].about if new else None)
    return statements


def _clauses(sentence: Sentence) -> list[str]:
    """The clauses that tell something; a question that ends the sentence does not."""
    clauses: list[str] = []
    for part in _pattern("BORDER").split(_pattern("NAMED").sub(r"\1，", sentence.text)):
        text = part.strip()
        if clauses and _pattern("TOGETHER").match(text):
            clauses[-1] += f"，{text}"
        elif clauses and not without_times(clauses[-1]):
            clauses[-1] += text
        else:
            clauses.append(text)
    if _ordered(sentence.text):
        return []
    if sentence.asks:
        question = clauses.pop()
        if not _pattern("ASKS").search(question) and not re.search("[你您能可]", question):
            return []
    asks, filler = _pattern("ASKS"), _pattern("FILLER")
    opened = map(language("zh").without_opener, clauses)
    return [it for it in opened if not asks.search(it) and not filler.fullmatch(it)]


def _ordered(text: str) -> bool:
    """An order with its material: 翻译成英文：我喜欢雨天"""
    order, colon, _ = text.replace(":", "：").partition("：")
    quotes = order.endswith(("说", "问", "道"))
    return bool(colon) and (quotes or _pattern("ORDER").match(order) is not None)


def _read(text: str, discourse: Discourse, last: Subject | None) -> list[Statement]:
    """The statements of a clause by the first reading that a rule knows."""
    bare = without_times(text)
    if last:
        bare, text = (re.sub("^其", "的", each) for each in (bare, text))
    if last and last.kind == "setting" and not _pattern("PART").match(bare):
        last = last.owner
    implied = [Clause(discourse.me, "", f"@{bare}"), Clause(last or discourse.me, "", bare)]
    timed = _readings(text, discourse) if text != bare else ()
    for clause in [*_readings(bare, discourse), *implied, *timed]:
        unclear = not clause.words and "我" in bare and clause.predicate[:1] != "@"
        if unclear or _pattern("MENTAL").match(clause.predicate):
            continue
        new = read(clause, _text(text, clause, discourse), language("zh"), discourse.me)
        sure = clause.words or last or clause.predicate[:1] == "@"
        if new and (sure or new[0].memory_type in _SUBJECTLESS):
            return new
    return _general(text, bare, discourse, last)


def _readings(text: str, discourse: Discourse) -> Iterator[Clause]:
    """The clause by its subject: the speaker, a pronoun, a name, or somebody in a role of these."""
    for subject, opening in _openings(text, discourse):
        rest = text[len(opening) :]
        yield from role_clauses(subject, opening, rest, discourse, language("zh"))
        we = replace(subject, label=f"{subject.label}等人") if opening[1:] == "们" else subject
        yield Clause(we, opening, rest)
    if _pattern("OWN_FAMILY").match(text):
        yield from role_clauses(discourse.me, "", text, discourse, language("zh"))


def _openings(text: str, discourse: Discourse) -> Iterator[tuple[Subject, str]]:
    if match := _pattern("ME").match(text):
        yield discourse.me, match.group()
    elif match := _pattern("PRONOUN").match(text):
        pronoun = language("zh").patterns.table("PRONOUNS")[match.group()]
        if subject := discourse.resolve(pronoun):
            yield subject, match.group()
    else:
        names = [match.group() for it in language("zh").names if (match := it.match(text))]
        yield from ((named(name), name) for name in dict.fromkeys(names))


def _text(text: str, clause: Clause, discourse: Discourse) -> str:
    """The clause in the third person, with its subject in full."""
    if clause.predicate[:1] == "@":
        return _third(text, discourse)
    before, words, after = text.partition(clause.words) if clause.words else ("", "", text)
    label = clause.subject.label if words or not clause.words else ""
    return _third(before, discourse) + label + _third(after, discourse)


def _third(text: str, discourse: Discourse) -> str:
    return _pattern("OWN").sub(discourse.me.label, text)


def _with(statement: Statement, clause: str, discourse: Discourse) -> Statement:
    """A statement together with a clause that cannot stand alone."""
    if statement.memory_type != "general" and not _pattern("ATTACHED").match(clause):
        return statement
    return replace(statement, text=f"{statement.text}，{_third(clause, discourse)}")


def _general(text: str, bare: str, discourse: Discourse, last: Subject | None) -> list[Statement]:
    """A statement that no rule knows, if it tells something of somebody."""
    timed = bare != _pattern("LATELY").sub("", text)
    implied = [Clause(last, "", bare)] if last and timed else []
    for clause in [*_readings(bare, discourse), *implied]:
        rest = clause.predicate
        named = clause.subject.entity == clause.subject.topic
        sure = not named or clause.subject.entity in {*discourse.people, discourse.me.entity}
        long = len(rest) >= (2 if timed else 4)
        telling = timed or _pattern("CONCRETE").search(rest) or _pattern("TELLING").match(rest)
        idle = _pattern("TRIVIAL").match(rest) or _pattern("VAGUE").search(rest)
        if sure and long and telling and not idle:
            full, subject = _text(text, clause, discourse), clause.subject
            return [Statement(full, "general", relations=subject.relations, about=subject)]
    return []
