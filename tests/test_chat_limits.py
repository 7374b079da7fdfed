"""Chats with a model that does not end, that does not know, or that is asked twice at once."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from kemem import AsyncMemory
from kemem.chat import ChatService, DoneEvent, ErrorEvent, Event, RecallEvent
from kemem.chat.proxy import Proxy
from kemem.chat.requests import Json
from kemem.ports.limits import most_of_reply
from kemem.settings import load
from kemem.testing.openai_server import Answer, Streamed, running_openai_server, status
from tests.chats import CHINESE, ENGLISH, PATIENCE, TALK, TALKS, Stage, Talk, staged

OLD, NEW = "max_tokens", "max_completion_tokens"
WEAK = {  # what was said, and a question about something else
    "zh": ("我姐姐住在长沙，在医院上班", "我姐姐的狗叫什么名字？", "没有确切的记忆"),
    "en": ("My sister lives in Leeds", "What is the name of my sister's dog?", "Nothing certain"),
}


# Replies without an end


@TALK
async def test_a_reply_that_reaches_its_limit_of_tokens_is_kept_and_says_so(
    stage: Stage, user: str, talk: Talk
) -> None:
    stage.model.says(Streamed(talk.reply * 9, finish_reason="length"))
    *_, end = await stage.turn(talk.message, user)
    assert isinstance(end, ErrorEvent) and end.text == talk.reply * 9
    assert (end.code, end.message) == (
        "RESOURCE_EXHAUSTED",
        "the reply was cut: it reached its limit of tokens",
    )
    _, partial = await stage.stored(user)
    assert (partial.message_id, partial.metadata) == (end.message_id, {"partial": True})
    (request,) = stage.model.asked
    assert request[OLD] == most_of_reply(stage.memory.settings.chat_history_tokens)


@TALK
async def test_a_server_that_knows_no_limit_is_hung_up_on(
    tmp_path: Path, user: str, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it streams more pieces than the limit has tokens."""
    monkeypatch.setattr("kemem.chat.base.most_of_reply", lambda _: 20)
    async with staged(tmp_path) as stage:
        stage.model.says(Streamed("so " * 99, piece=3))
        *_, end = await stage.turn(talk.message, user)
        assert isinstance(end, ErrorEvent) and "limit of tokens" in end.message
        assert await stage.said(user) == [("user", talk.message), ("assistant", end.text)]
        assert 20 <= end.text.count("so") <= 22 and stage.api.hung_up.is_set()


@TALK
async def test_a_model_that_thinks_until_it_is_cut_gets_more_room(
    tmp_path: Path, user: str, talk: Talk
) -> None:
    async with staged(tmp_path) as stage:
        thoughts = Streamed("", reasoning="Hmm. " * 50, finish_reason="length")
        stage.model.says(thoughts, talk.reply)
        *_, error = await stage.turn(talk.message, user)
        assert isinstance(error, ErrorEvent) and "limit of tokens" in error.message
        *_, done = await stage.turn(talk.message, user)
        assert isinstance(done, DoneEvent)
        first, second = (it[OLD] for it in stage.model.asked)
        assert second == 4 * first


@TALK
async def test_a_limit_that_a_server_refuses_is_sent_by_its_other_name(
    tmp_path: Path, user: str, talk: Talk
) -> None:
    async with staged(tmp_path) as stage:
        stage.model.says(status(400, f"{OLD} is not supported"), talk.reply, talk.reply)
        for _ in range(2):
            *_, done = await stage.turn(talk.message, user)
            assert isinstance(done, DoneEvent) and done.text == talk.reply
        assert [NEW in it for it in stage.model.asked] == [False, True, True]


async def test_a_stream_that_drips_without_end_is_cut_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a chat and of the proxy: what came until then is shown, stored, and said to be cut."""
    monkeypatch.setattr("kemem.chat.base.MOST_PATIENCE", 0.1)
    drip = Streamed("so " * 9_000, piece=3, pause=0.05)
    with running_openai_server([drip, drip]) as server:
        named: Any = {"llm_base_url": server.base_url, "llm_timeout_seconds": 20}
        chosen = load(data_dir=tmp_path, embedder="none", chat_recall="note", **named)
        async with AsyncMemory(settings=chosen) as memory:
            chat, proxy = ChatService(memory, run_jobs=False), Proxy(memory, run_jobs=False)

            async def proxied() -> list[Json]:
                body = {"messages": [{"role": "user", "content": "Hello"}]}
                return [it async for it in proxy.chunks(body, memory.for_user("b"), "s")]

            async with asyncio.timeout(PATIENCE):
                chatted = chat.reply("Hello", user_id="a", session_id="s")
                reply, chunks = await asyncio.gather(chatted, proxied())
            assert reply.error and reply.error.message.endswith("cut: it took longer than 2 s")
            assert chunks[-1]["choices"][0]["finish_reason"] == "length"
            for user in ("a", "b"):
                partial, said = (await memory.messages(user)).items
                assert said.content == "Hello" and partial.content.startswith("so")
                assert partial.metadata == {"partial": True}
            await chat.close()
            await proxy.close()
    assert sorted(OLD in it for it in server.requests) == [False, True]


@TALK
@pytest.mark.parametrize("piece", [1, 1000])
async def test_thoughts_that_a_server_leaves_in_the_text_are_not_said(
    stage: Stage, user: str, talk: Talk, piece: int
) -> None:
    """As vLLM and llama.cpp do without a parser; of nothing but thoughts there is no reply."""
    thoughts = "\n<think>\n1 < 2, </thi: hm. </think>\n\n"
    stage.model.says(Streamed(thoughts + talk.reply, piece=piece), Streamed(thoughts, piece=piece))
    *_, done = await stage.turn(talk.message, user)
    assert isinstance(done, DoneEvent) and done.text == talk.reply
    *_, error = await stage.turn(talk.message, user)
    assert isinstance(error, ErrorEvent) and error.message == "the model answered nothing"
    said = [("user", talk.message), ("assistant", talk.reply), ("user", talk.message)]
    assert await stage.said(user) == said


# Turns at once


@TALKS
async def test_turns_of_a_session_follow_each_other(stage: Stage, user: str, talk: Talk) -> None:
    """In the order in which they came, each with its reply; the second one knows of the first."""
    words = ["one", "two", "three"]

    def answer(request: dict[str, Any]) -> Answer:
        asked = [it["content"] for it in request["messages"] if it["role"] == "user"][-1]
        return Streamed(f"{asked}!", piece=2, pause=0.02 if asked.endswith("one") else 0)

    stage.model.says(*[answer] * len(words))
    said = [f"{talk.message} {word}" for word in words]
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*(stage.turn(it, user) for it in said))
    pairs = [pair for it in said for pair in (("user", it), ("assistant", f"{it}!"))]
    assert await stage.said(user) == pairs
    assert f"{said[0]}!" in str(stage.model.asked[1]["messages"])


@TALK
async def test_a_turn_that_nobody_reads_on_holds_up_no_other(
    stage: Stage, user: str, talk: Talk
) -> None:
    """Once it has ended; and who hangs up while others speak has spoken all the same."""
    stage.model.says(Streamed(talk.reply, piece=3, pause=60), talk.reply, talk.reply)
    speaking = stage.chat.turn(talk.message, user_id=user, session_id="s")
    assert [(await anext(speaking)).type for _ in range(2)] == ["recall", "text"]
    waiting = asyncio.create_task(stage.turn("两 two", user))
    await asyncio.sleep(0.05)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert [it for _, it in await stage.said(user)] == [talk.message, "两 two"]
    await speaking.aclose()
    ended = stage.chat.turn(talk.message, user_id=user, session_id="s")
    events: list[Event] = []
    while not events or events[-1].type != "done":
        events.append(await anext(ended))
    async with asyncio.timeout(PATIENCE):  # though it is still held here
        *_, done = await stage.turn(talk.message, user)
    assert isinstance(done, DoneEvent)
    await ended.aclose()


# What is not known


@pytest.mark.parametrize("language", WEAK)
@pytest.mark.parametrize("way", ["call", "note"])
async def test_weak_evidence_is_said_to_be_weak(tmp_path: Path, language: str, way: Any) -> None:
    """In the language of the question, before it is read; what answers is shown as before."""
    said, unknown, words = WEAK[language]
    known = {"zh": "我姐姐住在哪里？", "en": "Where does my sister live?"}[language]
    talk = {"zh": CHINESE, "en": ENGLISH}[language]
    async with staged(tmp_path, embedder="local", chat_recall=way) as stage:
        await stage.memory.add(said, "u")
        for question, is_weak in ((unknown, True), (known, False)):
            stage.model.says(talk.reply)
            recall, *_ = await stage.turn(question, "u", session=question[:9])
            assert isinstance(recall, RecallEvent) and recall.events
            assert recall.uncertain == is_weak, question
            (request,) = stage.model.asked
            system, last = request["messages"][0]["content"], request["messages"][-1]["content"]
            shown = system if way == "note" else json.loads(last).get("note", "")
            assert (words in shown) == is_weak
