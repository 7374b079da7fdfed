"""Chat models: every shape of client against a real server, and every way to fail."""

import asyncio
import json
import logging
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import ModuleType, SimpleNamespace
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI, OpenAI

from kemem.backends.llm import OpenAILLM, as_llm
from kemem.backends.refusals import Refusals
from kemem.errors import InvalidArgument, Unavailable
from kemem.ports import LLM, Deps
from kemem.testing import FakeClock, ScriptedLLM
from kemem.testing.openai_server import (
    EMPTY,
    GARBAGE,
    NO_CHOICES,
    NULL_CONTENT,
    RESET,
    TRUNCATED,
    Answer,
    hang,
    huge,
    running_openai_server,
    status,
)
from kemem_conformance.ram import RamStore
from tests.cases import each

KEY = "sk-secret-123"
SCHEMA = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
ASKED = [{"role": "system", "content": "回答 JSON"}, {"role": "user", "content": "I live in 北京"}]
MINE = ["async", "sync", "connect"]


@asynccontextmanager
async def opened(kind: str, base_url: str, timeout: float = 10) -> AsyncIterator[LLM]:
    """A model of one kind of client."""
    if kind == "async":
        async with AsyncOpenAI(base_url=base_url, api_key=KEY) as client:
            yield as_llm(client, "m", timeout)
    elif kind == "sync":
        with OpenAI(base_url=base_url, api_key=KEY) as client:
            yield as_llm(client, "m", timeout)
    else:
        llm = OpenAILLM.connect("m", base_url=base_url, api_key=KEY, timeout=timeout)
        yield llm
        await llm.close()


def deps(llm: LLM | None, timeout: float = 10) -> Deps:
    return Deps(RamStore(), None, FakeClock(0), llm=llm, llm_timeout=timeout)


@pytest.mark.parametrize("kind", MINE)
async def test_a_client_is_asked_for_json_and_reports_its_tokens(kind: str) -> None:
    """Both languages arrive and come back as they are."""
    with running_openai_server([{"答": "yes"}, "好的"]) as server:
        async with opened(kind, server.base_url) as llm:
            reply = await llm.reply(ASKED, schema=SCHEMA)
            assert json.loads(reply.text) == {"答": "yes"}
            asked = sum(len(message["content"]) for message in ASKED)
            assert (reply.prompt_tokens, reply.completion_tokens) == (asked, len(reply.text))
            assert (await llm.reply(ASKED)).text == "好的"
    first, second = server.requests
    assert first["messages"] == ASKED
    assert first["model"] == llm.name == "m"
    shape = {"name": "reply", "strict": True, "schema": SCHEMA}
    assert first["response_format"] == {"type": "json_schema", "json_schema": shape}
    assert "response_format" not in second


@each("kind", MINE)
@each(
    ("refuses", "asked"),
    [
        ({"json_schema"}, ["json_schema", "json_object", "json_object"]),
        ({"json_schema", "json_object"}, ["json_schema", "json_object", None, None]),
    ],
)
async def test_a_format_that_is_refused_by_name_is_not_asked_for_again(
    kind: str, refuses: set[str], asked: list[str | None]
) -> None:
    """Servers differ in what they know; the second question goes straight to what worked."""
    with running_openai_server([{"a": 1}, {"a": 2}], refuses=refuses) as server:
        async with opened(kind, server.base_url) as llm:
            assert await deps(llm).ask(ASKED, SCHEMA) == {"a": 1}
            assert await deps(llm).ask(ASKED, SCHEMA) == {"a": 2}
    assert [it.get("response_format", {}).get("type") for it in server.requests] == asked


async def test_a_failure_of_another_kind_does_not_lower_the_format() -> None:
    """An overloaded server still knows schemas; a request that always fails proves nothing."""
    answers: list[Answer] = [status(500), status(400), status(422), status(400), {"a": 1}]
    with running_openai_server(answers) as server:
        async with opened("async", server.base_url) as llm:
            for _ in range(2):
                with pytest.raises(Unavailable):
                    await deps(llm).ask(ASKED, SCHEMA)
            assert await deps(llm).ask(ASKED, SCHEMA) == {"a": 1}
    assert server.requests[-1]["response_format"]["type"] == "json_schema"
    assert len(server.requests) == 5


@each(
    ("refusal", "asked"),
    [
        (status(400), ["json_schema", "json_object", "json_schema", "json_schema"]),
        (status(400, "no grammar"), ["json_schema", "json_object", "json_object", "json_schema"]),
        (status(500, "no grammar"), ["json_schema", "json_object", "json_object", "json_schema"]),
    ],
)
async def test_a_format_is_left_out_for_some_time_where_the_refusal_speaks_of_it(
    refusal: Answer, asked: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """One bad request may have any cause: only that call is made in a lower format."""
    clock = [0.0]
    caplog.clear()
    with running_openai_server([refusal, *[{"a": 1}] * 3]) as server:
        async with opened("connect", server.base_url) as llm:
            assert isinstance(llm, OpenAILLM)
            llm._refusals = Refusals(lambda: clock[0])
            for clock[0] in (0.0, 60.0, 7200.0):
                assert await deps(llm).ask(ASKED, SCHEMA) == {"a": 1}
    assert [it["response_format"]["type"] for it in server.requests] == asked
    (line,) = caplog.messages
    assert line.startswith(f"the LLM 'm' at {server.base_url} answered ")
    assert line.endswith("to a question with json_schema; it is asked for json_object")


FAULTS: dict[str, Answer] = {
    "500": status(500),
    "429": status(429),
    "401": status(401, f"wrong key {KEY}"),
    "reset": RESET,
    "empty body": EMPTY,
    "garbage": GARBAGE,
    "truncated body": TRUNCATED,
    "no choices": NO_CHOICES,
    "null content": NULL_CONTENT,
    "no content": None,
    "empty content": "",
    "prose": "I'm sorry, 我不能。",
}


@pytest.mark.parametrize("kind", MINE)
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_of_the_server_is_unavailable(
    kind: str, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    """At once, asked only once, and without the key in any message."""
    with running_openai_server([FAULTS[fault]]) as server:
        async with opened(kind, server.base_url) as llm:
            begun = time.monotonic()
            with caplog.at_level(logging.INFO), pytest.raises(Unavailable) as raised:
                await deps(llm).ask(ASKED, SCHEMA)
    assert time.monotonic() - begun < 5
    assert len(server.requests) == 1
    assert KEY not in str(raised.value)
    assert KEY not in caplog.text


@each("kind", MINE)
@each("fault", ["no choices", "null content", "empty content"])
async def test_a_client_says_itself_that_there_was_no_answer(kind: str, fault: str) -> None:
    """In words, where a server said yes and gave nothing."""
    with running_openai_server([FAULTS[fault]]) as server:
        async with opened(kind, server.base_url) as llm:
            with pytest.raises(Unavailable, match="the model answered without"):
                await llm.reply(ASKED, schema=SCHEMA)


@pytest.mark.parametrize("kind", MINE)
async def test_a_server_that_hangs_is_left_in_time(kind: str) -> None:
    """By the clock of the deps, or by the client's own if that is shorter."""
    with running_openai_server(lambda _: hang(30)) as server:
        for own, whole in ((30.0, 0.3), (0.3, 30.0)):
            async with opened(kind, server.base_url, own) as llm:
                begun = time.monotonic()
                with pytest.raises(Unavailable):
                    await deps(llm, whole).ask(ASKED, SCHEMA)
                assert time.monotonic() - begun < 3


async def test_an_unreachable_server_is_unavailable() -> None:
    """Nobody listens there any more."""
    with running_openai_server([]) as server:
        pass
    async with opened("connect", server.base_url) as llm:
        with pytest.raises(Unavailable):
            await deps(llm).ask(ASKED, SCHEMA)


async def test_ten_megabytes_of_facts_are_read_in_part() -> None:
    """What fits is used; the rest is not waited for."""
    with running_openai_server([huge()]) as server:
        async with opened("async", server.base_url) as llm:
            begun = time.monotonic()
            answer = await deps(llm).ask(ASKED, SCHEMA)
    assert time.monotonic() - begun < 5
    assert 100 < len(answer["facts"]) < 5_000


async def test_fenced_json_with_prose_around_is_read() -> None:
    """M27, through the wire."""
    with running_openai_server(['好的：\n```json\n{"facts": []}\n```\nDone.']) as server:
        async with opened("sync", server.base_url) as llm:
            assert await deps(llm).ask(ASKED, SCHEMA) == {"facts": []}


async def test_a_call_that_never_returns_holds_up_no_other() -> None:
    """Each blocking call has a thread of its own."""
    release = threading.Event()

    def stuck(messages: object) -> str:
        release.wait(30)
        return "{}"

    async def ask_in_vain() -> None:
        with pytest.raises(Unavailable):
            await deps(as_llm(stuck, "", 60), 0.5).ask(ASKED, SCHEMA)

    waiting = [asyncio.create_task(ask_in_vain()) for _ in range(40)]
    begun = time.monotonic()
    assert await deps(as_llm(lambda _: {"a": 1}, "", 60)).ask(ASKED, SCHEMA) == {"a": 1}
    assert time.monotonic() - begun < 0.4
    await asyncio.gather(*waiting)
    release.set()


def says(messages: list[dict[str, str]]) -> str:
    return '{"a": "火"}' if messages == ASKED else "asked otherwise"


def answers(messages: list[dict[str, str]]) -> dict[str, Any]:
    return {"a": "火"} if messages == ASKED else {}


async def says_later(messages: list[dict[str, str]]) -> dict[str, Any]:
    await asyncio.sleep(0)
    return answers(messages)


@pytest.mark.parametrize("function", [says, says_later, answers])
async def test_a_function_is_a_model(function: Callable[..., Any]) -> None:
    """Sync or async, text or the JSON itself."""
    llm = as_llm(function, "", 10)
    assert await deps(llm).ask(ASKED, SCHEMA) == {"a": "火"}
    assert llm.name == function.__name__
    assert as_llm(function, "my-model", 10).name == "my-model"
    reply = await llm.reply(ASKED)
    assert (reply.prompt_tokens, reply.completion_tokens) == (0, 0)


@pytest.mark.parametrize("error", [StopIteration("火"), ValueError(KEY), SystemError("x")])
async def test_whatever_a_function_raises_is_unavailable(error: Exception) -> None:
    """The caller's code may be wrong; ours goes on."""

    def broken(messages: object) -> str:
        raise error

    with pytest.raises(Unavailable) as raised:
        await deps(as_llm(broken, "", 10)).ask(ASKED, SCHEMA)
    assert KEY not in str(raised.value)


@each("returned", [None, 5, b"{}", object(), {"a": object()}])
async def test_a_function_that_returns_no_text_is_unavailable(returned: object) -> None:
    """Neither text nor JSON."""
    with pytest.raises(Unavailable):
        await deps(as_llm(lambda _: returned, "", 10)).ask(ASKED, SCHEMA)


class Creator:
    """A client as seed 000 uses it, with plain messages."""

    def __init__(self, **model_info: bool) -> None:
        self.model_info = model_info
        self.asked: list[tuple[Any, dict[str, Any]]] = []

    async def create(self, messages: Any, **options: Any) -> SimpleNamespace:
        self.asked.append((messages, options))
        usage = SimpleNamespace(prompt_tokens=7, completion_tokens=3)
        return SimpleNamespace(content='{"a": "火"}', usage=usage)


class BlockingCreator(Creator):
    """The same without async, and without a count of tokens."""

    def create(self, messages: Any, **options: Any) -> Any:
        self.asked.append((messages, options))
        return {"content": '{"a": "火"}'}


@pytest.mark.parametrize(("client", "tokens"), [(Creator(), (7, 3)), (BlockingCreator(), (0, 0))])
async def test_a_client_with_create_is_a_model(client: Creator, tokens: tuple[int, int]) -> None:
    """JSON is asked for only where a schema is wanted."""
    llm = as_llm(client, "", 10)
    assert await deps(llm).ask(ASKED, SCHEMA) == {"a": "火"}
    reply = await llm.reply(ASKED)
    assert (reply.prompt_tokens, reply.completion_tokens) == tokens
    assert client.asked == [(ASKED, {"json_output": True}), (ASKED, {})]
    assert llm.name == type(client).__name__


async def test_a_model_that_has_no_json_mode_is_not_asked_for_it() -> None:
    """AutoGen's clients refuse such a question."""
    client = Creator(json_output=False)
    await as_llm(client, "", 10).reply(ASKED, schema=SCHEMA)
    assert client.asked == [(ASKED, {})]


async def test_clients_of_autogen_get_its_own_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the package: real ones refuse plain dictionaries."""
    models: Any = ModuleType("autogen_core.models")
    for name in ("SystemMessage", "UserMessage", "AssistantMessage"):
        setattr(models, name, type(name, (SimpleNamespace,), {}))
    monkeypatch.setitem(sys.modules, "autogen_core.models", models)
    base = type("ChatCompletionClient", (Creator,), {"__module__": "autogen_core.models"})
    client = type("MyClient", (base,), {})()
    said = [*ASKED, {"role": "assistant", "content": "好"}]
    await as_llm(client, "", 10).reply(said)
    system, user, assistant = client.asked[0][0]
    assert system == models.SystemMessage(content="回答 JSON")
    assert user == models.UserMessage(content="I live in 北京", source="user")
    assert assistant == models.AssistantMessage(content="好", source="assistant")


async def test_an_object_with_reply_is_taken_as_it_is() -> None:
    """It is an LLM already."""
    scripted = ScriptedLLM([{"a": 1}])
    assert as_llm(scripted, "ignored", 10) is scripted


class Nameless:
    async def reply(self, messages: object, *, schema: object = None) -> None: ...


@each("given", [None, "gpt-5", 5, {}, [], OpenAI, ScriptedLLM, Nameless()])
def test_what_cannot_chat_is_refused_with_what_would_be_right(given: object) -> None:
    """Classes too: the brackets were forgotten."""
    with pytest.raises(InvalidArgument, match="must be an OpenAI client") as raised:
        as_llm(given, "m", 10)
    assert raised.value.details == {"field": "llm"}


def test_an_openai_client_needs_a_model() -> None:
    """The client does not know one."""
    with (
        OpenAI(api_key=KEY) as client,
        pytest.raises(InvalidArgument, match="name of a model"),
    ):
        as_llm(client, "", 10)


async def test_no_key_of_the_environment_goes_to_another_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """OPENAI_API_KEY is for OpenAI."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    llm = OpenAILLM.connect("m", base_url="http://127.0.0.1:1/v1")
    assert llm._connect and llm._connect().api_key == "none"
    await llm.close()
    openai = OpenAILLM.connect("m")
    assert openai._connect and openai._connect().api_key == KEY
    await openai.close()


def test_the_library_is_not_loaded_before_it_is_needed() -> None:
    """It takes most of a second."""
    code = (
        "import sys; from kemem.backends.llm import OpenAILLM;"
        "OpenAILLM.connect('m', base_url='http://x/v1'); print('openai' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.stderr) == ("False", "")


async def test_a_scripted_model_says_its_lines_in_order() -> None:
    """Texts, values, errors, functions; then it says that the script is over."""
    llm = ScriptedLLM(["文", {"a": 1}, [1], ValueError("boom"), lambda asked: asked[1]["content"]])
    replies = [(await llm.reply(ASKED, schema=SCHEMA)).text for _ in range(3)]
    assert replies == ["文", '{"a": 1}', "[1]"]
    with pytest.raises(ValueError, match="boom"):
        await llm.reply(ASKED)
    assert (await llm.reply(ASKED)).text == "I live in 北京"
    with pytest.raises(RuntimeError, match="only 5 replies, and this is call 6"):
        await llm.reply(ASKED)
    assert len(llm.calls) == 6
    assert list(llm.calls[0].messages) == ASKED
    assert (llm.calls[0].schema, llm.calls[5].schema) == (SCHEMA, None)
    again = ScriptedLLM(["a", "b"], repeat=True)
    assert [(await again.reply(ASKED)).text for _ in range(5)] == list("ababa")
    with pytest.raises(RuntimeError, match="only 0 replies"):
        await ScriptedLLM([], repeat=True).reply(ASKED)


async def test_the_scripted_server_streams_and_lists_its_model() -> None:
    """As the official client understands it."""
    said = "我住在北京，I live in Beijing."
    with running_openai_server(lambda request: said) as server:
        async with AsyncOpenAI(base_url=server.base_url, api_key=KEY) as client:
            stream = await client.chat.completions.create(
                model="m",
                messages=[{"role": "user", "content": "hi"}],
                stream=True,
                stream_options={"include_usage": True},
            )
            chunks = [chunk async for chunk in stream]
            models = await client.models.list()
    pieces = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(pieces) == said
    assert len(pieces) > 3
    assert chunks[-1].usage is not None and chunks[-1].usage.completion_tokens == len(said)
    assert [model.id for model in models.data] == ["scripted"]


def test_the_scripted_server_refuses_what_it_does_not_know() -> None:
    """And says when its script is over."""
    with running_openai_server([]) as server, httpx.Client(trust_env=False) as client:
        assert client.get(f"{server.base_url}/files").status_code == 404
        assert client.post(f"{server.base_url}/responses", json={}).status_code == 404
        assert client.post(f"{server.base_url}/embeddings", json={}).status_code == 400
        over = client.post(f"{server.base_url}/chat/completions", json={"messages": []})
    assert (over.status_code, "only 0 answers" in over.text) == (500, True)
