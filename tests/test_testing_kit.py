"""The small parts of the shipped test kit."""

import json
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from anyio import fail_after, to_thread
from openai import (
    APIConnectionError,
    AsyncOpenAI,
    BadRequestError,
    DefaultAsyncHttpxClient,
    DefaultHttpxClient,
    InternalServerError,
    OpenAI,
    RateLimitError,
)
from openai.types.chat import ChatCompletionChunk as Chunk

from kemem.ports import ToolCall
from kemem.testing import (
    FakeClock,
    HashingEmbedder,
    Streamed,
    calling,
    openai_server_process,
    running_openai_server,
)
from kemem.testing.openai_server import (
    GARBAGE,
    STRICT,
    Answer,
    OpenAIServer,
    OpenAIServerProcess,
    status,
)
from kemem.testing.openai_server.__main__ import parse_script
from tests import warm
from tests.cases import each

PATIENCE = 20.0
KNOWN = [{"type": "function", "function": {"name": "recall_memory", "parameters": {}}}]
SAID = [("用户去过成都，爱吃火锅。", "先想想成都"), ("You liked Chengdu a lot.", "Chengdu, then?")]
BOTH = pytest.mark.parametrize(("text", "thought"), SAID)


@pytest.mark.parametrize(
    ("text", "alike", "unlike"),
    [
        ("我不吃辣", "他也不吃辣的菜", "明天开会"),
        ("I can't eat spicy food", "SPICY foods again", "the meeting is tomorrow"),
    ],
)
async def test_texts_that_share_words_are_near(text: str, alike: str, unlike: str) -> None:
    """That is all a hashing embedder knows, and it knows it on every machine."""
    embedder = HashingEmbedder(width=256)
    matrix = await embedder.embed([text, alike, unlike], purpose="passage")
    assert matrix.shape == (3, 256)
    assert matrix.dtype == np.float32
    assert matrix[0] @ matrix[1] > 0.3 > matrix[0] @ matrix[2]
    (again,) = await HashingEmbedder(width=256).embed([text], purpose="query")
    assert np.array_equal(again, matrix[0])


async def test_every_text_has_a_direction() -> None:
    """Also one without words; no texts give no rows."""
    embedder = HashingEmbedder()
    texts = ["", "！！！", "\0", "🎉", "火", "x" * 10_000]
    matrix = await embedder.embed(texts, purpose="passage")
    assert np.linalg.norm(matrix, axis=1) == pytest.approx(np.ones(len(texts)), abs=1e-6)
    assert (await embedder.embed([], purpose="query")).shape == (0, embedder.width)


def test_a_fake_clock_stands_still_until_it_is_advanced() -> None:
    """Equal times are wanted in tests."""
    clock = FakeClock(1_767_225_600_000_000)
    assert clock() == clock() == 1_767_225_600_000_000
    clock.advance(seconds=0.000_001)
    assert clock() == 1_767_225_600_000_001
    clock.advance(seconds=90)
    assert clock() == 1_767_225_690_000_001


def test_the_reference_store_needs_no_test_framework() -> None:
    """Only the suite imports pytest and hypothesis."""
    code = "import sys, kemem.testing; print({'pytest', 'hypothesis'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.stdout.strip(), done.returncode) == ("set()", 0)


def asked(request: dict[str, Any]) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "在吗"}], **request}


def client_of(server: OpenAIServer | OpenAIServerProcess) -> OpenAI:
    plain = DefaultHttpxClient(verify=False)  # reading certificates takes longer than most tests
    return OpenAI(base_url=server.base_url, api_key="none", max_retries=0, http_client=plain)


def whole(server: OpenAIServer | OpenAIServerProcess, **request: Any) -> Any:
    """The first choice of an answer that comes in one piece."""
    with client_of(server) as client:
        return client.chat.completions.create(**asked(request)).choices[0]


def stream(server: OpenAIServer | OpenAIServerProcess, **request: Any) -> Iterator[Chunk]:
    """What the blocking client sees, as it comes."""
    with client_of(server) as client:
        yield from client.chat.completions.create(stream=True, **asked(request))


async def stream_async(server: OpenAIServer, **request: Any) -> AsyncGenerator[Chunk]:
    """What the asynchronous client sees, as it comes."""
    plain = DefaultAsyncHttpxClient(verify=False)
    async with AsyncOpenAI(
        base_url=server.base_url, api_key="none", max_retries=0, http_client=plain
    ) as client:
        chunks = await client.chat.completions.create(stream=True, **asked(request))
        async with chunks:
            async for chunk in chunks:
                yield chunk


def delta(chunk: Chunk) -> dict[str, Any]:
    return chunk.choices[0].delta.model_dump(exclude_none=True, exclude={"role"})


def joined(chunks: Sequence[Chunk], name: str) -> str:
    return "".join(delta(chunk).get(name, "") for chunk in chunks)


@BOTH
async def test_an_answer_has_thoughts_text_and_calls(text: str, thought: str) -> None:
    """The same in a stream, cut as it is told to be, and in one piece."""
    call = calling("recall_memory", query=text)
    answer = Streamed(text, reasoning=thought, calls=(call,), piece=1)
    with running_openai_server([answer, answer]) as server:
        chunks = [chunk async for chunk in stream_async(server)]
        choice = whole(server)
    assert joined(chunks, "reasoning_content") == choice.message.reasoning_content == thought
    assert joined(chunks, "content") == choice.message.content == text
    assert max(len(delta(it).get("content", "")) for it in chunks) == 1
    called = [it["tool_calls"][0]["function"] for it in map(delta, chunks) if "tool_calls" in it]
    written = "".join(it["arguments"] for it in called)
    assert (called[0]["name"], json.loads(written)) == ("recall_memory", {"query": text})
    assert choice.message.tool_calls[0].function.arguments == written
    assert chunks[-1].choices[0].finish_reason == choice.finish_reason == "tool_calls"


@BOTH
def test_a_script_says_where_a_text_is_cut_and_why_it_ends(text: str, thought: str) -> None:
    """Markup that is split at any place can be played."""
    pieces = (text[:3], "<｜DS", "ML｜", text[3:])
    with running_openai_server([Streamed(pieces=pieces, finish_reason="length")] * 2) as server:
        *chunks, last = stream(server)
        choice = whole(server)
    assert tuple(delta(chunk)["content"] for chunk in chunks) == pieces
    assert choice.message.content == "".join(pieces)
    assert last.choices[0].finish_reason == choice.finish_reason == "length"
    assert not hasattr(choice.message, "reasoning_content")


@BOTH
@each("seen", [0, 1, 5])
async def test_a_stream_breaks_after_some_deltas(text: str, thought: str, seen: int) -> None:
    """They arrive; then each client sees a lost connection, as it does without a stream."""
    answer = Streamed(text, reasoning=thought[:2], piece=1, breaks_after=seen)
    come: list[Chunk] = []
    again: list[Chunk] = []
    with running_openai_server([answer] * 3) as server:
        with pytest.raises(APIConnectionError):
            async for chunk in stream_async(server):
                come.append(chunk)
        with pytest.raises(APIConnectionError):
            again.extend(stream(server))
        with pytest.raises(APIConnectionError):
            whole(server)
    said = joined(come, "reasoning_content") + joined(come, "content")
    assert said == (thought[:2] + text)[:seen]
    assert [delta(it) for it in come] == [delta(it) for it in again]


@BOTH
async def test_a_stream_may_end_quietly(text: str, thought: str) -> None:
    """Without an error, and without a reason."""
    with running_openai_server([Streamed(text, breaks_after=1, quietly=True)]) as server:
        (chunk,) = [chunk async for chunk in stream_async(server)]
    assert (delta(chunk), chunk.choices[0].finish_reason) == ({"content": text[:8]}, None)


@BOTH
async def test_a_delta_is_seen_before_the_next_is_sent(text: str, thought: str) -> None:
    """A client that hangs up meanwhile is noticed; no pause outlasts the server."""
    with running_openai_server([Streamed(text, pause=3600)] * 2) as server, fail_after(PATIENCE):
        goes, stays = stream_async(server), stream_async(server)
        assert joined([await anext(goes)], "content") == text[:8]
        assert joined([await anext(stays)], "content") == text[:8]
        assert not server.hung_up.is_set()
        await goes.aclose()
        assert await to_thread.run_sync(server.hung_up.wait, PATIENCE)
    with fail_after(PATIENCE):
        assert joined([chunk async for chunk in stays], "content") == text[8:]


def turn(*ids: str, results: Sequence[str], thought: str | None = None) -> list[dict[str, Any]]:
    """Calls with these ids, and results for those."""
    function = {"name": "recall_memory", "arguments": "{}"}
    calls = [{"id": it, "type": "function", "function": function} for it in ids]
    said: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": calls}
    if thought is not None:
        said["reasoning_content"] = thought
    return [said, *({"role": "tool", "tool_call_id": it, "content": "{}"} for it in results)]


@BOTH
@each(
    ("history", "tools", "rule", "complaint"),
    [
        (turn("a", results=["a"]), True, "reasoning_content", "must be passed back"),
        (turn("a", results=["a"], thought=""), False, "tools", "need the parameter tools"),
        (turn("a", "b", results=["a"]), True, "pairs", "without response messages: b"),
        (turn("a", results=[]), True, "pairs", "without response messages: a"),
        (turn("a", results=["a", "a"]), True, "pairs", "must be a response"),
        (turn("a", results=["a", "b"]), True, "pairs", "must be a response"),
        (turn("a", results=["a"]) * 2, True, "pairs", "duplicate"),
        (turn("a", "a", results=["a", "a"]), True, "pairs", "duplicate"),
    ],
)
def test_a_strict_server_refuses_a_broken_history(
    text: str,
    thought: str,
    history: list[dict[str, Any]],
    tools: bool,
    rule: str,
    complaint: str,
) -> None:
    """Each rule alone finds its fault; the others do not; nothing of the script is used up."""
    messages = [{"role": "user", "content": thought}, *history]
    request = {"messages": messages, **({"tools": KNOWN} if tools else {})}
    with running_openai_server([text], strict={rule}) as server:
        with pytest.raises(BadRequestError, match=complaint):
            whole(server, **request)
        assert whole(server).message.content == text
    with running_openai_server([text], strict=STRICT - {rule, "reasoning_content"}) as server:
        assert whole(server, **request).message.content == text


@BOTH
def test_a_strict_server_answers_a_sound_history(text: str, thought: str) -> None:
    """Thoughts of earlier turns may be gone, those of this turn may be empty."""
    user = {"role": "user", "content": text}
    earlier = [user, *turn("a", results=["a"]), {"role": "assistant", "content": text}]
    this = [user, *turn("b", "c", results=["c", "b"], thought=""), *turn("d", results=["d"])]
    this[-2]["reasoning_content"] = thought
    with running_openai_server([text, text], strict=STRICT) as server:
        assert whole(server, messages=[*earlier, *this], tools=KNOWN).message.content == text
        assert whole(server, messages=[user, earlier[-1], user]).message.content == text


@BOTH
def test_what_asks_for_a_format_may_be_answered_beside_the_script(text: str, thought: str) -> None:
    """Facts are drawn while somebody chats; the last answer of a script may be given for ever."""
    form = {"type": "json_object"}
    facts = {"facts": [{"text": text}]}
    with running_openai_server([thought, text], formatted=facts, repeat_last=True) as server:
        said = [whole(server, **it).message.content for it in ({}, {"response_format": form}, {})]
        more = {whole(server).message.content for _ in range(3)}
    assert (said[0], json.loads(said[1]), said[2], more) == (thought, facts, text, {text})


@BOTH
def test_the_server_runs_as_a_process(text: str, thought: str) -> None:
    """All kinds of answers reach it, and it tells what it was sent."""
    call = ToolCall("", "recall_memory", json.dumps({"query": text}))
    broken = Streamed(text, reasoning=thought, piece=2, breaks_after=1)
    script: list[Answer] = [text, {"答": text}, None, status(429), broken, GARBAGE, call]
    with openai_server_process(script, repeat_last=True, strict=STRICT) as server:
        assert whole(server).message.content == text
        assert json.loads(whole(server).message.content) == {"答": text}
        assert whole(server).message.content is None
        with pytest.raises(RateLimitError, match="the script says so"):
            whole(server)
        chunks = stream(server)
        assert delta(next(chunks)) == {"reasoning_content": thought[:2]}
        with pytest.raises(APIConnectionError):
            next(chunks)
        with pytest.raises(ValueError):
            whole(server)
        calls = [whole(server, tools=KNOWN).message.tool_calls[0] for _ in range(2)]
        assert [json.loads(it.function.arguments) for it in calls] == [{"query": text}] * 2
        assert calls[0].id != calls[1].id
        with pytest.raises(BadRequestError, match="without response messages"):
            whole(server, messages=turn("a", results=[], thought=""), tools=KNOWN)
        assert server.requests()[0]["messages"][0]["content"] == "在吗"
        assert [it.get("stream") for it in server.requests()].index(True) == 4
    with pytest.raises(ConnectionRefusedError):
        server.requests()


@BOTH
def test_a_script_is_served_from_a_file(tmp_path: Path, text: str, thought: str) -> None:
    """One line says where; what is over is over."""
    called = {"name": "recall_memory", "arguments": {"query": text}}
    told = [text, {"text": text, "reasoning": thought, "calls": [called]}, {"status": 429}]
    script = tmp_path / "script.json"
    script.write_text(json.dumps(told, ensure_ascii=False), "utf-8")
    command = [*warm.python(), "-m", "kemem.testing.openai_server", str(script)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout
            server = OpenAIServerProcess(process.stdout.readline().strip(), process)
            assert server.base_url.startswith("http://127.0.0.1:")
            assert joined(list(stream(server)), "content") == text
            message = whole(server).message
            with pytest.raises(RateLimitError):
                whole(server)
            with pytest.raises(InternalServerError, match="only 3 answers"):
                whole(server)
            assert len(server.requests()) == 4
        finally:
            process.kill()
    assert (message.content, message.reasoning_content) == (text, thought)
    assert json.loads(message.tool_calls[0].function.arguments) == {"query": text}


@each(
    ("told", "reason"),
    [
        ([{"text": "好", "breaks": 1}], "breaks"),
        ([{"text": "hi", "calls": ["now"]}], "answer is invalid"),
        ([["好"]], "answer is invalid"),
        ([{"status": 429, "text": "hi"}], "text"),
        ({"answers": ["hi"], "strict": ["all"]}, "strict knows"),
        ({"answers": ["好"], "repeats": True}, "repeats"),
        ({"repeat_last": True}, "answers"),
        ("好", "a list of answers"),
    ],
)
def test_a_script_that_cannot_be_played_is_refused(told: Any, reason: str) -> None:
    """With what is wrong."""
    with pytest.raises(ValueError, match=reason):
        parse_script(told)


def test_the_command_says_what_is_wrong_with_a_script() -> None:
    """And does not listen."""
    command = [*warm.python(), "-m", "kemem.testing.openai_server", "-"]
    told = json.dumps([{"txt": "你好"}])
    done = subprocess.run(command, input=told, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, "'txt'" in done.stderr) == (2, "", True)


def test_an_answer_that_contradicts_itself_is_refused() -> None:
    """Where it is written, not where it is sent."""
    with pytest.raises(ValueError, match="not what its pieces say"):
        Streamed("你好", pieces=("hel", "lo"))
    with pytest.raises(ValueError, match="at least one character"):
        Streamed("hello", piece=0)
    with pytest.raises(ValueError, match="strict knows"), running_openai_server([], strict={"all"}):
        pass
    with pytest.raises(TypeError, match="use a list"), openai_server_process(str):  # type: ignore[arg-type]
        pass
