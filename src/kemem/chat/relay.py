"""What a model answers in several rounds, as the one answer that an application gets."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kemem.errors import Unavailable

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Round:
    """One answer of the model; calls of its `own` tool are hidden from the application."""

    texts: Mapping[str, str]  # content, reasoning_content …
    calls: tuple[Json, ...]
    finish: str | None
    own: str  # empty: there is no such tool

    @property
    def text(self) -> str:
        """What it says."""
        return self.texts.get("content", "")

    @property
    def hidden(self) -> list[Json]:
        """The calls of the own tool."""
        return [call for call in self.calls if self.own and _name(call) == self.own]

    @property
    def others(self) -> list[Json]:
        """The calls that the application makes."""
        return [call for call in self.calls if not self.own or _name(call) != self.own]

    @property
    def goes_on(self) -> bool:
        """Whether the model waits for nothing but its own tool."""
        return bool(self.hidden) and not self.others

    @property
    def reason(self) -> str | None:
        """Why it ends for the application: a model that goes on for ever has no other reason."""
        return "stop" if self.goes_on else self.finish

    @property
    def message(self) -> Json:
        """What goes before the results of the hidden calls."""
        thought = {k: v for k, v in self.texts.items() if k == "reasoning_content"}
        said = {"role": "assistant", "content": self.text or None}
        return {**said, **thought, "tool_calls": self.hidden}

    def shown(self, choice: Json) -> Json:
        """A whole choice as the application sees it."""
        if not self.hidden:
            return choice
        message = {k: v for k, v in choice["message"].items() if k != "tool_calls"}
        message |= {"tool_calls": self.others} if self.others else {}
        return {**choice, "message": message, "finish_reason": self.reason}


def whole(answer: Json, own: str) -> Round:
    """The round of an answer that came at once."""
    choices = answer.get("choices")
    if not choices:
        raise Unavailable("the model answered without choices")
    message = choices[0].get("message") or {}
    texts = {k: v for k, v in message.items() if isinstance(v, str) and k != "role"}
    calls = tuple(message.get("tool_calls") or ())
    return Round(texts, calls, choices[0].get("finish_reason"), own)


class Relay:
    """The chunks of several rounds as those of one answer: one id, one role, one end.

    Calls are whole when the application gets them.
    """

    def __init__(self, own: str, *, with_usage: bool) -> None:
        self.text = ""  # all that was shown
        self._own = own
        self._with_usage = with_usage
        self._usage: Json = {}
        self._head: Json = {}
        self._has_begun = False
        self._texts: dict[str, str] = {}  # this and the rest: of the round that goes on
        self._calls: dict[int, Json] = {}
        self._finish: str | None = None
        self._counted: Json = {}

    def take(self, chunk: Json) -> Json | None:
        """The chunk as the application sees it, if anything is left of it."""
        rest = {k: v for k, v in chunk.items() if k not in ("choices", "usage")}
        self._head = self._head or rest
        self._counted = chunk.get("usage") or self._counted
        choice = next(iter(chunk.get("choices") or ()), None)
        if choice is None:
            return None
        self._finish = choice.get("finish_reason") or self._finish
        delta = self._heard(choice.get("delta") or {})
        return self._chunk(delta, {**choice, "finish_reason": None}, rest) if delta else None

    def end_round(self) -> Round:
        """What the round was; one that ends without a reason has broken off."""
        if self._finish is None:
            raise Unavailable("the model's answer broke off")
        calls = tuple(call for _, call in sorted(self._calls.items()))
        heard = Round(self._texts, calls, self._finish, self._own)
        self._usage = added(self._usage, self._counted)
        self._texts, self._calls, self._finish, self._counted = {}, {}, None, {}
        return heard

    def ending(self, last: Round) -> Iterator[Json]:
        """What is left to send after the last round: calls, the reason to end, the usage."""
        if last.others:
            calls = [{"index": at, **call} for at, call in enumerate(last.others)]
            yield self._chunk({"tool_calls": calls})
        yield self._chunk({}, {"finish_reason": last.reason})
        if self._with_usage:
            yield {**self._head, "choices": [], "usage": self._usage or None}

    def _heard(self, delta: Json) -> Json:
        """What is new for the application in a delta."""
        for call in delta.get("tool_calls") or ():
            _join(self._calls.setdefault(call.get("index") or 0, {}), call)
        for name, value in delta.items():
            if value and isinstance(value, str) and name != "role":
                self._texts[name] = self._texts.get(name, "") + value
        shown = {k: v for k, v in delta.items() if v and k not in ("role", "tool_calls", "content")}
        text = self._spoken(delta.get("content") or "")
        self.text += text
        return {**shown, "content": text} if text else shown

    def _spoken(self, text: str) -> str:
        """What is shown of a text: not the blanks that a call leaves behind where it was hidden."""
        said = self._texts.get("content", "")
        if said[: -len(text)].strip() or not text.strip():
            return text if said.strip() else ""
        if not self.text:
            return said
        return text if self.text.endswith("\n") else f"\n\n{text}"  # an earlier round has spoken

    def _chunk(self, delta: Json, choice: Json | None = None, rest: Json | None = None) -> Json:
        role = {} if self._has_begun else {"role": "assistant"}
        self._has_begun = True
        shown = {"index": 0, "finish_reason": None, **(choice or {}), "delta": {**role, **delta}}
        usage = {"usage": None} if self._with_usage else {}
        return {**(rest or {}), **self._head, "choices": [shown], **usage}


def added(total: Mapping[str, Any], more: Mapping[str, Any] | None) -> Json:
    """Two counts as one.  ({"total_tokens": 2}, {"total_tokens": 3}) -> {"total_tokens": 5}"""
    summed = dict(total)
    for name, value in (more or {}).items():
        if isinstance(value, Mapping):
            summed[name] = added(summed.get(name) or {}, value)
        elif isinstance(value, int | float):
            summed[name] = (summed.get(name) or 0) + value
        else:
            summed.setdefault(name, value)
    return summed


def _join(call: Json, piece: Mapping[str, Any]) -> None:
    """Add a piece of a call to what has come of it."""
    for name, value in piece.items():
        if isinstance(value, Mapping):
            _join(call.setdefault(name, {}), value)
        elif name in ("arguments", "input"):
            call[name] = call.get(name, "") + (value or "")
        elif value and name != "index":
            call[name] = value


def _name(call: Mapping[str, Any]) -> object:
    return (call.get("function") or {}).get("name")
