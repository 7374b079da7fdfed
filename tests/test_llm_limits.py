"""Every answer of a model has an end, and one that was cut there is taken for what it is."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from kemem import AsyncMemory
from kemem.backends.llm import as_llm
from kemem.chat import ChatService
from kemem.errors import Unavailable
from kemem.ports import Deps, Reply, Tool, ToolCall
from kemem.recall import RecallAgent
from kemem.settings import load
from kemem.testing import FakeClock, ScriptedLLM, calling
from kemem.testing.openai_server import Answer, Streamed, running_openai_server, status
from kemem_conformance.ram import RamStore
from tests.cases import each
from tests.test_at_once import HOUR, NOW, SAID
from tests.test_llm import ASKED, MINE, SCHEMA, deps, opened

OLD, NEW = "max_tokens", "max_completion_tokens"


@asynccontextmanager
async def remembering(directory: Path, llm: Any) -> AsyncIterator[tuple[AsyncMemory, FakeClock]]:
    clock = FakeClock(NOW)
    settings = load(data_dir=directory, embedder="none", state_tokens=200)
    async with AsyncMemory(settings=settings, llm=llm, clock=clock) as memory:
        yield memory, clock


def openai_client(base_url: str) -> AsyncOpenAI:
    return AsyncOpenAI(base_url=base_url, api_key="any", max_retries=0)


async def known(memory: AsyncMemory) -> list[str]:
    return sorted(it.memory for it in await memory.get_all("u"))


# What is sent


async def test_every_kind_of_question_has_a_bound(tmp_path: Path) -> None:
    """Several times what a good answer has, with room for thoughts."""

    def answer(request: dict[str, Any]) -> Answer:
        return calling("extract_keywords", query="tea") if "tools" in request else {"facts": []}

    kinds = {"<conversation>": "extract", "short-term": "state", "<talk>": "experience"}
    seen = dict[str, int]()
    with running_openai_server(answer) as server:
        async with opened("connect", server.base_url) as llm, remembering(tmp_path, llm) as world:
            memory, _ = world
            for number in range(16):
                text = f"{number}: The port of the database is 5433, and it did not work at first."
                await memory.add(text, "u", session_id="s", wait=number % 8 == 0)
            await memory.run_jobs()
            await memory.recall("Which port?", "u")
            await memory.end_session("s", "u")
        for it in server.requests:
            text = " ".join(str(one["content"]) for one in it["messages"])
            kind = next((name for mark, name in kinds.items() if mark in text), "keywords")
            seen["recall" if "tools" in it else kind] = it[OLD]
    assert {"extract", "state", "experience", "recall"} <= seen.keys()
    assert all(2_000 <= tokens <= 4_000 for tokens in seen.values()), seen


@each("kind", MINE)
@each(
    ("refuses", "sent"),
    [
        ({OLD}, [OLD, NEW, NEW]),
        ({NEW}, [OLD, OLD]),
        ({OLD, NEW}, [OLD, NEW, None, None]),
        ({OLD, "json_schema"}, [OLD, OLD, NEW, NEW]),
    ],
)
async def test_a_limit_that_is_refused_is_not_sent_again(
    kind: str, refuses: set[str], sent: list[str | None], caplog: pytest.LogCaptureFixture
) -> None:
    """OpenAI's newer models refuse the old name, others may refuse the new one, or both."""
    with running_openai_server([{"a": 1}, {"a": 2}], refuses=refuses) as server:
        async with opened(kind, server.base_url) as llm:
            for number in (1, 2):
                assert await deps(llm).ask(ASKED, SCHEMA) == {"a": number}
    assert [next((it for it in (OLD, NEW) if it in one), None) for one in server.requests] == sent
    named = f"the LLM 'm' at {server.base_url} answered 400 to {OLD}; it is asked with {NEW}"
    assert caplog.messages.count(named) == (OLD in refuses)


async def test_the_limit_of_calls_is_learned_as_well() -> None:
    """Tools are not to blame: they stay."""
    script = [calling("search", query="tea")]
    with running_openai_server(script, refuses={OLD}) as server:
        async with opened("async", server.base_url) as llm:
            tool = Tool("search", "Search.", {"type": "object", "properties": {}})
            reply = await deps(llm).converse(ASKED, [tool])
    assert [it.name for it in reply.calls] == ["search"]
    assert [("tools" in it, NEW in it) for it in server.requests] == [(True, False), (True, True)]


class Plain:
    """A client whose function knows no limit, nor formats that it could refuse."""

    def __init__(self) -> None:
        self.chat = self.completions = self
        self.asked = 0

    def create(self, model: str, messages: Any, response_format: Any = None) -> Any:
        self.asked += 1
        return {"choices": [{"message": {"content": '{"a": 1}'}, "finish_reason": "stop"}]}


async def test_a_client_that_takes_no_limit_is_asked_without() -> None:
    client = Plain()
    llm = as_llm(client, "m", 10)
    for _ in range(2):
        assert await deps(llm).ask(ASKED, SCHEMA) == {"a": 1}
    assert client.asked == 2


async def test_a_limit_that_a_server_counts_as_used_is_left_out() -> None:
    """As vLLM does it: the prompt fits, prompt and limit together do not. It is learned once."""

    def answer(request: dict[str, Any]) -> Answer:
        if OLD not in request:
            return {"a": 1}
        return status(
            400,
            f"'max_tokens' or 'max_completion_tokens' is too large: {request[OLD]}. This model's "
            "maximum context length is 2048 tokens and your request has 20 input tokens",
        )

    with running_openai_server(answer) as server:
        async with opened("async", server.base_url) as llm:
            for _ in range(2):
                assert await deps(llm).ask(ASKED, SCHEMA) == {"a": 1}
    assert [OLD in it for it in server.requests] == [True, False, False]


async def test_the_probe_of_a_chat_has_a_limit_that_its_server_knows(tmp_path: Path) -> None:
    """It is learned here, too: a refusal of the limit is none of tools."""
    script = ["好的 OK", "Your boat is turquoise."]
    with running_openai_server(script, refuses={OLD}) as server:
        settings = load(data_dir=tmp_path, embedder="none", llm="none")
        async with (
            AsyncMemory(settings=settings) as memory,
            openai_client(server.base_url) as client,
        ):
            chat = ChatService(memory, client=client, model="m")
            await chat.reply("Hello", user_id="u", session_id="s")
            assert chat._probe._task is not None
            await chat._probe._task
            way = await chat._probe.way(server.base_url, "m")
            await chat.close()
    assert way.name == "call", way.reason
    assert [it.get(OLD, it.get(NEW, 0)) >= 2_000 for it in server.requests] == [True] * 4


# What was cut


@each("language", SAID)
async def test_of_a_cut_list_the_complete_facts_are_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, language: str
) -> None:
    """And nothing of the item that was cut; nobody is asked again."""
    said, home, more = SAID[language]
    begun = f'{{"facts": [{{"text": "{more}", "type": "habit", "date": "", "replaces": []}}, '
    for number, rest in enumerate(['{"text": "User has a ya', '{"text": "User has a yak", "ty']):
        answers = [Streamed(begun + rest, finish_reason="length")]
        with caplog.at_level(logging.WARNING), running_openai_server(answers) as server:
            async with (
                opened("connect", server.base_url) as llm,
                remembering(tmp_path / f"{language}{number}", llm) as (memory, clock),
            ):
                assert not (await memory.add(said, "u")).pending
                assert {home, more} <= {*await known(memory)}
                assert not any("yak" in it for it in await known(memory))
                clock.advance(seconds=HOUR)
                assert await memory.run_jobs() == 0
        assert len(server.requests) == 1
        assert "was cut" in caplog.text and more not in caplog.text


@each(
    "text",
    [
        *("so so so " * 300, '{"facts": [{"text": "User has a ya', "{", '{"facts": "so so'),
        '{"entities": [' + '{"name": "so"}, ' * 50,
    ],
)
@each("language", SAID)
async def test_a_cut_answer_without_a_fact_leaves_those_of_rules(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, language: str, text: str
) -> None:
    """The model is not asked again: it would fall into the same loop."""
    said, home, _ = SAID[language]
    llm = ScriptedLLM([Reply(text, cut=True)])
    async with remembering(tmp_path / f"{language}{len(text)}", llm) as (memory, clock):
        added = await memory.add(said, "u")
        assert home in [it.memory for it in added.results] and not added.pending
        clock.advance(seconds=HOUR)
        assert await memory.run_jobs() == 0 and await memory.jobs() == []
    assert len(llm.calls) == 1


async def test_a_model_that_thinks_for_long_is_given_more_room_once(tmp_path: Path) -> None:
    """It was cut before it said anything; if that happens again, rules have the word."""
    said, home, more = SAID["en"]
    thoughts = Streamed("", reasoning="Hmm. " * 50, finish_reason="length")
    fact = {"facts": [{"text": more, "type": "habit"}]}
    for name, last, expected in (("a", fact, [home, more]), ("b", thoughts, [home])):
        with running_openai_server([thoughts, last]) as server:
            async with (
                opened("connect", server.base_url) as llm,
                remembering(tmp_path / name, llm) as (memory, clock),
            ):
                assert (await memory.add(said, "u")).pending
                clock.advance(seconds=HOUR)
                await memory.run_jobs()
                assert await memory.jobs() == [] and await known(memory) == expected
        first, second = (it[OLD] for it in server.requests)
        assert second == 4 * first


async def test_a_recall_with_a_model_in_a_loop_goes_on_by_rules(tmp_path: Path) -> None:
    """After one call of the model, in words or in a call whose arguments have no end."""
    endless = calling("search_memories", query="x")
    broken = ToolCall(endless.id, endless.name, '{"query": "so so so')
    for reply in (Reply("so so so", cut=True), Reply("", calls=(broken,), cut=True)):
        llm = ScriptedLLM([{"facts": []}, reply], repeat=True)
        async with remembering(tmp_path / reply.text.replace(" ", "_"), llm) as (memory, _):
            await memory.add(SAID["en"][0], "u")
            recalled = await RecallAgent(memory.for_user("u")).recall("Where do I live?")
            assert "Oslo" in str(recalled) and len(llm.calls) == 2


async def test_of_a_cut_reply_the_whole_calls_are_made() -> None:
    whole, cut = calling("now"), ToolCall("c", "search", '{"query": "so')
    llm = ScriptedLLM([Reply("", calls=(whole, cut), cut=True), Reply("so so", cut=True)])
    world = Deps(RamStore(), None, FakeClock(0), llm=llm)
    assert (await world.converse(ASKED, ())).calls == (whole,)
    with pytest.raises(Unavailable, match="had no end"):
        await world.converse(ASKED, ())
