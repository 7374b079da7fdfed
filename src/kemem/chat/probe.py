"""How what is recalled reaches a chat model: as a tool call of its own, or as a note.

Which is better depends on whether the model handles tools. Of some servers that is known; a model
of any other is asked once, after its first reply, and the journal keeps what was found.
"""

import asyncio
import logging
import re
import time
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal

from kemem.chat.requests import handles_tools, sanitize_request, system_prompt
from kemem.chat.tools import RECALL, as_calls, recall_tool, to_json
from kemem.chat.turn import Completion, tokens_of
from kemem.errors import KeMemError
from kemem.memory import AsyncMemory
from kemem.ports import Reply
from kemem.ports.faults import whose
from kemem.ports.limits import TokenLimit, most_tokens
from kemem.records import Line
from kemem.records.times import to_rfc3339
from kemem.settings import Settings
from kemem.text.leaks import filter_text
from kemem.text.thoughts import without_thoughts

KIND = "tool_probe"  # of lines in the journal
_KEPT = 7 * 86_400_000_000  # microseconds; another model may answer under the same name by then
_MAX_LINES = 100
_PAUSE = 300.0  # seconds after which a model that did not answer is asked again
_INTERRUPTED = 60.0  # likewise of one that gave way to a reply, as its server has begun in vain
_ANSWER_TOKENS = 50  # of a good answer

_QUESTION = "What colour is my boat?"
_ANSWER = "turquoise"
_SEEN = {  # of the answer, as the doctor tells it; the first alone is that of a model for calls
    "used": "the model used the result of a tool",
    "spoke": "the model spoke of the call of a tool, or wrote JSON, instead of a plain answer",
    "called": "the model called the tool again instead of answering",
    "missed": "the model did not use the result of a tool",
    "refused": "the server refused tools",
}
_MACHINERY = re.compile(r"\b(?:recall|memor(?:y|ies)\b|tool|event|function|quer(?:y|ies)\b)|[{}<>]")
_MEMORIES = ("My bicycle is yellow.", "I painted my boat turquoise.", "I moved here in spring.")

log = logging.getLogger("kemem")


@dataclass(frozen=True, slots=True)
class RecallWay:
    """How what is recalled reaches a model, and why that way."""

    name: Literal["call", "note"]
    reason: str


NOT_ASKED = RecallWay("note", "the model is asked once, after its first reply in a chat")


def settled_way(settings: Settings, base_url: str) -> RecallWay | None:
    """The way for all models of an address; None where each has to be asked."""
    if not settings.chat_recall_limit:
        return RecallWay("note", "KEMEM_CHAT_RECALL_LIMIT is 0")
    if settings.chat_recall != "auto":
        return RecallWay(settings.chat_recall, f"KEMEM_CHAT_RECALL is {settings.chat_recall}")
    if handles_tools(base_url):
        return RecallWay("call", "the models of this address handle tools")
    return None


class ToolProbe:
    """Chooses the way of `KEMEM_CHAT_RECALL`; where it is "auto", by what the model can do.

    Nobody waits for the question that finds it out: it is asked after a reply, gives way to the
    next one, and until it is answered there is a note, which every model understands.
    """

    def __init__(self, memory: AsyncMemory) -> None:
        self._memory = memory
        self._lines: dict[str, Line] = {}  # of the journal, by id
        self._retry_at: dict[str, float] = {}  # when to ask a model again that did not answer
        self._task: asyncio.Task[None] | None = None

    async def way(self, base_url: str, model: str) -> RecallWay:
        """The way for a model at an address."""
        way = settled_way(self._memory.settings, base_url)
        if way is not None:
            return way
        line = await self._finding(_key(base_url, model))
        if line is None:
            return NOT_ASKED
        day = to_rfc3339(line.ts)[:10]
        seen = line.body["seen"]
        return RecallWay("call" if seen == "used" else "note", f"asked on {day}, {_SEEN[seen]}")

    def start(self, client: Any, model: str) -> None:
        """Ask a model in the background, unless that is decided, under way or was in vain."""
        is_asking = self._task is not None and not self._task.done()
        if not is_asking and not self._memory.runtime.turns.waiting:
            self._task = asyncio.create_task(self.ask(client, model))

    async def close(self) -> None:
        """Ask no more."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    async def ask(self, client: Any, model: str) -> None:
        """Ask a model now, unless that is decided or was in vain a short time ago."""
        base_url = str(client.base_url)
        key = _key(base_url, model)
        try:
            is_open = await self.way(base_url, model) == NOT_ASKED
            if is_open and time.monotonic() >= self._retry_at.get(key, 0.0):
                self._retry_at[key] = time.monotonic() + _INTERRUPTED
                await self._memory.runtime.turns.run(self._answer(client, model, key))
        except KeMemError as error:  # of the store, or the memory is closed
            log.warning("whether %s handles tools is not known: %s", model, error.code)

    async def _answer(self, client: Any, model: str, key: str) -> None:
        seen = await self._judge(client, model)
        log.info("whether %s handles tools: %s", model, _SEEN.get(seen, "not known"))
        if not seen:
            self._retry_at[key] = time.monotonic() + _PAUSE
            return
        del self._retry_at[key]
        now = (await self._memory.runtime.deps()).clock()
        line = self._lines[key] = Line(KIND, key, now, {"seen": seen, "model": model})
        await self._memory.journal.note([line])
        await self._memory.journal.trim(KIND, before=now - _KEPT, keep=_MAX_LINES)

    async def _judge(self, client: Any, model: str) -> str:
        """What the model made of the result of a tool, by `_SEEN`; empty where nobody can tell."""
        started, reply = time.perf_counter(), None
        try:
            answer = await _asked(client, model)
            reply = Reply("", *tokens_of(answer))
            return _judged(Completion(answer, bool))
        except Exception as error:  # of the client's library and of whatever answers it
            # Servers without tools refuse the request in many ways, but name the reason.
            is_refused = hasattr(error, "status_code") and "tool" in str(error).casefold()
            return "refused" if is_refused else ""
        finally:
            self._memory.runtime.replied(time.perf_counter() - started, reply is not None, reply)

    async def _finding(self, key: str) -> Line | None:
        """What the journal holds of a model, unless it is too old."""
        now = (await self._memory.runtime.deps()).clock()
        if key not in self._lines:
            try:
                lines = await self._memory.journal.lines(KIND, limit=_MAX_LINES)
            except KeMemError as error:
                log.warning("the journal cannot be read: %s", error.code)
                return None
            self._lines |= {line.id: line for line in lines if line.body.get("seen") in _SEEN}
        line = self._lines.get(key)
        return line if line is not None and now - line.ts < _KEPT else None


def _key(base_url: str, model: str) -> str:
    # A digest, as an address may hold a secret.
    return blake2b(repr((base_url.rstrip("/"), model)).encode(), digest_size=15).hexdigest()


async def _asked(client: Any, model: str) -> dict[str, Any]:
    """The model's answer, whose length is limited in the way that its server knows."""
    sent = sanitize_request(_question(model), base_url=str(client.base_url))
    limit = TokenLimit()
    while True:
        option = limit.option(most_tokens(_ANSWER_TOKENS))
        try:
            came = await client.chat.completions.create(**sent, **option)
        except Exception as error:  # of the client's library
            if not limit.is_refused(option, error, whose(model, str(client.base_url))):
                raise
            continue
        answer: dict[str, Any] = came.to_dict(mode="json", warnings=False)
        return answer


def _question(model: str) -> dict[str, Any]:
    """A chat turn as any other, whose answer stands in the result of the forced recall."""
    fields = {"kind": "message", "time": "2026-03-04T10:00:00Z", "said_by": "user"}
    events = [
        {"id": f"m_{number}", **fields, "content": content, "score": round(0.9 - number / 5, 2)}
        for number, content in enumerate(_MEMORIES)
    ]
    call = (RECALL, to_json({"query": _QUESTION}), to_json({"events": events}))
    return {
        "model": model,
        "messages": [
            {"role": "system", "content": system_prompt(None, 1, "en")},
            {"role": "user", "content": _QUESTION},
            *as_calls([call]),
        ],
        "tools": [recall_tool("en")],
        "temperature": 0,
    }


def _judged(completion: Completion) -> str:
    """What an answer makes of the result of a tool, by `_SEEN`; empty where it was cut before.

    A model that speaks of the call, which it was told not to, does not handle tools well: in
    longer chats such models write calls, or repeat results as JSON.
    """
    said = without_thoughts(completion.text)
    answer = said.casefold()
    if completion.shown_reason == "length" and not answer.strip():
        return ""
    leaks = filter_text(said, {RECALL}).leaks
    if completion.own_calls or any(leak.calls for leak in leaks):
        return "called"
    if leaks or _MACHINERY.search(answer):
        return "spoke"
    return "used" if _ANSWER in answer else "missed"
