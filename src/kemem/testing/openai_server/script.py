"""The script of a server: which answer is next, what is refused, and scripts as JSON."""

import json
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from kemem.ports import ToolCall
from kemem.testing.openai_server.wire import Answer, Fault, Streamed, streamed
from kemem.testing.openai_server.wire import status as refusal

Script = Sequence[Answer] | Callable[[dict[str, Any]], Answer]
Request = Mapping[str, Any]

_FAULT = {"status", "message", "body", "delay", "reset"}


def complaints(request: Request, strict: Collection[str]) -> Iterator[str]:
    """What is wrong with a request, by the rules of `STRICT` that are named, in servers' words."""
    for name, rule in _RULES.items():
        if name in strict:
            yield from rule(request)


def _reasoning(request: Request) -> Iterator[str]:
    """As DeepSeek's thinking mode: assistant messages of this turn send their reasoning back."""
    messages = request.get("messages") or []
    users = [number for number, it in enumerate(messages) if it.get("role") == "user"]
    for message in messages[users[-1] + 1 if users else 0 :]:
        has_reasoning = isinstance(message.get("reasoning_content"), str)
        if request.get("tools") and message.get("role") == "assistant" and not has_reasoning:
            yield "the reasoning_content in the thinking mode must be passed back to the API"


def _tools(request: Request) -> Iterator[str]:
    called = any(it.get("tool_calls") for it in request.get("messages") or ())
    if called and not request.get("tools"):
        yield "messages with tool_calls need the parameter tools"


def _pairs(request: Request) -> Iterator[str]:
    """As OpenAI: results follow their calls at once, each call has one id and one result."""
    seen: set[str] = set()
    waiting: list[str] = []
    for message in [*(request.get("messages") or ()), {"role": "end"}]:
        if message.get("role") == "tool":
            if message.get("tool_call_id") not in waiting:
                yield "messages with role tool must be a response to a preceding tool_calls"
            else:
                waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            yield f"tool_call_ids without response messages: {', '.join(waiting)}"
        waiting = [call["id"] for call in message.get("tool_calls") or ()]
        if len({*seen, *waiting}) < len(seen) + len(waiting):
            yield f"duplicate tool_call ids among {', '.join(waiting)}"
        seen.update(waiting)


_RULES: Mapping[str, Callable[[Request], Iterator[str]]] = {
    "reasoning_content": _reasoning,
    "tools": _tools,
    "pairs": _pairs,
}
STRICT = frozenset(_RULES)


@dataclass(slots=True)
class ScriptPlayer:
    """A script, its rules, and how far it has been played; thread-safe."""

    script: Script
    refuses: Collection[str] = ()
    strict: Collection[str] = ()
    repeat_last: bool = False
    formatted: Answer = None
    requests: list[dict[str, Any]] = field(default_factory=list, init=False)
    _turn: int = field(default=0, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        if unknown := set(self.strict) - STRICT:
            raise ValueError(f"strict knows {sorted(STRICT)}, not {sorted(unknown)}")

    def answer(self, request: dict[str, Any]) -> Answer:
        """The next answer of the script, or one that uses up nothing of it."""
        unscripted = self._unscripted(request)
        with self._lock:
            self.requests.append(request)
            turn, self._turn = self._turn, self._turn + (unscripted is None)
        return self._line(turn, request) if unscripted is None else unscripted

    def _unscripted(self, request: dict[str, Any]) -> Answer:
        form = (request.get("response_format") or {}).get("type")
        features = [form, "tools"] if "tools" in request else [form]
        wrong = [f"{it} is not supported" for it in features if it in self.refuses]
        for reason in [*wrong, *complaints(request, self.strict)]:
            return refusal(400, reason)
        return self.formatted if form else None

    def _line(self, turn: int, request: dict[str, Any]) -> Answer:
        if callable(self.script):
            return self.script(request)
        size = len(self.script)
        if turn >= size and not (size and self.repeat_last):
            return refusal(500, f"the script has only {size} answers")
        return self.script[min(turn, size - 1)]


def parse_script(value: Any) -> ScriptPlayer:
    """A script in JSON: a list of answers, or an object with `answers` and rules.

    {"answers": ["你好", {"text": "hi", "piece": 1}, {"status": 429}], "repeat_last": true}
    """
    rules: dict[str, Any] = {"answers": value} if isinstance(value, list) else value
    if not isinstance(rules, dict) or not isinstance(rules.get("answers"), list):
        raise ValueError(f"a script is a list of answers or has one in answers, not {value!r}")
    rules = dict(rules)
    script = [_parse_answer(it) for it in rules.pop("answers")]
    try:
        rules["formatted"] = _parse_answer(rules.get("formatted"))
        return ScriptPlayer(script, **rules)
    except TypeError as error:
        raise ValueError(f"rules of a script are invalid: {rules!r} ({error})") from error


def script_to_dict(player: ScriptPlayer) -> dict[str, Any]:
    """The inverse of `parse_script`; TypeError for a script that is a function."""
    if callable(player.script):
        raise TypeError("a function cannot be sent to another process; use a list of answers")
    return {
        "answers": [_answer_to_dict(it) for it in player.script],
        "refuses": sorted(player.refuses),
        "strict": sorted(player.strict),
        "repeat_last": player.repeat_last,
        "formatted": _answer_to_dict(player.formatted),
    }


def _answer_to_dict(answer: Answer) -> dict[str, Any] | None:
    if isinstance(answer, Fault):
        body = answer.body.decode("utf-8", "surrogateescape")
        fault = {"body": body, "status": answer.code}
        return {**fault, "delay": answer.delay, "reset": answer.reset}
    return None if answer is None else asdict(streamed(answer))


def _parse_answer(value: Any) -> Answer:
    if value is None or isinstance(value, str):
        return value
    try:
        if value.keys() & _FAULT:
            return _parse_fault(**value)
        calls = tuple(_parse_call(**call) for call in value.get("calls", ()))
        return Streamed(**{**value, "calls": calls})
    except (AttributeError, TypeError) as error:
        raise ValueError(f"answer is invalid: {value!r} ({error})") from error


def _parse_fault(
    status: int = 200,
    message: str = "the script says so",
    body: str | None = None,
    delay: float = 0.0,
    reset: bool = False,
) -> Fault:
    if body is None and status >= 400:
        return replace(refusal(status, message), delay=delay, reset=reset)
    return Fault((body or "").encode("utf-8", "surrogateescape"), status, delay, reset)


def _parse_call(name: str, arguments: Mapping[str, Any] | str = "{}", id: str = "") -> ToolCall:
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return ToolCall(id, name, arguments)
