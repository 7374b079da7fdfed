"""Answers of OpenAI's chat API: a completion out of chunks, and one stream out of several."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kemem.chat.requests import new_call_id
from kemem.errors import Unavailable

Json = dict[str, Any]
IsOwn = Callable[[str], bool]  # whether we run a tool of this name, not the application


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer of the model; calls of our own tools are hidden from the application."""

    text: str
    reasoning: str
    own_calls: tuple[Json, ...]
    other_calls: tuple[Json, ...]
    finish_reason: str | None
    usage: Json = field(default_factory=dict)

    @property
    def wants_own_tool(self) -> bool:
        """Whether the model waits for nothing but our own tools."""
        return bool(self.own_calls) and not self.other_calls

    @property
    def shown_reason(self) -> str | None:
        """The finish reason for the application, which does not know of our tools."""
        return "stop" if self.wants_own_tool else self.finish_reason

    @property
    def message(self) -> Json:
        """The message that precedes the results of our own tools."""
        message = {"role": "assistant", "content": self.text or None}
        reasoning = {"reasoning_content": self.reasoning} if self.reasoning else {}
        return {**message, **reasoning, "tool_calls": list(self.own_calls)}

    def filter_choice(self, choice: Json) -> Json:
        """A complete choice as the application sees it."""
        if not self.own_calls:
            return choice
        message = {k: v for k, v in choice["message"].items() if k != "tool_calls"}
        message |= {"tool_calls": list(self.other_calls)} if self.other_calls else {}
        return {**choice, "message": message, "finish_reason": self.shown_reason}


def parse_completion(answer: Json, is_own: IsOwn) -> Completion:
    """An answer that came at once."""
    choices = answer.get("choices")
    if not choices:
        raise Unavailable("the model answered without choices")
    message = choices[0].get("message") or {}
    own, others = _split(message.get("tool_calls") or (), is_own)
    return Completion(
        message.get("content") or "",
        message.get("reasoning_content") or "",
        own,
        others,
        choices[0].get("finish_reason"),
        answer.get("usage") or {},
    )


class CompletionBuilder:
    """Builds a completion from the chunks of a stream."""

    def __init__(self) -> None:
        self._message = {"content": "", "reasoning_content": ""}
        self._calls: dict[int, Json] = {}
        self._finish_reason: str | None = None
        self._usage: Json = {}

    def add(self, chunk: Json) -> None:
        """Add a chunk."""
        self._usage = chunk.get("usage") or self._usage
        for choice in (chunk.get("choices") or ())[:1]:
            self._finish_reason = choice.get("finish_reason") or self._finish_reason
            delta = choice.get("delta") or {}
            for call in delta.get("tool_calls") or ():
                _merge_call(self._calls.setdefault(call.get("index") or 0, {}), call)
            for name in self._message:
                self._message[name] += delta.get(name) or ""

    def build(self, is_own: IsOwn) -> Completion:
        """The completion; a stream that ended without a reason has broken off."""
        if self._finish_reason is None:
            raise Unavailable("the model's answer broke off")
        calls = [call for _, call in sorted(self._calls.items())]
        choice = {
            "message": {**self._message, "tool_calls": calls},
            "finish_reason": self._finish_reason,
        }
        return parse_completion({"choices": [choice], "usage": self._usage}, is_own)


class StreamMerger:
    """Merges the streams of several completions into one: one id, one role, one end.

    Calls are complete when the application gets them.
    """

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
        choice = next(iter(chunk.get("choices") or ()), None)
        if choice is None:
            return None
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
        before, self._content = self._content, self._content + text
        if before.strip() or not text.strip():
            return text if self._content.strip() else ""
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


def function_of(call: Mapping[str, Any]) -> tuple[str, str]:
    """The name and the arguments of a call; a custom tool has none."""
    function = call.get("function") or {}
    return function.get("name") or "", function.get("arguments") or ""


def _split(calls: Iterable[Json], is_own: IsOwn) -> tuple[tuple[Json, ...], tuple[Json, ...]]:
    """Calls of our own tools, and others; each has an id."""
    named = [{**call, "id": call.get("id") or new_call_id()} for call in calls]
    own = tuple(it for it in named if is_own(function_of(it)[0]))
    return own, tuple(it for it in named if not is_own(function_of(it)[0]))


def _merge_call(call: Json, delta: Mapping[str, Any]) -> None:
    """Add a delta of a call to what has come of it."""
    for name, value in delta.items():
        if isinstance(value, Mapping):
            _merge_call(call.setdefault(name, {}), value)
        elif name in ("arguments", "input"):
            call[name] = call.get(name, "") + (value or "")
        elif value and name != "index":
            call[name] = value
