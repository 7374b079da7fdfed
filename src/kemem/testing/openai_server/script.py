"""The script of a server: which answer is next, and how scripts are written as JSON."""

import json
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from kemem.ports import ToolCall
from kemem.testing.openai_server.strict import STRICT, complaints
from kemem.testing.openai_server.wire import Answer, Fault, Streamed, streamed
from kemem.testing.openai_server.wire import status as refusal

Script = Sequence[Answer] | Callable[[dict[str, Any]], Answer]
_FAULT = {"status", "message", "body", "delay", "reset"}


@dataclass(slots=True)
class Play:
    """A script with the rules of the server that plays it; safe for threads."""

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
        """The next line of the script, or what is said without one."""
        unscripted = self._unscripted(request)
        with self._lock:
            self.requests.append(request)
            turn, self._turn = self._turn, self._turn + (unscripted is None)
        return self._line(turn, request) if unscripted is None else unscripted

    def _unscripted(self, request: dict[str, Any]) -> Answer:
        form = (request.get("response_format") or {}).get("type")
        asked = [form, "tools"] if "tools" in request else [form]
        wrong = [f"{it} is not supported" for it in asked if it in self.refuses]
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


def play_of(told: Any) -> Play:
    """A script that was read from JSON: a list of answers, or an object with `answers` and rules.

    {"answers": ["你好", {"text": "hi", "piece": 1}, {"status": 429}], "repeat_last": true}
    """
    rules: dict[str, Any] = {"answers": told} if isinstance(told, list) else told
    match rules:
        case {"answers": list(answers), **rest}:
            script = [_answer_of(it) for it in answers]
        case _:
            raise ValueError(f"a script is a list of answers or has one in answers, not {told!r}")
    try:
        return Play(script, **{**rest, "formatted": _answer_of(rest.get("formatted"))})
    except TypeError as error:
        raise ValueError(f"no rules of a script: {rest!r} ({error})") from error


def told(play: Play) -> dict[str, Any]:
    """A play as JSON; its script is a list."""
    if callable(play.script):
        raise TypeError("a function cannot be told to another process; hand over a list")
    return {
        "answers": [_told(it) for it in play.script],
        "refuses": sorted(play.refuses),
        "strict": sorted(play.strict),
        "repeat_last": play.repeat_last,
        "formatted": _told(play.formatted),
    }


def _told(answer: Answer) -> dict[str, Any] | None:
    if isinstance(answer, Fault):
        body = answer.body.decode("utf-8", "surrogateescape")
        fault = {"body": body, "status": answer.code}
        return {**fault, "delay": answer.delay, "reset": answer.reset}
    return None if answer is None else asdict(streamed(answer))


def _answer_of(told: Any) -> Answer:
    if told is None or isinstance(told, str):
        return told
    try:
        if told.keys() & _FAULT:
            return _fault_of(**told)
        calls = tuple(_call_of(**call) for call in told.get("calls", ()))
        return Streamed(**{**told, "calls": calls})
    except (AttributeError, TypeError) as error:
        raise ValueError(f"no answer: {told!r} ({error})") from error


def _fault_of(
    status: int = 200,
    message: str = "the script says so",
    body: str | None = None,
    delay: float = 0.0,
    reset: bool = False,
) -> Fault:
    if body is None and status >= 400:
        return replace(refusal(status, message), delay=delay, reset=reset)
    return Fault((body or "").encode("utf-8", "surrogateescape"), status, delay, reset)


def _call_of(name: str, arguments: Mapping[str, Any] | str = "{}", id: str = "") -> ToolCall:
    written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return ToolCall(id, name, written)
