"""OpenAI's chat API with memory: a recall before the model is asked, and both sides stored."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from kemem.chat.base import ChatBase
from kemem.chat.completions import Completion, Json, StreamMerger, add_usage
from kemem.chat.events import RecallEvent
from kemem.chat.prompts import system_prompt, text
from kemem.chat.recall import RECALL, ChatTool, TurnRecall, recall_tool, to_json
from kemem.chat.requests import INSTRUCTIONS, with_note
from kemem.chat.turn import ChatModel, Step, run_model, synthetic_recall
from kemem.errors import Conflict, Exhausted, InvalidArgument, KeMemError, Unavailable
from kemem.memory import AsyncMemory
from kemem.text.fence import fenced

STEPS = 8  # answers of the model to one request, those that only recall included
MODEL = "kemem"  # the name that stands for the model of the settings

_CHECKED = {"tools", "tool_choice", "parallel_tool_calls", "stream_options"}
_REPLACED = {"messages", "model", "stream", "user"}
_REPLY_ROLES = ("user", "tool", "function")  # a last message of theirs awaits a reply
_MAX_REASON = 300  # characters of an error text of the model's server

Body = Mapping[str, Any]  # a request of OpenAI's chat API, whose shape has been checked

log = logging.getLogger("kemem")


class RateLimited(Exhausted):
    """The model takes no more requests for now."""

    status = 429


class Proxy(ChatBase):
    """Answers requests of OpenAI's chat API by a model that remembers one user.

    proxy = Proxy(memory)
    answer = await proxy.complete(body, memory.for_user("u_1"), "s_1")
    """

    async def complete(self, body: Body, memory: AsyncMemory, session_id: str) -> Json:
        """The complete answer; the model's own recalls are not in it."""
        turn = await self._begin(body, memory, session_id)
        answer: Json = {}
        usage: Json = {}
        async for step in turn.run(stream=False):
            if isinstance(step, Completion):
                last, usage = step, add_usage(usage, step.usage)
            elif isinstance(step, dict):
                answer = step
        await turn.store_reply(last, last.text)
        self._start_jobs()
        shown = {**answer, "choices": [last.filter_choice(answer["choices"][0])]}
        return {**shown, "usage": usage} if usage else shown

    async def chunks(
        self, body: Body, memory: AsyncMemory, session_id: str
    ) -> AsyncGenerator[Json, None]:
        """The chunks of one answer as they come; a reader that stops reading stops the model."""
        turn = await self._begin(body, memory, session_id)
        options = body.get("stream_options") or {}
        merger = StreamMerger(with_usage=options.get("include_usage") is True)
        try:
            async with aclosing(turn.run(stream=True)) as steps:
                async for step in steps:
                    if isinstance(step, Completion):
                        last = step
                        merger.end_completion(step)
                    elif isinstance(step, dict) and (shown := merger.add(step)):
                        yield shown
            await turn.store_reply(last, merger.text)
        except BaseException:  # hanging up, too: the application has got this much
            await asyncio.shield(turn.conversation.store_reply(merger.text, partial=True))
            raise
        finally:
            self._start_jobs()
        for chunk in merger.ending(last):
            yield chunk

    async def _begin(self, body: Body, memory: AsyncMemory, session_id: str) -> "_Turn":
        model = self._chat_model()  # first: without a model nothing is stored
        conversation = _Conversation(memory, session_id, body["messages"])
        query = conversation.query
        limit, language = memory.settings.chat_recall_limit, self._language(query)
        recall = TurnRecall(memory, session_id, conversation.ids)
        recalled = await recall.forced(query) if query else None
        await conversation.store_message()
        messages = body["messages"]
        if limit and _takes_tool(body):
            note = system_prompt(" ", limit, language).strip()  # only how it recalls
            messages = _with_recall(with_note(messages, note), recalled)
            tools = [recall_tool(recall, language)]
            return _Turn(model, body, messages, conversation, tools)
        if recalled and recalled.events:  # in words, for a model that gets no tool
            memories = fenced("memories", to_json(list(recalled.events)))
            messages = with_note(messages, f"{text('memories', language)}\n{memories}")
        return _Turn(model, body, messages, conversation, [])


class _Conversation:
    """The messages of a request under idempotent ids: the same when the request is sent again.

    An id is a hash of the owner and of all messages up to that one; instructions do not count,
    they may tell the time.
    """

    def __init__(
        self, memory: AsyncMemory, session_id: str, messages: Sequence[Mapping[str, Any]]
    ) -> None:
        last, scope = messages[-1], memory.scope
        self._memory = memory
        self._session_id = session_id
        self._awaits_reply = last["role"] in _REPLY_ROLES
        self._digest = sha256(json.dumps([scope.agent_id, scope.user_id, session_id]).encode())
        self.ids = [self._next_id(message) for message in messages]
        self.query = next((_words(it) for it in reversed(messages) if it["role"] == "user"), "")
        self._new = self.query if last["role"] == "user" else ""

    async def store_message(self) -> None:
        """Store the user's new message, if it has words; it is durable on return."""
        if self._new:
            message = {"role": "user", "content": self._new, "message_id": self.ids[-1]}
            await self._memory.add([message], session_id=self._session_id, wait=False)

    async def store_reply(self, text: str, *, partial: bool = False) -> None:
        """Store the reply; a failure is only logged, since the application has the reply."""
        if not self._awaits_reply or not text.strip():
            return
        reply = {"role": "assistant", "content": text}
        message_id = self._next_id({**reply, "partial": partial})
        try:
            await self._memory.add(
                [{**reply, "message_id": message_id}],
                session_id=self._session_id,
                metadata={"partial": True} if partial else None,
                wait=False,
            )
        except KeMemError as error:
            log.error("a reply could not be stored: %s", error.code)

    def _next_id(self, message: Mapping[str, Any]) -> str:
        if message["role"] not in INSTRUCTIONS:
            fields = {name: value for name, value in message.items() if value}
            self._digest.update(json.dumps(fields, sort_keys=True).encode())
        return f"m_{self._digest.hexdigest()[:40]}"


def _words(message: Mapping[str, Any]) -> str:
    """The words of a message, without its images; nothing where they are blank."""
    content = message.get("content") or ""
    if not isinstance(content, str):
        parts = (part.get("text") for part in content if part.get("type") == "text")
        content = "\n".join(part for part in parts if isinstance(part, str))
    return content if content.strip() else ""


@dataclass(frozen=True, slots=True)
class _Turn:
    """One request of an application, with what was added to it."""

    model: ChatModel
    body: Body
    messages: Sequence[Json]
    conversation: _Conversation
    tools: Sequence[ChatTool]

    async def run(self, *, stream: bool) -> AsyncGenerator[Step, None]:
        """The steps of the model; its failures are errors for the application."""
        request = {k: v for k, v in self.body.items() if k in _CHECKED}
        name = self.body.get("model")
        request["model"] = self.model.name if name in (None, "", MODEL) else name
        request["messages"] = self.messages
        known = _CHECKED | _REPLACED
        request["extra_body"] = {k: v for k, v in self.body.items() if k not in known}
        if self.tools:
            own = [it.tool.to_dict() for it in self.tools]
            request["tools"] = [*(self.body.get("tools") or ()), *own]
        names = {it.tool.name for it in self.tools}
        steps = run_model(
            self.model, request, self.tools, steps=STEPS, is_own=names.__contains__, stream=stream
        )
        try:
            async with aclosing(steps):
                async for step in steps:
                    yield step
        except KeMemError:
            raise
        except Exception as error:  # of the client's library and of whatever answers it
            raise self._failure(error) from error

    async def store_reply(self, last: Completion, reply: str) -> None:
        """Store the reply, unless the application's tools come first."""
        if not last.other_calls:
            await self.conversation.store_reply(reply)

    def _failure(self, error: Exception) -> KeMemError:
        """The application's error for a failure of the model: whose fault it is, and no secrets."""
        status = getattr(error, "status_code", None)
        log.warning("the chat model failed: %s %s", type(error).__name__, status or "")
        match status:
            case 400 | 404 | 413 | 422:
                return InvalidArgument(f"the model refuses the request: {self._reason(error)}")
            case 401 | 403:
                return Conflict(f"the model refuses the key of this server ({status})")
            case 429:
                return RateLimited("the model takes no more requests for now (429)")
        return Unavailable(f"the model failed: {type(error).__name__}")

    def _reason(self, error: Exception) -> str:
        body = getattr(error, "body", None)
        message = str(body.get("message") or "") if isinstance(body, Mapping) else ""
        is_shown = message and self.model.client.api_key not in message
        return message[:_MAX_REASON] if is_shown else type(error).__name__


def _takes_tool(body: Body) -> bool:
    """Whether a tool of ours can be added to the application's."""
    names = [(tool.get("function") or {}).get("name") for tool in body.get("tools") or ()]
    return RECALL not in names and body.get("tool_choice") != "none" and not body.get("functions")


def _with_recall(messages: list[Json], recalled: RecallEvent | None) -> list[Json]:
    """The messages with the forced recall behind the last one of the user."""
    if recalled is None or recalled.problem:
        return messages
    users = [at for at, message in enumerate(messages) if message["role"] == "user"]
    place = users[-1] + 1 if users else len(messages)
    return [*messages[:place], *synthetic_recall(recalled), *messages[place:]]
