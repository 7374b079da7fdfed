"""Filters for the choices of a model's answer: calls that leaked into their texts are removed."""

import json
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import product
from threading import Lock
from typing import Any, Literal

from kemem.chat.leaks import Leak, LeakedCall, StreamGuard
from kemem.chat.requests import new_call_id
from kemem.ports import ToolCall

Outcome = Literal["run", "hidden", "doubled", "unreadable"]

_TEXTS = ("reasoning_content", "reasoning", "content")
_CUT = (None, "length", "content_filter")  # finish reasons that are not the model's own
_LONGEST_NAME = 64  # of a tool in the log: the model writes names, too

log = logging.getLogger("kemem")


class LeakCounts:
    """Leaks by form and outcome; each is an error in the log, without what it said.

    What is counted here is also counted `into` another, as the leaks of one reply among all.

    counts = LeakCounts()
    client = guard(AsyncOpenAI(), counts=counts)
    dict(counts)  # {("dsml", "run"): 3, ("hermes", "unreadable"): 1}
    """

    def __init__(self, into: "LeakCounts | None" = None) -> None:
        self._into = into
        self._counts: Counter[tuple[str, Outcome]] = Counter()
        self._lock = Lock()

    def note(self, leak: Leak, outcome: Outcome) -> None:
        """Count a leak, and log it."""
        self._add(leak.form, outcome)
        names = [call.name[:_LONGEST_NAME] for call in leak.calls]
        log.error("a tool call leaked into text: form %s, tools %r, %s", leak.form, names, outcome)

    @property
    def total(self) -> int:
        """All leaks so far."""
        with self._lock:
            return self._counts.total()

    def __iter__(self) -> Iterator[tuple[tuple[str, Outcome], int]]:
        with self._lock:
            return iter(sorted(self._counts.items()))

    def _add(self, form: str, outcome: Outcome) -> None:
        with self._lock:
            self._counts[form, outcome] += 1
        if self._into is not None:
            self._into._add(form, outcome)


class ToolPolicy:
    """The tools that a request offers, and the schemas of those that a leaked call may run.

    With `only`, no other tool may be run; unless calls are `wanted`, none at all.
    """

    def __init__(
        self, tools: Iterable[Any], only: Collection[str] | None = None, *, wanted: bool = True
    ) -> None:
        from jsonschema import Draft202012Validator
        from referencing import Registry

        functions = [tool["function"] for tool in tools if tool.get("type") == "function"]
        offline = Registry()  # the library would fetch whatever URL a schema refers to
        self.names = frozenset(it["name"] for it in functions)
        self.wanted = wanted
        self._schemas = {
            it["name"]: Draft202012Validator(
                it.get("parameters") or {"type": "object"}, registry=offline
            )
            for it in functions
            if wanted and (only is None or it["name"] in only)
        }

    def allow(self, leaked: LeakedCall) -> ToolCall | None:
        """The call, its arguments typed by its tool's schema; None where it may not run."""
        from jsonschema import SchemaError
        from referencing.exceptions import Unresolvable

        if (schema := self._schemas.get(leaked.name)) is None:
            return None
        try:
            schema.check_schema(schema.schema)
            properties = schema.schema.get("properties") or {}
            arguments = {
                key: _typed(value, schema.evolve(schema=properties.get(key, True)))
                for key, value in leaked.arguments.items()
            }
            if not schema.is_valid(arguments):
                return None
        except (SchemaError, Unresolvable):  # such a schema validates nothing
            return None
        return ToolCall("", leaked.name, json.dumps(arguments, ensure_ascii=False))


def _typed(value: Any, schema: Any) -> Any:
    """The value itself, or the JSON that a text spells where only that fits the schema."""
    if not isinstance(value, str) or schema.is_valid(value):
        return value
    try:
        parsed = json.loads(value)
    except (ValueError, RecursionError):
        return value
    return parsed if schema.is_valid(parsed) else value


class ChoiceFilter:
    """Filters one choice: hides leaked calls in its texts, and decides which of them are run.

    In a stream, calls and text that may become one wait for their end.
    """

    def __init__(self, policy: ToolPolicy, counts: LeakCounts, used_ids: Collection[str]) -> None:
        self.has_output = False  # the application got words or calls
        self.has_hidden = False  # something was kept from it
        self._policy = policy
        self._counts = counts
        self._used_ids = used_ids  # of earlier calls: some servers count from 0 in each answer
        self._guards: dict[str, StreamGuard] = {}
        self._leaks: list[Leak] = []
        self._call_deltas: list[list[Any]] = []  # as they came together
        self._has_role = False
        self._last: Any = None
        self._ending: Any = None

    def whole(self, choice: Any) -> Any:
        """A choice that came at once, filtered."""
        from openai.types.chat import ChatCompletionMessageFunctionToolCall

        texts, calls = _texts(choice.message), list(choice.message.tool_calls or ())
        shown = {name: self._feed_text(name, text) for name, text in texts.items()}
        ends = self._end_texts(_TEXTS, is_cut=choice.finish_reason in _CUT)
        shown |= {name: shown[name] + rest for name, rest in ends.items()}
        changes: dict[str, Any] = {k: v or None for k, v in shown.items() if v != texts[k]}
        by_index = {n: _tool_call(it) for n, it in enumerate(calls)}
        filled, new, reason = self._settle(by_index, choice.finish_reason)
        wanted = self._policy.wanted
        if filled or new or (calls and not wanted) or any(it.id in self._used_ids for it in calls):
            own = [self._fix(it, filled.get(n)) for n, it in enumerate(calls) if wanted]
            made = [ChatCompletionMessageFunctionToolCall(**it) for it in new]
            changes["tool_calls"] = [*own, *made] or None
        return _changed(choice, "message", changes, finish_reason=reason) if changes else choice

    def feed(self, choice: Any) -> list[Any]:
        """The choices of a stream to pass on for one that came."""
        if choice.delta is None:
            choice = _empty(choice, choice.finish_reason)
        delta, self._last = choice.delta, choice
        texts = _texts(delta)
        shown = {name: self._feed_text(name, text) for name, text in texts.items()}
        changes: dict[str, Any] = {k: v or None for k, v in shown.items() if v != texts[k]}
        if texts.keys() == {"content"}:  # the reasoning is over, and not cut
            changes |= self._end_texts(_TEXTS[:-1], is_cut=False)
        if delta.tool_calls:
            self._call_deltas.append(delta.tool_calls)
            changes["tool_calls"] = None
        if choice.finish_reason:
            return self._end(choice, changes)
        if not changes:
            return self._passed(choice)
        return self._unless_empty(_changed(choice, "delta", changes))

    def close(self) -> list[Any]:
        """The choices that are left when the stream ends."""
        ending, self._ending = self._ending, None
        rest = self._end(_empty(self._last, None), {})
        return [*rest, ending] if ending else rest

    def give_up(self) -> None:
        """Run nothing of what is still open: the answer broke off."""
        self._end_texts(_TEXTS, is_cut=True)
        self._count("hidden", *self._leaks)
        self._leaks = []

    def _end(self, choice: Any, changes: dict[str, Any]) -> list[Any]:
        from openai.types.chat.chat_completion_chunk import ChoiceDeltaToolCall

        for name, rest in self._end_texts(_TEXTS, is_cut=choice.finish_reason in _CUT).items():
            changes[name] = (changes.get(name, getattr(choice.delta, name, None)) or "") + rest
        together, self._call_deltas = self._call_deltas, []
        filled, new, reason = self._settle(_joined(together), choice.finish_reason)
        rest_of = dict(filled)  # the first delta of a call gets all of its arguments

        def fixed(delta: Any) -> Any:
            is_filled = delta.index in filled
            return self._fix(delta, rest_of.pop(delta.index, "") if is_filled else None)

        calls = [[fixed(it) for it in deltas] for deltas in together if self._policy.wanted]
        if new:
            calls.append([ChoiceDeltaToolCall(index=n, **it) for n, it in enumerate(new)])
        is_unanswered = self.has_hidden and not self.has_output
        if reason == choice.finish_reason and not (changes or calls or is_unanswered):
            return self._unless_empty(choice)
        sent = self._unless_empty(_changed(choice, "delta", changes, finish_reason=None))
        sent += [_changed(_empty(choice, None), "delta", {"tool_calls": it}) for it in calls]
        if reason and is_unanswered:
            self._ending = _empty(choice, reason)  # the model may be asked once more
        elif reason:
            sent.append(_empty(choice, reason))
        return sent

    def _settle(
        self, calls: Mapping[int, ToolCall], reason: str | None
    ) -> tuple[dict[int, str], list[dict[str, Any]], str | None]:
        """Arguments for structured calls that have none, leaked calls to run, the finish reason.

        Beside calls that the model made properly no leaked call is run: those are what it meant.
        """
        filled: dict[int, str] = {}
        new: list[ToolCall] = []
        leaks, self._leaks = self._leaks, []
        for leak in leaks:
            allowed = [call for it in leak.calls if (call := self._policy.allow(it))]
            if calls:
                self._count(_fill(leak, allowed, calls, filled), leak)
                continue
            before = len(new)
            new += [call for call in dict.fromkeys(allowed) if call not in new]
            self._count("run" if len(new) > before else "doubled" if allowed else "hidden", leak)
        is_dropped = bool(calls) and not self._policy.wanted
        self.has_output |= bool(new) or (bool(calls) and not is_dropped)
        self.has_hidden |= is_dropped
        if is_dropped and reason == "tool_calls":
            reason = "stop"
        return filled, [_as_function(it) for it in new], "tool_calls" if new else reason

    def _feed_text(self, name: str, text: str) -> str:
        """The part of a text that can be shown once this piece has come."""
        guard = self._guards.setdefault(name, StreamGuard(self._policy.names))
        shown = guard.feed(text)
        self._leaks += shown.leaks
        self.has_output |= name == "content" and bool(shown.text.strip())
        return shown.text

    def _end_texts(self, names: Sequence[str], *, is_cut: bool) -> dict[str, str]:
        """What can be shown at the end of texts, where there is any.

        A leak that only the end of its text ends is no call where the text was cut.
        """
        ended = [(name, self._guards.pop(name).close()) for name in names if name in self._guards]
        open_leaks = [leak for _, shown in ended for leak in shown.leaks]
        if is_cut:
            self._count("hidden", *open_leaks)
        else:
            self._leaks += open_leaks
        self.has_output |= any(name == "content" and shown.text.strip() for name, shown in ended)
        return {name: shown.text for name, shown in ended if shown.text}

    def _count(self, outcome: Outcome, *leaks: Leak) -> None:
        self.has_hidden |= outcome != "run" and bool(leaks)
        for leak in leaks:
            self._counts.note(leak, outcome if leak.calls else "unreadable")

    def _passed(self, choice: Any) -> list[Any]:
        self._has_role |= bool(choice.delta.role)
        return [choice]

    def _unless_empty(self, choice: Any) -> list[Any]:
        """The choice, unless nothing is left in it that the application does not know."""
        values = choice.delta.model_dump(exclude_none=True)
        if self._has_role:
            values.pop("role", None)
        has_news = any(values.values()) or choice.finish_reason
        return self._passed(choice) if has_news else []

    def _fix(self, call: Any, arguments: str | None) -> Any:
        """A call with an id of its own, and with arguments where they are filled in."""
        if call.id in self._used_ids:
            call = call.model_copy(update={"id": new_call_id()})
        if arguments is None or call.function is None:
            return call
        function = call.function.model_copy(update={"arguments": arguments})
        return call.model_copy(update={"function": function})


def _fill(
    leak: Leak, allowed: Iterable[ToolCall], calls: Mapping[int, ToolCall], filled: dict[int, str]
) -> Outcome:
    for call, (n, it) in product(allowed, calls.items()):
        is_bare = it.name == call.name and it.arguments.strip() in ("", "{}") and n not in filled
        if is_bare and call.arguments not in filled.values():
            filled[n] = call.arguments
    names = {call.name for call in calls.values()}
    return "doubled" if any(call.name in names for call in leak.calls) else "hidden"


def _texts(part: Any) -> dict[str, str]:
    texts = {name: getattr(part, name, None) for name in _TEXTS}
    return {name: text for name, text in texts.items() if isinstance(text, str) and text}


def _changed(choice: Any, part: str, changes: Mapping[str, Any], **more: Any) -> Any:
    """A copy with another message or delta; log probabilities would still tell what was hidden."""
    changed = getattr(choice, part).model_copy(update=changes)
    return choice.model_copy(update={part: changed, "logprobs": None, **more})


def _empty(choice: Any, reason: str | None) -> Any:
    from openai.types.chat.chat_completion_chunk import ChoiceDelta

    empty = {"delta": ChoiceDelta(), "finish_reason": reason, "logprobs": None}
    return choice.model_copy(update=empty)


def _joined(together: Iterable[Iterable[Any]]) -> dict[int, ToolCall]:
    """The calls that streamed deltas make, by their index."""
    calls: dict[int, ToolCall] = {}
    for delta in (it for deltas in together for it in deltas):
        before, more = calls.get(delta.index, ToolCall("", "", "")), _tool_call(delta)
        arguments = before.arguments + more.arguments
        calls[delta.index] = ToolCall("", more.name or before.name, arguments)
    return calls


def _tool_call(call: Any) -> ToolCall:
    function = getattr(call, "function", None)  # a custom tool has none
    name, arguments = getattr(function, "name", None), getattr(function, "arguments", None)
    return ToolCall("", name or "", arguments or "")


def _as_function(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": new_call_id(), "type": "function", "function": function}
