"""What decides on the next move: a model, or rules. Both move through the same tools."""

from collections.abc import Generator, Sequence
from typing import Any, Protocol

from kemem.ports import Tool, ToolCall
from kemem.recall.desk import Desk
from kemem.recall.result import indented
from kemem.recall.tools import prompt_text
from kemem.recall.use import Used
from kemem.results import Item
from kemem.text.fence import fenced

_LONGEST = 2_000  # characters of one message of the window


class Mind(Protocol):
    """Sees what came of its last calls, and says what to call next."""

    async def next(self, answers: Sequence[Used]) -> Sequence[ToolCall]:
        """The next calls; none at all is a fault."""


class ModelMind:
    """An LLM that is shown the window of a conversation, and the answers of its tools."""

    def __init__(self, desk: Desk, window: Sequence[Item], tools: Sequence[Tool]) -> None:
        self._desk = desk
        self._tools = tools
        self._messages: list[dict[str, Any]] = [
            {"role": "system", "content": _instructions(desk)},
            {"role": "user", "content": _task(desk, window)},
        ]

    async def next(self, answers: Sequence[Used]) -> Sequence[ToolCall]:
        """What the model calls after it has read the answers."""
        self._messages += [_answer(used) for used in answers]
        reply = await self._desk.deps.converse(
            self._messages, self._tools, timeout=self._desk.seconds_left / 2
        )
        if reply.calls:
            self._messages.append(_called(reply.text, reply.calls))
        else:
            self._messages += [
                {"role": "assistant", "content": reply.text},
                {"role": "user", "content": _no_tool(self._desk)},
            ]
        return reply.calls


class RuleMind:
    """A fixed way of searching, for when there is no model or it fails."""

    def __init__(self, moves: Generator[ToolCall, Used, None]) -> None:
        self._moves = moves

    async def next(self, answers: Sequence[Used]) -> Sequence[ToolCall]:
        """The next move, until the way ends."""
        try:
            return [self._moves.send(answers[-1]) if answers else next(self._moves)]
        except StopIteration:
            return ()


def _instructions(desk: Desk) -> str:
    prompt = prompt_text("agent", desk.language)
    budget = desk.budget
    return prompt.format(
        iteration=desk.iteration,
        max_iterations=budget.max_iterations,
        rounds_left=budget.max_iterations - desk.iteration,
        window=desk.window,
        max_window=budget.max_window,
        calls_left=desk.calls_left,
        seconds_left=int(desk.seconds_left),
    )


def _task(desk: Desk, window: Sequence[Item]) -> str:
    """The conversation, what earlier rounds found, and the question: all of it data."""
    said = "\n".join(f"{it.message.role}: {indented(it.memory[:_LONGEST])}" for it in window)
    seen = list(desk.seen.items())[:10]
    found = "\n".join(f"[{key}] {indented(hit.memory[:200])}" for key, hit in seen)
    deps = [fenced("conversation", said)] if said else []
    deps += [fenced("found_before", found)] if found else []
    return "\n\n".join([*deps, fenced("question", desk.question[:_LONGEST])])


def _answer(used: Used) -> dict[str, Any]:
    content = fenced("tool_data", used.output.model_dump_json(exclude_none=True))
    return {"role": "tool", "tool_call_id": used.call.id, "content": content}


def _called(text: str, calls: Sequence[ToolCall]) -> dict[str, Any]:
    listed = [
        {
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": call.arguments},
        }
        for call in calls
    ]
    return {"role": "assistant", "content": text or None, "tool_calls": listed}


def _no_tool(desk: Desk) -> str:
    return desk.say(
        f"请调用工具；完成时调用 handoff。还可以调用 {desk.calls_left} 次",
        f"Call a tool; when you are done, call handoff. {desk.calls_left} calls are left",
    )
