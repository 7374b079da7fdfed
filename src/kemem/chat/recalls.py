"""The recalls of one turn: one that is forced, and as many as the model may ask for."""

import logging
import time
from collections.abc import Collection
from typing import Any, Literal

from kemem.chat.events import RecallEvent
from kemem.memory import AsyncMemory
from kemem.recall import Budget, Evidence, RecallAgent, RecallReport
from kemem.recall.agent import MAX_QUESTION
from kemem.records import Scope
from kemem.text.fence import neutralise
from kemem.text.language import is_chinese
from kemem.text.times import to_rfc3339

SECONDS = 10.0  # for one recall: somebody waits
_LONGEST = 2_000  # characters of one memory
_QUERY_LOGGED = 80  # characters

log = logging.getLogger("kemem")


class Recalls:
    """What one user's memories say, for one turn of a chat; no model is asked to find it.

    What the model is `shown` anyway is left out. Beyond the limit nothing is searched.
    """

    def __init__(
        self, memory: AsyncMemory, *, session_id: str, limit: int, shown: Collection[str] = ()
    ) -> None:
        self.shown = {*shown}  # a note that comes from these messages is found: it says more
        self._on_recall = memory.on_recall
        self._scope = Scope(memory.reach.agent_id, memory.reach.user_id, session_id)
        self._agent = RecallAgent(
            memory,
            session_id=session_id,
            budget=Budget(seconds=SECONDS),
            caches=memory.caches,
            by="rules",
            without=self.shown,
        )
        self._limit = limit
        self._asked = 0

    async def forced(self, query: str) -> RecallEvent:
        """The recall that a turn begins with; one that fails is told, and the turn goes on."""
        begun = time.monotonic()
        events, problem = await self._find(query, "forced")
        seconds = time.monotonic() - begun
        log.info("forced recall: %d hits in %.0f ms", len(events), seconds * 1000)
        return RecallEvent(query, tuple(events), seconds, problem)

    async def asked(self, query: str) -> dict[str, Any]:
        """What recall_memory answers:  {"events": […]}"""
        if self._asked >= self._limit:
            log.info("recall_memory: beyond the limit of %d a turn", self._limit)
            return {"events": [], "limit_reached": True, "message": _limit_text(query, self._limit)}
        self._asked += 1
        begun = time.monotonic()
        events, problem = await self._find(query, "asked")
        took = (time.monotonic() - begun) * 1000
        log.info(
            "recall_memory: query %r, %d hits in %.0f ms", query[:_QUERY_LOGGED], len(events), took
        )
        return {"events": events, **({"error": problem} if problem else {})}

    async def _find(
        self, query: str, way: Literal["forced", "asked"]
    ) -> tuple[list[dict[str, Any]], str]:
        """Memories as events, best first, and what went wrong if there are none."""
        begun = time.monotonic()
        try:
            found = await self._agent.recall(query[:MAX_QUESTION])
        except Exception as error:  # the store's or a model's code, which may raise anything
            log.warning("recall failed: %s", type(error).__name__)
            return [], "memories cannot be read now"
        if self._on_recall:
            took = time.monotonic() - begun
            self._on_recall(RecallReport(self._scope, found, took, way, found.memory_keys))
        problem = "" if found.evidence else "; ".join(found.problems)
        return [_event(evidence) for evidence in found.evidence], problem


def _event(evidence: Evidence) -> dict[str, Any]:
    """A memory as the model sees it: data that cannot pass for a tool call or an instruction."""
    said = {"said_by": neutralise(evidence.said_by)} if evidence.said_by else {}
    text = evidence.content
    return {
        "id": evidence.memory_key,
        "kind": evidence.kind,
        "time": to_rfc3339(evidence.event_time),
        **said,
        "content": neutralise(text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"),
        "score": round(evidence.score, 2),
    }


def _limit_text(query: str, limit: int) -> str:
    if is_chinese(query):
        return f"本轮最多回忆 {limit} 次，已达上限。请根据已有信息回答。"
    return f"The limit of {limit} recalls in this turn is reached. Answer with what you have."
