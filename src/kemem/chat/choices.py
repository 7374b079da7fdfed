"""The choices of a model's answer without the calls that leaked into their texts."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from kemem.chat.counts import LeakCounts, Outcome
from kemem.chat.leaks import Leak, StreamGuard
from kemem.chat.offer import Call, Offer
from kemem.chat.wire import new_call_id

_TEXTS = ("reasoning_content", "reasoning", "content")
_CUT = (None, "length", "content_filter")  # ends that are not the model's own


class Heard:
    """The texts of one choice as they come, and what becomes of the calls in them."""

    def __init__(
        self, offer: Offer, counts: LeakCounts, used: Collection[str] = frozenset()
    ) -> None:
        self.offer = offer
        self.used = used  # ids of calls in the conversation: some servers count from 0 each time
        self.told = False  # the application got words or calls
        self.hid = False  # something was kept from it
        self._counts = counts
        self._guards: dict[str, StreamGuard] = {}
        self._leaks: list[Leak] = []
        self._late: list[Leak] = []  # ended by nothing but the end of the text

    def piece(self, name: str, text: str) -> str:
        """What may be shown now that a text goes on."""
        shown = self._guards.setdefault(name, StreamGuard(self.offer.known)).feed(text)
        self._leaks += shown.leaks
        return self._shown(name, shown.text)

    def end(self, *names: str) -> dict[str, str]:
        """What may be shown of the rest of texts, where there is any."""
        rests = {}
        for name in (it for it in names if it in self._guards):
            shown = self._guards.pop(name).close()
            self._late += shown.leaks
            rests[name] = self._shown(name, shown.text)
        return {name: rest for name, rest in rests.items() if rest}

    def end_reasoning(self) -> dict[str, str]:
        """The same for the reasoning, which is over and not cut when the reply begins."""
        rests = self.end(*_TEXTS[:-1])
        self._leaks, self._late = self._leaks + self._late, []
        return rests

    def settle(
        self, given: Mapping[int, Call], *, is_cut: bool
    ) -> tuple[dict[int, str], list[Call]]:
        """Arguments for given calls that have none, and the leaked calls that are to be run.

        The calls that a model made properly are those that it meant: beside them no leak is run.
        """
        late, self._late = self._late, []
        leaks, self._leaks = self._leaks + ([] if is_cut else late), []
        filled: dict[int, str] = {}
        new: list[Call] = []
        for leak in leaks:
            meant = [call for it in leak.calls if (call := self.offer.accept(it))]
            self._note(leak, _fill(leak, meant, given, filled) if given else _run(meant, new))
        for leak in late if is_cut else []:
            self._note(leak, "hidden")
        self.told |= bool(new) or (bool(given) and self.offer.wanted)
        self.hid |= bool(given) and not self.offer.wanted
        return filled, new

    def give_up(self) -> None:
        """Run nothing of what is still open: the answer broke off."""
        self.end(*_TEXTS)
        self._leaks, self._late = [], self._leaks + self._late
        self.settle({}, is_cut=True)

    def _shown(self, name: str, text: str) -> str:
        self.told |= name == "content" and bool(text.strip())
        return text

    def _note(self, leak: Leak, outcome: Outcome) -> None:
        self.hid |= outcome != "run"
        self._counts.note(leak, outcome if leak.calls else "unreadable")


class HeardStream:
    """A choice that is streamed: calls, and text that may become one, wait for their end."""

    def __init__(self, heard: Heard) -> None:
        self.heard = heard
        self._calls: list[list[Any]] = []  # pieces, as they came together
        self._has_role = False
        self._last: Any = None
        self._ending: Any = None

    def feed(self, choice: Any) -> list[Any]:
        """The choices that may be sent on for one that came."""
        if choice.delta is None:
            choice = _bare(choice, choice.finish_reason)
        delta, self._last = choice.delta, choice
        pieces = _texts(delta)
        shown = {name: self.heard.piece(name, text) for name, text in pieces.items()}
        changes: dict[str, Any] = {k: v or None for k, v in shown.items() if v != pieces[k]}
        if pieces.keys() == {"content"}:
            changes |= self.heard.end_reasoning()
        if delta.tool_calls:
            self._calls.append(delta.tool_calls)
            changes["tool_calls"] = None
        if choice.finish_reason:
            return self._end(choice, changes)
        return self._kept(_changed(choice, "delta", changes)) if changes else self._passed(choice)

    def close(self) -> list[Any]:
        """The choices that are left when the stream ends."""
        ending, self._ending = self._ending, None
        rest = self._end(_bare(self._last, None), {})
        return [*rest, ending] if ending else rest

    def _end(self, choice: Any, changes: dict[str, Any]) -> list[Any]:
        for name, rest in self.heard.end(*_TEXTS).items():
            changes[name] = (changes.get(name, getattr(choice.delta, name, None)) or "") + rest
        calls, reason = self._settled(choice.finish_reason)
        wanting = self.heard.hid and not self.heard.told
        if reason == choice.finish_reason and not (changes or calls or wanting):
            return self._kept(choice)
        sent = self._kept(_changed(choice, "delta", changes, finish_reason=None))
        sent += [_changed(_bare(choice, None), "delta", {"tool_calls": it}) for it in calls]
        if reason and wanting:
            self._ending = _bare(choice, reason)  # the model may be asked once more
        elif reason:
            sent.append(_bare(choice, reason))
        return sent

    def _settled(self, reason: str | None) -> tuple[list[list[Any]], str | None]:
        from openai.types.chat.chat_completion_chunk import ChoiceDeltaToolCall

        pieces, self._calls = self._calls, []
        given = _joined(pieces)
        filled, new = self.heard.settle(given, is_cut=reason in _CUT)
        wanted = self.heard.offer.wanted
        reason = _reason(reason, bool(new), bool(given) and not wanted)
        made = [ChoiceDeltaToolCall(index=n, **_described(it)) for n, it in enumerate(new)]
        kept = _replayed(pieces, filled, self.heard.used) if wanted else []
        return [*kept, *([made] if made else [])], reason

    def _passed(self, choice: Any) -> list[Any]:
        self._has_role |= bool(choice.delta.role)
        return [choice]

    def _kept(self, choice: Any) -> list[Any]:
        """The choice, unless nothing is left in it that the application does not know."""
        said = choice.delta.model_dump(exclude_none=True)
        if self._has_role:
            said.pop("role", None)
        news = any(said.values()) or choice.finish_reason
        return self._passed(choice) if news else []


def heard_whole(choice: Any, heard: Heard) -> Any:
    """A choice that came at once, guarded."""
    from openai.types.chat import ChatCompletionMessageFunctionToolCall

    message, wanted = choice.message, heard.offer.wanted
    texts = _texts(message)
    shown = {name: heard.piece(name, text) for name, text in texts.items()}
    shown |= {name: shown[name] + rest for name, rest in heard.end(*_TEXTS).items()}
    changes: dict[str, Any] = {k: v or None for k, v in shown.items() if v != texts[k]}
    calls = list(message.tool_calls or ())
    given = {n: _call(it) for n, it in enumerate(calls)}
    filled, new = heard.settle(given, is_cut=choice.finish_reason in _CUT)
    if filled or new or (calls and not wanted) or any(it.id in heard.used for it in calls):
        kept = [_with(it, filled.get(n), heard.used) for n, it in enumerate(calls) if wanted]
        made = [ChatCompletionMessageFunctionToolCall(**_described(it)) for it in new]
        changes["tool_calls"] = [*kept, *made] or None
    reason = _reason(choice.finish_reason, bool(new), bool(calls) and not wanted)
    return _changed(choice, "message", changes, finish_reason=reason) if changes else choice


def _run(meant: Iterable[Call], new: list[Call]) -> Outcome:
    fresh = [call for call in dict.fromkeys(meant) if call not in new]
    new += fresh
    return "run" if fresh else "doubled" if meant else "hidden"


def _fill(
    leak: Leak, meant: Iterable[Call], given: Mapping[int, Call], filled: dict[int, str]
) -> Outcome:
    for call in meant:
        bare = (n for n, it in given.items() if it.name == call.name and not _has_arguments(it))
        n = next((n for n in bare if n not in filled), None)
        if n is not None and call.arguments not in filled.values():
            filled[n] = call.arguments
    names = {call.name for call in given.values()}
    return "doubled" if any(call.name in names for call in leak.calls) else "hidden"


def _has_arguments(call: Call) -> bool:
    return call.arguments.strip() not in ("", "{}")


def _reason(reason: str | None, is_new: bool, is_dropped: bool) -> str | None:
    if is_new:
        return "tool_calls"
    return "stop" if is_dropped and reason == "tool_calls" else reason


def _texts(part: Any) -> dict[str, str]:
    found = {name: getattr(part, name, None) for name in _TEXTS}
    return {name: text for name, text in found.items() if isinstance(text, str) and text}


def _changed(choice: Any, part: str, changes: Mapping[str, Any], **more: Any) -> Any:
    """A copy with another message or delta; log probabilities would still tell what was hidden."""
    changed = getattr(choice, part).model_copy(update=changes)
    return choice.model_copy(update={part: changed, "logprobs": None, **more})


def _bare(choice: Any, reason: str | None) -> Any:
    from openai.types.chat.chat_completion_chunk import ChoiceDelta

    bare = {"delta": ChoiceDelta(), "finish_reason": reason, "logprobs": None}
    return choice.model_copy(update=bare)


def _call(given: Any) -> Call:
    function = getattr(given, "function", None)  # a custom tool has none
    return Call(getattr(function, "name", None) or "", getattr(function, "arguments", None) or "")


def _joined(together: Iterable[Iterable[Any]]) -> dict[int, Call]:
    """The calls that streamed pieces make, by their index."""
    calls: dict[int, Call] = {}
    for piece in (it for pieces in together for it in pieces):
        before, more = calls.get(piece.index, Call("", "")), _call(piece)
        calls[piece.index] = Call(more.name or before.name, before.arguments + more.arguments)
    return calls


def _replayed(
    together: Iterable[Iterable[Any]], filled: Mapping[int, str], used: Collection[str]
) -> list[list[Any]]:
    """The pieces as they came; where arguments are filled in, the first piece has all of them."""
    rest = dict(filled)
    return [
        [_with(it, rest.pop(it.index, "") if it.index in filled else None, used) for it in pieces]
        for pieces in together
    ]


def _with(call: Any, arguments: str | None, used: Collection[str]) -> Any:
    if call.id in used:
        call = call.model_copy(update={"id": new_call_id()})
    if arguments is None or call.function is None:
        return call
    function = call.function.model_copy(update={"arguments": arguments})
    return call.model_copy(update={"function": function})


def _described(call: Call) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": new_call_id(), "type": "function", "function": function}
