"""OpenAI's chat API with memory: a recall before the model is called, and both sides stored."""

import asyncio
import json
import logging
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from hashlib import sha256
from typing import Any

from kemem.chat.base import ChatBase
from kemem.chat.requests import INSTRUCTIONS, Json, system_prompt, with_note
from kemem.chat.tools import RECALL, TurnTools, memory_note
from kemem.chat.turn import ChatModel, Completion, Step, run_model
from kemem.errors import Exhausted, InvalidArgument, KeMemError, NotConfigured, Unavailable
from kemem.memory import AsyncMemory
from kemem.ports.faults import fault
from kemem.text.attachments import without_attachments
from kemem.text.ids import is_blank
from kemem.text.shapes import ROLE_NAMES
from kemem.text.thoughts import without_thoughts
from kemem.text.turns import read_turns

STEPS = 8  # answers of the model to one request, those that only recall included
MODEL = "kemem"  # the name that stands for the model of the settings

_CHECKED = {"tools", "tool_choice", "parallel_tool_calls", "stream_options"}
_REPLACED = {"messages", "model", "stream", "user"}
_REPLY_ROLES = ("user", "tool", "function")  # a last message of theirs awaits a reply
_STORED = ("role", "content", "name", "tool_calls", "tool_call_id", "function_call", "refusal")
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
        texts: list[str] = []
        async for step in turn.run(stream=False):
            if isinstance(step, Completion):
                last, usage = step, add_usage(usage, step.usage)
                texts += [step.text] if step.text.strip() else []
            elif isinstance(step, dict):
                answer = step
        text = last.text
        if not last.other_calls:  # the application's tools come first
            text = text if text.strip() else "\n\n".join(texts)  # said before it called
            await turn.store_reply(text, partial=bool(last.cut))
        self._after_turn(turn.model)
        choice = answer["choices"][0]
        if text != last.text:
            choice = {**choice, "message": {**choice["message"], "content": text}}
        if last.own_calls:
            message = {k: v for k, v in choice["message"].items() if k != "tool_calls"}
            message |= {"tool_calls": last.other_calls} if last.other_calls else {}
            choice = {**choice, "message": message, "finish_reason": last.shown_reason}
        return {**answer, "choices": [choice], **({"usage": usage} if usage else {})}

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
            if not last.other_calls:
                await turn.store_reply(merger.text, partial=bool(last.cut))
        except BaseException:  # hanging up, too: the application has got this much
            await asyncio.shield(turn.store_reply(merger.text, partial=True))
            raise
        finally:
            self._after_turn(turn.model)
        for chunk in merger.ending(last):
            yield chunk

    async def models(self) -> Json:
        """The models that a request may name, as OpenAI lists them, "kemem" first."""
        model = self._chat_model()
        own = {"id": MODEL, "object": "model", "created": 0, "owned_by": "kemem"}
        try:
            listed = await model.client.models.list()
            others = [each.to_dict() for each in listed.data]
        except Exception as error:  # the client raises whatever a server provokes
            if getattr(error, "status_code", None) != 404:
                raise _failure(error, model) from error
            others = [{**own, "id": model.name}]  # a server that lists none
        return {"object": "list", "data": [own, *others]}

    async def _begin(self, body: Body, memory: AsyncMemory, session_id: str) -> "_Turn":
        # Without a model: NotConfigured. How long an answer may be is the application's to say.
        model = replace(self._chat_model(), tokens=0)
        if body.get("model") not in (None, "", MODEL):
            model = replace(model, name=body["model"])
        turn = _Turn(model, body, memory, session_id)
        language, limit = self._language(turn.query), await self._recall_limit(model)
        tools = turn.tools = TurnTools(memory, session_id, turn.ids, language, limit=limit)
        recalled = await tools.forced(turn.query) if turn.query else None
        await turn.store_messages()
        names = [(tool.get("function") or {}).get("name") for tool in body.get("tools") or ()]
        takes_no_tool = RECALL in names or body.get("tool_choice") == "none"
        if limit and not takes_no_tool and not body.get("functions"):
            turn.own_tools = {RECALL}
            note = system_prompt(" ", limit, language).strip()  # only how it recalls
            messages = with_note(turn.messages, note)
            if recalled and not recalled.problem:  # behind the last message of the user
                users = [at for at, message in enumerate(messages) if message["role"] == "user"]
                messages[users[-1] + 1 : users[-1] + 1] = tools.synthetic_calls(recalled)
            turn.messages = messages
        elif recalled and recalled.events:  # in words, for a model that gets no tool
            note = memory_note(recalled.events, language, uncertain=recalled.uncertain)
            turn.messages = with_note(turn.messages, note)
        return turn


class _Turn:
    """One request of an application: its messages, stored under idempotent ids.

    The ids are the same when the request is sent again: hashes of the owner and of all messages up
    to that one; instructions do not count, they may tell the time.
    """

    def __init__(self, model: ChatModel, body: Body, memory: AsyncMemory, session_id: str) -> None:
        self.messages: list[Json] = body["messages"]
        self.tools: TurnTools
        self.own_tools: set[str] = set()  # names of ours that are added to the application's
        self.model = model
        self._body = body
        self._memory = memory
        self._session_id = session_id
        owner = [memory.scope.agent_id, memory.scope.user_id, session_id]
        self._digest = sha256(json.dumps(owner).encode())
        self._role = self.messages[-1]["role"]
        self.ids = [self._next_id(message) for message in self.messages]
        users = (_words(it) for it in reversed(self.messages) if it["role"] == "user")
        self.query = next(users, "")

    async def run(self, *, stream: bool) -> AsyncGenerator[Step, None]:
        """The steps of the model; its failures are errors for the application."""
        body = self._body
        request = {k: v for k, v in body.items() if k in _CHECKED}
        request["model"] = self.model.name
        request["messages"] = self.messages
        passed_on = body.keys() - _CHECKED - _REPLACED
        request["extra_body"] = {k: v for k, v in body.items() if k in passed_on}
        if self.own_tools:
            request["tools"] = [*(body.get("tools") or ()), *self.tools.to_dicts()]
        is_own = self.own_tools.__contains__
        steps = run_model(self.model, request, self.tools, is_own, steps=STEPS, stream=stream)
        try:
            async with aclosing(steps):
                async for step in steps:
                    yield step
        except KeMemError:
            raise
        except Exception as error:  # of the client's library and of whatever answers it
            raise _failure(error, self.model) from error

    async def store_messages(self) -> None:
        """Store the user's new message and what tools said since; durable on return."""
        if self._role not in _REPLY_ROLES:
            return
        users = [at for at, message in enumerate(self.messages) if message["role"] == "user"]
        start = users[-1] if users else len(self.messages)
        new = zip(self.messages[start:], self.ids[start:], strict=True)
        messages = [
            {**{name: message.get(name) for name in _STORED}, "message_id": message_id}
            for message, message_id in new
            if message["role"] in ROLE_NAMES
        ]
        if messages:
            await self._memory.add(messages, session_id=self._session_id, wait=False)

    async def store_reply(self, reply: str, *, partial: bool = False) -> None:
        """Store the reply; a failure is only logged, since the application has the reply."""
        said = without_thoughts(reply)
        if self._role not in _REPLY_ROLES or not said.strip():
            return
        message = {"role": "assistant", "content": said}
        message["message_id"] = self._next_id({**message, "content": reply, "partial": partial})
        session_id, metadata = self._session_id, {"partial": True} if partial else None
        try:
            await self._memory.add([message], session_id=session_id, metadata=metadata, wait=False)
        except KeMemError as error:
            log.error("a reply could not be stored: %s", error.code)

    def _next_id(self, message: Mapping[str, Any]) -> str:
        if message["role"] not in INSTRUCTIONS:
            fields = {name: value for name, value in message.items() if value}
            self._digest.update(json.dumps(fields, sort_keys=True).encode())
        return f"m_{self._digest.hexdigest()[:40]}"


def _words(message: Mapping[str, Any]) -> str:
    """The words of a user's message, without its images; nothing where they are blank."""
    turns = read_turns([{"role": "user", "content": message.get("content")}]).turns
    said = (it.fields["content"] for it in turns if it.fields["role"] == "user")
    words = without_attachments("\n".join(said))
    return "" if is_blank(words) else words


def _failure(error: Exception, model: ChatModel) -> KeMemError:
    """The application's error for a failure of the model: whose fault it is, and no secrets."""
    status, body = getattr(error, "status_code", None), getattr(error, "body", None)
    reason = f"{model.address} {fault(error)}"
    log.warning("%s; the application is told so", reason)
    match status:
        case 400 | 404 | 413 | 422:
            message = str(body.get("message") or "") if isinstance(body, Mapping) else ""
            is_shown = message and model.client.api_key not in message
            told = message[:_MAX_REASON] if is_shown else type(error).__name__
            return InvalidArgument(f"the model refuses the request: {told}")
        case 401 | 403:
            return NotConfigured(f"the model {fault(error)}")
        case 429:
            return RateLimited("the model takes no more requests for now (429)")
    return Unavailable(reason)


class StreamMerger:
    """Merges the streams of several completions into one, with complete calls, one id, one end."""

    def __init__(self, *, with_usage: bool) -> None:
        self.text = ""  # all that was shown
        self._content = ""  # of the completion that is being streamed
        self._with_usage = with_usage
        self._usage: Json = {}
        self._head: Json = {}
        self._has_role = False

    def add(self, chunk: Json) -> Json | None:
        """The chunk as the application sees it, if anything is left of it."""
        head = {k: v for k, v in chunk.items() if k not in ("choices", "usage")}
        self._head = self._head or head
        choice: Json = next(iter(chunk.get("choices") or ()), {})
        delta = choice.get("delta") or {}
        shown = {k: v for k, v in delta.items() if v and k not in ("role", "tool_calls", "content")}
        if text := self._shown_text(delta.get("content") or ""):
            self.text += text
            shown["content"] = text
        return self._chunk(shown, {**choice, "finish_reason": None}, head) if shown else None

    def end_completion(self, completion: Completion) -> None:
        """Another completion may follow."""
        self._content = ""
        self._usage = add_usage(self._usage, completion.usage)

    def ending(self, last: Completion) -> Iterator[Json]:
        """What is left to send after the last completion: calls, the finish reason, the usage."""
        if last.other_calls:
            calls = [{"index": at, **call} for at, call in enumerate(last.other_calls)]
            yield self._chunk({"tool_calls": calls})
        yield self._chunk({}, {"finish_reason": last.shown_reason})
        if self._with_usage:
            yield {**self._head, "choices": [], "usage": self._usage or None}

    def _shown_text(self, text: str) -> str:
        """Content to show: not the blanks that a hidden call leaves behind."""
        has_begun, self._content = self._content.strip() != "", self._content + text
        if has_begun or not self._content.strip():
            return text if has_begun else ""
        if not self.text:
            return self._content
        return text if self.text.endswith("\n") else f"\n\n{text}"  # an earlier one has spoken

    def _chunk(self, delta: Json, choice: Json | None = None, head: Json | None = None) -> Json:
        role = {} if self._has_role else {"role": "assistant"}
        self._has_role = True
        shown = {"index": 0, "finish_reason": None, **(choice or {}), "delta": {**role, **delta}}
        usage = {"usage": None} if self._with_usage else {}
        return {**(head or {}), **self._head, "choices": [shown], **usage}


def add_usage(total: Mapping[str, Any], more: Mapping[str, Any] | None) -> Json:
    """The sum of two usages.  ({"total_tokens": 2}, {"total_tokens": 3}) -> {"total_tokens": 5}"""
    summed = dict(total)
    for name, value in (more or {}).items():
        if isinstance(value, Mapping):
            summed[name] = add_usage(summed.get(name) or {}, value)
        elif isinstance(value, int | float):
            summed[name] = (summed.get(name) or 0) + value
        else:
            summed.setdefault(name, value)
    return summed
