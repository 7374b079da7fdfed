"""The query language: plain words mean "any, ranked"; AND, OR, NOT, "phrases", prefix* and ( ).

Nothing a user types reaches a database as syntax. A query becomes a tree whose leaves are phrases
of search tokens; a store only finds which rows contain each phrase, the tree is evaluated here.
What does not parse is searched literally.

Beside its words, the index knows who speaks in a message, and whether it asks. These marks are
tokens that begin with a character for private use, which no text is cut into: nobody can type one.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from itertools import pairwise, zip_longest
from reprlib import repr as shown
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kemem.errors import InvalidArgument
from kemem.records import Message, Row
from kemem.text.ids import encode, is_blank
from kemem.text.segment import STOPS, is_cjk, located, normalise, search_text, tokens

MAX_CHARACTERS = 10_000
MAX_UNITS = 256
MAX_DEPTH = 32
MAX_PHRASE = 32  # tokens; engines index long texts in parts that overlap by this much

OPEN, CLOSE = "<mark>", "</mark>"
_MARGIN = 40  # characters of context on each side of a snippet
_WIDEST = 200  # characters from the first match of a snippet to its last
_MOST = 3  # snippets of a text
_LEXEME = re.compile(r'"[^"]*"|“[^”]*”|「[^」]*」|[()（）"“”「」]|[^\s"“”「」()（）]+')
_OPERATORS = ("AND", "OR", "NOT")
_BY, _ASKING = "\ue000", "\ue001"  # marks
# A question, whatever closes or is appended to it in brackets: "(Really?) [photo: a cat]", "是吗…"
_ASKS = re.compile(r"""[?？][\s"'”’」』)）]*(?:\[[^\]]*\]\s*)?$|[吗呢][\s。…~～]*$""")
_TAIL = 300  # characters in which a text shows that it asks
_PARENTHESES = {"(": "(", "（": "(", ")": ")", "）": ")"}


class Phrase(NamedTuple):
    """Tokens that stand side by side; with `prefix` the last one may go on."""

    tokens: tuple[str, ...]
    prefix: bool = False


@dataclass(frozen=True, slots=True)
class AnyOf:
    """Matches where one part does; without parts nowhere."""

    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class AllOf:
    """Matches where every part does; without parts everywhere."""

    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Not:
    """Matches where its part does not."""

    part: "Node"


Node = Phrase | AnyOf | AllOf | Not
Span = tuple[int, int]
Mask = NDArray[np.bool_]  # one flag for each row of a scope


@dataclass(frozen=True, slots=True)
class ConversationQuery:
    """A question put to a conversation: what stands around a row counts in part as its own."""

    length: float  # 0: a few words … 1: many, which tell of a topic
    speakers: tuple[Phrase, ...]  # marks of speakers that the question may name
    answers: bool = True  # it seeks an answer: rows that ask are worth less than others


@dataclass(frozen=True, slots=True)
class Query:
    """What must match (`root`) and what earns score (`units`).

    Where it is put to a conversation, rows match too that have its words only by their context.
    """

    root: Node
    units: tuple[Phrase, ...]
    conversation: ConversationQuery | None = None

    @property
    def phrases(self) -> tuple[Phrase, ...]:
        """Every phrase a store has to look up, once."""
        speakers = self.conversation.speakers if self.conversation else ()
        return tuple(dict.fromkeys((*self.units, *_leaves(self.root), *speakers)))

    def evaluate(self, rows_with: Callable[[Phrase], Mask], everything: Mask) -> Mask:
        """The rows that match, given the rows that contain each phrase."""

        def walk(node: Node) -> Mask:
            match node:
                case Phrase():
                    return rows_with(node)
                case Not(part):
                    return everything & ~walk(part)
                case AnyOf(parts):
                    return reduce(np.bitwise_or, map(walk, parts), everything & False)
                case AllOf(parts):
                    return reduce(np.bitwise_and, map(walk, parts), everything)

        return walk(self.root)


def check_query(text: object, field: str, *, blank: bool = False) -> str:
    """What to look for: a text that can be stored, not too long, and `blank` only if allowed."""
    if not isinstance(text, str) or (not blank and is_blank(text)):
        raise _wrong(field, f"be a text that is not blank, not {text!r:.80}")
    if len(text) > MAX_CHARACTERS:
        raise _wrong(field, f"be at most {MAX_CHARACTERS} characters, not {len(text)}")
    encode(text, field)
    return text


def parse(text: str, field: str = "query_text") -> Query:
    """The query behind what a user typed.  '"不吃辣" AND 火锅' -> both phrases must match"""
    if not isinstance(text, str):
        raise _wrong(field, f"be a text, not {shown(text)}")
    if len(text) > MAX_CHARACTERS:
        raise _wrong(field, f"be at most {MAX_CHARACTERS} characters, not {len(text)}")
    if not text.strip():
        return Query(AllOf(()), ())
    closed = text  # marks that open no phrase as lone closing ones: no search for their ends
    for opens, closes in ("“”", "「」"):
        paired = closed.rfind(closes) + 1
        closed = closed[:paired] + closed[paired:].replace(opens, closes)
    lexemes = _LEXEME.findall(closed)
    if any(it in _OPERATORS or (it[1:].endswith("*") and it[0] != '"') for it in lexemes):
        parser = _Parser(lexemes)
        try:
            query = _query(parser.either(0))
        except _NotAQuery:
            return plain(text)
        if parser.at < len(lexemes):
            return plain(text)
        if (count := len(query.phrases)) > MAX_UNITS:
            raise _wrong(field, f"name at most {MAX_UNITS} terms, not {count}")
        return query
    quoted = [it for it in lexemes if it[0] in '"“「' and len(it) > 1]
    if not quoted:
        return plain(text)
    beside = plain(" ".join(it for it in lexemes if it not in quoted))
    query = _query(_group(AnyOf, [*map(_phrase, quoted), *beside.units]))
    return replace(query, units=query.units[:MAX_UNITS])


@lru_cache(maxsize=64)  # a question is looked at by several stages
def plain(text: str) -> Query:
    """Any of the words, ranked: stems, joined words as phrases, CJK characters and pairs."""
    telling, others = dict[Phrase, None](), dict[Phrase, None]()
    for unit, tells in _units(text):
        (telling if tells else others)[unit] = None
        if len(telling) == MAX_UNITS:
            break
    units = tuple(telling or others)[:MAX_UNITS]
    return Query(AnyOf(units), units)


def any_of(texts: Sequence[str]) -> Query:
    """Texts that contain one of some words or phrases.  ["不吃辣", "hotpots"] -> either of them"""
    return _query(AnyOf(tuple(map(_phrase, texts))))


def _query(root: Node) -> Query:
    return Query(root, tuple(dict.fromkeys(_leaves(root, negated=False))))


def _wrong(field: str, problem: str) -> InvalidArgument:
    return InvalidArgument(f"{field} must {problem}", field=field)


def _group(kind: type[AnyOf] | type[AllOf], parts: Sequence[Node]) -> Node:
    return parts[0] if len(parts) == 1 else kind(tuple(parts))


def _units(text: str) -> Iterator[tuple[Phrase, bool]]:
    """What a plain text may be found by, and whether that tells something about a topic."""
    for word in text.split():
        parts = list(tokens(word))
        # As written, not the stem, which "does" shares with Jane Doe.
        tells = [normalise(word[it.start : it.end]) not in STOPS for it in parts]
        if 1 < len(parts) <= MAX_PHRASE and not any(is_cjk(token.text) for token in parts):
            # user@x.com, 2026-01-26; "what's" tells as little as "what is"
            yield Phrase(tuple(token.text for token in parts)), any(tells)
        for token, following, told in zip_longest(parts, parts[1:], tells):
            yield Phrase((token.text,)), told
            if following and is_cjk(token.text) and is_cjk(following.text):
                yield Phrase((token.text, following.text)), True


def _leaves(root: Node, negated: bool = True) -> Iterator[Phrase]:
    """Phrases of a tree, also or not those that a match must not contain."""
    match root:
        case Phrase():
            yield root
        case AnyOf(parts) | AllOf(parts):
            for part in parts:
                yield from _leaves(part, negated)
        case Not(part) if negated:
            yield from _leaves(part)


class _NotAQuery(Exception):
    """The text looks like the query language but does not parse."""


class _Parser:
    """Recursive descent: OR < AND / NOT < words side by side (any of them) < phrase, ( )."""

    def __init__(self, lexemes: list[str]) -> None:
        self.lexemes = [_PARENTHESES.get(lexeme, lexeme) for lexeme in lexemes]
        self.at = 0

    def next_is(self, *lexemes: str) -> bool:
        return self.at < len(self.lexemes) and self.lexemes[self.at] in lexemes

    def take(self, *lexemes: str) -> bool:
        taken = self.next_is(*lexemes)
        self.at += taken
        return taken

    def either(self, depth: int) -> Node:
        parts = [self.both(depth)]
        while self.take("OR"):
            parts.append(self.both(depth))
        return _group(AnyOf, parts)

    def both(self, depth: int) -> Node:
        parts = [self.negated(depth)]
        while self.take("AND") or self.next_is("NOT"):
            parts.append(self.negated(depth))
        return _group(AllOf, parts)

    def negated(self, depth: int) -> Node:
        odd = False
        while self.take("NOT"):
            odd = not odd
        return Not(self.words(depth)) if odd else self.words(depth)

    def words(self, depth: int) -> Node:
        parts = []
        while self.at < len(self.lexemes) and not self.next_is(")", *_OPERATORS):
            parts.append(self.atom(depth))
        if not parts:
            raise _NotAQuery
        return _group(AnyOf, parts)

    def atom(self, depth: int) -> Node:
        if self.take("("):
            inner = self.either(depth + 1) if depth < MAX_DEPTH else None
            if inner is None or not self.take(")"):
                raise _NotAQuery
            return inner
        if self.next_is(*'"“”「」'):
            raise _NotAQuery
        self.at += 1
        return _phrase(self.lexemes[self.at - 1])


def _phrase(lexeme: str) -> Node:
    """A word or quoted phrase as a leaf; one of many tokens becomes overlapping windows."""
    words = tuple(token.text for token in tokens(lexeme))
    prefix = lexeme.endswith("*") and len(words) > 0 and not is_cjk(words[-1])
    if len(words) <= MAX_PHRASE:
        return Phrase(words, prefix) if words else AnyOf(())
    last = len(words) - MAX_PHRASE
    starts = [*range(0, last, MAX_PHRASE // 2), last]
    windows = [Phrase(words[at : at + MAX_PHRASE], prefix and at == last) for at in starts]
    return AllOf(tuple(windows))


ASKING = Phrase((_ASKING,))  # what questions are found by


def index_text(row: Row) -> str:
    """The search text of a row, then its marks."""
    parts = [search_text(row.words)]
    if isinstance(row, Message):
        speaker = row.metadata.get("speaker")
        names = search_text(speaker).split() if isinstance(speaker, str) else []
        parts += [*map(spoken_by, names), _ASKING if asks(row.content) else ""]
    return " ".join(filter(None, parts))


def parts_of(text: str) -> set[str]:
    """The words and pairs of CJK characters of an indexed text: what plain() looks for, mostly."""
    words = text.split()
    return {*words, *(f"{a} {b}" for a, b in pairwise(words) if is_cjk(a) and is_cjk(b))}


def length(text: str) -> int:
    """How many words an indexed text holds."""
    words = text.count(" ") + 1 if text else 0
    return words - text.count(_BY) - text.count(_ASKING)


def spoken_by(token: str) -> str:
    """The mark of a message whose speaker's name holds a token."""
    return _BY + token


def asks(text: str) -> bool:
    """Whether a text ends as a question.  "去吗？" -> True"""
    return _ASKS.search(text[-_TAIL:].rstrip()) is not None


@dataclass(frozen=True, slots=True)
class Matches:
    """The places of a text that match, and the terms that do, as the text spells them."""

    snippets: tuple[str, ...]
    terms: tuple[str, ...]


def matches(content: str, query: Query) -> Matches:
    """Find a query in a text.  "我不吃辣" ~ "不吃辣" -> snippet "我<mark>不吃辣</mark>" """
    spans = _merge(_find(*located(content), query.units))
    windows: list[list[Span]] = []
    for start, end in spans:
        near = windows and start - windows[-1][-1][1] <= _MARGIN
        if near and end - windows[-1][0][0] <= _WIDEST:
            windows[-1].append((start, end))
        else:
            windows.append([(start, end)])
    snippets = tuple(_extract(content, window) for window in windows[:_MOST])
    return Matches(snippets, tuple(dict.fromkeys(content[start:end] for start, end in spans)))


def _find(texts: list[str], spans: list[Span], units: tuple[Phrase, ...]) -> list[Span]:
    """Where units stand among tokens, given where each of these does."""
    places: dict[str, list[int]] = {unit.tokens[0]: [] for unit in units}
    for place, text in enumerate(texts):
        if text in places:
            places[text].append(place)
    found = []
    for unit in units:
        (*head, last), size = unit.tokens, len(unit.tokens)
        starts = places[unit.tokens[0]]
        if unit.prefix and not head:
            starts = [at for at, text in enumerate(texts) if text.startswith(last)]
        for at in starts:
            *before, text = texts[at : at + size]
            if before == head and (text == last or (unit.prefix and text.startswith(last))):
                found.append((spans[at][0], spans[at + size - 1][1]))
    return found


def _merge(spans: list[Span]) -> list[Span]:
    """Overlapping and touching spans as one, cut where that would become long."""
    merged: list[Span] = []
    reached = 0
    for start, whole in sorted(spans):
        end = min(whole, start + _WIDEST)
        if merged and start <= reached and end - merged[-1][0] <= _WIDEST:
            merged[-1] = (merged[-1][0], max(end, reached))
        elif end > reached:
            merged.append((max(start, reached), end))
        reached = merged[-1][1]
    return merged


def _extract(content: str, window: list[Span]) -> str:
    at = start = max(window[0][0] - _MARGIN, 0)
    end = min(window[-1][1] + _MARGIN, len(content))
    pieces = ["…" if start else ""]
    for opens, closes in window:
        pieces += [content[at:opens], OPEN, content[opens:closes], CLOSE]
        at = closes
    return "".join([*pieces, content[at:end], "…" if end < len(content) else ""])
