"""What the five tools do. Each takes the desk of a recall and its own input."""

import asyncio
from contextlib import suppress
from functools import cache
from importlib.resources import files
from typing import Any

from kemem.errors import InvalidArgument, NotFound, Unavailable
from kemem.facts.keywords import expanded, keywords
from kemem.recall.desk import MOST_RESULTS, SEARCHES_IN_A_ROW, Desk, Language, will_end
from kemem.recall.models import (
    ExpandContextWindowInput,
    ExpandContextWindowOutput,
    ExtractKeywordsInput,
    ExtractKeywordsOutput,
    GetMemoryDetailInput,
    GetMemoryDetailOutput,
    HandoffInput,
    HandoffOutput,
    KeywordExtractionItem,
    MemorySearchResultItem,
    SearchMemoriesInput,
    SearchMemoriesOutput,
)
from kemem.recall.result import Evidence
from kemem.records import Message, Note
from kemem.results import Hit, Item
from kemem.text.fence import neutralise
from kemem.text.times import to_rfc3339

CONTENT_BYTES = 102_400
_PREVIEW = 200  # characters
_SUMMARY = 80
_SAID = 1_000
_MOST_KEYS = 100  # of a hand-off that are looked up
_AROUND = 2  # messages before and after it that the detail of a message shows
_KEYWORDS = ExtractKeywordsOutput.model_json_schema()


async def search_memories_tool(desk: Desk, given: SearchMemoriesInput) -> SearchMemoriesOutput:
    """The memories that answer a query best."""
    if desk.in_a_row >= SEARCHES_IN_A_ROW:
        return SearchMemoriesOutput(success=False, total_found=0, message=_no_more_searches(desk))
    found = await desk.search(given)
    own = given.keywords or []
    if given.search_mode != "keyword":
        own = [*own, *(each.text for each in keywords(given.query))]
    return SearchMemoriesOutput(
        success=True,
        total_found=found.total,
        results=[_result(hit) for hit in found],
        search_query_expanded=", ".join(dict.fromkeys(own)) or None,
        message=None if len(found) else _nothing(desk),
    )


async def get_memory_detail_tool(desk: Desk, given: GetMemoryDetailInput) -> GetMemoryDetailOutput:
    """One memory whole, with where it comes from and what was said around it."""
    key, mark = desk.whose(given.memory_key), await desk.generation()
    known = desk.caches.content.get(key, mark)
    desk.cached = known is not None
    if known is not None:
        return known
    item = await desk.find(given.memory_key)
    detail = GetMemoryDetailOutput(
        success=True,
        memory_key=item.id,
        summary=summary(item),
        content=cut(item.memory),
        memory_type=memory_type(item),
        created_at=to_rfc3339(item.row.created if isinstance(item.row, Note) else item.row.ts),
        metadata={
            **item.metadata,
            "kind": item.kind,
            "event_time": to_rfc3339(item.row.ts),
            "sources": list(item.sources),
            "context": await _around(desk, item),
        },
    )
    if not will_end(item):
        desk.caches.content.put(key, detail, mark)
    return detail


async def extract_search_keywords_tool(
    desk: Desk, given: ExtractKeywordsInput
) -> ExtractKeywordsOutput:
    """What to search for, by the model; without one, or when it fails, by rules."""
    model = desk.deps.llm.name if desk.deps.llm else None
    key = desk.whose(model, given.model_dump_json())
    known = desk.caches.expansion.get(key)
    desk.cached = known is not None
    if known is not None:
        return known
    told = None if model is None else await _told(desk, given)
    answer = told or _by_rules(given)
    if told or model is None:  # a model that failed may know better a moment later
        desk.caches.expansion.put(key, answer)
    return answer


async def _told(desk: Desk, given: ExtractKeywordsInput) -> ExtractKeywordsOutput | None:
    """The keywords that the model names; None where it fails."""
    try:
        async with asyncio.timeout(desk.seconds_left / 2):
            return _read(await desk.deps.ask(_question(desk, given), _KEYWORDS), given)
    except (Unavailable, TimeoutError):
        return None


def _by_rules(given: ExtractKeywordsInput) -> ExtractKeywordsOutput:
    found = keywords(given.query, context=given.context or "", limit=given.max_keywords)
    return ExtractKeywordsOutput(
        success=True,
        keywords=[
            KeywordExtractionItem(keyword=each.text, weight=each.weight, type=each.kind)
            for each in found
        ],
        expanded_query=expanded(given.query, found) or given.query,
    )


async def expand_context_window_tool(
    desk: Desk, given: ExpandContextWindowInput
) -> ExpandContextWindowOutput:
    """Whether a larger window is granted; then the iteration ends, and another one begins."""
    budget = desk.budget
    size = min(given.requested_size, budget.max_window)
    refusal = None
    if desk.iteration >= budget.max_iterations:
        refusal = desk.say(
            f"已达到最大迭代次数 ({budget.max_iterations})，无法继续拓展",
            f"the most rounds ({budget.max_iterations}) are used; the window cannot grow",
        )
    elif not desk.has_more:
        refusal = desk.say(
            f"全部 {desk.window} 条消息都已提供，没有更早的对话",
            f"all {desk.window} messages are shown already; there are no earlier ones",
        )
    elif size <= desk.window:
        refusal = desk.say(
            f"requested_size 必须大于当前的 {desk.window}，且最多 {budget.max_window}",
            f"requested_size must be more than the current {desk.window}, "
            f"at most {budget.max_window}",
        )
    following = desk.iteration + 1
    return ExpandContextWindowOutput(
        approved=refusal is None,
        new_size=desk.window if refusal else size,
        iteration=desk.iteration if refusal else following,
        max_iterations=budget.max_iterations,
        message=refusal
        or desk.say(
            f"批准拓展到 {size} 条消息，进入第 {following} 轮迭代",
            f"granted: {size} messages, in round {following}",
        ),
    )


async def handoff_tool(desk: Desk, given: HandoffInput) -> HandoffOutput:
    """The end of a recall: keys that lead to no memory of this user are left out."""
    found: list[Evidence] = []
    for key in list(dict.fromkeys(given.relevant_memory_keys))[:_MOST_KEYS]:
        with suppress(NotFound, InvalidArgument):  # a model can name anything
            found.append(await _evidence(desk, await desk.find(key)))
        if len(found) == MOST_RESULTS:
            break
    desk.evidence = found
    desk.handed = given.model_copy(
        update={
            "relevant_memory_keys": [each.memory_key for each in found],
            "confidence": given.confidence if found else 0.0,
            "iteration_used": desk.iteration,
            "context_window_used": desk.window,
        }
    )
    desk.message = _layout(desk, desk.handed)
    return HandoffOutput(success=True, message=desk.message, task_completed=True)


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


def cut(content: str) -> str:
    """At most 100 KB of a text, whole characters; what is cut says so."""
    raw = content.encode()
    if len(raw) <= CONTENT_BYTES:
        return content
    return raw[:CONTENT_BYTES].decode(errors="ignore") + "… [truncated]"


def _result(hit: Hit) -> MemorySearchResultItem:
    text = hit.memory
    return MemorySearchResultItem(
        memory_key=hit.id,
        summary=summary(hit),
        content_preview=text if len(text) <= _PREVIEW else f"{text[:_PREVIEW]}...",
        memory_type=memory_type(hit),
        relevance_score=hit.score,
        created_at=to_rfc3339(hit.row.created if isinstance(hit.row, Note) else hit.row.ts),
        keywords=list(hit.keywords),
    )


async def _evidence(desk: Desk, item: Item) -> Evidence:
    found = desk.seen.get(item.id)
    return Evidence(
        memory_key=item.id,
        kind=item.kind,
        memory_type=memory_type(item),
        content=cut(item.memory),
        summary=summary(item),
        score=found.score if found else 0.0,
        said_by=_speaker(item),
        event_time=item.row.ts,
        message_ids=await _message_ids(desk, item),
    )


async def _message_ids(desk: Desk, item: Item) -> tuple[str, ...]:
    if isinstance(item.row, Message):
        return (item.id,)
    return tuple(message.id for message in await desk.memory.sources(item.id))


def _speaker(item: Item) -> str:
    if isinstance(item.row, Note):
        return ""
    named = item.metadata.get("speaker")
    return named if isinstance(named, str) and named.strip() else item.row.role


async def _around(desk: Desk, item: Item) -> list[dict[str, Any]]:
    """What was said just before and after a message, or the messages that a note comes from."""
    if isinstance(item.row, Note):
        said = await desk.memory.sources(item.id)
        return [_said(message, 0) for message in said[: 2 * _AROUND]]
    near = await desk.memory.neighbors(item.id, item.row.user_id, before=_AROUND, after=_AROUND)
    place_of = (item.row.agent_id, item.row.session_id)
    here = [each for each in near if (each.agent_id, each.session_id) == place_of]
    at = next(place for place, each in enumerate(here) if each.id == item.id)
    return [_said(each, place - at) for place, each in enumerate(here) if place != at]


def _said(message: Message, offset: int) -> dict[str, Any]:
    return {
        "memory_key": message.id,
        "offset": offset,
        "role": message.role,
        "content": message.content[:_SAID],
    }


def _question(desk: Desk, given: ExtractKeywordsInput) -> list[dict[str, str]]:
    prompt = prompt_text("keywords", desk.language)
    return [
        {"role": "system", "content": prompt.format(max_keywords=given.max_keywords)},
        {"role": "user", "content": given.model_dump_json(include={"query", "context"})},
    ]


@cache
def prompt_text(name: str, language: Language) -> str:
    """A prompt of this package, read from its file once."""
    return (files(__package__) / f"{name}_{language}.md").read_text("utf-8")


def _read(answer: Any, given: ExtractKeywordsInput) -> ExtractKeywordsOutput | None:
    """The keywords of a model's answer; None where it has none that can be used."""
    listed = answer.get("keywords") if isinstance(answer, dict) else None
    items = [_keyword(each) for each in listed] if isinstance(listed, list) else []
    found = [item for item in items if item is not None][: given.max_keywords]
    query = _text(answer.get("expanded_query")) if found else ""
    return (
        ExtractKeywordsOutput(
            success=True,
            keywords=sorted(found, key=lambda each: -each.weight),
            expanded_query=query or given.query,
        )
        if found
        else None
    )


def _keyword(each: Any) -> KeywordExtractionItem | None:
    word = _text(each.get("keyword"))[:100] if isinstance(each, dict) else ""
    if not word:
        return None
    weight, kind = each.get("weight"), each.get("type")
    return KeywordExtractionItem(
        keyword=word,
        weight=weight if isinstance(weight, int | float) and 0 <= weight <= 1 else 0.5,
        type=kind if kind in ("entity", "action", "concept", "time") else "concept",
    )


def _text(given: Any) -> str:
    """What a model wrote, without half characters; empty where it is no text."""
    return given.encode(errors="ignore").decode().strip() if isinstance(given, str) else ""


def _no_more_searches(desk: Desk) -> str:
    return desk.say(
        f"已连续搜索 {SEARCHES_IN_A_ROW} 次，达到上限。请用 get_memory_detail 查看结果，"
        "或用 expand_context_window 拓展上下文，或用 handoff 结束",
        f"{SEARCHES_IN_A_ROW} searches in a row are the most. Look at a result with "
        "get_memory_detail, ask for expand_context_window, or finish with handoff",
    )


def _nothing(desk: Desk) -> str:
    return desk.say(
        "没有找到记忆。可以换用更宽泛的查询、降低 min_relevance_score，或询问用户更多信息",
        "no memory was found. Try a broader query or a lower min_relevance_score, "
        "or ask the user for more",
    )


def _layout(desk: Desk, handed: HandoffInput) -> str:
    """The final message, in sections; it quotes memories, so no markup in it is left alive."""
    keys = handed.relevant_memory_keys
    lines = [
        desk.say(
            f"## 记忆搜索完成 (信心度: {handed.confidence:.0%})",
            f"## Memory search finished (confidence: {handed.confidence:.0%})",
        ),
        "",
        desk.say("### 搜索总结", "### Summary"),
        handed.search_summary,
        "",
        desk.say("### 相关性分析", "### Relevance"),
        handed.reason,
    ]
    if keys:
        lines += [
            "",
            desk.say("### 相关记忆标识", "### Relevant memories"),
            desk.say(f"共找到 {len(keys)} 个相关记忆:", f"{len(keys)} in all:"),
            *(f"- {key}" for key in keys),
        ]
    if handed.needs_more_info and handed.follow_up_question:
        lines += [
            "",
            desk.say("### 需要进一步澄清", "### To be clarified"),
            handed.follow_up_question,
        ]
    return neutralise("\n".join(lines))
