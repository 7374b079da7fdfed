"""The five tools. Each takes the state of a recall and its own input, and returns its output."""

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Any, get_args

from kemem.errors import InvalidArgument, NotFound, Unavailable
from kemem.facts.keywords import expanded, keywords
from kemem.recall import schemas
from kemem.recall.ranking import bounded, with_named
from kemem.recall.results import Evidence
from kemem.recall.state import MAX_RESULTS, MAX_SEARCHES_IN_A_ROW, RecallState, will_end
from kemem.records import Note
from kemem.records.times import to_rfc3339
from kemem.results import Hit, Item, Memories
from kemem.text.fence import neutralise
from kemem.text.reading import seeks_answer
from kemem.text.replies import question_before

CONTENT_BYTES = 102_400
_PREVIEW = 200  # characters
_SUMMARY = 80
_CONTEXT = 1_000
_LOWER = 0.1  # relevance of what a model is shown where it names none, and nothing has 0.5
_FILTERS = ("keywords", "memory_types", "time_range_days")
_MAX_KEYS = 100  # of a handoff that are looked up
_NEIGHBORS = 2  # messages before and after a message that its detail shows
_KEYWORD_TOKENS = 200  # of an answer


async def search_memories_tool(
    state: RecallState, request: schemas.SearchMemoriesInput
) -> schemas.SearchMemoriesOutput:
    """The memories that answer a query best."""
    if state.searches_in_a_row >= MAX_SEARCHES_IN_A_ROW:
        advice = state.text("searches_in_a_row", most=MAX_SEARCHES_IN_A_ROW)
        return schemas.SearchMemoriesOutput(success=False, total_found=0, message=advice)
    hits, dropped = await state.search(request), ""
    if state.driver == "llm":
        if not hits:  # else what a model made up, or left out, would hide everything from it
            hits, dropped = await _search_wider(state, request)
        shown = [replace(it, in_reply_to=await _asked(state, it, request.query)) for it in hits]
        hits = replace(hits, items=tuple(shown))
    words = request.keywords or []
    if request.search_mode != "keyword":
        words = [*words, *(each.text for each in keywords(request.query))]
    results = [
        schemas.MemorySearchResultItem(
            memory_key=hit.id,
            summary=summary(hit),
            content_preview=hit.text[:_PREVIEW] + ("..." if len(hit.text) > _PREVIEW else ""),
            memory_type=hit.memory_type,
            relevance_score=hit.score,
            created_at=_created_at(hit),
            keywords=list(hit.keywords),
        )
        for hit in hits
    ]
    return schemas.SearchMemoriesOutput(
        success=True,
        total_found=hits.total,
        results=results,
        search_query_expanded=", ".join(dict.fromkeys(words)) or None,
        message=(dropped or None) if results else state.text("no_hits"),
    )


async def _search_wider(
    state: RecallState, request: schemas.SearchMemoriesInput
) -> tuple[Memories[Hit], str]:
    """The hits without filters, then with less relevance if none was demanded; what was changed."""
    hits, changes = Memories[Hit](()), []
    if filters := {name: None for name in _FILTERS if getattr(request, name)}:
        request = request.model_copy(update=filters)
        hits = await state.search(request)
        changes.append(state.text("filters_dropped", filters=", ".join(filters)))
    if not hits and "min_relevance_score" not in request.model_fields_set:
        least = request.min_relevance_score
        hits = await state.search(request.model_copy(update={"min_relevance_score": _LOWER}))
        changes.append(state.text("threshold_lowered", least=least, lower=_LOWER))
    return hits, "; ".join(changes)


async def get_memory_detail_tool(
    state: RecallState, request: schemas.GetMemoryDetailInput
) -> schemas.GetMemoryDetailOutput:
    """One memory whole, with its sources and the messages around it."""
    key, mark = state.cache_key(request.memory_key), await state.memory.generation()
    cached = state.caches.content.get(key, mark)
    state.cached = cached is not None
    if cached is not None:
        return cached
    item = await state.get(request.memory_key, mark)
    marks = item.marks if isinstance(item, Hit) else {}
    own = {"kind": item.kind, "event_time": to_rfc3339(item.row.ts), "sources": list(item.sources)}
    detail = schemas.GetMemoryDetailOutput(
        success=True,
        memory_key=item.id,
        summary=summary(item),
        content=truncated(item.memory),
        memory_type=item.memory_type,
        created_at=_created_at(item),
        metadata={**item.metadata, **own, **marks, "context": await _context(state, item)},
    )
    if not will_end(item):
        state.caches.content.put(key, detail, mark)
    return detail


async def extract_search_keywords_tool(
    state: RecallState, request: schemas.ExtractKeywordsInput
) -> schemas.ExtractKeywordsOutput:
    """What to search for, by the model; without one, or when it fails, by rules."""
    model = state.deps.llm.name if state.deps.llm else None
    key = state.cache_key(model, request.model_dump_json())
    cached = state.caches.expansion.get(key)
    state.cached = cached is not None
    if cached is not None:
        return cached
    output = None if model is None else await _keywords_by_model(state, request)
    failed = model is not None and output is None
    if output is None:
        words = keywords(request.query, context=request.context or "", limit=request.max_keywords)
        items = [
            schemas.KeywordExtractionItem(keyword=each.text, weight=each.weight, type=each.kind)
            for each in words
        ]
        query = expanded(request.query, words) or request.query
        output = schemas.ExtractKeywordsOutput(success=True, keywords=items, expanded_query=query)
    if not failed:  # a model that failed may know better a moment later
        state.caches.expansion.put(key, output)
    return output


async def expand_context_window_tool(
    state: RecallState, request: schemas.ExpandContextWindowInput
) -> schemas.ExpandContextWindowOutput:
    """Whether a larger window is granted; then this round ends, and another one begins."""
    budget, window = state.budget, state.window
    size, iteration = min(request.requested_size, budget.max_window), state.iteration + 1
    refusal = None
    if state.iteration >= budget.max_iterations:
        refusal = state.text("no_rounds_left", most=budget.max_iterations)
    elif not state.has_earlier:
        refusal = state.text("all_shown", window=window)
    elif size <= window:
        refusal = state.text("not_larger", window=window, most=budget.max_window)
    return schemas.ExpandContextWindowOutput(
        approved=refusal is None,
        new_size=window if refusal else size,
        iteration=state.iteration if refusal else iteration,
        max_iterations=budget.max_iterations,
        message=refusal or state.text("window_granted", size=size, iteration=iteration),
    )


async def handoff_tool(state: RecallState, request: schemas.HandoffInput) -> schemas.HandoffOutput:
    """The end of a recall: keys that lead to no memory of this user are left out."""
    evidence: list[Evidence] = []
    keys = list(dict.fromkeys(request.relevant_memory_keys))[:_MAX_KEYS]
    if state.by_rules is not None and state.by_rules.handoff is not None:
        request = _beside_rules(request, state.by_rules.handoff)
        keys = with_named(state.adopt(state.by_rules), keys)
    mark = await state.memory.generation() if keys else ""
    for key in keys:
        with suppress(NotFound, InvalidArgument):  # a model can name anything
            evidence.append(await _evidence(state, await state.get(key, mark)))
        if len(evidence) == MAX_RESULTS:
            break
    keys = [each.memory_key for each in evidence]
    confidence = request.confidence if evidence else 0.0
    report = state.text(
        "report", confidence=confidence, summary=request.search_summary, reason=request.reason
    )
    if keys:
        listed = "\n".join(f"- {key}" for key in keys)
        report += state.text("report_keys", count=len(keys), keys=listed)
    if request.needs_more_info and request.follow_up_question:
        report += state.text("report_question", question=request.follow_up_question)
    state.evidence = evidence
    state.message = neutralise(report)  # it quotes memories, so no markup in it is left alive
    final = {"relevant_memory_keys": keys, "confidence": confidence}
    final |= {"iteration_used": state.iteration, "context_window_used": state.window}
    state.handoff = request.model_copy(update=final)
    return schemas.HandoffOutput(success=True, message=state.message, task_completed=True)


def _beside_rules(
    request: schemas.HandoffInput, by_rules: schemas.HandoffInput
) -> schemas.HandoffInput:
    """What a model says of its evidence, beside rules; one that names none leaves it to them."""
    if not by_rules.relevant_memory_keys:
        return request
    said = request if request.relevant_memory_keys else by_rules
    return said.model_copy(update={"confidence": bounded(request.confidence, by_rules.confidence)})


def summary(item: Item) -> str:
    """A memory in short: its own summary, or how it begins."""
    own = item.row.summary if isinstance(item.row, Note) else None
    line = " ".join((own or item.memory).split())
    return line if len(line) <= _SUMMARY else f"{line[:_SUMMARY]}…"


def truncated(content: str) -> str:
    """At most 100 KB of a text, whole characters; a text that was cut ends with a mark."""
    raw = content.encode()
    if len(raw) <= CONTENT_BYTES:
        return content
    return raw[:CONTENT_BYTES].decode(errors="ignore") + "… [truncated]"


def _created_at(item: Item) -> str:
    return to_rfc3339(item.row.created if isinstance(item.row, Note) else item.row.ts)


async def _evidence(state: RecallState, item: Item) -> Evidence:
    hit = state.hits.get(item.id)
    if isinstance(item.row, Note):
        speaker, messages = "", await state.memory.sources(item.id)
    else:
        speaker = item.row.speaker or item.row.role
        messages = [item.row]
    return Evidence(
        memory_key=item.id,
        kind=item.kind,
        memory_type=item.memory_type,
        content=truncated(item.memory),
        summary=summary(item),
        score=hit.score if hit else 0.0,
        said_by=speaker,
        event_time=item.row.ts,
        message_ids=tuple(message.id for message in messages),
        valid_until=hit.ended if hit else None,
        superseded_by=hit.superseded_by if hit else None,
        in_reply_to=await _asked(state, hit or item, state.question),
    )


async def _asked(state: RecallState, item: Item, query: str) -> str:
    """The assistant's question that a message answers; a search knows it if it was a question."""
    row = item.row
    if isinstance(item, Hit) and (item.in_reply_to or seeks_answer(query)):
        return item.in_reply_to
    if isinstance(row, Note) or row.role != "user":
        return ""
    near = await state.memory.neighbors(item.id, row.user_id, before=1)
    here = [each for each in near[:-1] if each.session_id == row.session_id]
    return question_before(row, here)


async def _context(state: RecallState, item: Item) -> list[dict[str, Any]]:
    """The messages just before and after a message, or those that a note comes from."""
    row = item.row
    if isinstance(row, Note):
        sources = await state.memory.sources(item.id)
        lines = [(0, message) for message in sources[: 2 * _NEIGHBORS]]
    else:
        around = {"before": _NEIGHBORS, "after": _NEIGHBORS}
        near = await state.memory.neighbors(item.id, row.user_id, **around)
        place = (row.agent_id, row.session_id)
        here = [each for each in near if (each.agent_id, each.session_id) == place]
        center = next(at for at, each in enumerate(here) if each.id == item.id)
        lines = [(at - center, each) for at, each in enumerate(here) if at != center]
    return [
        {
            "memory_key": message.id,
            "offset": offset,
            "role": message.role,
            "content": message.content[:_CONTEXT],
        }
        for offset, message in lines
    ]


async def _keywords_by_model(
    state: RecallState, request: schemas.ExtractKeywordsInput
) -> schemas.ExtractKeywordsOutput | None:
    """The keywords that the model names; None where it fails or names none."""
    most = request.max_keywords
    instructions = state.text("keywords_prompt", max_keywords=most)
    messages = [
        {"role": "system", "content": instructions},
        {"role": "user", "content": request.model_dump_json(include={"query", "context"})},
    ]
    schema = schemas.ExtractKeywordsOutput.model_json_schema()
    try:
        with state.waiting_for_model():
            async with asyncio.timeout(state.patience):
                answer = await state.deps.ask(messages, schema, expected=_KEYWORD_TOKENS)
    except (Unavailable, TimeoutError):
        return None
    listed = answer.get("keywords") if isinstance(answer, dict) else None
    items: list[schemas.KeywordExtractionItem] = []
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, dict) and (word := _text(each.get("keyword"))[:100]):
            weight, kind = each.get("weight"), each.get("type")
            if not isinstance(weight, int | float) or not 0 <= weight <= 1:
                weight = 0.5
            if kind not in get_args(schemas.KeywordType):
                kind = "concept"
            values = {"keyword": word, "weight": weight, "type": kind}
            items.append(schemas.KeywordExtractionItem.model_validate(values))
    if not items[:most]:
        return None
    best = sorted(items[:most], key=lambda each: -each.weight)
    query = _text(answer.get("expanded_query"))
    if not any(each.keyword.casefold() in query.casefold() for each in best):  # of something else
        query = request.query
    return schemas.ExtractKeywordsOutput(success=True, keywords=best, expanded_query=query)


def _text(value: Any) -> str:
    """A string that a model wrote, without lone surrogates; empty for any other value."""
    return value.encode(errors="ignore").decode().strip() if isinstance(value, str) else ""
