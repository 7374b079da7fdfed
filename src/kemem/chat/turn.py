"""One turn of a chat: its recalls, the tools of the model, and the loop that calls both."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal

from kemem.chat import events as chat_events
from kemem.chat.events import RecallEvent, TextEvent, ToolCallEvent, ToolResultEvent
from kemem.chat.filters import LeakCounts
from kemem.chat.requests import Json, is_openai, language_of, new_call_id, text
from kemem.errors import KeMemError, Unavailable
from kemem.memory import AsyncMemory
from kemem.ports import OnReply, Reply, Tool
from kemem.recall import Budget, Evidence, RecallAgent, RecallReport
from kemem.records import Scope
from kemem.records.times import to_rfc3339
from kemem.text.fence import neutralise
from kemem.text.query import MAX_CHARACTERS

RECALL = "recall_memory"
OTHERS = "get_other_members_messages"
MENTIONED = "is_mentioned"

STEPS = 12  # answers of the model in one turn, those that only call tools included
SECONDS = 10.0  # for one recall: somebody waits
_MAX_QUERY = 500  # characters of a message that the synthetic recall repeats
_MAX_CONTENT = 2_000  # characters of one memory
_MAX_LOGGED = 80  # characters of a query

IsOwn = Callable[[str], bool]  # whether we run a tool of this name, not the application
StoreReply = Callable[[str, bool], Awaitable[str]]  # text, is partial -> message id
_End = chat_events.DoneEvent | chat_events.ErrorEvent

log = logging.getLogger("kemem")


class TurnTools:
    """The tools of one turn: recalls of one user's memories, and in a group fixed answers.

    No model is called for a recall. Messages that are in the model's context already are left out;
    notes that come from them are not, they say more. Beyond the `limit` nothing is searched.
    """

    def __init__(
        self,
        memory: AsyncMemory,
        session_id: str,
        context_ids: Iterable[str],
        language: str,
        answers: Mapping[str, str] | None = None,
    ) -> None:
        self.context_ids = {*context_ids}
        self.limit = memory.settings.chat_recall_limit
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
        self._language = language
        self._answers = answers or {}
        self._used = 0

    def to_dicts(self) -> list[Json]:
        """The tools as chat APIs take them; no argument tells whose memories are recalled."""
        query = {"type": "string", "minLength": 1, "description": text("query", self._language)}
        schemas: dict[str, Json] = {it: {"properties": {}} for it in self._answers}
        schemas = {RECALL: {"properties": {"query": query}, "required": ["query"]}} | schemas
        closed = {"additionalProperties": False}
        return [
            Tool(name, text(name, self._language), {"type": "object", **it, **closed}).to_dict()
            for name, it in schemas.items()
        ]

    async def call(self, name: str, arguments: str) -> str:
        """The result of a call; what is wrong with it is told to the model, not raised."""
        if name != RECALL and name not in self._answers:
            return _refused(f"there is no tool {name!r:.80}")
        try:
            values = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            return _refused(f"the arguments of {name} must be a JSON object")
        if name != RECALL:
            log.info("%s: answered", name)
            return self._answers[name]
        query = values.get("query")
        if not isinstance(query, str) or not query.strip():
            return _refused(f"query must be a text that is not blank, not {query!r:.80}")
        try:
            return to_json(await self._requested(query))
        except Exception as error:  # its text is not for the model
            log.error("the tool %s failed: %s", name, type(error).__name__)
            return _refused(f"{name} cannot answer now")

    def synthetic_calls(self, event: RecallEvent) -> list[Json]:
        """The forced recall and the fixed answers, as calls that a model reads as its own."""
        query = to_json({"query": event.query[:_MAX_QUERY]})
        results = [(name, "{}", answer) for name, answer in self._answers.items()]
        results.append((RECALL, query, to_json({"events": list(event.events)})))
        messages: list[Json] = []
        for name, arguments, result in results:
            function = {"name": name, "arguments": arguments}
            call = {"id": new_call_id(), "type": "function", "function": function}
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
        return messages

    async def forced(self, query: str) -> RecallEvent:
        """The recall that a turn begins with; a failure is in the event, and the turn goes on."""
        event = await self._recall(query, "forced")
        log.info("forced recall: %d hits in %.0f ms", len(event.events), event.seconds * 1000)
        return event

    async def _requested(self, query: str) -> Json:
        if self._used >= self.limit:
            log.info("recall_memory: beyond the limit of %d a turn", self.limit)
            message = text("limit_reached", language_of(query)).format(limit=self.limit)
            return {"events": [], "limit_reached": True, "message": message}
        self._used += 1
        event = await self._recall(query, "asked")
        start, took = query[:_MAX_LOGGED], event.seconds * 1000
        log.info("recall_memory: query %r, %d hits in %.0f ms", start, len(event.events), took)
        return {"events": event.events, **({"error": event.problem} if event.problem else {})}

    async def _recall(self, query: str, way: Literal["forced", "asked"]) -> RecallEvent:
        """Memories, best first; the problem if there are none."""
        started = time.monotonic()
        try:
            question = query[:MAX_CHARACTERS].encode(errors="replace").decode()
            recalled = await self._agent.recall(question)
        except Exception as error:  # the store's or a model's code, which may raise anything
            log.warning("recall failed: %s", type(error).__name__)
            seconds = time.monotonic() - started
            return RecallEvent(query, (), seconds, "memories cannot be read now")
        seconds = time.monotonic() - started
        report = RecallReport(self._scope, recalled, seconds, way, recalled.memory_keys)
        self._memory.runtime.recalled(report, self._memory.on_recall)
        problem = "" if recalled.evidence else "; ".join(recalled.problems)
        return RecallEvent(query, tuple(map(_event, recalled.evidence)), seconds, problem)


def _event(evidence: Evidence) -> Json:
    """A memory as the model sees it: data that cannot pass for a tool call or an instruction."""
    speaker = {"said_by": neutralise(evidence.said_by)} if evidence.said_by else {}
    content = evidence.content
    content = content if len(content) <= _MAX_CONTENT else f"{content[:_MAX_CONTENT]}…"
    asked = {"in_reply_to": neutralise(evidence.in_reply_to)} if evidence.in_reply_to else {}
    end = evidence.valid_until
    return {
        "id": evidence.memory_key,
        "kind": evidence.kind,
        "time": to_rfc3339(evidence.event_time),
        **({} if end is None else {"no_longer_true_since": to_rfc3339(end)}),
        **asked,
        **speaker,
        "content": neutralise(content),
        "score": round(evidence.score, 2),
    }


def _refused(reason: str) -> str:
    """The result of a call that cannot be carried out, for the model."""
    return to_json({"error": {"code": "INVALID_ARGUMENT", "message": reason}})


def to_json(value: object) -> str:
    """JSON as models read it best, without needless escapes."""
    return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class ChatModel:
    """A chat model: a client that is guarded, where its leaks are counted, and who meters it."""

    client: Any  # an AsyncOpenAI
    name: str
    counts: LeakCounts
    on_reply: OnReply


class Completion:
    """One answer of the model; calls of our own tools are hidden from the application."""

    def __init__(self, answer: Json, is_own: IsOwn) -> None:
        choice: Json = next(iter(answer.get("choices") or ()), {})
        if not choice:
            raise Unavailable("the model answered without choices")
        message = choice.get("message") or {}
        calls = message.get("tool_calls") or ()
        calls = [{**it, "id": it.get("id") or new_call_id()} for it in calls]
        self.text: str = message.get("content") or ""
        self.own_calls = [it for it in calls if is_own(function_of(it)[0])]
        self.other_calls = [it for it in calls if not is_own(function_of(it)[0])]
        self.wants_own_tool = bool(self.own_calls) and not self.other_calls
        # The application does not know of our tools.
        self.shown_reason = "stop" if self.wants_own_tool else choice.get("finish_reason")
        self.usage: Json = answer.get("usage") or {}
        # The message that precedes the results of our own tools.
        self.message: Json = {"role": "assistant", "content": self.text or None}
        if reasoning := message.get("reasoning_content"):
            self.message["reasoning_content"] = reasoning
        self.message["tool_calls"] = self.own_calls


Step = Json | Completion | ToolCallEvent | ToolResultEvent


def join_chunks(chunks: Iterable[Json]) -> Json:
    """The complete answer of a stream; one that ended without a reason has broken off."""
    message: Json = {"content": "", "reasoning_content": ""}
    calls: list[Json] = []
    usage = reason = None
    for chunk in chunks:
        usage = chunk.get("usage") or usage
        for choice in (chunk.get("choices") or ())[:1]:
            reason = choice.get("finish_reason") or reason
            delta = choice.get("delta") or {}
            calls += delta.get("tool_calls") or ()  # a guarded client sends each of them at once
            for name in message:
                message[name] += delta.get(name) or ""
    if reason is None:
        raise Unavailable("the model's answer broke off")
    message["tool_calls"] = [{k: v for k, v in it.items() if k != "index"} for it in calls]
    return {"choices": [{"message": message, "finish_reason": reason}], "usage": usage}


def function_of(call: Mapping[str, Any]) -> tuple[str, str]:
    """The name and the arguments of a call; a custom tool has none."""
    function = call.get("function") or {}
    return function.get("name") or "", function.get("arguments") or ""


async def run_model(
    model: ChatModel, request: Json, tools: TurnTools, is_own: IsOwn, *, steps: int, stream: bool
) -> AsyncGenerator[Step, None]:
    """Call the model, run the tools of ours that it calls, and call it again with their results.

    Yields chunks (or complete answers) as they come, after each answer its Completion, and calls
    of our tools with their results. Raises whatever the client raises.
    """
    create: Any = model.client.chat.completions.create
    messages = [*request["messages"]]
    for left in reversed(range(steps)):
        sent = {**request, "messages": messages}
        started, usable, answer = time.perf_counter(), False, Json()
        try:
            if stream:
                chunks: list[Json] = []
                async with await create(**sent, stream=True) as coming:
                    usable = True  # though nobody may listen to the end
                    async for chunk in coming:
                        chunks.append(chunk.to_dict(mode="json", warnings=False))
                        yield chunks[-1]
                answer = join_chunks(chunks)
            else:
                answer = (await create(**sent)).to_dict(mode="json", warnings=False)
                usable = True
        except Exception:
            usable = False
            raise
        finally:
            usage = answer.get("usage") or {}
            tokens = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
            model.on_reply(time.perf_counter() - started, usable, Reply("", *tokens))
        if not stream:
            yield answer
        completion = Completion(answer, is_own)
        yield completion
        if not (left and completion.wants_own_tool):
            return
        messages = [*messages, completion.message]
        for call in completion.own_calls:
            yield ToolCallEvent(call["id"], *function_of(call))
        for call in completion.own_calls:
            name, arguments = function_of(call)
            result = await tools.call(name, arguments)
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
            yield ToolResultEvent(call["id"], name, result)


async def stream_reply(
    model: ChatModel, messages: list[Json], tools: TurnTools, store: StoreReply, silence: str = ""
) -> AsyncGenerator[chat_events.Event, None]:
    """What the model says and calls, then `done` or `error`; whatever ends a reply, it is stored.

    A text that is nothing but the word for `silence` is not shown.
    """
    request: Json = {"model": model.name, "messages": messages, "tools": tools.to_dicts()}
    if is_openai(str(model.client.base_url)):
        request["stream_options"] = {"include_usage": True}  # not every other server knows it
    text = pending = ""  # what was shown; what may still become that word
    has_answer, is_undecided, wants_tool = False, bool(silence), False
    error: Unavailable | None = None
    steps = run_model(model, request, tools, lambda name: True, steps=STEPS, stream=True)
    try:
        async with aclosing(steps):
            async for step in steps:
                if isinstance(step, Completion):
                    if pending.strip() not in ("", silence):
                        text += pending
                        yield TextEvent(pending)
                    pending, is_undecided, wants_tool = "", bool(silence), step.wants_own_tool
                elif not isinstance(step, dict):
                    yield step
                elif piece := _content(step):
                    pending += piece
                    has_answer |= piece.strip() != ""
                    if is_undecided and silence.startswith(pending.strip()):
                        continue
                    shown, pending, is_undecided = pending, "", False
                    text += shown
                    yield TextEvent(shown)
        if wants_tool:
            error = Unavailable(f"the model called tools {STEPS} times without an answer")
        elif not has_answer:
            error = Unavailable("the model answered nothing")
    except ImportError:  # an extra that is missing is named by its own error
        raise
    except Unavailable as failure:
        error = failure
    except Exception as failure:  # the client raises whatever a server provokes
        log.warning("the chat model failed: %s", type(failure).__name__)
        error = Unavailable(f"the model failed: {type(failure).__name__}")
    except (asyncio.CancelledError, GeneratorExit):
        await _to_the_end(_store_reply(text, store, model.counts, Unavailable("nobody listens")))
        raise
    yield await _to_the_end(_store_reply(text, store, model.counts, error))


def _content(chunk: Json) -> str:
    choice: Json = next(iter(chunk.get("choices") or ()), {})
    return (choice.get("delta") or {}).get("content") or ""


async def _to_the_end(storing: Awaitable[_End]) -> _End:
    """The result of storing a reply, which goes on though the listener is cancelled meanwhile."""
    task = asyncio.ensure_future(storing)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise


async def _store_reply(
    text: str, store: StoreReply, counts: LeakCounts, error: Unavailable | None
) -> _End:
    """Store what came of a reply; returns the event that ends its turn."""
    message_id = ""
    try:
        message_id = await store(text, error is not None) if text.strip() else ""
    except KeMemError as failure:
        log.error("a reply could not be stored: %s", failure.code)
        if error is None:
            return chat_events.ErrorEvent(failure.code, "the reply could not be stored", text)
    if error is None:
        return chat_events.DoneEvent(text, message_id, counts.total)
    return chat_events.ErrorEvent(error.code, error.message, text, message_id)
