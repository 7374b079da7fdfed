"""Second hop of search: what is asked of "my cousin" is asked of Pip, where a row names her so.

The best rows of the first hop may give a name to what a question is about. Then the question is put
once more with the name in the place of the words, and rows that use the name are judged by that.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kemem.errors import Unavailable
from kemem.ports import Deps
from kemem.ports.request import Key, SearchRequest, SearchResponse, Select, key_of
from kemem.records import Message, Micros, Row, Vector
from kemem.search.features import Candidate, Column, speaker_of, worth
from kemem.search.understand import ParsedQuery, understand
from kemem.text.naming import institutions, is_named, namings
from kemem.text.query import AllOf, Query, any_of
from kemem.text.reading import Question, asks_for_past, content, people_of, read
from kemem.text.segment import is_cjk, tokens

_BEST = 12  # rows that may give a name
_MOST = 2  # names that are followed
BEHIND = 0.99  # how far a row that gives a name scores of the best one that it leads to
_OWNER = re.compile(
    r"\b(?:my|our|the|his|her|their|\w+['’]s) (?:(?!of|in|at|to|for|that)[\w-]+ ){0,2}$"
    r"|(?:我们?|咱们?)家?的?$|[他她]的?$|(?<=的)$|^$",
    re.IGNORECASE,
)
_WHICH = re.compile(
    r"\b(?:which|what) ([\w-]+)|(?:哪[个家座种位款]?|什么|啥)(.{1,2})", re.IGNORECASE
)
_OTHERWISE = frozenset(("where", "when", "how_much"))  # what a question can ask without more words
# Those of whom one has several: "my friend" may be another than "my oldest pal".
_SEVERAL = frozenset(("friend", "colleague", "neighbour", "client", "teacher", "doctor", "cousin"))


@dataclass(frozen=True, slots=True)
class Alias:
    """A name that stands for words of a question: Pip for "cousin"."""

    name: str
    words: frozenset[str]
    people: frozenset[str]
    said: str  # what gives the name,
    given_by: Key  # and in which row

    def speaks_of(self, text: str) -> bool:
        """Whether a text says itself what the name stands for."""
        return bool(self.people & people_of(text)) or _tells(self.words & read(text).words)


@dataclass(frozen=True, slots=True)
class Hop:
    """A question that is put once more with a name."""

    alias: Alias
    query: ParsedQuery
    question: Question
    vector: Vector | None = None  # of the question's topic

    def reason(self, text: str) -> str | None:
        """Why the hop leads to a text, if it does."""
        led = is_named(self.alias.name, text) and not self.alias.speaks_of(text)
        return f'hop: {self.alias.name} -> "{self.alias.said}"' if led else None


async def hops_from(
    query: ParsedQuery, rows: Sequence[Row], now: Micros, deps: Deps | None
) -> Sequence[Hop]:
    """A question with the names that rows give to what it is about; none if embedding fails.

    Without `deps` their vectors are not wanted.
    """
    hops = [*_hops_from(query, rows, now)]
    if not hops or deps is None:
        return hops
    try:
        vectors = await deps.embed([it.question.topic for it in hops], purpose="query")
    except Unavailable:
        return ()
    return [replace(hop, vector=it) for hop, it in zip(hops, vectors, strict=True)]


def _hops_from(query: ParsedQuery, rows: Sequence[Row], now: Micros) -> Iterator[Hop]:
    plain = query.question if not query.parts else None
    if plain is None:
        return
    for alias in aliases(plain, rows):
        text = renamed(query.whole.text, alias)
        other = understand(text, now) if text else None
        if other and (question := other.question):
            # "First" and "old" tell which one has the name; that one is asked about as of now.
            past = plain.past and not asks_for_past(alias.said)
            original = plain.original and past
            yield Hop(alias, other, replace(question, past=past, original=original))


def aliases(question: Question, rows: Sequence[Row]) -> tuple[Alias, ...]:
    """The names that rows give to what a question is about, where it asks for more than a name.

    "Where does my cousin work?" + "My cousin goes by Pip" -> Pip, for "cousin"
    """
    if "what_name" in question.answers or question.advice:
        return ()
    found: dict[str, Alias] = {}
    speakers = {*map(speaker_of, rows)}  # who is spoken to is not introduced
    for row in rows[:_BEST]:
        if isinstance(row, Message) and row.role != "user" and not speaker_of(row):
            continue
        for alias in _given(row, question):
            name = alias.name.casefold()
            if name not in speakers and _can_help(alias, question):
                found[name] = max(found.get(name, alias), alias, key=_weight)
    most = max(map(_weight, found.values()), default=0.0)
    return tuple(it for it in found.values() if _weight(it) == most)[:_MOST]


def _can_help(alias: Alias, question: Question) -> bool:
    """Whether a question neither has a name nor asks for it.  "Who is my boss?" -> False"""
    asked, text = frozenset(question.words), question.topic
    if is_named(alias.name, text) or _tells(asked & {*content(alias.name)}):
        return False
    if not (asked - alias.words or question.answers & _OTHERWISE):
        return False
    which = {word for it in _WHICH.findall(text) for word in content(" ".join(it))}
    return not (alias.words & which or (alias.people and "who" in question.answers))


def _weight(alias: Alias) -> float:
    return sum(map(worth, alias.words)) + len(alias.people)


def _given(row: Row, question: Question) -> Iterator[Alias]:
    """The names that a row gives to what a question speaks of."""
    names = {word for it in question.people if it[0] == "@" for word in content(it[1:])}
    asked = frozenset(question.words)
    places = asked & {*content(institutions(question.topic))}
    for name, said, before, is_place in namings(row.content):
        for words_of in (said, f"{before} {said}"):
            words = asked & {*content(words_of)}
            people = frozenset(it for it in question.people & people_of(words_of) if it[0] != "@")
            people -= _SEVERAL if not words else set()
            if people and (not words or not asked - words):  # "my cousin at work goes by Pip"
                words = frozenset(it for it in asked if people & people_of(it))
            if is_place:  # "the company of my first job"
                words = words | places if places and words - places else frozenset()
                people = frozenset()
            if _tells(words - names) or (people and words):
                yield Alias(name, words, people, words_of, key_of(row))
                break


def _tells(words: frozenset[str]) -> bool:
    return any(worth(word) == 1 for word in words)


def renamed(text: str, alias: Alias) -> str | None:
    """A question with a name in it.  "Where does my cousin work?" -> "Where does Pip work?"

    None where its words do not name a thing there: "What has she painted?"
    """
    things = [
        (end - start, owner.start(), end)
        for start, end in _runs(text, alias.words)
        if (owner := _OWNER.search(text[:start]))
    ]
    _, start, end = max(things, default=(0, 0, 0))
    return f"{text[:start]}{alias.name}{text[end:]}" if end else None


def _runs(text: str, words: frozenset[str]) -> list[tuple[int, int]]:
    """Where words stand in a text, those side by side as one."""
    runs: list[tuple[int, int]] = []
    characters = {it for word in words if is_cjk(word[0]) for it in word}
    for token in tokens(text):
        if token.text not in words | characters:
            continue
        last = runs[-1][1] if runs else 0
        pair, between = text[last - 1 : token.end], text[last : token.start]
        if runs and (pair in words if is_cjk(token.text) else not between.strip()):
            runs[-1] = (runs[-1][0], token.end)
        else:
            runs.append((token.start, token.end))
    return runs


async def follow(
    request: SearchRequest, hops: Sequence[Hop], first: SearchResponse, select: Select, deps: Deps
) -> SearchResponse:
    """What was found, with the selected ones of the rows that use names: of the same Where."""
    named = any_of([it.alias.name for it in hops])
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
    """The scores of candidates by a question, and by the same one with the name of each hop.

    What uses a name is judged by the question with it; the row that gives the name comes after what
    it leads to. What has only the words that the name stands for may answer either. The rest must
    answer both, unless a pronoun may mean anybody.
    """
    scores, *by_hop = judged
    either, every = np.max(judged, axis=0), np.min(judged, axis=0)
    result, giving, led = scores.copy(), list[int](), 0.0
    for at, it in enumerate(candidates if hops else ()):
        text = it.row.content
        pairs = zip(hops, by_hop, strict=True)
        named = [others[at] for hop, others in pairs if is_named(hop.alias.name, text)]
        speaks = any(hop.alias.speaks_of(text) for hop in hops)
        if named:
            result[at] = max(named)
            giving += [at] if speaks else []
            led = led if speaks else max(led, result[at])
        elif speaks:
            result[at] = either[at]
        elif "pronoun" not in read(text):
            result[at] = every[at]
    givers, best = {hop.alias.given_by for hop in hops}, result.max()
    for at in giving:
        most = 1.0 if led == best and key_of(candidates[at].row) in givers else scores[at]
        result[at] = max(result[at], min(most, BEHIND * led))
    return result
