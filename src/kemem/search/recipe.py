"""The recipe of search: understand, gather, fuse, rerank, explain."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from typing import Literal, NamedTuple

from kemem.errors import Unavailable
from kemem.ports import Deps, Reranker
from kemem.ports.request import (
    Candidates,
    Context,
    Key,
    Neighborhood,
    SearchRequest,
    SearchResponse,
    key_of,
)
from kemem.records import NOTES, Match, Matrix, Micros, Note, Relation, Where
from kemem.results import Hit, Memories, next_end
from kemem.scope import check_flag
from kemem.search.endings import (
    below_parts,
    below_successors,
    in_their_tense,
    in_their_time,
    stated_first,
    unexpired,
)
from kemem.search.features import JUDGED, Candidate, Column
from kemem.search.feedback import VOTES, by_votes
from kemem.search.fuse import SignalHits, Signals, fuse
from kemem.search.hops import Hop, combined, follow, hops_from, still_certain
from kemem.search.judge import JUDGED_MODEL, Meant, beside_signals, is_large, judge
from kemem.search.pages import MAX_PAGE, page_limit
from kemem.search.present import present, said_once
from kemem.search.previous import Nearest, join, nearest_before, scale, scaled
from kemem.search.reader import read_together
from kemem.search.rerank import rerank
from kemem.search.topics import asked_notes
from kemem.search.understand import Mode, ParsedQuery, understand
from kemem.text.language import is_chinese
from kemem.text.past import is_about_past
from kemem.text.query import check_query, plain
from kemem.text.reading import asks_ahead
from kemem.text.when import speaks_of_plans

_DEPTH = 5  # candidates of each signal for every hit asked for
_LEAST = 120
_SPARE = 2  # times more rows are read than asked for, where notes may repeat messages
_BRIEF = 500  # characters of a question that is understood faster than a thread is reached
_BEFORE = 2  # messages before each row that are read, too
_HOPS = 2
_RELATIONS = 50
_NEAR, _FAR = 1.0, 0.5  # what a relation of the named entity is worth, and one of its neighbors

log = logging.getLogger("kemem")


async def search(
    text: str,
    where: Where,
    limit: int,
    deps: Deps,
    *,
    mode: Mode = "hybrid",
    keywords: Sequence[str] | None = None,
    threshold: float = 0.0,
    reranked: bool = False,
    explain: bool = True,
    count: bool = False,
    past: bool = False,
    field: str = "query_text",
) -> Memories[Hit]:
    """The rows that answer a question best, by all signals together, with reasons.

    To `count` all that answer it, every row is looked at that is among the first 1,000 of a signal.
    With `past` it is taken as a question about the past, whatever its words are.
    """
    check_query(text, field)
    most = _checked(limit, rerank=reranked, explain=explain, count=count, past=past)
    now = deps.clock() if where.known_by is None else where.known_by
    query = await _understood(partial(understand, text, now, mode, keywords, field), text)
    if past and query.question:
        query = replace(query, question=replace(query.question, past=True, topics=frozenset()))
    asked = query.whole.text if query.question else text
    past = past or is_about_past(asked, now, query.times)
    where = replace(where, valid_at=None if past else where.valid_at or now)
    depth = max(most * _DEPTH, MAX_PAGE if count else _LEAST)
    judged = JUDGED if query.question else 0
    reranker = deps.reranker if reranked and not query.is_bare else None
    least = threshold if reranker is None and not judged else 0.0
    ranked: list[tuple[Match, tuple[str, ...]]] = []

    def select(signals: Signals) -> list[Match]:
        size = max(most * (_SPARE if where.kinds & NOTES else 1), judged)
        best = fuse(signals, query, None if count else size, explain, judged)
        ranked[:] = [(match, why) for match, why in best if match.score >= least]
        return [match for match, _ in ranked]

    found = await _gather(query, where, depth, now, deps, select)
    hops, response = await _second_hop(query, found, [it for it, _ in ranked], select, now, deps)
    response = replace(response, rows=unexpired(response.rows, now)) if past else response

    def finish(hits: Sequence[Hit]) -> tuple[int, list[Hit]]:
        hits = hits if past else _true_first(hits, query, response, asked, now)
        if (question := query.question) and question.of_one_tense and question.past == past:
            hits = in_their_tense(hits, question)
        hits = [hit for hit in hits if hit.score >= threshold and hit.score > 0]
        best = by_votes(hits, found.response.lines, text, found.request, now, most)
        words = query.query if explain else None
        return len(hits), [present(it, response.contexts, words, hops) for it in best]

    read = asked if reranked and deps.reads else None
    judging = partial(_in_order, query, found, hops, *_candidates(ranked, response, now), read)
    total, best = await _finished(judging, finish, asked, reranker)
    language: Literal["zh", "en"] = "zh" if is_chinese(text) else "en"
    until = next_end(response.rows.values(), now)
    return Memories(tuple(best), None, found.missing, language, total * count, past, until)


def _true_first(
    hits: Sequence[Hit], query: ParsedQuery, response: SearchResponse, text: str, now: Micros
) -> list[Hit]:
    """Hits in which what holds at the time that is asked for stands above what does not."""
    # A question is answered by what matches no word of it; words alone are not.
    instead = response.rows if query.question and query.keywords is None else {}
    hits = below_successors(hits, instead, response.contexts)
    hits = in_their_time(hits, now, ahead=speaks_of_plans(text) or asks_ahead(text))
    return stated_first(hits, query.question.topics if query.question else frozenset(), now)


def _checked(limit: int, **flags: bool) -> int:
    """How many hits are wanted, where that and the flags are what they should be."""
    for name, flag in flags.items():
        check_flag(flag, name)
    return page_limit(limit, "limit")


async def _understood(parsing: Callable[[], ParsedQuery], text: str) -> ParsedQuery:
    """What a question asks; a long one is read in a thread: it would block the event loop."""
    return parsing() if len(text) <= _BRIEF else await asyncio.to_thread(parsing)


async def _finished(
    judging: Callable[[], Sequence[Hit]],
    finish: Callable[[Sequence[Hit]], tuple[int, list[Hit]]],
    text: str,
    reranker: Reranker | None,
) -> tuple[int, list[Hit]]:
    """Hits that are judged and finished: by one thread, unless a model reads them in between."""
    if reranker is None:
        return await asyncio.to_thread(lambda: finish(judging()))
    hits = await rerank(text, await asyncio.to_thread(judging), reranker)
    return await asyncio.to_thread(finish, hits)


def _in_order(
    query: ParsedQuery,
    found: "_Found",
    hops: Sequence[Hop],
    candidates: Sequence[Candidate],
    hits: Sequence[Hit],
    read: str | None,
) -> Sequence[Hit]:
    """Hits by how well they answer, where a question is asked; without what is said twice.

    What is to be `read` with the best of them is the question, in a large memory. What a second hop
    led to answers it in words that the network cannot know to mean the same.
    """
    if query.question and candidates:
        asked = [(query.question, found.meant), *((it.question, Meant(it.vector)) for it in hops)]
        some = candidates[:JUDGED]
        among = found.response.candidates.rows if found.signals.whole.vectors else 0
        judged = [judge(*it, some, among).scores for it in asked]
        scores = combined(judged, hops, some)
        if query.continues:
            scores = beside_signals(scores, some)
        if read is not None and is_large(among) and not hops:
            scores = read_together(read, some, scores)
        hits = _by_judgement(hits, scores)
        if not query.question.past:
            hits = below_parts(hits, {key_of(it.row): it.context for it in candidates})
    return said_once(hits)


def _candidates(
    ranked: Sequence[tuple[Match, tuple[str, ...]]], response: SearchResponse, now: Micros
) -> tuple[list[Candidate], list[Hit]]:
    """The rows that were ranked and are still there, as the judge takes them and as hits."""
    hits, candidates = list[Hit](), list[Candidate]()
    for match, why in ranked:
        if row := response.rows.get(key := key_of(match)):
            around = response.contexts.get(key) or Context()
            if around.ended is not None and around.ended > now:  # of a question about the past
                around = replace(around, ended=None, superseded_by=None)
            hits.append(Hit(row, match.score, why, (), around.ended, around.superseded_by))
            candidates.append(Candidate(row, match.score, around))
    return candidates, hits


def _by_judgement(hits: Sequence[Hit], scores: Column) -> list[Hit]:
    """Hits in the order of a judgement of the first ones; none that follows scores more."""
    pairs = zip(hits, scores.tolist(), strict=False)
    judged = [replace(hit, score=round(score, 6)) for hit, score in pairs]
    judged.sort(key=lambda hit: -hit.score)
    least = judged[-1].score
    return [*judged, *(replace(hit, score=min(hit.score, least)) for hit in hits[len(judged) :])]


async def nearest_notes(text: str, where: Where, limit: int, deps: Deps) -> list[Note]:
    """Notes that are about what a text says, without reasons: what a model is shown of them."""
    within, best = SearchRequest(where, limit=limit), list[Match]()
    old = await nearest_before([text], within, deps)

    def select(candidates: Candidates) -> Sequence[Match]:
        lists = join(candidates.vectors, old) or (candidates.words[0].matches,)
        best[:] = lists[0][:limit]
        return best

    try:
        vectors = await deps.embed([text], purpose="query")
        request = replace(within, vectors=vectors, model=deps.model, select=select)
    except Unavailable:
        request = replace(within, queries=(plain(text),), select=select)
    response = await deps.store.search(request)
    rows = [response.rows.get(key_of(match)) for match in best]
    return [row for row in rows if isinstance(row, Note)]


class _Found(NamedTuple):
    """What was asked of the store and found; what the question means; and what is missing."""

    request: SearchRequest
    response: SearchResponse
    signals: Signals
    meant: Meant
    missing: tuple[str, ...]


async def _gather(
    query: ParsedQuery,
    where: Where,
    depth: int,
    now: Micros,
    deps: Deps,
    select: Callable[[Signals], Sequence[Match]],
) -> _Found:
    """Ask every signal, and read the rows that are selected; signals that are missing are named."""
    missing: list[str] = []
    vectors: Matrix | None = None
    meant = Meant()
    question = query.question
    nearest: Nearest = ()  # of the vector database beside the store
    old: Nearest = ()  # by the embedder before, while it changes
    slope = 1.0
    if query.mode != "lexical":
        within = SearchRequest(where, limit=depth, keywords=query.keywords)
        old = await nearest_before([part.text for part in query.texts], within, deps)
        try:
            vectors, meant = await _embed(query, deps)
            nearest = await _from_index(vectors, where, depth, deps)
            if deps.embedder and deps.embedder.name != JUDGED_MODEL:
                slope = await scale(deps)
        except Unavailable as error:
            if deps.embedder is not None:
                log.warning("%s; words answer alone", error.message)
            missing.append("semantic")
    around = _around(query, where)
    relations = await _from_graph(around, missing, deps)
    told = await asked_notes(question, meant.advice, where, deps)
    gathered: list[Signals] = []

    def select_matches(candidates: Candidates) -> Sequence[Match]:
        near = scaled(nearest or join(candidates.vectors, old), slope)
        whole, *parts = _in_pairs(candidates, near)
        linked = _linked_notes((*candidates.relations, *relations), query, candidates.admitted)
        of_topics = _admitted(told, candidates)
        rest = (linked, tuple(missing), candidates.in_time, of_topics)
        gathered[:] = [Signals(whole, depth, tuple(parts), *rest)]
        return select(gathered[0])

    by_words = query.mode != "semantic" or "semantic" in missing  # words stand in for vectors
    request = SearchRequest(
        where,
        queries=tuple(part.query for part in query.texts) if by_words else (),
        vectors=None if deps.vectors else vectors,
        model=deps.model,
        limit=depth,
        keywords=query.keywords,
        around=None if deps.graph else around,
        select=select_matches,
        times=tuple((it.since, it.until) for it in question.times) if question else (),
        before=_BEFORE if question else 0,
        lines=VOTES,
        continued_at=_sent(query, where, now),
    )
    response = await deps.store.search(request)
    late = ["vectors"] if response.candidates.unembedded and not old else []
    return _Found(request, response, gathered[0], meant, (*missing, *late))


def _sent(query: ParsedQuery, where: Where, now: Micros) -> Micros | None:
    """When a turn was sent that goes on with a conversation: what came later is unknown to it."""
    if not query.continues:
        return None
    return now if where.until is None else min(now, where.until)


async def _second_hop(
    query: ParsedQuery,
    found: _Found,
    best: Sequence[Match],
    select: Callable[[Signals], Sequence[Match]],
    now: Micros,
    deps: Deps,
) -> tuple[Sequence[Hop], SearchResponse]:
    """The question with names that the best rows give, and the rows with those that use them."""
    response, signals = found.response, found.signals
    rows = [response.rows[key] for match in best if (key := key_of(match)) in response.rows]
    hops = await hops_from(query, rows, now, deps if found.meant.topic is not None else None)
    if not hops:
        return (), response

    def select_more(candidates: Candidates) -> Sequence[Match]:
        return select(replace(signals, hops=_in_pairs(candidates, candidates.vectors)))

    response = await follow(found.request, hops, response, select_more, deps)
    sure = (still_certain(it, [*response.rows.values()]) for it in hops)
    return [it for it in sure if it], response


def _in_pairs(candidates: Candidates, near: Sequence[tuple[Match, ...]]) -> tuple[SignalHits, ...]:
    """What words and vectors rank for each text."""
    words = (ranking.matches for ranking in candidates.words)
    return tuple(SignalHits(*pair) for pair in zip_longest(words, near, fillvalue=()))


async def _from_graph(
    around: Neighborhood | None, missing: list[str], deps: Deps
) -> Sequence[Relation]:
    """What the graph database beside the store knows, if there is one."""
    try:
        return await deps.relations(around) if around and deps.graph else ()
    except Unavailable as error:
        log.warning("%s; the graph is left out", error.message)
        missing.append("graph")
        return ()


def _around(query: ParsedQuery, where: Where) -> Neighborhood | None:
    """The relations of what the question names, where notes are looked for."""
    if query.mode == "hybrid" and query.names and where.kinds & NOTES and where.role is None:
        bare = replace(where, filters=None, since=None, until=None, ids=None)
        return Neighborhood(bare, query.names, _HOPS, _RELATIONS)
    return None


async def _embed(query: ParsedQuery, deps: Deps) -> tuple[Matrix, Meant]:
    """The vectors of a question and its parts, and what it means if the judge knows the model."""
    texts = [part.text for part in query.texts]
    question, size = query.question, len(texts)
    if question is None or deps.embedder is None or deps.embedder.name != JUDGED_MODEL:
        return await deps.embed(texts, purpose="query"), Meant()
    wanted = [question.topic, question.advice.known] if question.advice else [question.topic]
    vectors = await deps.embed([*texts, *wanted], purpose="query")
    return vectors[:size], Meant(*vectors[size:])


async def _from_index(
    vectors: Matrix, where: Where, depth: int, deps: Deps
) -> tuple[tuple[Match, ...], ...]:
    """What the vector database beside the store finds, if there is one."""
    index, model = deps.vectors, deps.model
    if index is None or model is None:
        return ()
    try:
        return tuple([tuple(await index.nearest(where, it, model, depth)) for it in vectors])
    except Exception as error:  # the database's code or network, which may raise anything
        raise Unavailable(f"the vector database failed: {type(error).__name__}") from error


def _admitted(notes: Iterable[Match], candidates: Candidates) -> tuple[Match, ...]:
    """Notes without those that do not match the keywords, if there are any."""
    admitted = candidates.admitted
    return tuple(it for it in notes if admitted is None or key_of(it) in admitted)


def _linked_notes(
    relations: Iterable[Relation], query: ParsedQuery, admitted: frozenset[Key] | None
) -> tuple[tuple[Match, str], ...]:
    """The notes behind relations, each with the relation that leads to it; nearest first."""
    names = {name.casefold() for name in query.names}
    linked: dict[str, tuple[Match, str]] = {}
    for each in relations:
        near = bool(names & {each.source.casefold(), each.destination.casefold()})
        path = f"{each.source} {each.relationship} {each.destination}"
        for note_id in each.note_ids:
            score = _NEAR if near else _FAR
            match = Match(each.agent_id, each.user_id, note_id, each.valid_from, score)
            linked.setdefault(note_id, (match, path))
    notes = linked.values()
    return tuple(it for it in notes if admitted is None or key_of(it[0]) in admitted)
