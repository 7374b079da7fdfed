"""A model that is slow, small or busy: asked once for a turn, in parts, and after the reply."""

import asyncio
import inspect
import json
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import AsyncOpenAI

from kemem import AsyncMemory, jobs
from kemem.backends.llm import OpenAILLM
from kemem.chat import ChatService, base
from kemem.ports import Prompt, Reply, Schema
from kemem.ports.turns import Turns
from kemem.settings import load
from kemem.testing import FakeClock, ScriptedLLM, running_openai_server
from kemem.testing.openai_server import MODEL, hang, status
from kemem.threads import call

NOW = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
TALKS = {
    "zh": (("我住在杭州。", "杭州真美。"), ("我养了一只猫。", "真可爱。")),
    "en": (("I live in Oslo.", "Oslo is nice."), ("I have a cat.", "How sweet.")),
}


def is_extraction(request: Mapping[str, Any]) -> bool:
    return "response_format" in request


@pytest.mark.parametrize("language", TALKS)
async def test_a_reply_waits_for_no_extraction_and_a_turn_costs_one(
    tmp_path: Path, language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a server with one slot: what runs in the background is broken off, and done later."""
    for module in (jobs, base):
        monkeypatch.setattr(module, "QUIET", 20_000)
    replies = [reply for _, reply in TALKS[language]]
    order: list[str] = []
    slow = True

    def answer(request: dict[str, Any]) -> Any:
        if is_extraction(request):
            order.append("extraction")
            return hang(30) if slow else {"facts": []}
        # The slot is free once the client of the extraction has hung up.
        free = "extraction" not in order or server.hung_up.wait(5)
        order.append("reply" if free else "reply behind an extraction")
        return replies[order.count("reply") - 1]

    with running_openai_server(answer) as server:
        settings = load(
            data_dir=tmp_path,
            embedder="none",
            llm_base_url=server.base_url,
            llm_api_key="k",
            chat_recall="call",
        )
        client = AsyncOpenAI(base_url=server.base_url, api_key="k", max_retries=0)
        async with AsyncMemory(settings=settings) as memory, client:
            chat = ChatService(memory, client=client, model=MODEL)
            for number, (said, _) in enumerate(TALKS[language]):
                began = time.monotonic()
                await chat.reply(said, user_id="u", session_id="s")
                assert time.monotonic() - began < 4
                while order.count("extraction") <= number:
                    await asyncio.sleep(0.01)
            slow = False
            async with asyncio.timeout(20):
                with memory.runtime.turns.reply():  # the last one is broken off, too
                    await asyncio.sleep(0)
                await chat.close()
            assert order == ["reply", "extraction", "reply", "extraction", "extraction"]
            assert [job.kind for job in await memory.jobs()] == []
        last = server.requests[-1]["messages"][-1]["content"].partition("<conversation>")[2]
    assert all(text in last for turn in TALKS[language] for text in turn), "all in one question"


class Slow:
    """A model that needs some seconds for an answer, and counts who asks at the same time."""

    name = "slow"

    def __init__(self, seconds: float) -> None:
        self.seconds, self.asked, self.busy, self.most = seconds, 0, 0, 0

    async def reply(self, messages: Prompt, *, schema: Schema | None = None) -> Reply:
        self.asked, self.busy = self.asked + 1, self.busy + 1
        self.most = max(self.most, self.busy)
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.busy -= 1
        return Reply('{"facts": []}')


async def test_a_model_that_needs_90_seconds_gets_its_facts_in(tmp_path: Path) -> None:
    """A minute is a tenth of a second here: the second attempt waits for two of them."""
    llm, clock = Slow(0.15), FakeClock(NOW)
    settings = load(data_dir=tmp_path, embedder="none", llm_timeout_seconds=0.1)
    async with AsyncMemory(settings=settings, llm=llm, clock=clock) as memory:
        added = await memory.add("I live in Oslo.", "u")
        assert added.pending and added.problems == ("the LLM did not answer within 0.1 s",)
        clock.advance(seconds=3600)
        assert await memory.run_jobs() == 1
        assert [it.memory for it in await memory.get_all("u")] == ["User lives in Oslo"]
        assert (await memory.jobs(), llm.asked, llm.most) == ([], 2, 1)


@pytest.mark.parametrize("seconds", [1.0, 60.0, 600.0])
async def test_nothing_is_asked_twice_at_a_time(tmp_path: Path, seconds: float) -> None:
    """Another worker leaves a job alone as long as its writer may wait for the model."""
    clock = FakeClock(NOW)
    settings = load(data_dir=tmp_path, embedder="none", llm_timeout_seconds=seconds)
    llm = Slow(0.2)
    async with AsyncMemory(settings=settings, llm=llm, clock=clock) as memory:
        adding = asyncio.create_task(memory.add("I live in Oslo.", "u"))
        while not llm.asked:
            await asyncio.sleep(0.01)
        clock.advance(seconds=seconds)
        assert await memory.run_jobs() == 0
        await adding
        await memory.add("I like tea.", "u", wait=False)
        working = asyncio.create_task(memory.run_jobs())
        while llm.asked < 2:
            await asyncio.sleep(0.01)
        clock.advance(seconds=8 * seconds)
        assert await memory.run_jobs() == 0
        assert await working == 1 and (llm.asked, llm.most) == (2, 1)


LONG = [f"I own {number} red bricks. " + "Well. " * 150 for number in range(8)]


@pytest.mark.parametrize("known", ["set", "learned"])
async def test_what_does_not_fit_is_asked_in_parts(tmp_path: Path, known: str) -> None:
    """By the setting nothing is sent in vain; else an error of that kind is asked about once."""
    error = "request (2100 tokens) exceeds the available context size (1500 tokens)"

    def answer(request: dict[str, Any]) -> Any:
        size = sum(len(it["content"]) for it in request["messages"]) // 4
        return status(400, error) if size > 1500 else {"facts": []}

    with running_openai_server(answer) as server:
        context = {"llm_context_tokens": 1900} if known == "set" else {}
        settings = load(
            data_dir=tmp_path,
            embedder="none",
            llm_base_url=server.base_url,
            llm_api_key="k",
            **context,
        )
        async with AsyncMemory(settings=settings) as memory:
            added = await memory.add([{"role": "user", "content": it} for it in LONG], "u")
            assert not added.problems and not added.pending
        asked = [it["messages"][-1]["content"] for it in server.requests]
    assert all(any(text[:20] in it for it in asked) for text in LONG)
    assert len(asked) == len({*asked}), "nothing is sent twice unchanged"
    sizes = [sum(len(m["content"]) for m in it["messages"]) // 4 for it in server.requests]
    assert sum(size > 1500 for size in sizes) == (known == "learned"), "it is told once"


PAGES: dict[str, dict[str, Any]] = {
    "vLLM": {"/v1/models": {"data": [{"id": "m", "max_model_len": 1900}]}},
    "llama.cpp": {
        "/v1/models": {"data": [{"id": "/m.gguf", "meta": {"n_ctx_train": 32768}}]},
        "/props": {"default_generation_settings": {"n_ctx": 1900}},
    },
    "Ollama": {
        "/v1/models": {"data": [{"id": "m"}, {"id": "another", "max_model_len": 99}]},
        "/api/show": {
            "parameters": 'stop "<|im_end|>"\nnum_ctx 1900',
            "model_info": {"qwen2.context_length": 32768},
        },
    },
}
SILENT: dict[str, dict[str, Any]] = {
    "nothing": {},
    "no list": {"/v1/models": {"data": 3}, "/props": [1], "/api/show": None},
    "no numbers": {
        "/v1/models": {"data": [{"id": "m", "max_model_len": True, "meta": "x"}, 3]},
        "/props": {"n_ctx": "many", "default_generation_settings": 0},
        "/api/show": {"parameters": 5, "model_info": {"a.context_length": -1}},
    },
}


class Served(httpx.AsyncBaseTransport):
    """A server whose model reads 1,500 tokens, and that tells of itself by pages."""

    def __init__(self, pages: Mapping[str, Any]) -> None:
        self.pages, self.paths, self.sizes = pages, list[str](), list[int]()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        path, body = request.url.path, await request.aread()
        self.paths.append(path)
        if path != "/v1/chat/completions":
            found = path in self.pages
            return httpx.Response(200 if found else 404, json=self.pages.get(path))
        self.sizes.append(sum(len(it["content"]) for it in json.loads(body)["messages"]) // 4)
        if self.sizes[-1] > 1500:
            return httpx.Response(400, json={"error": {"message": "exceeds the context size"}})
        message = {"role": "assistant", "content": '{"facts": []}'}
        return httpx.Response(200, json={"choices": [{"index": 0, "message": message}]})


async def added(
    directory: Path, server: Served, monkeypatch: pytest.MonkeyPatch, *turns: Any
) -> OpenAILLM:
    """The model at an address, after what was added."""
    client: Any = httpx.AsyncClient(transport=server)
    monkeypatch.setattr("kemem.backends.client._bounded", lambda: lambda: client)
    llm = OpenAILLM.connect("m", base_url="http://model.test/v1", api_key="k")
    settings = load(data_dir=directory, embedder="none")
    async with AsyncMemory(settings=settings, llm=llm) as memory:
        for turn in turns:
            assert not (await memory.add(turn, "u")).problems
    return llm


@pytest.mark.parametrize("name", PAGES)
async def test_a_server_is_asked_once_how_much_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Before the first prompt that may not fit; then nothing too long is sent."""
    server = Served(PAGES[name])
    long = [{"role": "user", "content": it} for it in LONG]
    llm = await added(tmp_path, server, monkeypatch, "I live in Oslo.", long, long)
    assert llm.context == 1900 and max(server.sizes) <= 1500
    assert server.paths[0] == "/v1/chat/completions", "a short one is sent at once"
    assert all(server.paths.count(path) <= 1 for path in ("/v1/models", "/props", "/api/show"))


@pytest.mark.parametrize("name", SILENT)
async def test_a_server_that_tells_nothing_is_asked_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    server = Served(SILENT[name])
    long = [{"role": "user", "content": it} for it in LONG]
    llm = await added(tmp_path, server, monkeypatch, long, long)
    assert llm.context == 0 and "props" not in caplog.text
    assert [server.paths.count(it) for it in ("/v1/models", "/props", "/api/show")] == [1, 1, 1]


async def test_a_context_that_is_too_small_is_explained(tmp_path: Path) -> None:
    settings = load(data_dir=tmp_path, embedder="none", llm_context_tokens=700)
    async with AsyncMemory(settings=settings, llm=ScriptedLLM([])) as memory:
        added = await memory.add("I live in Oslo.", "u")
    (problem,) = added.problems
    assert problem.startswith("the prompt is longer than the model's context of 700 tokens: about")


async def test_what_was_joined_stays_joined_when_the_model_fails(tmp_path: Path) -> None:
    """No message is lost with the jobs that gave way to one."""
    llm, clock = ScriptedLLM([TimeoutError(), {"facts": []}]), FakeClock(NOW)
    settings = load(data_dir=tmp_path, embedder="none")
    async with AsyncMemory(settings=settings, llm=llm, clock=clock) as memory:
        for text in ("I live in Oslo.", "I have a cat."):
            await memory.add(text, "u", session_id="s", wait=False)
        for _ in range(2):
            await memory.run_jobs()
            clock.advance(seconds=3600)
        asked = [call.messages[-1]["content"] for call in llm.calls]
        assert len(asked) == 2 and all("Oslo" in it and "a cat" in it for it in asked)
        assert (len(await memory.get_all("u")), await memory.jobs()) == (2, [])


async def test_every_background_call_gives_way_to_a_reply() -> None:
    """Also where two workers ask at once; what nobody interrupts is done."""
    turns, begun = Turns(), [asyncio.Event(), asyncio.Event()]

    async def ask(at: int) -> None:
        begun[at].set()
        await asyncio.Event().wait()

    async def answered() -> None:
        await asyncio.sleep(0)

    works = [asyncio.create_task(turns.run(ask(at))) for at in (0, 1)]
    await asyncio.gather(*(it.wait() for it in begun))
    assert await turns.run(answered())
    with turns.reply():
        assert turns.waiting and await asyncio.gather(*works) == [False, False]
    assert not turns.waiting and await turns.run(answered())


async def test_a_call_given_up_before_it_began_leaves_no_coroutine_behind() -> None:
    began, made = asyncio.Event(), threading.Event()
    loop, coroutines = asyncio.get_running_loop(), list[Any]()

    async def answer() -> str:
        return "never"

    def create() -> Any:
        loop.call_soon_threadsafe(began.set)
        made.wait(10)
        coroutines.append(answer())
        return coroutines[0]

    task = asyncio.create_task(call(create))
    await began.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    made.set()
    async with asyncio.timeout(10):
        while not coroutines or inspect.getcoroutinestate(coroutines[0]) != inspect.CORO_CLOSED:
            await asyncio.sleep(0.001)
