"""The plan of a recall without a model: search, narrow or broaden, read details, hand off.

What answers best is ranked from several searches and from the messages beside their hits. Measured
on eight sets of conversations (`python -m bench.recall`): a search has counted already what stands
around a hit, so that turns beside it add only a little, replies to a question more; words of a
short hit find others of its kind. Long texts stand for themselves.
"""

import re
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar

from kemem.facts.keywords import keywords
from kemem.recall import schemas
from kemem.recall.ranking import Ranking, scores
from kemem.recall.state import MAX_RESULTS, RecallState
from kemem.recall.tools import summary
from kemem.records import Message
from kemem.results import Hit, Item
from kemem.text.query import asks
from kemem.text.reading import seeks_answer
from kemem.text.segment import tokens
from kemem.text.when import time_phrases

SURE, LIKELY, WEAK = 0.5, 0.3, 0.1  # relevance: to be found at all, by meaning, beside others
RECENT = 7  # days that "last time" reaches back
LEAST, SHARE = 0.0, 0.1  # of what is handed over: its score, and its share of the best score
DETAILS = 3  # hits that are read with the messages around them
FEW = 6  # memories that are handed over where fewer answer

PARTS = 2  # questions inside a question that are searched for by themselves, the last ones
LEADS = 2  # hits whose words make a search of their own
SHORT = 30  # tokens of a hit that lends its words: a longer one speaks of other things too
LONG = 100  # tokens of a turn that lends nothing to its neighbours and borrows nothing
FOLLOWED = 0.35  # what a place in a search for a hit's words is worth
REPLY = 0.4  # what the turn after a question is worth beside the question
BESIDE = 0.2  # what any other turn next to a hit is worth beside it

_MAX_QUERY = 2_000  # characters
_SENTENCE = re.compile(r"(?<=[。！？!?；;])|(?<=\. )")
_SYNTAX = re.compile(r'["“”「」()（）*]')


T = TypeVar("T")
# Yields the input of a tool, is sent its output.
Calls = Generator[schemas.Model, schemas.Model | None, T]
Answer = tuple[str, Sequence[str]]  # a question, and the keys of hits that answer it
Beside = tuple[Hit, Mapping[str, Any]]  # a hit, and a line of its context that is next to it


# The plan


def plan(state: RecallState, window: Sequence[Item]) -> Calls[None]:
    """The calls for one question; each is decided on after the output of the one before."""
    question = state.question.encode(errors="replace").decode()[:_MAX_QUERY]
    words = [each.text.casefold() for each in keywords(question) if each.kind != "time"]
    rankings, answers = yield from _search_question(state, question)
    if not rankings and not words:
        rankings = yield from _search_context(state, question, window)
    found, judged = [*scores(rankings)], seeks_answer(question)
    if judged:  # by chance, which is the same in each search
        found.sort(key=lambda key: -state.hits[key].score)
    confidence = max((state.hits[key].score for key in found), default=0.0)
    first = [key for key in found if state.hits[key].score >= max(LEAST, SHARE * confidence)]
    beside = yield from _read_details(state, first[:DETAILS])
    for query in follow_up_queries(state, answers) if first else ():
        way = {"search_mode": "keyword", "min_relevance_score": WEAK}
        hits = yield from _search(state, query=query[:_MAX_QUERY], **way)
        rankings.append((FOLLOWED, hits))
    keys = best_keys(scores(rankings), beside, MAX_RESULTS) if first else []
    if judged:  # what search has judged stays first; what is only near it follows
        weak = {*found} - {key for weight, some in rankings if weight == FOLLOWED for key in some}
        told = {*first, *(source for key in first for source in state.hits[key].sources)}
        near = [key for key in keys if key not in weak and not told.issuperset(_said(state, key))]
        keys = [*first, *near][: max(len(first), FEW)]
        _let_scores_fall(state, keys)
    keys = [key for key in keys if key not in state.over]
    yield handoff_from(state, keys, confidence=confidence if keys else 0.0)


def _said(state: RecallState, key: str) -> Sequence[str]:
    """The messages that say what a memory says, or itself."""
    return (key in state.hits and state.hits[key].sources) or [key]


def _let_scores_fall(state: RecallState, keys: Sequence[str]) -> None:
    """Give none of some memories a higher score than the ones before it."""
    least = 1.0
    for hit in (state.hits[key] for key in keys if key in state.hits):
        least = min(hit.score, least)
        state.hits[hit.id] = replace(hit, score=least)


def handoff_from(
    state: RecallState,
    keys: Sequence[str] | None = None,
    *,
    reason: str = "",
    confidence: float | None = None,
) -> schemas.HandoffInput:
    """The handoff of some memories, or of the best hits; of none, a question to ask the user."""
    if keys is None:
        keys = sorted(state.hits, key=lambda key: -state.hits[key].score)[:MAX_RESULTS]
    hits = [state.hits[key] for key in keys if key in state.hits]
    if confidence is None:
        confidence = max((hit.score for hit in hits), default=0.0)
    searches = [step for step in state.trace if step.tool == "search_memories"]
    failures = [step.outcome for step in searches if step.outcome in state.problems]
    if keys:
        lines = [state.text("found_summary", count=len(keys))]
        lines += [f"- {summary(hit)}" for hit in hits]
        if beside := len(keys) - len(hits):
            lines.append(state.text("found_beside", count=beside))
        ended = state.text("found", count=len(keys))
    elif failures or not any(step.success for step in searches):  # which proves nothing
        lines = [state.text("search_incomplete")]
        ended = failures[-1] if failures else lines[0]
    else:
        lines, ended = [state.text("nothing_found_summary")], state.text("nothing_found")
    unsure = confidence < SURE
    return schemas.HandoffInput(
        reason=reason or ended,
        search_summary="\n".join(lines),
        relevant_memory_keys=list(keys),
        confidence=round(confidence, 6),
        needs_more_info=unsure,
        follow_up_question=state.text("follow_up") if unsure else None,
        iteration_used=state.iteration,
        context_window_used=state.window,
    )


def _search_question(
    state: RecallState, question: str
) -> Calls[tuple[list[Ranking], list[Answer]]]:
    """Rankings by their weights, and the questions with the hits that answer them."""
    whole = yield from _search(state, query=question)
    answered = bool(whole)
    if not answered and not seeks_answer(question):
        way = {"search_mode": "semantic", "min_relevance_score": LIKELY}
        whole = yield from _search(state, query=question, **way)
    elif len(whole) < MAX_RESULTS:
        least = LEAST if seeks_answer(question) else WEAK
        whole = yield from _search(state, query=question, min_relevance_score=least)
    if not whole:
        return [], []
    if len(whole) == MAX_RESULTS and _means_last_time(question):
        recent = yield from _search(state, query=question, time_range_days=RECENT)
        return [(1.0, whole), (1.0, recent)], [(question, whole)]
    answers: list[Answer] = []
    for part in parts_of(question) if answered else ():
        of_part = yield from _search(state, query=part, min_relevance_score=WEAK)
        answers.append((part, of_part))
    if answers:
        return [(1.0, whole), *((1.0, of_part) for _, of_part in answers)], answers
    return [(1.0, whole)], [(question, whole)]


def _search_context(
    state: RecallState, question: str, window: Sequence[Item]
) -> Calls[list[Ranking]]:
    """What a question without words of its own may mean, by the conversation it is part of."""
    talk = "\n".join(item.memory[:_MAX_QUERY] for item in window)
    words = [each.text for each in keywords(question, context=talk) if each.kind != "time"]
    shown = {item.id for item in window}
    hits = (yield from _search(state, query=" ".join(words))) if words else []
    hits = [key for key in hits if not shown.issuperset(state.hits[key].sources)]
    if not hits and state.has_earlier:
        reason, size = state.text("vague_question"), state.window
        yield schemas.ExpandContextWindowInput(
            reason=reason, current_size=size, requested_size=4 * size
        )
    return [(1.0, hits)]


def _search(state: RecallState, **request: Any) -> Calls[list[str]]:
    """The keys of the hits of one search."""
    output = yield schemas.SearchMemoriesInput(limit=MAX_RESULTS, **request)
    results = output.results if isinstance(output, schemas.SearchMemoriesOutput) else ()
    return [each.memory_key for each in results]


def _read_details(state: RecallState, keys: Sequence[str]) -> Calls[list[Beside]]:
    """Each of the hits with the message just before it, and with the one just after."""
    pairs = []
    for key in keys:
        output = yield schemas.GetMemoryDetailInput(memory_key=key)
        if isinstance(output, schemas.GetMemoryDetailOutput) and output.metadata:
            for line in output.metadata["context"]:
                if abs(line["offset"]) == 1 and line["memory_key"] not in state.excluded:
                    pairs.append((state.hits[key], line))
    return pairs


def _means_last_time(question: str) -> bool:
    """Whether a question means a time that it does not name.  "上次" -> True, "去年" -> False"""
    dated = time_phrases(question, datetime(1970, 1, 1, tzinfo=UTC))
    return not dated and any(each.kind == "time" for each in keywords(question))


# The ranking


def parts_of(question: str) -> list[str]:
    """The questions in a question that holds several; a quoted conversation holds none."""
    if "\n" in question.strip():
        return []
    sentences = [part.strip() for part in _SENTENCE.split(question)]
    parts = [part for part in sentences if part.endswith(("?", "？")) and _length(part) >= 3]
    return parts[-PARTS:] if len(parts) > 1 else []


def follow_up_queries(state: RecallState, answers: Sequence[Answer]) -> list[str]:
    """What to search for next, from the best hits of each question: plain words, no syntax."""
    leads = [
        (question, state.hits[key].memory)
        for question, keys in answers
        for key in keys[: max(1, LEADS // len(answers))]
    ]
    return [
        _SYNTAX.sub(" ", f"{question} {text}").lower()
        for question, text in leads
        if _length(text) <= SHORT and not asks(text)
    ]


def best_keys(own: Mapping[str, float], beside: Iterable[Beside], most: int) -> list[str]:
    """The keys that score best, by their own scores and by those of hits that they are beside."""
    lent: dict[str, float] = {}
    for hit, other in beside:
        key, role = other["memory_key"], hit.row.role if isinstance(hit.row, Message) else ""
        share = REPLY if other["offset"] > 0 and asks(hit.memory) else BESIDE
        if role == other["role"] or max(map(_length, (hit.memory, other["content"]))) > LONG:
            share = 0.0  # turns of one speaker are no dialogue
        lent[key] = max(lent.get(key, 0.0), own.get(hit.id, 0.0) * share)
    total = {key: own.get(key, 0.0) + lent.get(key, 0.0) for key in [*own, *lent]}
    return [key for key in sorted(total, key=lambda key: -total[key]) if total[key] > 0][:most]


def _length(text: str) -> int:
    return sum(1 for _ in tokens(text))
