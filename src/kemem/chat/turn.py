"""One model's part of a turn, run by the OpenAI Agents SDK: text, calls, results as they come."""

import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kemem.chat.counts import LeakCounts
from kemem.chat.events import RecallEvent, TextEvent, ToolCallEvent, ToolResultEvent
from kemem.chat.requests import new_call_id
from kemem.chat.tools import RECALL, ChatTool, refused, to_json
from kemem.errors import Unavailable

if TYPE_CHECKING:
    from agents import RunResultStreaming, Tool
    from openai import AsyncOpenAI

STEPS = 12  # answers of the model in one turn, those that only call tools included

Item = dict[str, Any]  # of the SDK's input
Happened = TextEvent | ToolCallEvent | ToolResultEvent

log = logging.getLogger("kemem")


@dataclass(frozen=True, slots=True)
class Speaker:
    """A model that can be asked, and where its leaks are counted."""

    client: "AsyncOpenAI"
    model: str
    counts: LeakCounts


def synthetic(name: str, arguments: Mapping[str, Any], output: str) -> list[Item]:
    """A call that was never made, and its result, for a model to read as its own."""
    call_id = new_call_id()
    return [
        {
            "type": "function_call",
            "call_id": call_id,
            "name": name,
            "arguments": to_json(dict(arguments)),
        },
        {"type": "function_call_output", "call_id": call_id, "output": output},
    ]


def recalled(event: RecallEvent) -> list[Item]:
    """The forced recall as a call and its result."""
    return synthetic(RECALL, {"query": event.query}, to_json({"events": list(event.events)}))


async def speak(
    speaker: Speaker, system: str, items: Sequence[Item], tools: Sequence[ChatTool]
) -> AsyncGenerator[Happened, None]:
    """What the model says and calls until it has answered; what fails is Unavailable."""
    from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner
    from agents.exceptions import MaxTurnsExceeded

    model = OpenAIChatCompletionsModel(speaker.model, speaker.client)
    agent = Agent(
        name="chat", instructions=system, tools=[_as_sdk(it) for it in tools], model=model
    )
    run = Runner.run_streamed(
        agent,
        list(items),  # type: ignore[arg-type]  # plain dicts, as the SDK reads them
        max_turns=STEPS,
        run_config=RunConfig(
            tracing_disabled=True,
            tool_not_found_behavior="return_error_to_model",
            tool_error_formatter=lambda it: refused(f"there is no tool {it.tool_name!r:.80}"),
        ),
    )
    said = ""
    try:
        async with aclosing(_happening(run)) as happening:
            async for event in happening:
                said += event.delta if isinstance(event, TextEvent) else ""
                yield event
        if not said.strip():
            raise Unavailable("the model answered nothing")
    except Unavailable:
        raise
    except MaxTurnsExceeded:
        raise Unavailable(f"the model called tools {STEPS} times without an answer") from None
    except Exception as error:  # the edge to the SDK, which raises whatever a server provokes
        log.warning("the chat model failed: %s", type(error).__name__)
        raise Unavailable(f"the model failed: {type(error).__name__}") from error
    finally:
        run.cancel()


async def _happening(run: "RunResultStreaming") -> AsyncGenerator[Happened, None]:
    names: dict[str, str] = {}
    async for event in run.stream_events():
        if event.type == "raw_response_event":
            if event.data.type == "response.output_text.delta" and event.data.delta:
                yield TextEvent(event.data.delta)
        elif event.type == "run_item_stream_event":
            item: Any = event.item.raw_item
            if event.name == "tool_called":
                names[item.call_id] = item.name
                yield ToolCallEvent(item.call_id, item.name, item.arguments)
            elif event.name == "tool_output":
                call_id = item["call_id"]
                yield ToolResultEvent(call_id, names.get(call_id, ""), str(item["output"]))


def _as_sdk(tool: ChatTool) -> "Tool":
    from agents import FunctionTool

    async def invoke(_context: Any, arguments: str) -> str:
        try:
            return await tool.answer(arguments)
        except Exception as error:  # the edge to the SDK, which would show its text to the model
            log.error("the tool %s failed: %s", tool.tool.name, type(error).__name__)
            return refused(f"{tool.tool.name} cannot answer now")

    return FunctionTool(
        name=tool.tool.name,
        description=tool.tool.description,
        params_json_schema=dict(tool.tool.parameters),
        on_invoke_tool=invoke,
        strict_json_schema=False,  # not every server knows it
    )
