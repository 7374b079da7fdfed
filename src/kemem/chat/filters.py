"""Filters for the choices of a model's answer: calls that leaked into their texts are removed."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kemem.chat.counts import LeakCounts, Outcome
from kemem.chat.leaks import Leak, LeakedCall, StreamGuard
from kemem.chat.requests import new_call_id

_TEXTS = ("reasoning_content", "reasoning", "content")
_CUT = (None, "length", "content_filter")  # finish reasons that are not the model's own


@dataclass(frozen=True, slots=True)
class Call:
    """A call as the application gets it."""

    name: str
    arguments: str  # JSON


@dataclass(frozen=True, slots=True)
class ToolPolicy:
    """The tools that a request offers, and the schemas of those that a leaked call may run."""

    known: frozenset[str]
    schemas: Mapping[str, Any]  # validators of jsonschema
    wanted: bool  # False: the application takes no calls at all

    @classmethod
    def of(
        cls, tools: Iterable[Any], only: Collection[str] | None, *, wanted: bool
    ) -> "ToolPolicy":
        """The policy for a request's tools; with `only`, no other tool may be run."""
        from jsonschema import Draft202012Validator
        from referencing import Registry

        functions = [tool["function"] for tool in tools if tool.get("type") == "function"]
        offline = Registry()  # the library would fetch whatever URL a schema refers to
        validators = {
            it["name"]: Draft202012Validator(
                it.get("parameters") or {"type": "object"}, registry=offline
            )
            for it in functions
            if wanted and (only is None or it["name"] in only)
        }
        return cls(frozenset(it["name"] for it in functions), validators, wanted)

    def allow(self, leaked: LeakedCall) -> Call | None:
        """The call, its arguments typed by its tool's schema; None where it may not run."""
        from jsonschema import SchemaError
        from referencing.exceptions import Unresolvable

        if (schema := self.schemas.get(leaked.name)) is None:
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
        return Call(leaked.name, json.dumps(arguments, ensure_ascii=False))


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
    """Filters the texts of one choice, and decides which leaked calls are run."""

    def __init__(
        self, policy: ToolPolicy, counts: LeakCounts, used_ids: Collection[str] = frozenset()
    ) -> None:
        self.policy = policy
        self.used_ids = used_ids  # of earlier calls: some servers count from 0 in each answer
        self.has_output = False  # the application got words or calls
        self.has_hidden = False  # something was kept from it
        self._counts = counts
        self._guards: dict[str, StreamGuard] = {}
        self._leaks: list[Leak] = []
        self._open_leaks: list[Leak] = []  # ended by nothing but the end of the text

    def feed(self, name: str, text: str) -> str:
        """The part of a text that can be shown once this piece has come."""
        shown = self._guards.setdefault(name, StreamGuard(self.policy.known)).feed(text)
        self._leaks += shown.leaks
        self.has_output |= name == "content" and bool(shown.text.strip())
        return shown.text

    def end(self, *names: str) -> dict[str, str]:
        """The rest of texts that can be shown at their end, where there is any."""
        rests = {}
        for name in (it for it in names if it in self._guards):
            shown = self._guards.pop(name).close()
            self._open_leaks += shown.leaks
            self.has_output |= name == "content" and bool(shown.text.strip())
            rests[name] = shown.text
        return {name: rest for name, rest in rests.items() if rest}

    def end_reasoning(self) -> dict[str, str]:
        """The same for the reasoning, which is over and not cut when the reply begins."""
        rests = self.end(*_TEXTS[:-1])
        self._leaks, self._open_leaks = self._leaks + self._open_leaks, []
        return rests

    def settle(
        self, calls: Mapping[int, Call], *, is_cut: bool
    ) -> tuple[dict[int, str], list[Call]]:
        """Arguments for structured calls that have none, and the leaked calls that are to be run.

        Beside calls that the model made properly no leaked call is run: those are what it meant.
        """
        late, self._open_leaks = self._open_leaks, []
        leaks, self._leaks = self._leaks + ([] if is_cut else late), []
        filled: dict[int, str] = {}
        new: list[Call] = []
        for leak in leaks:
            allowed = [call for it in leak.calls if (call := self.policy.allow(it))]
            self._count(leak, _fill(leak, allowed, calls, filled) if calls else _run(allowed, new))
        for leak in late if is_cut else []:
            self._count(leak, "hidden")
        self.has_output |= bool(new) or (bool(calls) and self.policy.wanted)
        self.has_hidden |= bool(calls) and not self.policy.wanted
        return filled, new

    def give_up(self) -> None:
        """Run nothing of what is still open: the answer broke off."""
        self.end(*_TEXTS)
        self._leaks, self._open_leaks = [], self._leaks + self._open_leaks
        self.settle({}, is_cut=True)

    def _count(self, leak: Leak, outcome: Outcome) -> None:
        self.has_hidden |= outcome != "run"
        self._counts.note(leak, outcome if leak.calls else "unreadable")


class StreamFilter:
    """Filters a streamed choice: calls, and text that may become one, wait for their end."""

    def __init__(self, choice_filter: ChoiceFilter) -> None:
        self._filter = choice_filter
        self._calls: list[list[Any]] = []  # deltas, as they came together
        self._has_role = False
        self._last: Any = None
        self._ending: Any = None

    def feed(self, choice: Any) -> list[Any]:
        """The choices to pass on for one that came."""
        if choice.delta is None:
            choice = _empty(choice, choice.finish_reason)
        delta, self._last = choice.delta, choice
        texts = _texts(delta)
        shown = {name: self._filter.feed(name, text) for name, text in texts.items()}
        changes: dict[str, Any] = {k: v or None for k, v in shown.items() if v != texts[k]}
        if texts.keys() == {"content"}:
            changes |= self._filter.end_reasoning()
        if delta.tool_calls:
            self._calls.append(delta.tool_calls)
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

    def _end(self, choice: Any, changes: dict[str, Any]) -> list[Any]:
        for name, rest in self._filter.end(*_TEXTS).items():
            changes[name] = (changes.get(name, getattr(choice.delta, name, None)) or "") + rest
        calls, reason = self._settle(choice.finish_reason)
        is_unanswered = self._filter.has_hidden and not self._filter.has_output
        if reason == choice.finish_reason and not (changes or calls or is_unanswered):
            return self._unless_empty(choice)
        sent = self._unless_empty(_changed(choice, "delta", changes, finish_reason=None))
        sent += [_changed(_empty(choice, None), "delta", {"tool_calls": it}) for it in calls]
        if reason and is_unanswered:
            self._ending = _empty(choice, reason)  # the model may be asked once more
        elif reason:
            sent.append(_empty(choice, reason))
        return sent

    def _settle(self, reason: str | None) -> tuple[list[list[Any]], str | None]:
        from openai.types.chat.chat_completion_chunk import ChoiceDeltaToolCall

        deltas, self._calls = self._calls, []
        calls = _joined(deltas)
        filled, new = self._filter.settle(calls, is_cut=reason in _CUT)
        wanted = self._filter.policy.wanted
        reason = _reason(reason, bool(new), bool(calls) and not wanted)
        made = [ChoiceDeltaToolCall(index=n, **_tool_call(it)) for n, it in enumerate(new)]
        kept = _replayed(deltas, filled, self._filter.used_ids) if wanted else []
        return [*kept, *([made] if made else [])], reason

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


def filter_choice(choice: Any, choice_filter: ChoiceFilter) -> Any:
    """A choice that came at once, filtered."""
    from openai.types.chat import ChatCompletionMessageFunctionToolCall

    message, wanted = choice.message, choice_filter.policy.wanted
    used_ids, texts = choice_filter.used_ids, _texts(message)
    shown = {name: choice_filter.feed(name, text) for name, text in texts.items()}
    shown |= {name: shown[name] + rest for name, rest in choice_filter.end(*_TEXTS).items()}
    changes: dict[str, Any] = {k: v or None for k, v in shown.items() if v != texts[k]}
    calls = list(message.tool_calls or ())
    filled, new = choice_filter.settle(
        {n: _call(it) for n, it in enumerate(calls)}, is_cut=choice.finish_reason in _CUT
    )
    if filled or new or (calls and not wanted) or any(it.id in used_ids for it in calls):
        kept = [_with(it, filled.get(n), used_ids) for n, it in enumerate(calls) if wanted]
        made = [ChatCompletionMessageFunctionToolCall(**_tool_call(it)) for it in new]
        changes["tool_calls"] = [*kept, *made] or None
    reason = _reason(choice.finish_reason, bool(new), bool(calls) and not wanted)
    return _changed(choice, "message", changes, finish_reason=reason) if changes else choice


def _run(allowed: Iterable[Call], new: list[Call]) -> Outcome:
    fresh = [call for call in dict.fromkeys(allowed) if call not in new]
    new += fresh
    return "run" if fresh else "doubled" if allowed else "hidden"


def _fill(
    leak: Leak, allowed: Iterable[Call], calls: Mapping[int, Call], filled: dict[int, str]
) -> Outcome:
    for call in allowed:
        bare = (
            n
            for n, it in calls.items()
            if it.name == call.name and it.arguments.strip() in ("", "{}") and n not in filled
        )
        n = next(bare, None)
        if n is not None and call.arguments not in filled.values():
            filled[n] = call.arguments
    names = {call.name for call in calls.values()}
    return "doubled" if any(call.name in names for call in leak.calls) else "hidden"


def _reason(reason: str | None, is_new: bool, is_dropped: bool) -> str | None:
    if is_new:
        return "tool_calls"
    return "stop" if is_dropped and reason == "tool_calls" else reason


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


def _call(call: Any) -> Call:
    function = getattr(call, "function", None)  # a custom tool has none
    return Call(getattr(function, "name", None) or "", getattr(function, "arguments", None) or "")


def _joined(together: Iterable[Iterable[Any]]) -> dict[int, Call]:
    """The calls that streamed deltas make, by their index."""
    calls: dict[int, Call] = {}
    for delta in (it for deltas in together for it in deltas):
        before, more = calls.get(delta.index, Call("", "")), _call(delta)
        calls[delta.index] = Call(more.name or before.name, before.arguments + more.arguments)
    return calls


def _replayed(
    together: Iterable[Iterable[Any]], filled: Mapping[int, str], used_ids: Collection[str]
) -> list[list[Any]]:
    """The deltas as they came; where arguments are filled in, the first has all of them."""
    rest = dict(filled)
    return [
        [
            _with(it, rest.pop(it.index, "") if it.index in filled else None, used_ids)
            for it in deltas
        ]
        for deltas in together
    ]


def _with(call: Any, arguments: str | None, used_ids: Collection[str]) -> Any:
    if call.id in used_ids:
        call = call.model_copy(update={"id": new_call_id()})
    if arguments is None or call.function is None:
        return call
    function = call.function.model_copy(update={"arguments": arguments})
    return call.model_copy(update={"function": function})


def _tool_call(call: Call) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": new_call_id(), "type": "function", "function": function}
