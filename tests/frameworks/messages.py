"""One talk as the objects of client libraries and frameworks, read by KeMem; prints JSON.

Runs in a process of its own, `python -m tests.frameworks.messages FOLDER`: other tests go
without the packages of the folder.
"""

import json
import sys
from base64 import b64decode
from collections.abc import Callable, Iterator
from typing import Any

sys.path.append(sys.argv[1])

import anthropic.types as claude
import openai.types.chat as chat
import openai.types.responses as responses
import pydantic_ai.messages as pydantic_ai
from google.genai import types as gemini
from langchain_core import messages as langchain
from langchain_core.load import dumpd
from llama_index.core.base.llms import types as llama_index

from kemem.text.shapes import to_items
from kemem.text.turns import read_turns

ASKED, LOOKS, ANSWER = "我后天去北京，天气如何？", "Let me look.", "晴，25°C。"
CITY = {"city": "北京"}
ARGUMENTS = json.dumps(CITY, ensure_ascii=False)
IMAGE = "iVBORw0KGgo="
DATA_URL = f"data:image/png;base64,{IMAGE}"

Made = Iterator[tuple[str, Any]]


def of_openai() -> Made:
    parts = [{"type": "text", "text": ASKED}, {"type": "image_url", "image_url": {"url": DATA_URL}}]
    call = {"name": "get_weather", "arguments": ARGUMENTS}
    calls = {
        "role": "assistant",
        "content": LOOKS,
        "tool_calls": [{"id": "call_1", "type": "function", "function": call}],
    }
    returned = {"role": "tool", "tool_call_id": "call_1", "content": ANSWER}
    said = {"role": "assistant", "content": ANSWER}
    asked = {"role": "user", "content": parts}
    yield "dicts", [asked, calls, returned, said]
    read = chat.ChatCompletionMessage.model_validate
    yield "objects", [asked, read(calls), returned, read(said)]
    request = {"model": "gpt", "messages": [asked, calls, returned, said]}
    yield "request", request


def of_responses() -> Made:
    parts = [
        {"type": "input_text", "text": ASKED},
        {"type": "input_image", "detail": "auto", "image_url": DATA_URL},
    ]
    asked = {"type": "message", "role": "user", "content": parts}

    def message(text: str) -> responses.ResponseOutputMessage:
        content = {"type": "output_text", "text": text, "annotations": []}
        fields = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
        return responses.ResponseOutputMessage.model_validate({**fields, "content": [content]})

    summary = [{"type": "summary_text", "text": "hm"}]
    thought = responses.ResponseReasoningItem.model_validate(
        {"id": "rs_1", "type": "reasoning", "summary": summary}
    )
    call = responses.ResponseFunctionToolCall(
        type="function_call", call_id="call_1", name="get_weather", arguments=ARGUMENTS
    )
    returned = {"type": "function_call_output", "call_id": "call_1", "output": ANSWER}
    items: list[Any] = [asked, thought, message(LOOKS), call, returned, message(ANSWER)]
    yield "objects", items
    plain = [it if isinstance(it, dict) else it.model_dump(mode="json") for it in items]
    yield "dicts", plain
    yield "request", {"input": plain, "model": "gpt"}


def of_anthropic() -> Made:
    source = {"type": "base64", "media_type": "image/png", "data": IMAGE}
    asked = [{"type": "text", "text": ASKED}, {"type": "image", "source": source}]
    blocks: list[Any] = [
        claude.ThinkingBlock(type="thinking", thinking="hm", signature="s"),
        claude.TextBlock(type="text", text=LOOKS),
        claude.ToolUseBlock(type="tool_use", id="call_1", name="get_weather", input=CITY),
    ]
    usage = claude.Usage(input_tokens=1, output_tokens=1)
    answer = claude.Message(
        id="msg_1", type="message", role="assistant", model="claude", content=blocks, usage=usage
    )
    result = {"type": "tool_result", "tool_use_id": "call_1", "content": ANSWER}
    returned = {**result, "content": [{"type": "text", "text": ANSWER}]}
    said = {"role": "assistant", "content": [claude.TextBlock(type="text", text=ANSWER)]}
    user = {"role": "user", "content": asked}
    yield "response", [user, answer, {"role": "user", "content": [result]}, said]
    blocks = [
        user,
        {"role": "assistant", "content": blocks},
        {"role": "user", "content": [returned]},
    ]
    yield "blocks", [*blocks, said]
    plain = [user, answer.model_dump(mode="json"), {"role": "user", "content": [returned]}]
    yield "dicts", {"messages": [*plain, {"role": "assistant", "content": ANSWER}]}


def of_gemini() -> Made:
    part = gemini.Part
    image = part.from_bytes(data=b64decode(IMAGE), mime_type="image/png")
    call = gemini.FunctionCall(id="call_1", name="get_weather", args=CITY)
    answer = gemini.FunctionResponse(id="call_1", name="get_weather", response={"output": ANSWER})
    thought = part(text="hm", thought=True)
    contents = [
        gemini.Content(role="user", parts=[part(text=ASKED), image]),
        gemini.Content(role="model", parts=[thought, part(text=LOOKS), part(function_call=call)]),
        gemini.Content(role="user", parts=[part(function_response=answer)]),
        gemini.Content(role="model", parts=[part(text=ANSWER)]),
    ]
    yield "objects", contents
    dumped = [it.model_dump(mode="json", exclude_none=True, by_alias=True) for it in contents]
    yield "camel case", {"contents": dumped}
    yield "snake case", [it.model_dump(exclude_none=True) for it in contents]


def of_langchain() -> Made:
    call = {"name": "get_weather", "args": CITY, "id": "call_1", "type": "tool_call"}
    block = {"type": "tool_use", "name": "get_weather", "input": CITY, "id": "call_1"}
    image = {"type": "image", "base64": IMAGE, "mime_type": "image/png"}
    thought = {"type": "thinking", "thinking": "hm"}
    told = [
        langchain.HumanMessage([{"type": "text", "text": ASKED}, image], id="h"),
        langchain.AIMessage([thought, {"type": "text", "text": LOOKS}, block], tool_calls=[call]),
        langchain.ToolMessage(ANSWER, tool_call_id="call_1", name="get_weather"),
        langchain.AIMessage(ANSWER),
        langchain.RemoveMessage(id="h"),
    ]
    yield "objects", told
    yield "state", {"messages": told}
    yield "message_to_dict", langchain.messages_to_dict(told)
    yield "dumpd", [dumpd(it) for it in told]
    yield "model_dump", [it.model_dump() for it in told]
    yield "openai", langchain.convert_to_openai_messages(told[2:4])


def of_pydantic_ai() -> Made:
    it = pydantic_ai
    image = it.BinaryContent(b64decode(IMAGE), media_type="image/png")
    call = it.ToolCallPart("get_weather", CITY, "call_1")
    history = [
        it.ModelRequest(parts=[it.UserPromptPart([ASKED, image])]),
        it.ModelResponse(parts=[it.ThinkingPart("hm"), it.TextPart(LOOKS), call]),
        it.ModelRequest(parts=[it.ToolReturnPart("get_weather", ANSWER, "call_1")]),
        it.ModelResponse(parts=[it.TextPart(ANSWER)]),
    ]
    yield "objects", history
    yield "dicts", it.ModelMessagesTypeAdapter.dump_python(history, mode="json")


def of_llama_index() -> Made:
    it = llama_index
    image = it.ImageBlock(image=b64decode(IMAGE), image_mimetype="image/png")
    cache = it.CachePoint(cache_control=it.CacheControl(type="ephemeral"))
    call = it.ToolCallBlock(tool_call_id="call_1", tool_name="get_weather", tool_kwargs=CITY)
    answered = {"tool_call_id": "call_1", "name": "get_weather"}
    history = [
        it.ChatMessage(blocks=[it.TextBlock(text=ASKED), image, cache]),
        it.ChatMessage(
            role="assistant",
            blocks=[it.ThinkingBlock(content="hm"), it.TextBlock(text=LOOKS), call],
        ),
        it.ChatMessage(ANSWER, role="tool", additional_kwargs=answered),
        it.ChatMessage(ANSWER, role="chatbot"),
    ]
    yield "objects", history
    yield "dicts", [message.model_dump() for message in history]
    yield "json", [json.loads(message.model_dump_json()) for message in history]


SOURCES: dict[str, Callable[[], Made]] = {
    "openai": of_openai,
    "responses": of_responses,
    "anthropic": of_anthropic,
    "gemini": of_gemini,
    "langchain": of_langchain,
    "llama_index": of_llama_index,
    "pydantic_ai": of_pydantic_ai,
}

if __name__ == "__main__":
    read = {}
    for source, make in SOURCES.items():
        for form, talk in make():
            reading = read_turns(to_items(talk) or [])
            turns = [turn.fields for turn in reading.turns]
            shown = {"turns": turns, "skipped": reading.skipped, "problems": reading.problems}
            read[f"{source} {form}"] = shown
    print(json.dumps(read, default=str))
