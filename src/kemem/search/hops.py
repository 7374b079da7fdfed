"""Second hop of search: what is asked of "my cousin" is asked of Pip, where a row names her so.

The best rows of the first hop may give a name to what a question is about. Then the question is put
once more with the name in the place of the words, and rows that use the name are judged by that.
The other way round, what is asked of Pip is asked of "my cousin"; and what is asked of "the friend
who moved to Oslo" is asked of Kaya, where a row tells that of her.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kemem.errors import Unavailable
from kemem.ports import Deps
from kemem.ports.request import Key, SearchRequest, SearchResponse, Select, key_of
from kemem.records import Micros, Row, Vector
from kemem.search.described import Described, described, runs_of, tells
from kemem.search.features import Candidate, Column, by_person, speaker_of, worth
from kemem.search.roles import MOST, OTHERWISE, Role, certain, roles
from kemem.search.understand import ParsedQuery, understand
from kemem.text.described import descriptions
from kemem.text.naming import bare, institutions, is_named, namings, renamed, unnamed
from kemem.text.query import AllOf, Query, any_of
from kemem.text.reading import Question, asks_for_past, content, people_of, read
from kemem.text.things import SEVERAL

_BEST = 12  # rows that may give a name
_LED = 0.2  # what scores so much of whom is described comes before what describes them
BEHIND = 0.99  # how far a row that gives a name scores of the best one that it leads to
_OWNER = re.compile(
    r"\b(?:my|our|the|his|her|their|\w+['’]s) (?:(?!of|in|at|to|for|that)[\w-]+ ){0,2}$"
    r"|(?:我们?|咱们?)家?的?$|[他她]的?$|(?<=的)$|^$",
    re.IGNORECASE,
)
_OWN = re.compile(r"\b(?:my|our) ((?:[\w-]+ ){0,2}?[\w-]+)(?![\w-]|['’]s)", re.IGNORECASE)
_WHICH = re.compile(
    r"\b(?:which|what) ([\w-]+)|(?:哪[个家座种位款]?|什么|啥)(.{1,2})", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Alias:
    """A name that stands for words of a question: Pip for "cousin"."""

    name: str
    words: frozenset[str]
    people: frozenset[str]
    said: str  # what gives the name,
    given_by: Key  # and in which row
    other: str = ""  # the name in whose place it stands: Tom, of Tom whom all call Bear

    @property
    def terms(self) -> tuple[str, ...]:
        """What a row has that the hop may lead to."""
        return (self.name,)

    def leads_to(self, row: Row) -> bool:
        """Whether a row uses the name."""
        return is_named(self.name, row.content)

    def speaks_of(self, text: str) -> bool:
        """Whether a text says itself what the name stands for."""
        if self.other:
            return is_named(self.other, text)
        return bool(self.people & people_of(text)) or tells(self.words & read(text).words)


Link = Alias | Role | Described


@dataclass(frozen=True, slots=True)
class Hop:
    """A question that is put once more in other words."""

    links: tuple[Link, ...]
    query: ParsedQuery
    question: Question
    vector: Vector | None = None  # of the question's topic

    def reason(self, row: Row) -> str | None:
        """Why the hop leads to a row, if it does."""
        led = (it for it in self.links if it.leads_to(row) and not it.speaks_of(row.content))
        return next((f'hop: {it.name} -> "{it.said}"' for it in led), None)


async def hops_from(
    query: ParsedQuery, rows: Sequence[Row], now: Micros, deps: Deps | None
) -> Sequence[Hop]:
    """A question with the names that rows give to what it is about, or with that for the names.

    None if embedding fails. Without `deps` their vectors are not wanted.
    """
    # Who is described is nobody else; "Dario's wife" is Lucille, before Dario is "my friend".
    ways = (_by_description, _by_name, _by_role)
    hops = next(filter(None, ([*way(query, rows, now)] for way in ways)), [])
    if not hops or deps is None:
        return hops
    try:
        vectors = await deps.embed([it.question.topic for it in hops], purpose="query")
    except Unavailable:
        return ()
    return [replace(hop, vector=it) for hop, it in zip(hops, vectors, strict=True)]


def _by_name(query: ParsedQuery, rows: Sequence[Row], now: Micros) -> Iterator[Hop]:
    plain = query.question if not query.parts else None
    if plain is None:
        return
    for alias in aliases(plain, rows):
        text = in_its_place(alias, query.whole.text)
        other = understand(text, now) if text else None
        if other and (question := other.question):
            # "First" and "old" tell which one has the name; that one is asked about as of now.
            past = plain.past and not asks_for_past(alias.said)
            original = plain.original and past
            yield Hop((alias,), other, replace(question, past=past, original=original))


def _by_role(query: ParsedQuery, rows: Sequence[Row], now: Micros) -> Iterator[Hop]:
    text, links = query.whole.text, roles(query, rows)
    for role in links:
        text = unnamed(role.naming, text) or text
    other = understand(text, now) if links else None
    if other and other.question and query.question:
        past, original = query.question.past, query.question.original
        yield Hop(links, other, replace(other.question, past=past, original=original))


def _by_description(query: ParsedQuery, rows: Sequence[Row], now: Micros) -> Iterator[Hop]:
    text, links = query.whole.text, list[Described]()
    if query.question is None or query.question.advice:
        return
    for it in descriptions(text)[::-1]:  # the places of those before stay as they are
        if found := described(it, rows):
            link, end = found
            text = f"{text[: it.start]}{link.name} {text[end:]}"
            links.append(link)
    other = understand(text, now) if links else None
    if other and other.question:
        # "Old" in "my old school friend" tells who is meant.
        inside = asks_for_past(query.whole.text) and not other.question.past
        past = query.question.past and not inside
        original = query.question.original and past
        yield Hop(tuple(links), other, replace(other.question, past=past, original=original))


def still_certain(hop: Hop, rows: Sequence[Row]) -> Hop | None:
    """A hop without the links that more rows make doubtful; None if that leaves none."""
    links = (certain(it, rows) if isinstance(it, Role) else it for it in hop.links)
    some = tuple(it for it in links if it)
    return replace(hop, links=some) if some else None


def aliases(question: Question, rows: Sequence[Row]) -> tuple[Alias, ...]:
    """The names that rows give to what a question is about, where it asks for more than a name.

    "Where does my cousin work?" + "My cousin goes by Pip" -> Pip, for "cousin"
    """
    if "what_name" in question.answers or question.advice:
        return ()
    found: dict[str, Alias] = {}
    speakers = {*map(speaker_of, rows)}  # who is spoken to is not introduced
    best = [*filter(by_person, rows[:_BEST])]
    for alias in (*_other_names(best, question.topic), *_given(best, question)):
        name = alias.name.casefold()
        if name not in speakers and _can_help(alias, question):
            found[name] = max(found.get(name, alias), alias, key=_weight)
    most = max(map(_weight, found.values()), default=0.0)
    return tuple(it for it in found.values() if _weight(it) == most)[:MOST]


def _other_names(rows: Iterable[Row], text: str) -> Iterator[Alias]:
    """Other names of whom a question names: the Colonel, for Mr Hargreaves, and the other way."""
    for row in rows:
        for it in namings(row.content):
            bearer = it.bearer and bare(it.bearer)
            if not bearer or is_named(it.name, text) == is_named(bearer, text):
                continue
            if is_named(bearer, text):
                name, other = it.name, it.bearer
            elif it.thing is None:  # else it is asked what it is to the speaker
                name, other = it.bearer, it.name
            else:
                continue
            yield Alias(
                name, frozenset(content(other)), frozenset(), row.content, key_of(row), other
            )


def _can_help(alias: Alias, question: Question) -> bool:
    """Whether a question neither has a name nor asks for it.  "Who is my boss?" -> False"""
    asked, text = frozenset(question.words), question.topic
    own = {*content(alias.name)} - {*content(alias.other)}  # "Ann Shaw is now Ann Poe"
    if is_named(alias.name, text) or tells(asked & own):
        return False
    if alias.other:
        return bool(asked - alias.words or question.answers & OTHERWISE)
    if not (asked - alias.words or question.answers & OTHERWISE):
        return False
    which = {word for it in _WHICH.findall(text) for word in content(" ".join(it))}
    return not (alias.words & which or (alias.people and "who" in question.answers))


def _weight(alias: Alias) -> float:
    return sum(map(worth, alias.words)) + len(alias.people)


def _given(rows: Iterable[Row], question: Question) -> Iterator[Alias]:
    """The names that rows give to what a question speaks of."""
    names = {word for it in question.people if it[0] == "@" for word in content(it[1:])}
    asked = frozenset(question.words)
    places = asked & {*content(institutions(question.topic))}
    own = [match[1] for match in _OWN.finditer(question.topic)]
    pairs = (
        (row, it)
        for row in rows
        for it in namings(row.content)
        if not (it.of and any(_is_same_kind(it.of, kind) for kind in own))  # "Ann's cousin"
    )
    for row, it in pairs:
        for words_of in (it.said, f"{it.before} {it.said}"):
            words = asked & {*content(words_of)}
            both = question.people & people_of(words_of)
            people = frozenset(one for one in both if one[0] != "@")
            people -= SEVERAL if not words else set()
            if people and (not words or not asked - words):  # "my cousin at work goes by Pip"
                words = frozenset(word for word in asked if people & people_of(word))
            if it.is_place:  # "the company of my first job"
                words = words | places if places and words - places else frozenset()
                people = frozenset()
            if tells(words - names) or (people and words):
                yield Alias(it.name, words, people, words_of, key_of(row))
                break


def _is_same_kind(one: str, other: str) -> bool:
    """Whether two say the same of somebody.  "new manager" ~ "old boss"; not "cousin" ~ "wife" """
    return bool(people_of(one) & people_of(other)) or one.split()[-1:] == other.split()[-1:]


def in_its_place(alias: Alias, text: str) -> str | None:
    """A question with a name in it.  "Where does my cousin work?" -> "Where does Pip work?"

    None where its words do not name a thing there: "What has she painted?"
    """
    if alias.other:
        return renamed(text, alias.other, alias.name)
    things = [
        (end - start, owner.start(), end)
        for start, end in runs_of(text, alias.words)
        if (owner := _OWNER.search(text[:start]))
    ]
    _, start, end = max(things, default=(0, 0, 0))
    return f"{text[:start]}{alias.name}{text[end:]}" if end else None


async def follow(
    request: SearchRequest, hops: Sequence[Hop], first: SearchResponse, select: Select, deps: Deps
) -> SearchResponse:
    """What was found, with the selected rows that hops may lead to: of the same Where."""
    named = any_of([term for hop in hops for it in hop.links for term in it.terms])
    if request.keywords is not None:
        named = Query(AllOf((request.keywords.root, named.root)), named.units)
    vectors = [it.vector for it in hops if it.vector is not None]
    more = await deps.store.search(
        replace(
            request,
            queries=tuple(it.query.query for it in hops),
            vectors=np.array(vectors) if vectors and request.vectors is not None else None,
            keywords=named,
            around=None,
            times=(),
            select=lambda it: [match for match in select(it) if key_of(match) not in first.rows],
        )
    )
    rows, contexts = {**more.rows, **first.rows}, {**more.contexts, **first.contexts}
    return replace(first, rows=rows, contexts=contexts)


def combined(
    judged: Sequence[Column], hops: Sequence[Hop], candidates: Sequence[Candidate]
) -> Column:
    """The scores of candidates by a question, and by the same one in the words of each hop.

    What uses a name is judged by the question with it; the row that gives the name comes after what
    it leads to. What has only the words that the name stands for may answer either, and so may what
    tells of a role. The rest must answer both, unless a pronoun may mean anybody, or another
    sentence asks for it.
    """
    scores, *by_hop = judged
    either, every = np.max(judged, axis=0), np.min(judged, axis=0)
    result, giving, led = scores.copy(), list[tuple[int, Link]](), dict[Link, float]()
    asked = {word for hop in hops for word in hop.question.words}
    one = not any(hop.query.parts for hop in hops)
    described = any(isinstance(it, Described) for hop in hops for it in hop.links)
    for at, it in enumerate(candidates if hops else ()):
        text, row = it.row.content, it.row
        links = [
            (link, column[at])
            for hop, column in zip(hops, by_hop, strict=True)
            for link in hop.links
        ]
        uses = [(link, score) for link, score in links if link.leads_to(row)]
        speaks = any(link.speaks_of(text) for link, _ in links)
        if uses:
            if not any(isinstance(link, Role) for link, _ in uses):
                result[at] = max(score for _, score in uses)
            elif not speaks:
                result[at] = either[at]
            giving += [(at, link) for link, _ in uses if speaks]
            led |= {link: max(led.get(link, 0.0), result[at]) for link, _ in uses if not speaks}
        elif speaks and not (described and one):  # others may have done the same
            result[at] = either[at]
        elif not read(text).has_pronoun and one:
            result[at] = every[at]
    best = result.max()
    for at, link in giving:
        most, after, row = scores[at], BEHIND * led.get(link, 0.0), candidates[at].row
        if led.get(link) == best and key_of(row) == link.given_by:
            most = 1.0
        result[at] = max(result[at], min(most, after))
        if isinstance(link, Described) and after < min(_LED, scores[at] / 2):
            result[at] = max(result[at], scores[at])  # it tells who is meant, if nothing else
        elif after and not read(row.content).words - asked - {*content(link.said)}:
            result[at] = min(result[at], after)  # it says nothing else
    return result
