"""The way of searching without a model: search, narrow or broaden, look closer, hand over."""

import json
from collections.abc import Generator, Sequence
from datetime import UTC, datetime
from typing import Any

from kemem.facts.keywords import keywords
from kemem.ports import ToolCall
from kemem.recall.desk import MOST_RESULTS, Desk
from kemem.recall.evidence import FOLLOWED, Turn, followed, parts_of, ranked, worth
from kemem.recall.models import GetMemoryDetailOutput, HandoffInput, SearchMemoriesOutput
from kemem.recall.tools import summary
from kemem.recall.use import Used
from kemem.records import Message
from kemem.results import Hit, Item
from kemem.text.when import time_phrases

SURE, LIKELY, WEAK = 0.5, 0.3, 0.1  # relevance: to be found at all, by meaning, beside others
DETAILS = 5  # hits that are read with what was said around them
GUESSED = 0.5  # how far a score is trusted that no word of the question stands behind
RECENT = 7  # days that "last time" reaches back
_LONGEST = 2_000  # characters of a query

Moves = Generator[ToolCall, Used, None]
Turns = list[Turn]
Lists = list[tuple[float, Turns]]
Asked = list[tuple[str, Turns]]


def calling(name: str, **arguments: Any) -> ToolCall:
    """A call that rules make."""
    return ToolCall("", name, json.dumps(arguments, ensure_ascii=False))


def walk(desk: Desk, window: Sequence[Item]) -> Moves:
    """The moves for one question; each is told what came of the one before."""
    question = desk.question[:_LONGEST]
    telling = [each.text for each in keywords(question) if each.kind != "time"]
    lists, asked = yield from _search(desk, question)
    if not lists and not telling:
        lists = yield from _guess(desk, question, window)
    own = worth(lists)
    # Meaning alone, without a word of the question, is a guess, and not followed any further.
    certain = any(_names(desk.seen[key].memory, telling) for key in own)
    sure = max((desk.seen[key].score for key in own), default=0.0)
    beside = yield from _look_closer(desk, list(own)[: DETAILS if certain else 1])
    for text in followed(asked) if certain else ():
        hits = yield from _hits(
            desk, query=text[:_LONGEST], search_mode="keyword", min_relevance_score=WEAK
        )
        lists.append((FOLLOWED, hits))
    keys = ranked(worth(lists), beside if certain else (), MOST_RESULTS)
    sure *= 1.0 if certain else GUESSED
    handed = hand_over(desk, keys, sure=sure) if sure >= LIKELY else hand_over(desk, ())
    yield calling("handoff", **handed.model_dump())


def hand_over(
    desk: Desk, keys: Sequence[str] | None = None, *, reason: str = "", sure: float | None = None
) -> HandoffInput:
    """The hand-off of some memories, or of the best that were seen; of none, a question to ask."""
    best = sorted(desk.seen, key=lambda key: -desk.seen[key].score)[:MOST_RESULTS]
    chosen = best if keys is None else list(keys)
    hits = [desk.seen[key] for key in chosen if key in desk.seen]
    if sure is None:
        sure = max((hit.score for hit in hits), default=0.0)
    count = len(chosen)
    lines = [desk.say(f"找到 {count} 个相关记忆:", f"memories found: {count}")]
    lines += [f"- {summary(hit)}" for hit in hits]
    if beside := count - len(hits):
        lines.append(desk.say(f"- 以及前后的 {beside} 条消息", f"- messages beside them: {beside}"))
    ended = desk.say(f"已找到 {count} 个相关记忆，搜索完成", f"memories found: {count}")
    if not chosen:
        lines, ended = _nothing(desk)
    return HandoffInput(
        reason=reason or ended,
        search_summary="\n".join(lines),
        relevant_memory_keys=chosen,
        confidence=round(sure, 6),
        needs_more_info=sure < SURE,
        follow_up_question=_ask_for_more(desk) if sure < SURE else None,
    )


def _nothing(desk: Desk) -> tuple[list[str], str]:
    """What to say of a search that found nothing, and why: one that failed proves nothing."""
    searches = [it for it in desk.trace if it.tool == "search_memories"]
    failed = [it.outcome for it in searches if it.outcome in desk.problems]
    if failed or not any(it.success for it in searches):
        told = desk.say("搜索没有完成", "The search could not be completed")
        return [told], failed[-1] if failed else told
    found = desk.say("未找到用户提到的历史记忆", "What the user refers to was not found")
    return [found], desk.say("没有足够相关的记忆", "no memory is relevant enough")


def _ask_for_more(desk: Desk) -> str:
    return desk.say(
        "您能否提供更多细节，比如大概什么时间或什么主题？",
        "Could you tell me more, such as about when it was or what it was about?",
    )


def _search(desk: Desk, question: str) -> Generator[ToolCall, Used, tuple[Lists, Asked]]:
    """Lists of hits with their weights, and the questions that they answer."""
    way: dict[str, Any] = {"query": question}
    whole = found = yield from _hits(desk, **way)
    if not whole:
        way |= {"search_mode": "semantic", "min_relevance_score": LIKELY}
        found = yield from _hits(desk, **way)
        if not found:
            return [], []
    if len(found) == MOST_RESULTS and _means_last_time(question):
        recent = yield from _hits(desk, **way, time_range_days=RECENT)
        return [(1.0, found), (1.0, recent)], [(question, found)]
    asked = []
    for part in parts_of(question) if whole else ():
        hits = yield from _hits(desk, query=part, min_relevance_score=WEAK)
        asked.append((part, hits))
    if asked:
        return [(1.0, whole), *((1.0, hits) for _, hits in asked)], asked
    if len(whole) < MOST_RESULTS:
        whole = yield from _hits(desk, query=question, min_relevance_score=WEAK)
    by_meaning: Lists = [(FOLLOWED, found)] if "search_mode" in way else []
    return [(1.0, whole), *by_meaning], [(question, whole)]


def _guess(desk: Desk, question: str, window: Sequence[Item]) -> Generator[ToolCall, Used, Lists]:
    """What a question without words of its own may mean, by the conversation that it is part of."""
    said = "\n".join(item.memory[:_LONGEST] for item in window)
    borrowed = [each.text for each in keywords(question, context=said) if each.kind != "time"]
    shown = {item.id for item in window}
    hits = []
    if borrowed:
        found = yield from _hits(desk, query=" ".join(borrowed))
        hits = [hit for hit in found if not shown.issuperset(desk.seen[hit.key].sources)]
    if not hits and desk.has_more:
        yield calling(
            "expand_context_window",
            reason=desk.say(
                "没有找到记忆，问题指代不明", "nothing was found; the question is vague"
            ),
            current_size=desk.window,
            requested_size=4 * desk.window,
        )
    return [(1.0, hits)]


def _names(text: str, telling: Sequence[str]) -> bool:
    """Whether a text has one of some words."""
    folded = text.casefold()
    return any(word.casefold() in folded for word in telling)


def _means_last_time(question: str) -> bool:
    """Whether a question means a time that it does not name.  "上次" -> True, "去年" -> False"""
    dated = time_phrases(question, datetime(1970, 1, 1, tzinfo=UTC))
    return not dated and any(each.kind == "time" for each in keywords(question))


def _hits(desk: Desk, **asked: Any) -> Generator[ToolCall, Used, Turns]:
    """What one search finds."""
    used = yield calling("search_memories", limit=MOST_RESULTS, **asked)
    output = used.output
    if not isinstance(output, SearchMemoriesOutput):
        return []
    return [_turn(desk.seen[each.memory_key]) for each in output.results]


def _look_closer(
    desk: Desk, keys: Sequence[str]
) -> Generator[ToolCall, Used, list[tuple[Turn, Turn, bool]]]:
    """Each of the hits with the turn just before it, and with the one just after."""
    pairs = []
    for key in keys:
        output = (yield calling("get_memory_detail", memory_key=key)).output
        if isinstance(output, GetMemoryDetailOutput) and output.metadata:
            for said in output.metadata["context"]:
                if abs(said["offset"]) == 1 and said["memory_key"] not in desk.without:
                    other = Turn(said["memory_key"], said["content"], said["role"])
                    pairs.append((_turn(desk.seen[key]), other, said["offset"] > 0))
    return pairs


def _turn(hit: Hit) -> Turn:
    return Turn(hit.id, hit.memory, hit.row.role if isinstance(hit.row, Message) else "")
