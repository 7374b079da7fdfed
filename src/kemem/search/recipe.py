"""The recipe of search: understand, gather, fuse, rerank, explain."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kemem.errors import InvalidArgument, Unavailable
from kemem.ports import Deps
from kemem.ports.request import Candidates, Key, SearchRequest, key_of
from kemem.records import NOTES, Match, Note, Row, Where
from kemem.results import Hit, Memories
from kemem.search.fuse import fuse
from kemem.search.gather import prepare, to_signals
from kemem.search.rerank import rerank
from kemem.search.signals import Mode, ParsedQuery, Ranked
from kemem.search.understand import understand
from kemem.text.language import is_chinese
from kemem.text.query import plain
from kemem.text.snippets import matches

MAX_HITS = 1000
_DEPTH = 5  # candidates of each signal for every hit asked for
_LEAST = 120
_SPARE = 2  # times more rows are read than asked for, where notes may repeat messages


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
    field: str = "query_text",
) -> Memories[Hit]:
    """The rows that answer a question best, by all signals together, with reasons.

    To `count` all that answer it, every row is looked at that is among the first 1,000 of a signal.
    """
    if not isinstance(text, str) or not text.strip():
        raise InvalidArgument(
            f"{field} must be a text that is not blank, not {text!r:.80}", field=field
        )
    if type(limit) is not int or limit < 1:
        raise InvalidArgument(f"limit must be 1-{MAX_HITS}, not {limit!r:.80}", field="limit")
    most = min(limit, MAX_HITS)
    now = deps.clock() if where.known_by is None else where.known_by
    # What reads texts runs in a thread: long ones would block the event loop.
    query = await asyncio.to_thread(understand, text, now, mode, keywords)
    depth = max(most * _DEPTH, MAX_HITS if count else _LEAST)
    prepared = await prepare(query, where, depth, deps)
    spare = _SPARE if where.kinds & NOTES else 1
    reranker = deps.reranker if reranked else None
    least = threshold if reranker is None else 0.0
    ranked: list[Ranked] = []

    def select(candidates: Candidates) -> list[Match]:
        signals = to_signals(candidates, prepared, query)
        best = fuse(signals, query, None if count else most * spare)
        ranked[:] = [each for each in best if each.match.score >= least]
        return [each.match for each in ranked]

    response = await deps.store.search(replace(prepared.request, select=select))
    hits = await rerank(text, _to_hits(ranked, response.rows), reranker)
    hits = [hit for hit in hits if hit.score >= threshold]
    best = [hit if explain else replace(hit, why=()) for hit in hits[:most]]
    if explain:
        best = await asyncio.to_thread(lambda: [_explain(hit, query) for hit in best])
    return Memories(
        items=tuple(best),
        missing=prepared.missing,
        language="zh" if is_chinese(text) else "en",
        total=len(hits) if count else 0,
    )


async def nearest_notes(text: str, where: Where, limit: int, deps: Deps) -> list[Note]:
    """Notes that are about what a text says, without reasons: what a model is shown of them."""

    def select(candidates: Candidates) -> Sequence[Match]:
        return candidates.vectors[0] if candidates.vectors else candidates.words[0].matches

    request = SearchRequest(where, limit=limit, model=deps.model, select=select)
    try:
        vectors = await deps.embed([text], purpose="query")
        request = replace(request, vectors=vectors)
    except Unavailable:
        request = replace(request, queries=(plain(text),))
    response = await deps.store.search(request)
    rows = [response.rows.get(key_of(match)) for match in select(response.candidates)]
    return [row for row in rows if isinstance(row, Note)]


def _to_hits(ranked: Sequence[Ranked], rows: Mapping[Key, Row]) -> list[Hit]:
    """Hits for the head of a ranking, without messages that a note in it says nearly whole."""
    pairs = [(each, rows.get(key_of(each.match))) for each in ranked]
    hits = [Hit(row, each.match.score, each.why) for each, row in pairs if row]
    repeated: dict[str, int] = {}
    for hit in hits:
        if isinstance(hit.row, Note):
            for source in hit.row.sources:
                repeated[source] = max(repeated.get(source, 0), len(hit.row.content))
    return [
        hit
        for hit in hits
        if isinstance(hit.row, Note) or 2 * repeated.get(hit.id, 0) < len(hit.row.content)
    ]


def _explain(hit: Hit, query: ParsedQuery) -> Hit:
    """A hit with the terms that matched, and snippets."""
    found = matches(hit.row.content, query.query)
    borrowed = ["around it"] if any(it.startswith("lexical") for it in hit.why) else []
    terms = [*found.terms] or borrowed
    why = (*hit.why, f"terms: {', '.join(terms)}") if terms else hit.why
    return replace(hit, why=why, snippets=found.snippets)
