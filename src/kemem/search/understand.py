"""First stage of search: what a question asks for."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from reprlib import repr as shown
from typing import Literal, get_args

from kemem.errors import InvalidArgument
from kemem.records import Micros
from kemem.records.times import to_datetime
from kemem.text import query as words
from kemem.text.advice import without_request
from kemem.text.asked import (
    asked_in,
    asks_for_fact,
    goes_on,
    only_goes_on,
    without_going_on,
)
from kemem.text.query import AnyOf, Query, asks, spoken_by
from kemem.text.reading import Question, content, read_question, searched_words, seeks_answer
from kemem.text.segment import (
    STOP_CHARACTERS,
    STOP_WORDS,
    Token,
    is_cjk,
    spoken_length,
    tokens,
)
from kemem.text.summary import acknowledges, sentences
from kemem.text.when import TimePhrase, speaks_of_plans, time_phrases

Mode = Literal["hybrid", "lexical", "semantic"]  # the signals to use: all, words, vectors

VAGUE = 0.25  # what scores most where nothing is said that it could be about
MAX_NAMES = 300
MAX_KEYWORDS = 20
MAX_PARTS = 3
# 小明：… of a transcript, which is no time of day and no address
_LABEL = re.compile(r"^[^\S\n]*(?!\d)[^\s:：]{1,20}\s?[:：](?!//)\s*", re.MULTILINE)
_TURNS = 2  # lines with a label that make a transcript
_SHORT, _LONG = 10, 30  # words of a short question, and of one that tells of a topic
_LONGEST = 8  # tokens of a name
_PLAIN = 300  # characters of a plain question
_MONTH = 31 * 86_400_000_000
_LONGEST_KEYWORD = 256  # characters


@dataclass(frozen=True, slots=True)
class Part:
    """A text to look for, as it is embedded and by its words."""

    text: str
    query: Query


@dataclass(frozen=True, slots=True)
class ParsedQuery:
    """A question with its words, the times it speaks of and the names it may mention."""

    whole: Part
    times: tuple[TimePhrase, ...]
    names: tuple[str, ...]
    mode: Mode = "hybrid"
    keywords: Query | None = None  # what every answer must contain
    parts: tuple[Part, ...] = ()  # the sentences that ask, among others; a transcript's last line
    question: Question | None = None  # what it asks for; None: no plain question
    continues: bool = False  # it goes on with an earlier conversation
    is_polite: bool = False  # it says nothing else: "OK, thanks!"

    @property
    def query(self) -> Query:
        """Its words."""
        return self.whole.query

    @property
    def is_bare(self) -> bool:
        """Whether it only goes on, and says nothing of what with: "What's next?"."""
        return self.continues and not self.query.units

    @property
    def texts(self) -> tuple[Part, ...]:
        """The whole question, then its parts."""
        return (self.whole, *self.parts)


def understand(
    text: str,
    now: Micros,
    mode: Mode = "hybrid",
    keywords: Sequence[str] | None = None,
    field: str = "query_text",
) -> ParsedQuery:
    """Parse a question.  "上周三吃了什么" -> its words, and Wednesday of last week"""
    if mode not in get_args(Mode):
        modes = ", ".join(get_args(Mode))
        raise InvalidArgument(f"mode must be one of {modes}, not {shown(mode)}", field="mode")
    required = None if keywords is None else words.any_of(_checked(keywords))
    unlabelled, labels = _LABEL.subn("", text)
    transcript = labels >= _TURNS and bool(unlabelled.strip())
    if transcript and mode == "hybrid" and asks_for_fact(last := _last_line(unlabelled)):
        text, transcript = last, False
    searched = unlabelled if transcript else text
    query, parts, clock = words.parse(searched, field), list[Part](), to_datetime(now)
    question, advice, continues = None, False, False
    plain = mode == "hybrid" and isinstance(query.root, AnyOf)
    if plain and not transcript and required is None and only_goes_on(text):
        return _newest(text, clock)
    if plain:
        asked = text if transcript else asked_in(text)
        continues = not transcript and required is None and asked == text and goes_on(text)
        if not transcript and len(asked) <= _PLAIN and seeks_answer(asked):
            searched = text = asked
            question = read_question(text, clock)
            query, advice = words.plain(question.terms), question.advice is not None
            searched = question.topic if advice else text
        if continues:
            # What somebody goes on with is as much the assistant's.
            question = replace(question, of_self=False) if question else None
            searched = without_going_on(text)
            query = words.plain(searched)
        query = _in_conversation(searched, query, transcript, advice)
        about = searched if continues else text
        asking = [_last_line(unlabelled)] if transcript else _asking(about, advice)
        terms = asking if transcript else [searched_words(it, _times(it, clock)) for it in asking]
        queries = (
            _in_conversation(it, words.plain(term), transcript, advice)
            for it, term in zip(asking, terms, strict=True)
        )
        parts = [*map(Part, asking, queries)][:MAX_PARTS]
    if required is not None:  # it counts as words of the question; what AND and NOT demand stays
        strict = isinstance(query.root, words.AllOf | words.Not)
        root = query.root if strict else AnyOf((query.root, required.root))
        units = tuple(dict.fromkeys((*query.units, *required.units)))
        query = replace(query, root=root, units=units)
    dated = [] if advice else [part.text for part in parts if not transcript] or [text]
    times = tuple(it for part in dated for it in _times(part, clock))
    if transcript:  # who talks about spring does not ask for one
        times = tuple(it for it in times if it.until - it.since <= _MONTH)
    names = tuple(names_in(text))
    whole = Part(searched, query)
    is_polite = mode == "hybrid" and required is None and acknowledges(text)
    return ParsedQuery(
        whole, times, names, mode, required, tuple(parts), question, continues, is_polite
    )


def _newest(text: str, now: datetime) -> ParsedQuery:
    """What a turn asks for that only goes on: everything, by the time of its sessions alone."""
    everything = Query(words.AllOf(()), (), words.ConversationQuery(0.0, ()))
    times = tuple(_times(text, now))
    return ParsedQuery(Part(text, everything), times, (), "lexical", continues=True)


def _times(text: str, clock: datetime) -> list[TimePhrase]:
    return time_phrases(text, clock, speaks_of_plans(text))


def _asking(text: str, advice: bool) -> list[str]:
    """The sentences that ask, where others do not: small talk leads to many a question."""
    parts = [*sentences(text)]
    asking = [it for it in parts if asks(it)] if len(parts) > 1 else []
    if advice:  # "Any tips?" tells nothing of what about
        asking = [about for it in asking if content(about := without_request(it))]
    return asking


def _last_line(transcript: str) -> str:
    """What was said last: a talk may have come to something else than it began with."""
    return [it for it in transcript.splitlines() if it.strip()][-1]


def _in_conversation(
    text: str, query: Query, transcript: bool = False, advice: bool = False
) -> Query:
    """A query put to a conversation. In a transcript names are labels and length tells nothing.

    Who wants advice is known by what they have asked for, too.
    "What did 小明 say?" -> rows said by 小明 are worth more
    """
    if transcript:
        return replace(query, conversation=words.ConversationQuery(0.0, ()))
    # How long a question is, from 0 for a few words to 1.
    length = min(max((spoken_length(text) - _SHORT) / (_LONG - _SHORT), 0.0), 1.0)
    speakers = tuple(
        words.Phrase(tuple(map(spoken_by, unit.tokens)))
        for unit in query.units
        if len("".join(unit.tokens)) > 1
    )
    return replace(query, conversation=words.ConversationQuery(length, speakers, not advice))


def names_in(text: str) -> list[str]:
    """Pieces of a text that can be names of entities, longest first.  "李明 here" -> 李明, here"""
    names: dict[str, None] = {}
    runs = list(tokens(text[:400]))
    may_end = [not (it.text in STOP_WORDS or it.text in STOP_CHARACTERS) for it in runs]
    for length in range(_LONGEST, 0, -1):
        for start in range(len(runs) - length + 1):
            if may_end[start] and may_end[start + length - 1]:
                piece = runs[start : start + length]
                if _can_be_name(piece) and len(names) < MAX_NAMES:
                    names[text[piece[0].start : piece[-1].end]] = None
    return list(names)


def _can_be_name(piece: list[Token]) -> bool:
    """Whole words side by side; a single Chinese character is none."""
    if len(piece) == 1 and is_cjk(piece[0].text):
        return False
    return all(after.start - before.end <= 1 for before, after in itertools.pairwise(piece))


def _checked(keywords: Sequence[str]) -> list[str]:
    texts = [*keywords] if isinstance(keywords, list | tuple) else []
    right = all(
        isinstance(text, str) and text.strip() and len(text) <= _LONGEST_KEYWORD for text in texts
    )
    if not right or not 1 <= len(texts) <= MAX_KEYWORDS:
        raise InvalidArgument(
            f"keywords must be a list of 1-{MAX_KEYWORDS} texts of up to {_LONGEST_KEYWORD} "
            f"characters, none blank, not {shown(keywords)}",
            field="keywords",
        )
    return texts
