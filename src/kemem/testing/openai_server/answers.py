"""What the scripted server says: replies of a model, whole or in deltas, and faults."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from secrets import token_hex
from typing import Any

from kemem.ports import ToolCall
from kemem.testing.doubles import ScriptedAnswer, scripted_reply
from kemem.testing.openai_server.rules import Request

MODEL = "scripted"
REASON = "the script says so"


@dataclass(frozen=True, slots=True)
class Fault:
    """An answer that is wrong: a raw body, late or never."""

    body: bytes = b""
    code: int = 200
    delay: float = 0.0  # seconds
    reset: bool = False  # break the connection instead
    retry_after: str | None = None  # the header of that name


@dataclass(frozen=True, slots=True)
class Streamed:
    """An answer with reasoning, and how it is streamed: in which deltas, how fast, where it ends.

    Streamed("你好，世界", reasoning="greet", piece=1)
    Streamed(pieces=("<｜DS", "ML｜function_calls>"), breaks_after=1)
    """

    text: str | None = ""  # None: the content is null
    reasoning: str = ""  # sent as `reasoning_content`
    calls: tuple[ToolCall, ...] = ()  # one without an id gets a fresh one whenever it is sent
    piece: int = 8  # characters of one delta
    pieces: Sequence[str] = ()  # the deltas of the text, instead of `text` and `piece`
    breaks_after: int | None = None  # deltas, then the connection is reset
    quietly: bool = False  # then it ends instead, without an error, a finish reason or [DONE]
    finish_reason: str | None = None
    pause: float = 0.0  # seconds between deltas

    def __post_init__(self) -> None:
        whole = "".join(self.pieces)
        if self.pieces and self.text not in ("", whole):
            raise ValueError(f"text {self.text!r} is not what its pieces say: {whole!r}")
        if self.piece < 1:
            raise ValueError(f"a piece has at least one character, not {self.piece!r}")
        object.__setattr__(self, "text", whole or self.text)


Answer = ScriptedAnswer | Fault | Streamed | None
Script = Sequence[Answer] | Callable[[dict[str, Any]], Answer]


def status(code: int, message: str = REASON, *, retry_after: str | None = None) -> Fault:
    """A refusal with the body that OpenAI would send.  status(429, retry_after="1")"""
    body = json.dumps({"error": {"message": message, "type": "scripted"}}).encode()
    return Fault(body, code, retry_after=retry_after)


def hang(seconds: float) -> Fault:
    """Silence, and then an empty answer."""
    return Fault(delay=seconds)


def huge(megabytes: int = 10) -> Fault:
    """A valid completion with a very long text of facts."""
    item = {"text": "用户住在北京。" * 10, "type": "residence"}
    facts = [item] * (megabytes * 1_000_000 // len(json.dumps(item, ensure_ascii=False).encode()))
    text = json.dumps({"facts": facts, "entities": []}, ensure_ascii=False)
    return Fault(json.dumps(_body(Streamed(text), {})).encode())


def streamed(answer: ScriptedAnswer | Streamed | None) -> Streamed:
    """Any answer that is not a fault, with the default way of sending it."""
    if answer is None or isinstance(answer, Streamed):
        return answer or Streamed(None)
    reply = scripted_reply(answer)
    return Streamed(reply.text, calls=reply.calls)


def parts(answer: Streamed, request: Request) -> Iterator[bytes]:
    """What is written one after the other: the events of a stream, or a body in two halves."""
    if request.get("stream"):
        yield from _events(answer, request)
    else:
        body = json.dumps(_body(answer, request)).encode()
        middle = len(body) // 2
        yield from (body[:middle], body[middle:])[: 2 if answer.breaks_after is None else 1]


def _body(answer: Streamed, request: Request) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text, "refusal": None}
    if answer.reasoning:
        message["reasoning_content"] = answer.reasoning
    if answer.calls:
        message["content"] = answer.text or None
        message["tool_calls"] = [_function(call) for call in answer.calls]
    prompt = sum(len(str(it.get("content") or "")) for it in request.get("messages") or ())
    completion = len(answer.reasoning) + len(answer.text or "")
    usage = {"prompt_tokens": prompt, "completion_tokens": completion}
    reason = answer.finish_reason or ("tool_calls" if answer.calls else "stop")
    choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_769_424_420,
        "model": request.get("model", MODEL),
        "choices": [choice],
        "usage": {**usage, "total_tokens": prompt + completion},
    }


def _function(call: ToolCall) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id or f"call_{token_hex(6)}", "type": "function", "function": function}


def _events(answer: Streamed, request: Request) -> Iterator[bytes]:
    base = {**_body(answer, request), "object": "chat.completion.chunk"}

    def event(**fields: Any) -> bytes:
        return b"data: " + json.dumps({**base, **fields}).encode() + b"\n\n"

    def chunk(delta: Mapping[str, Any], reason: str | None = None) -> bytes:
        return event(choices=[{"index": 0, "delta": delta, "finish_reason": reason}], usage=None)

    yield from map(chunk, islice(_deltas(answer), answer.breaks_after))
    if answer.breaks_after is not None:
        return
    yield chunk({}, base["choices"][0]["finish_reason"])
    if (request.get("stream_options") or {}).get("include_usage"):
        yield event(choices=[])
    yield b"data: [DONE]\n\n"


def _deltas(answer: Streamed) -> Iterator[dict[str, Any]]:
    def cut(text: str) -> list[str]:
        return [text[at : at + answer.piece] for at in range(0, len(text), answer.piece)]

    for piece in cut(answer.reasoning):
        yield {"role": "assistant", "content": None, "reasoning_content": piece}
    for piece in answer.pieces or cut(answer.text or ""):
        yield {"role": "assistant", "content": piece}
    for index, call in enumerate(answer.calls):
        whole = _function(call)
        begun = {**whole, "index": index, "function": {**whole["function"], "arguments": ""}}
        yield {"role": "assistant", "tool_calls": [begun]}
        for piece in cut(call.arguments):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


RESET = Fault(reset=True)
EMPTY = Fault()
GARBAGE = Fault(b"<html>502 Bad Gateway</html>")
TRUNCATED = Fault(b'{"id": "chatcmpl-1", "choices": [{"index": 0, "mess')
NO_CHOICES = Fault(b'{"id": "chatcmpl-1", "object": "chat.completion", "choices": []}')
NULL_CONTENT = Fault(json.dumps(_body(Streamed(None), {})).encode())
