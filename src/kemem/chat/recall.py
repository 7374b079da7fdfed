"""The tools of a chat, by exactly these names, and the recalls of one turn behind recall_memory."""

import json
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from kemem.chat.events import RecallEvent
from kemem.chat.prompts import language_of, text
from kemem.memory import AsyncMemory
from kemem.ports import Tool
from kemem.recall import Budget, Evidence, RecallAgent, RecallReport
from kemem.recall.agent import MAX_QUESTION
from kemem.records import Scope
from kemem.records.times import to_rfc3339
from kemem.text.fence import neutralise

RECALL = "recall_memory"
OTHERS = "get_other_members_messages"
MENTIONED = "is_mentioned"

SECONDS = 10.0  # for one recall: somebody waits
_MAX_CONTENT = 2_000  # characters of one memory
_MAX_LOGGED = 80  # characters of a query

log = logging.getLogger("kemem")


class TurnRecall:
    """Recalls for one turn of a chat, from one user's memories; no model is asked for them.

    Messages that are in the model's context already are left out; notes that come from them are
    not, they say more. Beyond `chat_recall_limit` nothing is searched.
    """

    def __init__(self, memory: AsyncMemory, session_id: str, context_ids: Collection[str]) -> None:
        self.context_ids = {*context_ids}
        self._memory = memory
        self._scope = Scope(memory.scope.agent_id, memory.scope.user_id, session_id)
        self._agent = RecallAgent(
            memory,
            session_id=session_id,
            budget=Budget(seconds=SECONDS),
            caches=memory.caches,
            by="rules",
            without=self.context_ids,
        )
        self._limit = memory.settings.chat_recall_limit
        self._used = 0

    async def forced(self, query: str) -> RecallEvent:
        """The recall that a turn begins with; a failure is in the event, and the turn goes on."""
        events, problem, seconds = await self._recall(query, "forced")
        log.info("forced recall: %d hits in %.0f ms", len(events), seconds * 1000)
        return RecallEvent(query, tuple(events), seconds, problem)

    async def requested(self, query: str) -> dict[str, Any]:
        """What recall_memory answers to the model:  {"events": […]}"""
        if self._used >= self._limit:
            log.info("recall_memory: beyond the limit of %d a turn", self._limit)
            message = text("limit_reached", language_of(query)).format(limit=self._limit)
            return {"events": [], "limit_reached": True, "message": message}
        self._used += 1
        events, problem, seconds = await self._recall(query, "asked")
        start, took = query[:_MAX_LOGGED], seconds * 1000
        log.info("recall_memory: query %r, %d hits in %.0f ms", start, len(events), took)
        return {"events": events, **({"error": problem} if problem else {})}

    async def _recall(
        self, query: str, way: Literal["forced", "asked"]
    ) -> tuple[list[dict[str, Any]], str, float]:
        """Memories as events, best first; the problem if there are none; the seconds it took."""
        started = time.monotonic()
        try:
            recalled = await self._agent.recall(query[:MAX_QUESTION])
        except Exception as error:  # the store's or a model's code, which may raise anything
            log.warning("recall failed: %s", type(error).__name__)
            return [], "memories cannot be read now", time.monotonic() - started
        seconds = time.monotonic() - started
        report = RecallReport(self._scope, recalled, seconds, way, recalled.memory_keys)
        self._memory.runtime.recalled(report)
        if self._memory.on_recall:
            self._memory.on_recall(report)
        problem = "" if recalled.evidence else "; ".join(recalled.problems)
        return [_event(evidence) for evidence in recalled.evidence], problem, seconds


def _event(evidence: Evidence) -> dict[str, Any]:
    """A memory as the model sees it: data that cannot pass for a tool call or an instruction."""
    speaker = {"said_by": neutralise(evidence.said_by)} if evidence.said_by else {}
    content = evidence.content
    return {
        "id": evidence.memory_key,
        "kind": evidence.kind,
        "time": to_rfc3339(evidence.event_time),
        **speaker,
        "content": neutralise(
            content if len(content) <= _MAX_CONTENT else f"{content[:_MAX_CONTENT]}…"
        ),
        "score": round(evidence.score, 2),
    }


@dataclass(frozen=True, slots=True)
class ChatTool:
    """A tool that a chat model can call."""

    tool: Tool
    run: Callable[[Mapping[str, Any]], Awaitable[str]]

    async def answer(self, arguments: str) -> str:
        """The result of a call; what is wrong with it is told to the model, not raised."""
        name = self.tool.name
        try:
            values = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            return refused(f"the arguments of {name} must be a JSON object")
        try:
            return await self.run(values)
        except Exception as error:  # its text is not for the model
            log.error("the tool %s failed: %s", name, type(error).__name__)
            return refused(f"{name} cannot answer now")


def recall_tool(recall: TurnRecall, language: str) -> ChatTool:
    """recall_memory on the memories of the turn's user: no argument tells whose."""

    async def run(values: Mapping[str, Any]) -> str:
        query = values.get("query")
        if not isinstance(query, str) or not query.strip():
            return refused(f"query must be a text that is not blank, not {query!r:.80}")
        return to_json(await recall.requested(query))

    query = {"type": "string", "minLength": 1, "description": text("query", language)}
    schema = {"type": "object", "properties": {"query": query}, "required": ["query"]}
    tool = Tool(RECALL, text(RECALL, language), {**schema, "additionalProperties": False})
    return ChatTool(tool, run)


def fixed_tool(name: str, answer: str, language: str) -> ChatTool:
    """A tool of a group that takes no arguments and answers the same throughout a round."""

    async def run(values: Mapping[str, Any]) -> str:
        log.info("%s: answered", name)
        return answer

    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    return ChatTool(Tool(name, text(name, language), schema), run)


def others_content(lines: list[tuple[str, str]], language: str) -> str:
    """What other members said in a round, a line each.  [("林", "吃火锅")] -> "林：吃火锅" """
    if not lines:
        return text("nobody_spoke", language)
    colon = text("colon", language)
    # One line each, so that a text cannot pose as another member's.
    return "\n".join(f"{name}{colon}{' '.join(neutralise(it).split())}" for name, it in lines)


def refused(reason: str) -> str:
    """The result of a call that cannot be carried out, for the model."""
    return to_json({"error": {"code": "INVALID_ARGUMENT", "message": reason}})


def to_json(value: object) -> str:
    """JSON as models read it best, without needless escapes."""
    return json.dumps(value, ensure_ascii=False)
