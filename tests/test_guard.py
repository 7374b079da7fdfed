"""A guarded client: no leaked call is seen, and none is run twice."""

import json
import logging
import socket
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from threading import Thread
from typing import Any

import pytest
from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from openai import APIError
from pydantic import BaseModel

from kemem.chat import LeakCounts
from kemem.chat.filters import ToolPolicy
from kemem.chat.guard import guard
from kemem.errors import Unavailable
from kemem.ports import ToolCall
from kemem.testing import Streamed, calling
from kemem.testing.openai_server import NO_CHOICES, Answer, Fault
from kemem.text.leaks import Leak, LeakedCall, UntypedText
from tests.cases import each
from tests.scripted import ScriptedApi, scripted_api

RECALL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "recall_memory",
        "parameters": {
            "type": "object",
            "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
            "required": ["query"],
            "additionalProperties": False,
        },
    },
}
FORGET: dict[str, Any] = {"type": "function", "function": {"name": "forget"}}


def leaked(query: str, name: str = "recall_memory", **more: str) -> str:
    """A call as DeepSeek writes it."""
    parameters = "".join(
        f'<｜DSML｜parameter name="{key}" string="true">{value}</｜DSML｜parameter>\n'
        for key, value in {"query": query, **more}.items()
    )
    invoke = f'<｜DSML｜invoke name="{name}">\n{parameters}</｜DSML｜invoke>\n'
    return f"<｜DSML｜function_calls>\n{invoke}</｜DSML｜function_calls>"


UNREADABLE = "<｜DSML｜function_calls>\n</｜DSML｜function_calls>"
TALKS = [
    ("火锅去哪吃？", "我先查一下。", "火锅"),
    ("Where to eat?", "Let me look.", "hotpot place"),
]
TALK = pytest.mark.parametrize(("asked", "said", "query"), TALKS[:1], ids=["zh"])
WAYS = ["sync", "sync stream", "async", "async stream"]
EVERY_WAY = pytest.mark.parametrize("way", WAYS)
STREAMS = pytest.mark.parametrize("way", ["sync stream", "async stream"])
WAYS_AND_PIECES = pytest.mark.parametrize(
    ("way", "piece"),
    [("sync", 8), ("async", 8), *product(["sync stream", "async stream"], [1, 7])],
)
# Every way in one language, streams and whole answers in both.
WAYS_AND_TALKS = pytest.mark.parametrize(
    ("way", "asked", "said", "query"),
    [(way, *TALKS[number % 3 == 0]) for number, way in enumerate(WAYS)],
    ids=[f"{way} {('zh', 'en')[number % 3 == 0]}" for number, way in enumerate(WAYS)],
)


@dataclass(slots=True)
class Got:
    """What an application gets of an answer, however it comes."""

    text: str = ""
    reasoning: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    reason: str | None = None
    chunks: list[Any] = field(default_factory=list)

    def add(self, choice: Any, part: Any) -> None:
        self.text += part.content or ""
        self.reasoning += getattr(part, "reasoning_content", None) or ""
        self.reason = choice.finish_reason or self.reason
        for call in part.tool_calls or ():
            if call.id:
                self.ids.append(call.id)
                self.calls.append((call.function.name, ""))
            name, arguments = self.calls[getattr(call, "index", -1)]
            self.calls[getattr(call, "index", -1)] = name, arguments + call.function.arguments


@asynccontextmanager
async def client_of(way: str, api: ScriptedApi, **rules: Any) -> AsyncIterator[Any]:
    """A guarded client, sync or async."""
    if way.startswith("async"):
        async with guard(api.async_client(), **rules) as client:
            yield client
    else:
        with guard(api.client(), **rules) as client:
            yield client


async def ask(
    way: str,
    script: Sequence[Answer],
    asked: str,
    tools: Iterable[Any] = (RECALL,),
    *,
    into: Got | None = None,
    rules: dict[str, Any] | None = None,
    **more: Any,
) -> tuple[Got, list[dict[str, Any]]]:
    """What an application gets for a question, and the requests that the server was sent."""
    request = {"model": "m", "messages": [{"role": "user", "content": asked}], "tools": [*tools]}
    got = into or Got()
    api = scripted_api(script)
    async with client_of(way, api, **(rules or {})) as client:
        stream = way.endswith("stream")
        answer = client.chat.completions.create(**request, stream=stream, **more)
        answer = await answer if way.startswith("async") else answer
        if not stream:
            for choice in answer.choices:
                got.add(choice, choice.message)
        async for chunk in _chunks(answer) if stream else _chunks(()):
            got.chunks.append(chunk)
            for choice in chunk.choices:
                got.add(choice, choice.delta)
    return got, api.requests


async def _chunks(stream: Any) -> AsyncIterator[Any]:
    if hasattr(stream, "__aiter__"):
        async for chunk in stream:
            yield chunk
    else:
        for chunk in stream:
            yield chunk


def counted(counts: LeakCounts) -> dict[str, int]:
    return {outcome: number for (_, outcome), number in counts}


def events(*chunks: dict[str, Any]) -> Fault:
    """A stream whose chunks are scripted whole."""
    base = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    lines = [f"data: {json.dumps({**base, **chunk})}\n\n" for chunk in chunks]
    return Fault("".join([*lines, "data: [DONE]\n\n"]).encode())


def choice(index: int = 0, reason: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"index": index, "delta": delta, "finish_reason": reason}


@TALK
@WAYS_AND_PIECES
async def test_a_leaked_call_is_run_and_not_seen(
    asked: str, said: str, query: str, piece: int, way: str
) -> None:
    """The model's words arrive, its markup does not, and the call is an ordinary one."""
    counts = LeakCounts()
    script = [Streamed(f"{said}\n\n{leaked(query)}", piece=piece)]
    got, requests = await ask(way, script, asked, rules={"counts": counts})
    assert got.text.strip() == said
    assert got.reason == "tool_calls"
    ((name, arguments),) = got.calls
    assert (name, json.loads(arguments)) == ("recall_memory", {"query": query})
    assert got.ids[0].startswith("call_")
    assert (dict(counts), len(requests)) == ({("dsml", "run"): 1}, 1)


@TALK
@WAYS_AND_PIECES
async def test_ordinary_text_arrives_byte_for_byte(
    asked: str, said: str, query: str, piece: int, way: str
) -> None:
    """Brackets, comparisons and fences are no markup; the last of them is not lost."""
    text = f"{said} a < b && [x](y) <b>{query}</b>\n\n```py\nif a<3: {{}}\n```\n\n1 <"
    got, _ = await ask(way, [Streamed(text, reasoning=text, piece=piece)], asked)
    assert (got.text, got.reasoning, got.calls, got.reason) == (text, text, [], "stop")


@WAYS_AND_TALKS
async def test_a_call_in_the_reasoning_and_again_in_the_text_is_run_once(
    asked: str, said: str, query: str, way: str
) -> None:
    counts = LeakCounts()
    answer = Streamed(said + leaked(query), reasoning=f"嗯 hm\n{leaked(query)}", piece=3)
    got, _ = await ask(way, [answer], asked, rules={"counts": counts})
    assert (got.text.strip(), got.reasoning.strip()) == (said, "嗯 hm")
    assert [name for name, _ in got.calls] == ["recall_memory"]
    assert counted(counts) == {"run": 1, "doubled": 1}


@WAYS_AND_TALKS
async def test_two_different_leaked_calls_are_both_run(
    asked: str, said: str, query: str, way: str
) -> None:
    answer = Streamed(f"{said}{leaked(query)}\n{leaked('茶 tea')}", piece=5)
    got, _ = await ask(way, [answer], asked)
    assert [json.loads(arguments)["query"] for _, arguments in got.calls] == [query, "茶 tea"]
    assert len(set(got.ids)) == 2


@WAYS_AND_TALKS
@pytest.mark.parametrize(
    ("leak", "tools", "only"),
    [
        (leaked("火锅", "drop_tables"), [RECALL], None),
        (leaked("火锅", limit="many"), [RECALL], None),
        (leaked("火锅", mood="好"), [RECALL], None),
        (leaked("火锅"), [RECALL, FORGET], {"forget"}),
        (leaked("火锅"), [], None),
    ],
    ids=["unknown tool", "wrong type", "unknown argument", "not in only", "no tools"],
)
async def test_a_call_that_may_not_run_is_only_hidden(
    asked: str, said: str, query: str, way: str, leak: str, tools: list[Any], only: set[str] | None
) -> None:
    counts = LeakCounts()
    rules = {"counts": counts, "only": only}
    got, requests = await ask(way, [Streamed(said + leak)], asked, tools, rules=rules)
    assert (got.text.strip(), got.calls, got.reason) == (said, [], "stop")
    assert (counted(counts), len(requests)) == ({"hidden": 1}, 1)


@WAYS_AND_TALKS
async def test_a_call_that_was_also_made_properly_is_not_run_again(
    asked: str, said: str, query: str, way: str
) -> None:
    counts, made = LeakCounts(), calling("recall_memory", query="茶 tea")
    answer = Streamed(f"{said}\n{leaked(query)}", calls=(made,), piece=4)
    got, _ = await ask(way, [answer], asked, rules={"counts": counts})
    assert (got.text.strip(), got.ids, got.reason) == (said, [made.id], "tool_calls")
    assert [(name, json.loads(it)) for name, it in got.calls] == [(made.name, {"query": "茶 tea"})]
    assert counted(counts) == {"doubled": 1}


@WAYS_AND_TALKS
@pytest.mark.parametrize("given", ["", "{}", " {} "])
async def test_a_proper_call_without_arguments_takes_those_that_leaked(
    asked: str, said: str, query: str, way: str, given: str
) -> None:
    """Gateways without a parser send both: an empty call, and the whole one as text."""
    counts, made = LeakCounts(), calling("recall_memory")
    bare = replace(made, arguments=given)
    answer = Streamed(f"{said}\n{leaked(query)}", calls=(bare,), piece=1)
    got, _ = await ask(way, [answer], asked, rules={"counts": counts})
    assert [(name, json.loads(it)) for name, it in got.calls] == [(made.name, {"query": query})]
    assert (got.ids, counted(counts)) == ([made.id], {"doubled": 1})


@WAYS_AND_TALKS
async def test_arguments_that_leaked_twice_are_taken_once(
    way: str, asked: str, said: str, query: str
) -> None:
    bare = [replace(calling("recall_memory"), arguments="{}") for _ in range(2)]
    answer = Streamed(said + leaked(query), reasoning=leaked(query), calls=tuple(bare))
    got, _ = await ask(way, [answer], asked)
    assert [json.loads(it) for _, it in got.calls] == [{"query": query}, {}]


@WAYS_AND_TALKS
async def test_beside_proper_calls_no_other_tools_leak_is_run(
    asked: str, said: str, query: str, way: str
) -> None:
    for words in (said, ""):
        counts = LeakCounts()
        answer = Streamed(words + leaked(query), calls=(calling("forget"),))
        script, rules = [answer], {"counts": counts}
        got, requests = await ask(way, script, asked, [RECALL, FORGET], rules=rules)
        assert [name for name, _ in got.calls] == ["forget"]
        assert (got.text, counted(counts), len(requests)) == (words, {"hidden": 1}, 1)


@WAYS_AND_TALKS
async def test_a_call_that_was_cut_is_not_run(asked: str, said: str, query: str, way: str) -> None:
    """Half a query is not what the model meant; a call before it is."""
    counts = LeakCounts()
    cut = leaked("茶 tea " * 9).removesuffix("</｜DSML｜function_calls>")
    for text, calls in [(said + cut, 0), (f"{said}{leaked(query)}，{said}{cut[:-20]}", 1)]:
        answer = Streamed(text, finish_reason="length", piece=6)
        got, _ = await ask(way, [answer], asked, rules={"counts": counts})
        assert (len(got.calls), got.reason) == (calls, "tool_calls" if calls else "length")
        assert "DSML" not in got.text and got.text.startswith(said)
    assert counts.total == 3


@pytest.mark.parametrize(
    ("asked", "words"), [("火锅去哪吃？", "工具调用接口"), ("Where to eat?", "plain words")]
)
@EVERY_WAY
@pytest.mark.parametrize("leak", [UNREADABLE, leaked("火锅", "drop_tables")])
async def test_an_answer_that_is_only_a_leak_is_asked_for_once_more(
    asked: str, words: str, way: str, leak: str
) -> None:
    script: list[Answer] = [Streamed(leak, reasoning="嗯 hm", piece=3), "好的 ok"]
    usage: dict[str, Any] = (
        {"stream_options": {"include_usage": True}} if way.endswith("stream") else {}
    )
    got, requests = await ask(way, script, asked, **usage)
    assert (got.text, got.calls, got.reason) == ("好的 ok", [], "stop")
    first, second = requests
    assert words in second["messages"][0]["content"]
    assert second["messages"][1:] == first["messages"]
    reasons = [it.choices[0].finish_reason for it in got.chunks if it.choices]
    assert not way.endswith("stream") or reasons.count("stop") == 1


@EVERY_WAY
async def test_the_second_answer_is_the_last(way: str) -> None:
    """Not better, but an end."""
    counts = LeakCounts()
    got, requests = await ask(way, [UNREADABLE] * 3, "火锅 eat", rules={"counts": counts})
    assert (got.text, got.calls, got.reason, len(requests)) == ("", [], "stop", 2)
    assert counted(counts) == {"unreadable": 2}


@WAYS_AND_TALKS
async def test_an_unreadable_leak_beside_words_is_only_hidden(
    asked: str, said: str, query: str, way: str
) -> None:
    counts = LeakCounts()
    got, requests = await ask(way, [said + UNREADABLE], asked, rules={"counts": counts})
    assert (got.text.strip(), len(requests)) == (said, 1)
    assert counted(counts) == {"unreadable": 1}


@TALK
@STREAMS
@pytest.mark.parametrize("pieces", [1, 12, 30])
async def test_a_stream_that_breaks_shows_no_half_call(
    asked: str, said: str, query: str, way: str, pieces: int
) -> None:
    counts, got = LeakCounts(), Got()
    broken = Streamed(
        pieces=(said, "<｜DS", *leaked(query)[4:-1]), breaks_after=pieces, calls=(calling("x"),)
    )
    with pytest.raises(APIError):
        await ask(way, [broken], asked, into=got, rules={"counts": counts})
    assert (got.text, got.calls, got.reason) == (said, [], None)
    assert pieces < 30 or counts.total == 1


@TALK
@STREAMS
async def test_a_stream_without_an_end_has_broken_off_and_runs_no_half_call(
    asked: str, said: str, query: str, way: str
) -> None:
    """Some servers just stop, without a finish reason: what came is shown, then it is an error."""
    got = Got()
    counts = LeakCounts()
    pieces = (said, leaked(query)[:80])
    answer = Streamed(pieces=pieces, breaks_after=2, quietly=True)
    with pytest.raises(Unavailable, match="broke off"):
        await ask(way, [answer], asked, into=got, rules={"counts": counts})
    assert (got.text.strip(), got.calls, got.reason, counts.total) == (said, [], None, 1)


@TALK
async def test_a_stream_can_be_left_and_closes_its_response(
    asked: str, said: str, query: str
) -> None:
    """As openai's own: with, close, aclose and response; a leak that was seen is counted."""
    counts = LeakCounts()
    text = f"{said}{leaked(query)}{said}{'。' * 500}"
    request: Any = {"model": "m", "messages": [{"role": "user", "content": asked}], "stream": True}
    api = scripted_api([Streamed(text, piece=40)] * 4)
    async with client_of("async", api, counts=counts) as client:
        async with await client.chat.completions.create(**request) as stream:
            shown = ""
            while shown.count(said) < 2:
                shown += (await anext(stream)).choices[0].delta.content or ""
            assert not stream.response.is_closed
        assert stream.response.is_closed
        stream = await client.chat.completions.create(**request)
        await stream.aclose()
        assert stream.response.is_closed
    async with client_of("sync", api) as client:
        with client.chat.completions.create(**request) as stream:
            shown = ""
            while said not in shown:
                shown += next(stream).choices[0].delta.content or ""
        assert stream.response.is_closed
        stream = client.chat.completions.create(**request)
        stream.close()
        assert stream.response.is_closed
    assert counted(counts) == {"hidden": 1}


@STREAMS
async def test_chunks_keep_what_they_carry(way: str) -> None:
    """Usage, role, fields of a server's own, chunks without choices: all but the markup."""
    leak = leaked("火锅 hotpot")
    odds: dict[str, Any] = {"content": [], "refusal": None}
    script = events(
        {"choices": [], "prompt_filter": "ok"},
        {"choices": [choice(role="assistant", content="")], "usage": None},
        {"choices": [{**choice(content="查"), "logprobs": odds}]},
        {"choices": [{**choice(content="look" + leak[:9]), "logprobs": odds}]},
        {"choices": [choice(content=leak[9:])], "usage": _usage(7), "x_trace": 1},
        {"choices": [choice(reason="stop")], "usage": _usage(8), "system_fingerprint": "fp"},
        {"choices": [], "usage": _usage(9)},
    )
    got, _ = await ask(way, [script], "火锅 eat")
    first, role, text, changed, usage, call, end, last = got.chunks
    assert (first.choices, first.prompt_filter) == ([], "ok")
    assert role.choices[0].delta.role == "assistant"
    assert (text.choices[0].delta.content, text.choices[0].logprobs is None) == ("查", False)
    assert (changed.choices[0].delta.content, changed.choices[0].logprobs) == ("look", None)
    assert (usage.usage.total_tokens, usage.choices, usage.x_trace) == (7, [], 1)
    assert (call.choices[0].delta.tool_calls[0].index, call.usage) == (0, None)
    assert (end.choices[0].finish_reason, end.system_fingerprint) == ("tool_calls", "fp")
    assert (end.usage.total_tokens, last.choices, last.usage.total_tokens) == (8, [], 9)


@TALK
@STREAMS
async def test_nothing_is_sent_for_what_is_held(
    asked: str, said: str, query: str, way: str
) -> None:
    """A call of a hundred pieces is a few chunks, though a role stands in every piece."""
    got, _ = await ask(way, [Streamed(pieces=(said, *leaked(query)))], asked)
    assert len(got.chunks) == 3


@TALK
@STREAMS
async def test_the_reasoning_is_whole_before_the_reply_begins(
    asked: str, said: str, query: str, way: str
) -> None:
    """The end of it was held, as it might have become markup."""
    got, _ = await ask(way, [Streamed(said, reasoning=f"{query} <", piece=1)], asked)
    parts = [it.choices[0].delta for it in got.chunks]
    reply = [number for number, it in enumerate(parts) if it.content]
    thoughts = [number for number, it in enumerate(parts) if getattr(it, "reasoning_content", None)]
    assert (got.reasoning, got.text) == (f"{query} <", said)
    assert max(thoughts) <= min(reply)


@STREAMS
async def test_choices_are_guarded_apart(way: str) -> None:
    """Pieces of one choice do not complete the markup of another."""
    leak = leaked("火锅 hotpot")
    script = events(
        {"choices": [choice(0, content=leak[:30]), choice(1, content="你好 <")]},
        {"choices": [choice(1, content="3 hi"), choice(0, content=leak[30:])]},
        {"choices": [choice(1, reason="stop"), choice(0, reason="stop")]},
    )
    got, _ = await ask(way, [script], "火锅 eat")
    ends = [it.choices[0] for it in got.chunks if it.choices[0].finish_reason]
    assert [(it.index, it.finish_reason) for it in ends] == [(1, "stop"), (0, "tool_calls")]
    texts = [it.choices[0] for it in got.chunks if it.choices[0].delta.content]
    assert ("".join(it.delta.content for it in texts), {it.index for it in texts}) == (
        "你好 <3 hi",
        {1},
    )


@TALK
async def test_a_call_of_a_custom_tool_passes_as_it_came(asked: str, said: str, query: str) -> None:
    made = {"id": "call_1", "type": "custom", "custom": {"name": "sql", "input": query}}
    message = {"role": "assistant", "content": said + leaked(query), "tool_calls": [made]}
    given = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    api = scripted_api([Fault(json.dumps({"choices": [given]}).encode())])
    async with client_of("sync", api) as client:
        messages = [{"role": "user", "content": asked}]
        answer = client.chat.completions.create(model="m", messages=messages, tools=[RECALL])
    assert answer.choices[0].message.content == said
    assert [it.model_dump() for it in answer.choices[0].message.tool_calls] == [made]


@pytest.mark.parametrize("way", ["sync", "async"])
async def test_an_answer_without_choices_stays_one(way: str) -> None:
    got, requests = await ask(way, [NO_CHOICES], "好 ok")
    assert (got, len(requests)) == (Got(), 1)


@TALK
async def test_copies_of_a_client_are_guarded_and_the_rest_is_its_own(
    asked: str, said: str, query: str
) -> None:
    request: Any = {"model": "m", "messages": [{"role": "user", "content": asked}]}
    api = scripted_api([said + UNREADABLE] * 3)
    async with client_of("sync", api) as client:
        clients = [client.with_options(timeout=5), client.copy(max_retries=1), client.beta]
        for it in clients:
            answer = it.chat.completions.create(**request)
            assert answer.choices[0].message.content.strip() == said
        assert clients[0].timeout == 5
        assert [model.id for model in client.models.list()] == ["scripted"]


class Place(BaseModel):
    name: str


@TALK
@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_openais_own_helpers_are_guarded_too(
    asked: str, said: str, query: str, kind: str
) -> None:
    """`stream` gathers what it was sent, `parse` reads what is left."""
    request: Any = {"model": "m", "messages": [{"role": "user", "content": asked}]}
    place = json.dumps({"name": query}, ensure_ascii=False)
    script: list[Answer] = [place + UNREADABLE, Streamed(said + leaked(query), piece=2)]
    api = scripted_api(script)
    async with client_of(kind, api) as client:
        chat = client.chat.completions
        parsed = chat.parse(**request, response_format=Place)
        streamed = chat.stream(**request, tools=[RECALL])
        if kind == "async":
            parsed = await parsed
            async with streamed as stream:
                final = await stream.get_final_completion()
        else:
            with streamed as stream:
                final = stream.get_final_completion()
    assert parsed.choices[0].message.parsed == Place(name=query)
    assert final.choices[0].message.content.strip() == said
    (call,) = final.choices[0].message.tool_calls
    assert json.loads(call.function.arguments) == {"query": query}


@TALK
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_an_agent_runs_a_leaked_call_once(
    asked: str, said: str, query: str, is_streamed: bool
) -> None:
    """The Agents SDK sees an ordinary call, and the user sees only words."""
    set_tracing_disabled(True)
    queries: list[str] = []

    @function_tool
    def recall_memory(query: str) -> str:
        queries.append(query)
        return "u_1 不吃辣 eats nothing spicy"

    leaking = Streamed(f"{said}\n\n{leaked(query)}", reasoning=leaked(query), piece=3)
    script: list[Answer] = [leaking, "清汤 mild"]
    shown = ""
    api = scripted_api(script, strict={"tools", "pairs", "reasoning_content"})
    async with client_of("async", api) as client:
        model = OpenAIChatCompletionsModel("m", client)
        agent = Agent("friend", model=model, tools=[recall_memory])
        if is_streamed:
            result: Any = Runner.run_streamed(agent, asked)
            async for event in result.stream_events():
                data: Any = getattr(event, "data", None)
                if getattr(data, "type", "") == "response.output_text.delta":
                    shown += data.delta
        else:
            result = await Runner.run(agent, asked)
    assert (queries, result.final_output) == ([query], "清汤 mild")
    assert not is_streamed or shown.replace("\n", "") == said + "清汤 mild"
    assert "DSML" not in json.dumps(result.to_input_list(), ensure_ascii=False)
    assert len(api.requests) == 2


def test_a_leak_is_an_error_in_the_log_without_its_text(caplog: pytest.LogCaptureFixture) -> None:
    leak = Leak("dsml", (LeakedCall("recall_memory\n", {"query": "秘密 secret"}),), "秘密 secret")
    with caplog.at_level(logging.ERROR, "kemem"):
        LeakCounts().note(leak, "hidden")
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert all(it in record.message for it in ("dsml", r"recall_memory\n", "hidden"))
    assert "secret" not in record.message and "秘密" not in record.message


def test_counts_lose_nothing_between_threads(caplog: pytest.LogCaptureFixture) -> None:
    """Each reply counts its own, and all of them together."""
    caplog.set_level(logging.CRITICAL, "kemem")
    counts, leak = LeakCounts(), Leak("hermes", (), "茶 tea")

    def note() -> None:
        own = LeakCounts(counts)
        for _ in range(500):
            own.note(leak, "unreadable")
        assert own.total == 500

    threads = [Thread(target=note) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (dict(counts), counts.total) == ({("hermes", "unreadable"): 4000}, 4000)


@each(
    ("schema", "value", "read"),
    [
        ({"type": "string"}, UntypedText("5"), "5"),
        ({"type": "integer"}, UntypedText("5"), 5),
        ({"type": "integer"}, "5", 5),
        ({"type": ["string", "null"]}, UntypedText("null"), "null"),
        ({"type": "array", "items": {"type": "string"}}, UntypedText('["火锅"]'), ["火锅"]),
        ({"enum": ["火锅", "tea"]}, UntypedText("火锅"), "火锅"),
        ({"$ref": "#/$defs/limit"}, UntypedText("3"), 3),
        ({}, UntypedText("火锅"), "火锅"),
        ({"type": "string"}, 5, None),
        ({"type": "strin"}, UntypedText("火锅"), None),
        ({"type": "integer"}, UntypedText("many"), None),
        ({"type": "object"}, UntypedText("[" * 100_000), None),
        ({"$ref": "#/$defs/nowhere"}, UntypedText("火锅"), None),
    ],
)
def test_the_schema_settles_the_type_of_a_written_value(schema: Any, value: Any, read: Any) -> None:
    parameters = {
        "type": "object",
        "properties": {"it": schema},
        "$defs": {"limit": {"type": "integer", "maximum": 9}},
    }
    policy = ToolPolicy([_tool(parameters)])
    call = policy.allow(LeakedCall("t", {"it": value}))
    expected = ToolCall("", "t", json.dumps({"it": read}, ensure_ascii=False))
    assert call == (None if read is None else expected)


def test_a_schema_makes_nobody_fetch_anything() -> None:
    """It may come from a stranger, and its references may point into our own network."""
    with socket.create_server(("127.0.0.1", 0)) as inner:
        inner.setblocking(False)
        schema = {"$ref": f"http://127.0.0.1:{inner.getsockname()[1]}/schema"}
        policy = ToolPolicy([_tool(schema)])
        for value in ("火锅", "hotpot"):
            call = LeakedCall("t", {"it": value})
            checking = Thread(target=policy.allow, args=(call,), daemon=True)
            checking.start()
            checking.join(5)  # who fetches waits for an answer that never comes
            assert not checking.is_alive()
        with pytest.raises(BlockingIOError):
            inner.accept()


def _usage(total: int) -> dict[str, int]:
    return {"prompt_tokens": 1, "completion_tokens": total - 1, "total_tokens": total}


def _tool(parameters: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "t", "parameters": parameters}}
