"""Filters for the choices of a model's answer: calls that leaked into their texts are removed."""

import json
import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import product
from threading import Lock
from typing import Any, Literal

from kemem.chat.requests import new_call_id
from kemem.ports import ToolCall
from kemem.text.leaks import Leak, LeakedCall, StreamGuard

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
        counts: LeakCounts | None = self
        while counts is not None:
            with counts._lock:
                counts._counts[leak.form, outcome] += 1
            counts = counts._into
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


class ToolPolicy:
    """The tools that a request offers, and the schemas of those that a leaked call may run.

    With `only`, no other tool may be run; none at all where the application takes no calls.
    """

    def __init__(
        self, tools: Iterable[Any], only: Collection[str] | None = None, *, takes_calls: bool = True
    ) -> None:
        from jsonschema import Draft202012Validator
        from referencing import Registry

        functions = [tool["function"] for tool in tools if tool.get("type") == "function"]
        schemas = {it["name"]: it.get("parameters") or {"type": "object"} for it in functions}
        self.names = frozenset(schemas)
        self.takes_calls = takes_calls
        runnable = [it for it in schemas if takes_calls and (only is None or it in only)]
        offline = Registry()  # the library would fetch whatever URL a schema refers to
        self._schemas = {
            name: Draft202012Validator(schemas[name], registry=offline) for name in runnable
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

    In a stream, calls and text that may become one wait for their end; each call is then complete.
    """

    def __init__(self, policy: ToolPolicy, counts: LeakCounts, used_ids: Collection[str]) -> None:
        self.has_output = False  # the application got words or calls
        self.has_hidden = False  # something was kept from it
        self._policy = policy
        self._counts = counts
        self._used_ids = used_ids  # of earlier calls: some servers count from 0 in each answer
        self._guards: dict[str, StreamGuard] = {}
        self._leaks: list[Leak] = []
        self._calls: dict[int, dict[str, Any]] = {}  # of the model, by index, as far as they came
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
        settled, new, reason = self._settle(calls, choice.finish_reason)
        settled += [ChatCompletionMessageFunctionToolCall(**it) for it in new]
        if settled != calls:
            changes["tool_calls"] = settled or None
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
        for call in delta.tool_calls or ():
            _merge(self._calls.setdefault(call.index or 0, {}), call.to_dict())
            changes["tool_calls"] = None
        if choice.finish_reason:
            return self._end(choice, changes)
        shown_choice = _changed(choice, "delta", changes) if changes else choice
        return self._unless_empty(shown_choice, is_changed=bool(changes))

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
        complete = [ChoiceDeltaToolCall.construct(index=n, **it) for n, it in self._calls.items()]
        self._calls = {}
        calls, new, reason = self._settle(complete, choice.finish_reason)
        calls += [ChoiceDeltaToolCall(index=n, **it) for n, it in enumerate(new)]
        is_unanswered = self.has_hidden and not self.has_output
        if reason == choice.finish_reason and not (changes or calls or is_unanswered):
            return self._unless_empty(choice)
        sent = self._unless_empty(_changed(choice, "delta", changes, finish_reason=None))
        if calls:
            sent.append(_changed(_empty(choice, None), "delta", {"tool_calls": calls}))
        if reason and is_unanswered:
            self._ending = _empty(choice, reason)  # the model may be asked once more
        elif reason:
            sent.append(_empty(choice, reason))
        return sent

    def _settle(
        self, calls: Sequence[Any], reason: str | None
    ) -> tuple[list[Any], list[dict[str, Any]], str | None]:
        """The model's own calls to show, leaked calls to run, and the finish reason.

        Beside calls that the model made properly no leaked call is run: those are what it meant.
        It only lends its arguments to one that has none.
        """
        own, names = [_tool_call(it) for it in calls], {_tool_call(it).name for it in calls}
        filled: dict[int, str] = {}
        new: list[ToolCall] = []
        leaks, self._leaks = self._leaks, []
        for leak in leaks:
            allowed = [call for it in leak.calls if (call := self._policy.allow(it))]
            for call, (n, it) in product(allowed, enumerate(own)):
                is_bare = it.name == call.name and it.arguments.strip() in ("", "{}")
                if is_bare and n not in filled and call.arguments not in filled.values():
                    filled[n] = call.arguments
            fresh = [] if own else [it for it in dict.fromkeys(allowed) if it not in new]
            new += fresh
            is_double = any(it.name in names for it in leak.calls) if own else bool(allowed)
            self._count("run" if fresh else "doubled" if is_double else "hidden", leak)
        is_dropped = bool(own) and not self._policy.takes_calls
        self.has_output |= bool(new) or (bool(own) and not is_dropped)
        self.has_hidden |= is_dropped
        if is_dropped and reason == "tool_calls":
            reason = "stop"
        shown = [] if is_dropped else [self._fix(it, filled.get(n)) for n, it in enumerate(calls)]
        functions = [{"name": it.name, "arguments": it.arguments} for it in new]
        run = [{"id": new_call_id(), "type": "function", "function": it} for it in functions]
        return shown, run, "tool_calls" if new else reason

    def _feed_text(self, name: str, text: str) -> str:
        """The part of a text that can be shown once this piece has come."""
        guard = self._guards.setdefault(name, StreamGuard(self._policy.names))
        shown = guard.feed(text)
        self._leaks += shown.leaks
        self.has_output |= name == "content" and bool(shown.text.strip())
        return shown.text

    def _end_texts(self, names: Sequence[str], *, is_cut: bool) -> dict[str, str]:
        """What is left to show at the end of texts; where it was cut, an open leak is no call."""
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

    def _unless_empty(self, choice: Any, *, is_changed: bool = True) -> list[Any]:
        """The choice, unless nothing is left in it that the application does not know."""
        if is_changed and not choice.finish_reason:
            excluded = {"role"} if self._has_role else None
            if not any(choice.delta.model_dump(exclude_none=True, exclude=excluded).values()):
                return []
        self._has_role |= bool(choice.delta.role)
        return [choice]

    def _fix(self, call: Any, arguments: str | None) -> Any:
        """A call with an id of its own, and with arguments where they are filled in."""
        if call.id in self._used_ids:
            call = call.model_copy(update={"id": new_call_id()})
        if arguments is None or call.function is None:
            return call
        function = call.function.model_copy(update={"arguments": arguments})
        return call.model_copy(update={"function": function})


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


def _merge(call: dict[str, Any], delta: Mapping[str, Any]) -> None:
    """Add a delta of a call to what has come of it."""
    for name, value in delta.items():
        if isinstance(value, Mapping):
            _merge(call.setdefault(name, {}), value)
        elif name in ("arguments", "input"):
            call[name] = call.get(name, "") + (value or "")
        elif value and name != "index":
            call[name] = value


def _tool_call(call: Any) -> ToolCall:
    function = getattr(call, "function", None)  # a custom tool has none
    name, arguments = getattr(function, "name", None), getattr(function, "arguments", None)
    return ToolCall("", name or "", arguments or "")
