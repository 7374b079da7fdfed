"""Chat requests on their way to a model: nothing in them makes it write calls into its text."""

import json
from copy import deepcopy
from typing import Any

import pytest
from openai import NOT_GIVEN, omit
from openai.types.chat import ChatCompletionMessage

from kemem.chat.guard import guard
from kemem.chat.requests import retry_with_note, sanitize_request
from kemem.ports import ToolCall
from kemem.testing import Streamed, calling
from kemem.testing.openai_server import STRICT
from tests.cases import each
from tests.scripted import scripted_api

RECALL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "recall_memory", "parameters": {"type": "object"}},
}
BOTH = pytest.mark.parametrize("asked", ["火锅去哪吃？", "Where is good hotpot?"])
NOT_SENT = pytest.mark.parametrize(
    "absent", [omit, NOT_GIVEN, None, []], ids=["omit", "not given", "None", "empty"]
)


def call(arguments: str, name: str = "recall_memory", call_id: str = "call_1") -> dict[str, Any]:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def recalled(asked: str, **assistant: Any) -> list[dict[str, Any]]:
    """A conversation with a call in it."""
    query = json.dumps({"query": asked}, ensure_ascii=False)
    return [
        {"role": "user", "content": asked},
        {"role": "assistant", "content": None, "tool_calls": [call(query)], **assistant},
        {"role": "tool", "tool_call_id": "call_1", "content": "{}"},
    ]


@BOTH
@NOT_SENT
def test_calls_in_the_messages_bring_their_tools_along(asked: str, absent: Any) -> None:
    """A model that has seen calls and knows no tools writes more of them, as text."""
    (tool,) = sanitize_request({"messages": recalled(asked), "tools": absent})["tools"]
    assert tool["function"]["name"] == "recall_memory"
    assert tool["function"]["parameters"] == {"type": "object", "properties": {"query": {}}}


@BOTH
@each("broken", ['{"query": "火', "[1]", "not JSON", "[" * 100_000])
def test_broken_arguments_of_past_calls_are_sent_as_none(asked: str, broken: str) -> None:
    """Some servers refuse the whole conversation for them."""
    said = recalled(asked, tool_calls=[call(broken), call('{"query": "x"}', call_id="call_2")])
    (_, assistant, _) = sanitize_request({"messages": said, "tools": [RECALL]})["messages"]
    assert [it["function"]["arguments"] for it in assistant["tool_calls"]] == [
        "{}",
        '{"query": "x"}',
    ]
    assert said[1]["tool_calls"][0]["function"]["arguments"] == broken


@BOTH
@each("stream", [False, True])
def test_a_call_never_has_the_id_of_an_earlier_one(asked: str, stream: bool) -> None:
    """Some servers count from 0 in every answer, and a result could not be told from another."""
    again = ToolCall("call_1", "recall_memory", '{"query": "x"}')
    api = scripted_api([Streamed(calls=(again,))], strict=STRICT)
    with guard(api.client()) as client:
        asking: Any = {"model": "m", "messages": recalled(asked), "tools": [RECALL]}
        if stream:
            chunks = client.chat.completions.create(**asking, stream=True)
            parts = [it.choices[0].delta.tool_calls for it in chunks if it.choices]
            ids = [it.id for made in parts for it in made or () if it.id]
        else:
            made = client.chat.completions.create(**asking).choices[0].message.tool_calls
            ids = [it.id for it in made or ()]
    assert len(ids) == 1 and ids[0].startswith("call_") and ids[0] != "call_1"


@BOTH
def test_tools_that_the_application_sends_stay_its_own(asked: str) -> None:
    assert sanitize_request({"messages": recalled(asked), "tools": [RECALL]})["tools"] == [RECALL]


@BOTH
@NOT_SENT
def test_a_conversation_without_calls_gets_no_tools(asked: str, absent: Any) -> None:
    messages = [{"role": "user", "content": asked}]
    assert sanitize_request({"messages": messages, "tools": absent}) == {"messages": messages}


def test_broken_and_missing_arguments_still_name_their_tool() -> None:
    """What models write into a history is not always JSON, and never trusted to be."""
    calls = [call('{"query": "火'), call("[1]", "list_all"), call("", "now"), {"id": "x"}]
    sent = sanitize_request({"messages": [{"role": "assistant", "tool_calls": calls}]})
    assert [it["function"]["name"] for it in sent["tools"]] == ["recall_memory", "list_all", "now"]


@BOTH
def test_reasoning_is_given_back_after_the_last_user_message_only(asked: str) -> None:
    """DeepSeek's thinking mode refuses the turn without it, and an empty one will do."""
    messages = [*recalled(asked), *recalled(asked, reasoning_content="想过"), *recalled(asked)[1:]]
    sent = sanitize_request({"messages": messages})["messages"]
    assert [it.get("reasoning_content") for it in sent if it["role"] == "assistant"] == [
        None,
        "想过",
        "",
    ]


@each(
    ("base_url", "is_given"),
    [
        ("https://api.deepseek.com", True),
        ("http://127.0.0.1:8000/v1", True),
        ("https://notopenai.com/v1", True),
        ("https://api.openai.com/v1", False),
        ("https://east.openai.azure.com/openai", False),
        ("https://api.mistral.ai/v1", False),
        ("https://api.groq.com/openai/v1", False),
    ],
)
def test_reasoning_goes_only_where_it_is_not_refused(base_url: str, is_given: bool) -> None:
    sent = sanitize_request({"messages": recalled("火锅"), "tools": [RECALL]}, base_url=base_url)
    assert ("reasoning_content" in sent["messages"][1]) is is_given


@BOTH
def test_no_tool_choice_means_no_tools(asked: str) -> None:
    """Servers that read no calls then show them, so the model is not told of tools at all."""
    request = {"tools": [RECALL], "tool_choice": "none", "parallel_tool_calls": True}
    messages = [{"role": "user", "content": asked}]
    assert sanitize_request({"messages": messages, **request}) == {"messages": messages}


@BOTH
def test_no_tool_choice_keeps_the_tools_of_calls_in_the_messages(asked: str) -> None:
    request = {"messages": recalled(asked), "tools": [RECALL], "tool_choice": "none"}
    sent = sanitize_request(request)
    assert sent["tools"] == [RECALL]
    assert "tool_choice" not in sent


@each("choice", ["auto", "required", omit, {"type": "function"}])
def test_any_other_tool_choice_is_sent_as_it_is(choice: Any) -> None:
    sent = sanitize_request(
        {"messages": recalled("火锅"), "tools": [RECALL], "tool_choice": choice}
    )
    assert sent["tool_choice"] is choice


def test_openai_gets_what_the_application_wrote() -> None:
    request = {"messages": recalled("火锅"), "tool_choice": "none", "tools": [RECALL]}
    assert sanitize_request(request, base_url="https://api.openai.com/v1") == request


def test_tools_in_an_extra_body_are_the_applications_affair() -> None:
    request = {"messages": recalled("hotpot"), "extra_body": {"tools": [RECALL]}}
    assert sanitize_request(request) == request


@BOTH
def test_the_callers_objects_are_not_touched(asked: str) -> None:
    request = {"messages": recalled(asked), "tools": [RECALL], "tool_choice": "none"}
    before = deepcopy(request)
    sanitize_request(request)
    retry_with_note(sanitize_request(request))
    assert request == before


@BOTH
def test_messages_may_be_objects_and_come_only_once(asked: str) -> None:
    """Applications send back the very message that they were given."""
    user, assistant, tool = recalled(asked)
    said = ChatCompletionMessage.model_validate({**assistant, "reasoning_content": "想过"})
    sent = sanitize_request({"messages": iter([user, said, tool]), "tools": iter([RECALL])})
    assert sent["messages"] == [user, {**assistant, "reasoning_content": "想过"}, tool]
    assert sent["tools"] == [RECALL]
    held = {"role": "assistant", "tool_calls": said.tool_calls}
    assert (
        sanitize_request({"messages": [user, held, tool]})["tools"][0]["function"]["name"]
        == "recall_memory"
    )


@each(
    ("asked", "words"), [("火锅去哪吃？", "工具调用接口"), ("Where is good hotpot?", "plain words")]
)
def test_a_note_speaks_the_users_language_in_the_system_prompt(asked: str, words: str) -> None:
    """A system message at any other place is refused by the templates of some models."""
    user = {"role": "user", "content": asked}
    first, *rest = retry_with_note({"messages": [user]})["messages"]
    assert first["role"] == "system" and words in first["content"] and rest == [user]
    system = {"role": "system", "content": "Be brief. 简短。"}
    first, *rest = retry_with_note({"messages": [system, user]})["messages"]
    assert first["content"].startswith("Be brief. 简短。\n\n") and words in first["content"]
    assert rest == [user]


@BOTH
def test_a_strict_server_takes_a_sanitized_history(asked: str) -> None:
    """What DeepSeek answers with 400 passes a server with the same rules."""
    rules = {"reasoning_content", "tools", "pairs"}
    api = scripted_api(["你好"], strict=rules)
    with guard(api.client()) as client:
        sent: Any = recalled(asked)
        answer = client.chat.completions.create(model="m", messages=sent)
    assert answer.choices[0].message.content == "你好"


@BOTH
@each("more", [{}, {"tools": [RECALL], "tool_choice": "none"}])
@each("said", ["", "\n\n", "嗯 hm"])
@each("is_streamed", [False, True])
def test_a_call_that_nobody_offered_does_not_reach_the_application(
    asked: str, more: dict[str, Any], said: str, is_streamed: bool
) -> None:
    """Tools that were only sent against leaks are not called; at worst the model is asked again."""
    made = calling("recall_memory", query=asked)
    api = scripted_api([Streamed(said, calls=(made,)), "好的 ok"])
    with guard(api.client()) as client:
        messages: Any = recalled(asked)
        if is_streamed:
            with client.chat.completions.stream(model="m", messages=messages, **more) as stream:
                answer = stream.get_final_completion()
        else:
            answer = client.chat.completions.create(model="m", messages=messages, **more)
    (choice,) = answer.choices
    assert (choice.message.content or "").strip() == (said.strip() or "好的 ok")
    assert not choice.message.tool_calls
    assert choice.finish_reason == "stop"
    assert len(api.requests) == (1 if said.strip() else 2)
