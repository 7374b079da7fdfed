"""What servers refuse in the history of a chat, by the name of the rule and in their own words."""

from collections.abc import Iterator, Mapping
from typing import Any

Request = Mapping[str, Any]


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


RULES = {"reasoning_content": _reasoning, "tools": _tools, "pairs": _pairs}
