"""Last step of search: nothing is shown twice, and each hit with what it answers and why."""

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Protocol

from kemem.ports.request import Context, Key, key_of
from kemem.records import Note, Row
from kemem.results import Hit
from kemem.search.features import worth
from kemem.text.query import Query, asks, matches
from kemem.text.reading import read
from kemem.text.replies import question_before
from kemem.text.summary import sentences

_LEFT_OUT = 3  # words of a message that a note does not say: it may be another clause
_GREETING = re.compile(
    r"(?i:(?:hi|hello|hey|thanks|thank you|cheers|bye|ok|okay|[你您]好|谢谢|多谢|好的?|再见)\W*)"
)


class Explains(Protocol):
    """What may have led to a row."""

    def reason(self, row: Row) -> str | None: ...


def said_once(hits: Sequence[Hit]) -> list[Hit]:
    """Hits in which nothing is said twice.

    Of a message and a note that says it nearly whole, and answers as well, the note stays, in the
    better place of both; so does a note that answers better, where others say the rest. A message
    stays behind it if they leave out one of its sentences. What a note says that is a part of a
    message above it is left out.
    """
    messages = {hit.id: hit for hit in hits if not isinstance(hit.row, Note)}
    notes: dict[str, list[Hit]] = {}  # of each message, best first
    for hit in hits:
        for source in hit.sources if isinstance(hit.row, Note) else ():
            message = messages.get(source)
            # A note that took its place said it before it was rewritten.
            if message is not None and message.superseded_by != hit.id:
                notes.setdefault(source, []).append(hit)
    told: dict[str, Hit] = {}  # the messages that notes repeat, by their ids
    for source, some in notes.items():
        message = messages[source]
        whole = (it for it in some if 2 * it.score >= message.score and _says_all([it], message))
        together = some[0].score >= message.score and _says_all(some, message)
        if best := next(whole, some[0] if together else None):
            told[source] = best
    kept: dict[str, Hit] = {}
    for hit in hits:
        best = told.get(hit.id, hit) if not isinstance(hit.row, Note) else hit
        part = isinstance(hit.row, Note) and hit not in told.values()
        above = [kept.get(it) for it in hit.sources] if part else []
        if above and all(it and it.superseded_by != hit.id for it in above):
            continue
        if best.id not in kept:
            kept[best.id] = best if best is hit else replace(best, score=hit.score)
        if best is not hit and not _says_each_sentence(notes[hit.id], hit):
            kept[hit.id] = hit
    return [*kept.values()]


def _says_all(notes: Sequence[Hit], message: Hit) -> bool:
    """Whether notes leave out nearly nothing of what a message says."""
    return _weight(read(message.memory).words - _words(notes)) < _LEFT_OUT


def _says_each_sentence(notes: Sequence[Hit], message: Hit) -> bool:
    """Whether notes say a part of each sentence that tells something, where these are several."""
    own = _words(notes)
    told = [it for it in sentences(message.memory) if not (asks(it) or _GREETING.fullmatch(it))]
    each = [read(it).words for it in told]
    return len(each) < 2 or all(4 * _weight(words & own) >= _weight(words) for words in each)


def _words(notes: Sequence[Hit]) -> frozenset[str]:
    return frozenset[str]().union(*(read(it.memory).words for it in notes))


def _weight(words: Iterable[str]) -> float:
    return sum(map(worth, words))


def present(
    hit: Hit, contexts: Mapping[Key, Context], query: Query | None, hops: Iterable[Explains]
) -> Hit:
    """A hit that the caller may change, with the question that it answers, by its context.

    With a query it also gets the reasons of hops, the terms that matched, and snippets; without,
    it has no reasons.
    """
    context = contexts.get(key_of(hit.row))
    asked = question_before(hit.row, context.before) if context else ""
    row = replace(hit.row, metadata=deepcopy(hit.row.metadata))
    if query is None:
        return replace(hit, row=row, why=(), in_reply_to=asked)
    found = matches(hit.row.content, query)
    borrowed = ["around it"] if any(it.startswith("lexical") for it in hit.why) else []
    terms = [*found.terms] or borrowed
    why = (
        *hit.why,
        *filter(None, (hop.reason(hit.row) for hop in hops)),
        *([f"terms: {', '.join(terms)}"] if terms else []),
    )
    return replace(hit, row=row, why=why, snippets=found.snippets, in_reply_to=asked)
