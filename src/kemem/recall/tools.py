"""The five tools. Each takes the state of a recall and its own input, and returns its output."""

import asyncio
from contextlib import suppress
from typing import Any

from kemem.errors import InvalidArgument, NotFound, Unavailable
from kemem.facts.keywords import expanded, keywords
from kemem.recall import schemas
from kemem.recall.results import Evidence
from kemem.recall.state import MAX_RESULTS, MAX_SEARCHES_IN_A_ROW, RecallState, will_end
from kemem.recall.texts import prompt
from kemem.records import Message, Note
from kemem.records.times import to_rfc3339
from kemem.results import Hit, Item
from kemem.text.fence import neutralise

CONTENT_BYTES = 102_400
_PREVIEW = 200  # characters
_SUMMARY = 80
_CONTEXT = 1_000
_MAX_KEYS = 100  # of a handoff that are looked up
_NEIGHBORS = 2  # messages before and after a message that its detail shows
_KEYWORDS_SCHEMA = schemas.ExtractKeywordsOutput.model_json_schema()


async def search_memories_tool(
    state: RecallState, request: schemas.SearchMemoriesInput
) -> schemas.SearchMemoriesOutput:
    """The memories that answer a query best."""
    if state.searches_in_a_row >= MAX_SEARCHES_IN_A_ROW:
        advice = state.text("searches_in_a_row", most=MAX_SEARCHES_IN_A_ROW)
        return schemas.SearchMemoriesOutput(success=False, total_found=0, message=advice)
    hits = await state.search(request)
    words = request.keywords or []
    if request.search_mode != "keyword":
        words = [*words, *(each.text for each in keywords(request.query))]
    return schemas.SearchMemoriesOutput(
        success=True,
        total_found=hits.total,
        results=[_result_item(hit) for hit in hits],
        search_query_expanded=", ".join(dict.fromkeys(words)) or None,
        message=None if len(hits) else state.text("no_hits"),
    )


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
    detail = schemas.GetMemoryDetailOutput(
        success=True,
        memory_key=item.id,
        summary=summary(item),
        content=truncated(item.memory),
        memory_type=memory_type(item),
        created_at=_created_at(item),
        metadata={
            **item.metadata,
            "kind": item.kind,
            "event_time": to_rfc3339(item.row.ts),
            "sources": list(item.sources),
            "context": await _context(state, item),
        },
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
    by_model = None if model is None else await _keywords_by_model(state, request)
    output = by_model or _keywords_by_rules(request)
    if by_model or model is None:  # a model that failed may know better a moment later
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
    mark = await state.memory.generation() if keys else ""
    for key in keys:
        with suppress(NotFound, InvalidArgument):  # a model can name anything
            evidence.append(await _evidence(state, await state.get(key, mark)))
        if len(evidence) == MAX_RESULTS:
            break
    state.evidence = evidence
    state.handoff = request.model_copy(
        update={
            "relevant_memory_keys": [each.memory_key for each in evidence],
            "confidence": request.confidence if evidence else 0.0,
            "iteration_used": state.iteration,
            "context_window_used": state.window,
        }
    )
    state.message = _report(state, state.handoff)
    return schemas.HandoffOutput(success=True, message=state.message, task_completed=True)


def summary(item: Item) -> str:
    """A memory in short: its own summary, or how it begins."""
    own = item.row.summary if isinstance(item.row, Note) else None
    line = " ".join((own or item.memory).split())
    return line if len(line) <= _SUMMARY else f"{line[:_SUMMARY]}…"


def memory_type(item: Item) -> str:
    """The type of a memory; a message can carry one in its metadata."""
    if isinstance(item.row, Note):
        return item.row.memory_type
    own = item.metadata.get("memory_type")
    return own if isinstance(own, str) else "message"


def truncated(content: str) -> str:
    """At most 100 KB of a text, whole characters; a text that was cut ends with a mark."""
    raw = content.encode()
    if len(raw) <= CONTENT_BYTES:
        return content
    return raw[:CONTENT_BYTES].decode(errors="ignore") + "… [truncated]"


def _created_at(item: Item) -> str:
    return to_rfc3339(item.row.created if isinstance(item.row, Note) else item.row.ts)


def _result_item(hit: Hit) -> schemas.MemorySearchResultItem:
    text = hit.memory
    return schemas.MemorySearchResultItem(
        memory_key=hit.id,
        summary=summary(hit),
        content_preview=text if len(text) <= _PREVIEW else f"{text[:_PREVIEW]}...",
        memory_type=memory_type(hit),
        relevance_score=hit.score,
        created_at=_created_at(hit),
        keywords=list(hit.keywords),
    )


async def _evidence(state: RecallState, item: Item) -> Evidence:
    hit = state.hits.get(item.id)
    message_ids: tuple[str, ...] = (item.id,)
    speaker = ""
    if isinstance(item.row, Note):
        message_ids = tuple(message.id for message in await state.memory.sources(item.id))
    else:
        name = item.metadata.get("speaker")
        speaker = name if isinstance(name, str) and name.strip() else item.row.role
    return Evidence(
        memory_key=item.id,
        kind=item.kind,
        memory_type=memory_type(item),
        content=truncated(item.memory),
        summary=summary(item),
        score=hit.score if hit else 0.0,
        said_by=speaker,
        event_time=item.row.ts,
        message_ids=message_ids,
    )


async def _context(state: RecallState, item: Item) -> list[dict[str, Any]]:
    """The messages just before and after a message, or those that a note comes from."""
    if isinstance(item.row, Note):
        sources = await state.memory.sources(item.id)
        return [_context_line(message, 0) for message in sources[: 2 * _NEIGHBORS]]
    near = await state.memory.neighbors(
        item.id, item.row.user_id, before=_NEIGHBORS, after=_NEIGHBORS
    )
    place = (item.row.agent_id, item.row.session_id)
    here = [each for each in near if (each.agent_id, each.session_id) == place]
    center = next(at for at, each in enumerate(here) if each.id == item.id)
    return [_context_line(each, at - center) for at, each in enumerate(here) if at != center]


def _context_line(message: Message, offset: int) -> dict[str, Any]:
    return {
        "memory_key": message.id,
        "offset": offset,
        "role": message.role,
        "content": message.content[:_CONTEXT],
    }


async def _keywords_by_model(
    state: RecallState, request: schemas.ExtractKeywordsInput
) -> schemas.ExtractKeywordsOutput | None:
    """The keywords that the model names; None where it fails or names none."""
    instructions = prompt("keywords", state.language).format(max_keywords=request.max_keywords)
    messages = [
        {"role": "system", "content": instructions},
        {"role": "user", "content": request.model_dump_json(include={"query", "context"})},
    ]
    try:
        async with asyncio.timeout(state.seconds_left / 2):
            answer = await state.deps.ask(messages, _KEYWORDS_SCHEMA)
    except (Unavailable, TimeoutError):
        return None
    listed = answer.get("keywords") if isinstance(answer, dict) else None
    items = [_keyword(each) for each in listed] if isinstance(listed, list) else []
    usable = [item for item in items if item is not None][: request.max_keywords]
    if not usable:
        return None
    return schemas.ExtractKeywordsOutput(
        success=True,
        keywords=sorted(usable, key=lambda each: -each.weight),
        expanded_query=_text(answer.get("expanded_query")) or request.query,
    )


def _keywords_by_rules(request: schemas.ExtractKeywordsInput) -> schemas.ExtractKeywordsOutput:
    words = keywords(request.query, context=request.context or "", limit=request.max_keywords)
    return schemas.ExtractKeywordsOutput(
        success=True,
        keywords=[
            schemas.KeywordExtractionItem(keyword=each.text, weight=each.weight, type=each.kind)
            for each in words
        ],
        expanded_query=expanded(request.query, words) or request.query,
    )


def _keyword(value: Any) -> schemas.KeywordExtractionItem | None:
    word = _text(value.get("keyword"))[:100] if isinstance(value, dict) else ""
    if not word:
        return None
    weight, kind = value.get("weight"), value.get("type")
    return schemas.KeywordExtractionItem(
        keyword=word,
        weight=weight if isinstance(weight, int | float) and 0 <= weight <= 1 else 0.5,
        type=kind if kind in ("entity", "action", "concept", "time") else "concept",
    )


def _text(value: Any) -> str:
    """A string that a model wrote, without lone surrogates; empty for any other value."""
    return value.encode(errors="ignore").decode().strip() if isinstance(value, str) else ""


def _report(state: RecallState, handoff: schemas.HandoffInput) -> str:
    """The final message, in sections; it quotes memories, so no markup in it is left alive."""
    keys = handoff.relevant_memory_keys
    report = state.text(
        "report",
        confidence=handoff.confidence,
        summary=handoff.search_summary,
        reason=handoff.reason,
    )
    if keys:
        listed = "\n".join(f"- {key}" for key in keys)
        report += state.text("report_keys", count=len(keys), keys=listed)
    if handoff.needs_more_info and handoff.follow_up_question:
        report += state.text("report_question", question=handoff.follow_up_question)
    return neutralise(report)
