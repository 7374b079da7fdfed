"""The tools of a chat model: recalls of one user's memories, and in a group fixed answers."""

import json
import logging
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Literal

from kemem.chat.events import RecallEvent
from kemem.chat.requests import Json, language_of, new_call_id, text, with_note
from kemem.memory import AsyncMemory
from kemem.ports import Tool
from kemem.recall import Budget, Evidence, RecallAgent, RecallReport
from kemem.recall.results import indented
from kemem.records import Scope
from kemem.records.times import to_rfc3339
from kemem.text.fence import fenced, neutralise
from kemem.text.ids import is_blank
from kemem.text.query import MAX_CHARACTERS
from kemem.text.reading import seeks_answer

RECALL = "recall_memory"
OTHERS = "get_other_members_messages"
MENTIONED = "is_mentioned"

SECONDS = 10.0  # for one recall: somebody waits
_MAX_QUERY = 500  # characters of a message that the synthetic recall repeats
_MAX_CONTENT = 2_000  # characters of one memory
_MAX_LOGGED = 80  # characters of a query
_TOOL_FIELDS = ("tools", "tool_choice", "parallel_tool_calls")  # of a request

IsOwn = Callable[[str], bool]  # whether we run a tool of this name, not the application

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
        *,
        limit: int,
        answers: Mapping[str, str] | None = None,
    ) -> None:
        """With a limit of 0 the model is offered no tool; what it needs stands in a note."""
        self.context_ids = {*context_ids}
        self.limit = limit
        self.are_over = False  # the model calls them without end
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
        self._told: set[str] = set()  # fixed answers that the model has fetched
        self._is_idle = False  # the last calls brought nothing

    def to_dicts(self) -> list[Json]:
        """The tools as chat APIs take them; no argument tells whose memories are recalled.

        With a limit of 0 there are none.
        """
        if not self.limit:
            return []
        others = [_tool(name, {"properties": {}}, self._language) for name in self._answers]
        return [recall_tool(self._language), *others]

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
            self._told.add(name)
            return self._answers[name]
        query = values.get("query")
        if not isinstance(query, str) or is_blank(query):
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
        results.append((RECALL, query, to_json(self._result(event))))
        return as_calls(results)

    async def call_all(self, calls: Iterable[Json]) -> AsyncGenerator[tuple[Json, str], None]:
        """Each call with its result; a model whose calls bring nothing twice has had enough."""
        before = self._used, len(self._told)
        for call in calls:
            yield call, await self.call(*function_of(call))
        was_idle, self._is_idle = self._is_idle, before == (self._used, len(self._told))
        self.are_over = was_idle and self._is_idle

    def as_note(self, messages: Iterable[Json], is_own: IsOwn) -> list[Json]:
        """The messages without calls of these tools; what the calls returned stands in a note."""
        names: dict[str, str] = {}  # of calls by their ids
        shown: list[Json] = []
        results: list[tuple[str, str]] = []
        for message in messages:
            calls = message.get("tool_calls") or ()
            names |= {it.get("id"): name for it in calls if is_own(name := function_of(it)[0])}
            if message.get("tool_call_id") in names:
                results.append((names[message["tool_call_id"]], str(message.get("content"))))
            elif others := [it for it in calls if it.get("id") not in names]:
                shown.append({**message, "tool_calls": others})
            elif not calls:
                shown.append(message)
        note = self._note(results)
        return with_note(shown, note) if note else shown

    def _note(self, results: Iterable[tuple[str, str]]) -> str:
        """What tools returned, by their names, in words; each thing once."""
        parts: dict[str, None] = {}
        events: list[Json] = []
        is_certain = False
        for name, result in results:
            if name == RECALL:
                recalled = _recalled(result)
                events += recalled.get("events") or ()
                is_certain |= bool(recalled.get("events")) and "note" not in recalled
            elif name == OTHERS:
                heading = text("others_said", self._language)
                parts[f"{heading}\n{fenced('messages', result)}"] = None
            else:
                parts[result] = None
        note = memory_note(events, self._language, uncertain=not is_certain)
        return "\n".join(filter(None, [*parts, note]))

    def take_away(self, request: Json, is_own: IsOwn) -> Json:
        """The request without these tools, for a model that does nothing but call them."""
        messages = self.as_note(request["messages"], is_own)
        messages = with_note(messages, text("answer_now", self._language))
        tools = [it for it in request.get("tools") or () if not is_own(function_of(it)[0])]
        left = {k: v for k, v in request.items() if tools or k not in _TOOL_FIELDS}
        return {**left, "messages": messages, **({"tools": tools} if tools else {})}

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
        return {**self._result(event), **({"error": event.problem} if event.problem else {})}

    def _result(self, event: RecallEvent) -> Json:
        """What a call of the recall returns; what is uncertain is said before it is read."""
        note = {"note": text("uncertain", self._language)} if event.uncertain else {}
        return {**note, "events": list(event.events)}

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
        # A greeting has no answer; what the model itself looks for should have one.
        seeks = way == "asked" or seeks_answer(question)
        uncertain = bool(recalled.evidence) and recalled.needs_more_info and seeks
        events = tuple(map(_event, recalled.evidence))
        return RecallEvent(query, events, seconds, problem, uncertain)


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


def memory_note(
    events: Iterable[Mapping[str, Any]], language: str, *, uncertain: bool = False
) -> str:
    """Recalled memories for a system prompt, a line each, the best last; nothing without any.

    What stands nearest to the question weighs most with a small model.
    """
    lines = [*dict.fromkeys(_line(event, language) for event in events)][::-1]
    if not lines:
        return ""
    heading = f"{text('uncertain', language)}\n" if uncertain else ""
    return f"{heading}{text('memories', language)}\n{fenced('memories', chr(10).join(lines))}"


def _line(event: Mapping[str, Any], language: str) -> str:
    """A memory with its day and who said it.  -> "- 2026-03-04 user: I painted my boat" """
    names = {"user": text("user", language), "assistant": text("model", language)}
    end, asked, speaker = (
        event.get(it) or "" for it in ("no_longer_true_since", "in_reply_to", "said_by")
    )
    ended = text("ended", language).format(day=end[:10]) if end else ""
    colon = text("colon", language)
    asked = f" {names['assistant']}{colon}{asked}" if asked else ""
    speaker = f" {names.get(speaker, speaker)}" if speaker else ""
    return f"- {event['time'][:10]}{ended}{indented(asked + speaker + colon + event['content'])}"


def _recalled(result: str) -> Json:
    """The result of a recall, from JSON."""
    with suppress(ValueError, RecursionError):
        value = json.loads(result)
        return value if isinstance(value, dict) else {}
    return {}


def as_calls(results: Iterable[tuple[str, str, str]]) -> list[Json]:
    """Names, arguments and results of tools, as calls that a model reads as its own."""
    messages: list[Json] = []
    for name, arguments, result in results:
        function = {"name": name, "arguments": arguments}
        call = {"id": new_call_id(), "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})
    return messages


def recall_tool(language: str) -> Json:
    """The tool that recalls, as chat APIs take it."""
    query = {"type": "string", "minLength": 1, "description": text("query", language)}
    return _tool(RECALL, {"properties": {"query": query}, "required": ["query"]}, language)


def _tool(name: str, schema: Json, language: str) -> Json:
    closed = {"type": "object", **schema, "additionalProperties": False}
    return Tool(name, text(name, language), closed).to_dict()


def _refused(reason: str) -> str:
    """The result of a call that cannot be carried out, for the model."""
    return to_json({"error": {"code": "INVALID_ARGUMENT", "message": reason}})


def to_json(value: object) -> str:
    """JSON as models read it best, without needless escapes."""
    return json.dumps(value, ensure_ascii=False)


def function_of(call: Mapping[str, Any]) -> tuple[str, str]:
    """The name and the arguments of a call; a custom tool has none."""
    function = call.get("function") or {}
    return function.get("name") or "", function.get("arguments") or ""
