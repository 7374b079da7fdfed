"""Tools: any model can call them, natively or in writing, and nothing it writes breaks a call."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI

from kemem import AsyncMemory
from kemem.backends.llm import OpenAILLM, as_llm, read_calls, written
from kemem.errors import Unavailable
from kemem.ports import LLM, Deps, Prompt, Reply, Schema, Tool, ToolCall
from kemem.settings import load
from kemem.testing import FakeClock, ScriptedLLM, calling, running_openai_server
from kemem.testing.openai_server import Answer, Fault, status
from kemem_conformance.ram import RamStore
from tests.cases import each
from tests.leaky import SHAPES

QUERY = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
EMPTY_OBJECT: dict[str, Any] = {"type": "object", "properties": {}}
MINE = pytest.mark.parametrize("kind", ["async", "sync", "connect"])


@dataclass(frozen=True, slots=True)
class Talk:
    """The same conversation in one language."""

    system: str
    asked: str
    described: str
    query: str
    found: str
    answer: str
    manual: str  # words of the written manual
    result: str  # words of a written result

    @property
    def begun(self) -> list[dict[str, Any]]:
        return [
            {"role": "system", "content": self.system},
            {"role": "user", "content": self.asked},
        ]

    @property
    def tools(self) -> tuple[Tool, ...]:
        return (Tool("search", self.described, QUERY), Tool("now", "…", EMPTY_OBJECT))

    def went_on(self, *calls: ToolCall, said: str | None = None) -> list[dict[str, Any]]:
        """The conversation after calls and their results."""
        functions = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in calls
        ]
        results = [
            {"role": "tool", "tool_call_id": call.id, "content": self.found} for call in calls
        ]
        return [
            *self.begun,
            {"role": "assistant", "content": said, "tool_calls": functions},
            *results,
        ]


CHINESE = Talk(
    "你是助手，请查找记忆后再回答。",
    "我喜欢喝什么？",
    "在记忆里查找",
    "喜欢 喝",
    "用户喜欢绿茶",
    "你喜欢绿茶。",
    "你可以调用工具",
    "的结果：",
)
ENGLISH = Talk(
    "You are an assistant. Look it up before you answer.",
    "What do I like to drink?",
    "look into the memory",
    "likes drink",
    "User likes green tea",
    "You like green tea.",
    "You can call tools",
    "Result of the call",
)
BOTH = pytest.mark.parametrize("talk", [CHINESE, ENGLISH], ids=["zh", "en"])


@asynccontextmanager
async def opened(kind: str, base_url: str) -> AsyncIterator[LLM]:
    """A model of one kind of client."""
    if kind == "async":
        async with AsyncOpenAI(base_url=base_url, api_key="k") as client:
            yield as_llm(client, "m", 10)
    elif kind == "sync":
        with OpenAI(base_url=base_url, api_key="k") as client:
            yield as_llm(client, "m", 10)
    else:
        llm = OpenAILLM.connect("m", base_url=base_url, api_key="k", timeout=10)
        yield llm
        await llm.close()


def deps(llm: LLM | None, timeout: float = 10) -> Deps:
    return Deps(RamStore(), None, FakeClock(0), llm=llm, llm_timeout=timeout)


def wanted(reply: Reply) -> list[tuple[str, Any]]:
    """Names and arguments of the calls."""
    return [(call.name, json.loads(call.arguments)) for call in reply.calls]


# Native calls


@MINE
@BOTH
async def test_a_model_calls_tools_and_answers_from_their_results(kind: str, talk: Talk) -> None:
    """Several calls in a reply; what goes over the wire is what every server knows."""
    calls = [calling("search", query=talk.query), calling("now")]
    with running_openai_server([calls, talk.answer]) as server:
        async with opened(kind, server.base_url) as llm:
            reply = await deps(llm).converse(talk.begun, talk.tools)
            assert (reply.text, list(reply.calls)) == ("", calls)
            went_on = talk.went_on(*reply.calls)
            last = await deps(llm).converse(went_on, talk.tools)
            assert (last.text, last.calls) == (talk.answer, ())
    first, second = server.requests
    assert set(first) == {"model", "messages", "tools", "max_tokens"}
    assert first["messages"] == talk.begun and second["messages"] == went_on
    function = {"name": "search", "description": talk.described, "parameters": QUERY}
    assert first["tools"][0] == {"type": "function", "function": function}
    assert len(first["tools"]) == 2


@BOTH
async def test_a_reply_may_be_a_text_and_calls(talk: Talk) -> None:
    call = calling("search", query=talk.query)
    with running_openai_server([Reply(talk.asked, calls=(call,))]) as server:
        async with opened("async", server.base_url) as llm:
            reply = await llm.reply(talk.begun, tools=talk.tools)
    assert (reply.text, reply.calls) == (talk.asked, (call,))
    assert reply.completion_tokens == len(talk.asked)


@MINE
@pytest.mark.parametrize("broken", ['{"query": "北', "北京", "[1,", '{"query": "tea",,}'])
async def test_broken_arguments_are_kept_as_they_were_written(kind: str, broken: str) -> None:
    """Whoever makes the call tells the model what is wrong with them."""
    call = ToolCall("c_1", "search", broken)
    with running_openai_server([call]) as server:
        async with opened(kind, server.base_url) as llm:
            assert (await deps(llm).converse(ENGLISH.begun, ENGLISH.tools)).calls == (call,)


def completion(*entries: Any, content: str | None = None) -> Fault:
    message = {"role": "assistant", "content": content, "tool_calls": list(entries)}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    return Fault(json.dumps({"id": "1", "object": "chat.completion", "choices": [choice]}).encode())


def entry(name: Any, arguments: Any, **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "arguments": arguments}, **more}


@MINE
@BOTH
async def test_calls_are_read_as_servers_give_them(kind: str, talk: Talk) -> None:
    """Arguments that are no text, ids that are missing; entries that are no calls are left out."""
    answer = completion(
        entry("search", {"query": talk.query}),
        entry("search", {"query": talk.asked}, id=""),
        entry("now", None, id="c_3"),
        entry("now", "", id="c_4"),
        *(None, "search", {}, {"id": "c_5"}, {"function": None}),
        *(entry(None, "{}"), entry("", "{}"), entry(7, "{}")),
    )
    with running_openai_server([answer]) as server:
        async with opened(kind, server.base_url) as llm:
            reply = await deps(llm).converse(talk.begun, talk.tools)
    searches = [("search", {"query": talk.query}), ("search", {"query": talk.asked})]
    assert wanted(reply) == [*searches, ("now", {}), ("now", {})]
    assert talk.query in reply.calls[0].arguments, "in letters, not in escapes"
    assert len({call.id for call in reply.calls if call.id}) == 4
    assert [call.id for call in reply.calls[2:]] == ["c_3", "c_4"]


@MINE
@pytest.mark.parametrize("answer", [completion(), completion({}), None, "", " \n"])
async def test_neither_text_nor_calls_is_unavailable(kind: str, answer: Answer) -> None:
    with running_openai_server([answer]) as server:
        async with opened(kind, server.base_url) as llm:
            with pytest.raises(Unavailable, match="without a text"):
                await deps(llm).converse(CHINESE.begun, CHINESE.tools)


# Servers that refuse tools


@MINE
@BOTH
async def test_a_server_that_refuses_tools_is_asked_in_writing_from_then_on(
    kind: str, talk: Talk
) -> None:
    """Once natively, then never again; without tools the calls of the past are plain too."""
    said = {"calls": [{"name": "search", "arguments": {"query": talk.query}}]}
    with running_openai_server([said, talk.answer, "{}"], refuses={"tools"}) as server:
        async with opened(kind, server.base_url) as llm:
            first = await deps(llm).converse(talk.begun, talk.tools)
            assert wanted(first) == [("search", {"query": talk.query})]
            went_on = talk.went_on(*first.calls)
            assert (await deps(llm).converse(went_on, talk.tools)).text == talk.answer
            assert await deps(llm).ask(went_on, EMPTY_OBJECT) == {}
    assert ["tools" in it for it in server.requests] == [True, False, False, False]
    for request in server.requests[1:]:
        assert {it["role"] for it in request["messages"]} <= {"system", "user", "assistant"}
        assert not any("tool_calls" in it for it in request["messages"])
    system = server.requests[1]["messages"][0]["content"]
    assert system.startswith(talk.system) and talk.manual in system
    assert server.requests[3]["messages"][0]["content"] == talk.system


async def test_a_failure_of_another_kind_does_not_end_native_tools() -> None:
    """Neither an overloaded server, nor one that refuses the question in writing as well."""
    call = calling("now")
    with running_openai_server([status(500), status(400), status(422), call]) as server:
        async with opened("async", server.base_url) as llm:
            for _ in range(2):
                with pytest.raises(Unavailable):
                    await deps(llm).converse(CHINESE.begun, CHINESE.tools)
            assert (await llm.reply(CHINESE.begun, tools=CHINESE.tools)).calls == (call,)
    assert ["tools" in it for it in server.requests] == [True, True, False, True]


@BOTH
async def test_a_server_that_refuses_a_broken_call_still_has_tools(talk: Talk) -> None:
    """Some read the arguments of past calls; that one question is asked in writing."""
    broken = ToolCall("c_1", "search", '{"query": "')
    with running_openai_server([status(400), talk.answer, calling("now")]) as server:
        async with opened("async", server.base_url) as llm:
            went_on = talk.went_on(broken)
            assert (await deps(llm).converse(went_on, talk.tools)).text == talk.answer
            assert wanted(await deps(llm).converse(talk.begun, talk.tools)) == [("now", {})]
    assert ["tools" in it for it in server.requests] == [True, False, True]


# Written calls


@BOTH
def test_a_conversation_is_written_in_plain_messages(talk: Talk) -> None:
    """In the language of its system prompt, each result with the call that it belongs to."""
    calls = (
        ToolCall("c_1", "search", json.dumps({"query": talk.query})),
        ToolCall("c_2", "now", "{"),
    )
    system, user, called, first, second = written(talk.went_on(*calls, said="…"), talk.tools)
    for words in (talk.system, talk.manual, "search", talk.described, json.dumps(QUERY)):
        assert words in system["content"]
    assert user == talk.begun[1]
    said, _, text = called["content"].partition("\n")
    assert (called["role"], said) == ("assistant", "…")
    assert json.loads(text)["calls"] == [
        {"id": "c_1", "name": "search", "arguments": {"query": talk.query}},
        {"id": "c_2", "name": "now", "arguments": "{"},
    ]
    assert talk.query in text
    for message, names in ((first, ("c_1", "search")), (second, ("c_2", "now"))):
        heading, _, content = message["content"].partition("\n")
        assert (message["role"], content) == ("user", talk.found)
        assert talk.result in heading and all(name in heading for name in names)


@BOTH
def test_a_conversation_without_calls_is_written_as_it_is(talk: Talk) -> None:
    """And one without a system prompt gets one for its tools."""
    assert written(talk.begun, ()) == talk.begun
    system, user = written(talk.begun[1:], talk.tools)
    assert system["role"] == "system" and talk.described in system["content"]
    assert system["content"].startswith("You can call tools")
    assert user == talk.begun[1]
    assert written([], ()) == []


WRITTEN: list[tuple[str, list[tuple[str, Any]]]] = [
    (
        '{"calls": [{"name": "search", "arguments": {"query": "茶"}}]}',
        [("search", {"query": "茶"})],
    ),
    ('{"calls": [{"name": "a", "arguments": {}}, {"tool": "b"}]}', [("a", {}), ("b", {})]),
    ('{"calls": {"name": "search", "arguments": "{\\"query\\": 1}"}}', [("search", {"query": 1})]),
    ('{"name": "search", "arguments": {"query": "tea"}}', [("search", {"query": "tea"})]),
    (
        '[{"name": "a", "arguments": {}}, {"name": "b", "args": {"x": 1}}]',
        [("a", {}), ("b", {"x": 1})],
    ),
    ('{"tool": "search", "parameters": {"query": "茶"}}', [("search", {"query": "茶"})]),
    ('好的，我查一下：\n```json\n{"name": "a", "arguments": {}}\n```', [("a", {})]),
    (
        '<think>{"name": "x"}</think><tool_call>{"name": "a", "arguments": {}}</tool_call>',
        [("a", {})],
    ),
    ('{"calls": [7, null, {"arguments": {}}, {"name": 5}, {"name": "a"}]}', [("a", {})]),
]


OFFERED = [Tool(name, "…", EMPTY_OBJECT) for name in ("search", "a", "b")]


@each(("text", "calls"), WRITTEN)
def test_calls_are_read_in_the_forms_that_models_write(
    text: str, calls: list[tuple[str, Any]]
) -> None:
    reply = read_calls(Reply(text, 7, 3), OFFERED)
    assert wanted(reply) == calls and "{" not in reply.text.rpartition("</think>")[2]
    assert (reply.prompt_tokens, reply.completion_tokens) == (7, 3)
    assert len({call.id for call in reply.calls}) == len(calls)


def test_calls_are_read_in_every_form_that_the_guard_knows() -> None:
    """With the types that they were written with, where the form has any."""
    misread = []
    for shape in SHAPES:
        text = f"好的。{shape.write('search', {'query': '成都 tea'})}"
        reply = read_calls(Reply(text), OFFERED)
        if wanted(reply) != [("search", {"query": "成都 tea"})] or reply.text != "好的。":
            misread.append(shape.name)
    assert misread == []


@each(
    "text",
    [
        "你喜欢绿茶。",
        "You like green tea.",
        '{"answer": "绿茶"}',
        '{"name": "李明", "age": 7}',
        '[{"name": "tea"}, 3]',
        '{"calls": []}',
        '{"calls": "search"}',
        '{"name": "get_weather", "arguments": {"city": "成都"}}',
        '<tool_call>{"name": "get_weather", "arguments": {}}</tool_call>',
        '{"name": "search", "arguments": 7}',
        "null",
        "[" * 5_000,
        "{calls",
    ],
)
def test_a_text_that_calls_none_of_the_tools_stays_a_text(text: str) -> None:
    assert read_calls(Reply(text), OFFERED) == Reply(text)


@MINE
@BOTH
async def test_calls_in_the_text_are_read_though_the_server_takes_tools(
    kind: str, talk: Talk
) -> None:
    """A gateway without a parser accepts tools, and leaves what the model wrote in the text."""
    said = json.dumps({"name": "search", "arguments": {"query": talk.query}}, ensure_ascii=False)
    answers = [said, f"```json\n{said}\n```", f"<tools>{said}</tools>", talk.answer]
    with running_openai_server(answers) as server:
        async with opened(kind, server.base_url) as llm:
            for _ in answers[:-1]:
                reply = await deps(llm).converse(talk.begun, talk.tools)
                assert wanted(reply) == [("search", {"query": talk.query})]
                assert reply.text == ""
            assert (await deps(llm).converse(talk.begun, talk.tools)).text == talk.answer
    assert all("tools" in request for request in server.requests)


async def test_beside_a_proper_call_the_text_stays_a_text() -> None:
    call = calling("search", query="茶")
    text = '{"name": "search", "arguments": {"query": "tea"}}'
    assert read_calls(Reply(text, calls=(call,)), OFFERED) == Reply(text, calls=(call,))


# Models that know no tools


def says(messages: list[dict[str, Any]]) -> str:
    """A model that calls when it is told how, and answers when it has a result."""
    if "search" not in messages[0]["content"]:
        return "nothing to call"
    if len(messages) > 2:
        return str(messages[-1]["content"]).partition("\n")[2]
    call = {"name": "search", "arguments": {"query": messages[1]["content"]}}
    return json.dumps({"calls": [call]})


async def says_later(messages: list[dict[str, Any]]) -> str:
    await asyncio.sleep(0)
    return says(messages)


def answers(messages: list[dict[str, Any]]) -> Any:
    said = says(messages)
    return json.loads(said) if said.startswith("{") else said


class Creator:
    """A client as AutoGen has it, with plain messages."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, dict[str, Any]]] = []

    async def create(self, messages: Any, **options: Any) -> SimpleNamespace:
        self.asked.append((messages, options))
        return SimpleNamespace(content=says(messages), usage=None)


class Replier:
    """An object of before there were tools."""

    name = "old"

    async def reply(self, messages: Prompt, *, schema: Schema | None = None) -> Reply:
        return Reply(says([dict(message) for message in messages]), 7, 3)


@BOTH
@each("given", [says, says_later, answers, Creator(), Replier()])
async def test_a_model_that_knows_no_tools_calls_them_in_writing(given: Any, talk: Talk) -> None:
    """Functions, clients as AutoGen has them, objects without `tools`."""
    llm = as_llm(given, "", 10)
    called = await deps(llm).converse(talk.begun, talk.tools)
    assert wanted(called) == [("search", {"query": talk.asked})]
    last = await deps(llm).converse(talk.went_on(*called.calls), talk.tools)
    assert (last.text, last.calls) == (talk.found, ())
    assert (await deps(llm).converse(talk.begun, ())).text == "nothing to call"


async def test_a_function_may_return_a_reply_with_calls() -> None:
    given = Reply("", 5, 2, (calling("search", query="茶 tea"),))
    assert await deps(as_llm(lambda _: given, "", 10)).converse(CHINESE.begun, ()) == given
    assert (
        await deps(as_llm(lambda _: given, "", 10)).converse(CHINESE.begun, CHINESE.tools) == given
    )


async def test_clients_of_autogen_get_its_own_messages_for_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stand-in for the package: real ones refuse plain dictionaries and unknown roles."""
    models: Any = ModuleType("autogen_core.models")
    for name in ("SystemMessage", "UserMessage", "AssistantMessage"):
        setattr(models, name, type(name, (SimpleNamespace,), {}))
    monkeypatch.setitem(sys.modules, "autogen_core.models", models)

    class Recorder(Creator):
        async def create(self, messages: Any, **options: Any) -> SimpleNamespace:
            self.asked.append((messages, options))
            return SimpleNamespace(content="好", usage=None)

    base = type("ChatCompletionClient", (Recorder,), {"__module__": "autogen_core.models"})
    client: Any = type("MyClient", (base,), {})()
    await as_llm(client, "", 10).reply(CHINESE.went_on(calling("now")), tools=CHINESE.tools)
    ((messages, options),) = client.asked
    assert [type(it).__name__ for it in messages] == [
        "SystemMessage",
        "UserMessage",
        "AssistantMessage",
        "UserMessage",
    ]
    assert options == {}, "an answer in words is allowed, so JSON is not demanded"


class Open:
    """An object that takes whatever it is given."""

    name = "open"

    async def reply(self, messages: Prompt, **wanted: Any) -> Reply:
        return Reply(",".join(sorted(wanted)))


async def test_an_object_that_takes_tools_is_taken_as_it_is() -> None:
    """By name or with any keyword."""
    for given in (Open(), ScriptedLLM([])):
        assert as_llm(given, "", 10) is given
    assert (await deps(as_llm(Open(), "", 10)).converse(CHINESE.begun, ())).text == "tools"
    assert as_llm(Replier(), "", 10).name == "old"


# What goes wrong


class Returning:
    """A model that returns whatever it was told to."""

    name = "returning"

    def __init__(self, returned: Any) -> None:
        self.returned = returned

    async def reply(self, messages: Prompt, *, schema: object = None, tools: object = ()) -> Any:
        return self.returned


NO_TEXT: Any = None


@each(
    "call",
    [None, {"name": "now"}, ToolCall("1", "查", NO_TEXT), ToolCall("1", NO_TEXT, "{}")],
)
async def test_a_call_that_is_none_is_unavailable(call: Any) -> None:
    """A model of one's own may return anything."""
    with pytest.raises(Unavailable, match="in a way that cannot be read"):
        await deps(Returning(Reply("茶 tea", calls=(call,)))).converse(CHINESE.begun, ())


@each("returned", [None, "绿茶 tea", Reply(""), Reply(" \n"), Reply(None)])  # type: ignore[arg-type]
async def test_an_object_that_gives_no_reply_is_unavailable(returned: Any) -> None:
    """For conversations as for questions."""
    with pytest.raises(Unavailable, match="the LLM"):
        await deps(Returning(returned)).converse(CHINESE.begun, CHINESE.tools)
    with pytest.raises(Unavailable, match="the LLM"):
        await deps(Returning(returned)).ask(CHINESE.begun, EMPTY_OBJECT)


@pytest.mark.parametrize("error", [ValueError("密码 swordfish"), KeyError(), OSError()])
async def test_whatever_a_model_raises_in_a_conversation_is_unavailable(error: Exception) -> None:
    with pytest.raises(Unavailable, match=type(error).__name__) as raised:
        await deps(ScriptedLLM([error])).converse(CHINESE.begun, CHINESE.tools)
    assert "swordfish" not in str(raised.value)


async def test_without_a_model_there_is_no_conversation() -> None:
    with pytest.raises(Unavailable, match="no LLM is configured"):
        await deps(None).converse(ENGLISH.begun, ENGLISH.tools)


@pytest.mark.parametrize(
    ("own", "whole", "shown"), [(0.02, 60, "0.02 s"), (60, 0.03, "0.03 s"), (None, 0.04, "0.04 s")]
)
async def test_a_conversation_waits_for_the_shorter_time(
    own: float | None, whole: float, shown: str
) -> None:
    """The caller's, or that of the settings."""

    async def never(messages: object) -> str:
        await asyncio.Event().wait()
        return ""

    with pytest.raises(Unavailable, match=f"within {shown}"):
        await deps(as_llm(never, "", 60), whole).converse(CHINESE.begun, CHINESE.tools, timeout=own)


# The test kit


@BOTH
async def test_a_scripted_model_calls_what_its_script_says(talk: Talk) -> None:
    """One call, several, with a text, or whatever a function returns."""
    call, other = calling("search", query=talk.query), calling("search", query=talk.query)
    both = Reply(talk.answer, calls=(call,))
    script: list[Any] = [call, [call, other], both, lambda _: [other], []]
    llm = ScriptedLLM(script)
    replies = [await llm.reply(talk.begun, tools=talk.tools) for _ in script]
    assert [list(reply.calls) for reply in replies] == [[call], [call, other], [call], [other], []]
    assert [reply.text for reply in replies] == ["", "", talk.answer, "", "[]"]
    assert llm.calls[0].tools == talk.tools
    assert call.id != other.id
    assert json.loads(call.arguments) == {"query": talk.query}
    assert calling("rename", name="茶").arguments == '{"name": "茶"}'


@BOTH
@each("said", ["", "…"])
async def test_the_scripted_server_streams_calls(talk: Talk, said: str) -> None:
    """In pieces, as the official client understands them."""
    calls = (calling("search", query=talk.query), ToolCall("c_2", "now", '{"broken": '))
    with running_openai_server([Reply(said, calls=calls)]) as server:
        async with AsyncOpenAI(base_url=server.base_url, api_key="k") as client:
            stream = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": talk.asked}], stream=True
            )
            choices = [chunk.choices[0] async for chunk in stream]
    assert "".join(choice.delta.content or "" for choice in choices) == said
    assert choices[-1].finish_reason == "tool_calls"
    pieces = [it for choice in choices for it in choice.delta.tool_calls or ()]
    assert len(pieces) > 4
    for index, call in enumerate(calls):
        own = [it for it in pieces if it.index == index and it.function]
        assert (own[0].id, own[0].function and own[0].function.name) == (call.id, call.name)
        texts = [it.function.arguments or "" for it in own if it.function]
        assert "".join(texts) == call.arguments


# Closing


@pytest.mark.parametrize("said", ["我喜欢绿茶", "I like green tea"])
async def test_a_memory_closes_the_model_that_it_opened(tmp_path: Path, said: str) -> None:
    with running_openai_server([{"facts": [], "entities": []}]) as server:
        settings = load(data_dir=tmp_path, embedder="none", llm_base_url=server.base_url)
        async with AsyncMemory(settings=settings) as memory:
            await memory.add(said, "u")
            llm: Any = (await memory.runtime.deps()).llm
            assert not llm._client.is_closed()
        assert llm._client.is_closed()


class Closing(Open):
    closed = False

    async def close(self) -> None:
        self.closed = True


async def test_a_memory_leaves_a_model_that_was_given_to_its_owner(tmp_path: Path) -> None:
    given = Closing()
    async with AsyncMemory(settings=load(data_dir=tmp_path, embedder="none"), llm=given) as memory:
        await memory.ingest("茶 tea", "u")
    assert not given.closed
