"""MemorySession: an agent's history in the message log, item by item, and remembered."""

import asyncio
import copy
import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner, function_tool
from agents.memory import Session, SessionSettings
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai import AsyncOpenAI

from kemem import AsyncMemory, Exhausted, InvalidArgument, NotFound
from kemem.chat import MemorySession
from kemem.settings import load
from kemem.testing import FakeClock, calling, running_openai_server
from kemem.testing.openai_server import Script
from tests.fixtures import EXAMPLES

NOW = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
EACH = pytest.mark.parametrize("language", ["zh", "en"])
ONE = pytest.mark.parametrize("language", ["zh"])
SAID = {"zh": "我不吃辣，火锅要清汤", "en": "I can't eat spicy food"}
ASKED = {"zh": "火锅", "en": "spicy"}
RETURNED = {"zh": "成都，晴，21 度", "en": "Chengdu: sunny, 21 degrees"}
ANSWERED = {"zh": "成都是晴天。", "en": "It is sunny in Chengdu."}
QUIET = RunConfig(tracing_disabled=True)


def said(text: str, role: str = "user") -> Any:
    return {"role": role, "content": text}


def answered(text: str) -> Any:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {
        **{"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"},
        "content": [part],
    }


def called(call_id: str = "call_1", arguments: str = '{"city": "成都"}') -> Any:
    call = {"type": "function_call", "call_id": call_id, "name": "get_weather"}
    return {**call, "arguments": arguments}


def returned(text: str, call_id: str = "call_1") -> Any:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def turn(language: str) -> list[Any]:
    """A turn with everything that the SDK keeps of one."""
    thought = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "AbC="}
    return [
        *(said(SAID[language]), thought, called(), returned(RETURNED[language])),
        answered(ANSWERED[language]),
    ]


def opened(directory: Path, clock: FakeClock | None = None, **more: Any) -> AsyncMemory:
    chosen = load(data_dir=directory, embedder="none", llm="none", **more)
    return AsyncMemory(settings=chosen, clock=clock)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW)


@pytest.fixture
async def memory(tmp_path: Path, clock: FakeClock) -> AsyncIterator[AsyncMemory]:
    async with opened(tmp_path, clock) as memory:
        yield memory


def session_of(memory: AsyncMemory, session_id: str = "s", **more: Any) -> MemorySession:
    return MemorySession(memory, session_id, **{"user_id": "u", **more})


# What is kept


@ONE
async def test_items_come_back_exactly_and_in_their_order(
    memory: AsyncMemory, language: str
) -> None:
    """Other objects of the same session, and the caller's own items, are not affected."""
    items = turn(language)
    await session_of(memory).add_items(items)
    assert items == turn(language)
    assert await session_of(memory).get_items() == turn(language)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
TEXT = st.sampled_from(["好的", "OK", "", " \n", "\0", "半个\ud83d", "a\u2028b"]) | st.text(
    max_size=9
)
ITEM = st.dictionaries(
    st.sampled_from(["role", "type", "content", "output", "id"]),
    TEXT | JSON | st.lists(st.fixed_dictionaries({"text": TEXT}), max_size=2),
) | st.builds(said, TEXT, st.sampled_from(["user", "assistant", "system", "developer", "tool"]))
NAMES = (f"s_{number}" for number in itertools.count())


@given(items=st.lists(ITEM, max_size=5))
@settings(max_examples=EXAMPLES, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_whatever_is_json_comes_back(memory: AsyncMemory, items: list[Any]) -> None:
    """Blank, broken and strange items too; popped one after the other, nothing stays behind."""
    session = session_of(memory, next(NAMES))
    await session.add_items(copy.deepcopy(items))
    assert await session.get_items() == items
    assert [await session.pop_item() for _ in items] == items[::-1]
    left = await memory.get_all("u", session_id=session.session_id, kinds=["message"])
    assert list(left) == []


@ONE
async def test_large_items_are_kept_whole(memory: AsyncMemory, language: str) -> None:
    """Longer than a message or its metadata may be: texts, pictures, results of tools."""
    text = {"type": "input_text", "text": SAID[language]}
    small, image = (
        {"type": "input_image", "image_url": "data:image/png;base64," + "iVBOR" * times}
        for times in (2_000, 200_000)
    )
    large = [
        said((SAID[language] + "\n") * 20_000),
        {"role": "user", "content": [text, small]},
        {"role": "user", "content": [text, image]},
        returned(json.dumps([RETURNED[language]] * 30_000, ensure_ascii=False)),
        answered('"\\' * 200_000),
    ]
    session = session_of(memory)
    await session.add_items(large)
    assert await session.get_items() == large
    assert await session.get_items(2) == large[-2:]
    found = await memory.search(ASKED[language], "u", kinds=["message"])
    assert [hit.to_dict()["role"] for hit in found].count("user") == 3
    assert all(len(str(hit.metadata)) < 2_500 for hit in found)
    assert [await session.pop_item() for _ in large] == large[::-1]
    assert (await memory.messages("u")).items == ()


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (said("好") | {"at": object()}, r"items\[1\] must be JSON"),
        (said("ok") | {"score": float("nan")}, r"items\[1\] must be JSON"),
        ("我不吃辣", r"items\[1\] must be an object"),
        (["no item"], r"items\[1\] must be an object"),
    ],
)
async def test_an_item_that_cannot_be_kept_refuses_all(
    memory: AsyncMemory, wrong: Any, reason: str
) -> None:
    """And says which one it is."""
    session = session_of(memory)
    with pytest.raises(InvalidArgument, match=reason):
        await session.add_items([said("before"), wrong])
    assert await session.get_items() == []
    await session.add_items([])
    await session.add_items([said("之后")])
    assert await session.get_items() == [said("之后")]


async def test_more_items_than_one_write_takes_are_refused_as_a_whole(memory: AsyncMemory) -> None:
    """Nothing is left of them."""
    session = session_of(memory)
    with pytest.raises(Exhausted):
        await session.add_items([said("你好 hello")] * 5_001)
    assert await session.get_items() == []


# What is remembered


@EACH
async def test_what_was_said_is_found_and_remembered_and_what_tools_return_is_not(
    memory: AsyncMemory, language: str
) -> None:
    """At once by its words, after the job as a memory that cites the message."""
    await session_of(memory).add_items(turn(language))
    (hit, *_) = await memory.search(ASKED[language], "u", kinds=["message"])
    assert (hit.to_dict()["role"], hit.memory) == ("user", SAID[language])
    assert not await memory.get_all("u")
    await memory.run_jobs()
    notes = await memory.get_all("u")
    assert notes
    assert {name for note in notes for name in note.sources} == {hit.id}


async def test_texts_are_messages_like_any_other(memory: AsyncMemory) -> None:
    """In the log each has its role and its words; a plain one carries nothing else."""
    developer: Any = {"role": "developer", "content": "说中文"}
    await session_of(memory).add_items([*turn("zh"), developer, *turn("en")])
    log = (await memory.messages("u")).items[::-1]
    assert [it.role for it in log] == [
        *("user", "tool", "tool", "tool", "assistant", "system"),
        *("user", "tool", "tool", "tool", "assistant"),
    ]
    assert [log[at].content for at in (0, 3, 4, 5, 9, 10)] == [
        *(SAID["zh"], RETURNED["zh"], ANSWERED["zh"], "说中文", RETURNED["en"], ANSWERED["en"])
    ]
    assert log[0].metadata == log[6].metadata == {}


@ONE
async def test_messages_that_came_another_way_are_items(memory: AsyncMemory, language: str) -> None:
    """Those of tools have no call that they could answer, and are left out."""
    session = session_of(memory)
    await memory.add(SAID[language], "u", session_id="s", infer=False)
    await session.add_items([answered(ANSWERED[language])])
    await memory.ingest([said("be brief", "system"), said("42", "tool")], "u", session_id="s")
    shown = [said(SAID[language]), answered(ANSWERED[language]), said("be brief", "system")]
    assert await session.get_items() == shown
    assert await session.get_items(1) == shown[-1:]
    assert await session.pop_item() == shown[-1]


@ONE
async def test_what_a_hook_changes_is_changed_in_the_item(
    memory: AsyncMemory, language: str
) -> None:
    """A text that is to be kept secret is in no copy of the item."""
    secret = {"zh": "清汤", "en": "spicy"}[language]

    @memory.process
    def hide(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [{**it, "content": it["content"].replace(secret, "***")} for it in told]

    session = session_of(memory)
    await session.add_items([said(SAID[language]), answered(SAID[language])])
    hidden = SAID[language].replace(secret, "***")
    assert await session.get_items() == [said(hidden), answered(hidden)]
    assert secret not in str((await memory.messages("u")).items)


@ONE
async def test_an_item_that_lost_a_piece_is_told_by_its_text(
    memory: AsyncMemory, language: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Where someone deleted a part of it; that is logged, the text is not."""
    session = session_of(memory)
    text = SAID[language] * 9_000
    await session.add_items([said(text), returned("x" * 200_000)])
    for message in (await memory.messages("u")).items:
        if message.content == "…":
            await memory.delete(message.message_id, user_id="u")
    (left,) = await session.get_items()
    assert text.startswith(str(left.get("content")))
    assert "is incomplete" in caplog.text
    assert SAID[language] not in caplog.text


# Order and limits


async def test_the_newest_items_are_given_in_the_order_of_time(memory: AsyncMemory) -> None:
    """However many there are, under equal times too; without a limit all of them."""
    items = [said(f"第 {n} 句, line {n}") for n in range(1_100)]
    session = session_of(memory)
    for start in range(0, 1_100, 275):
        await session.add_items(items[start : start + 275])
    assert await session.get_items() == items
    for limit in (0, 1, 7, 499, 500, 501, 1_099, 1_100, 2_000):
        assert await session.get_items(limit) == items[max(0, 1_100 - limit) :]
    assert await session.get_items(-1) == items  # as with the SDK's own sessions


async def test_a_clock_that_was_set_back_changes_no_order(
    memory: AsyncMemory, clock: FakeClock
) -> None:
    """What is added is the newest."""
    session = session_of(memory)
    for text in ("第一", "second", "第三", "fourth"):
        await session.add_items([said(text), returned(text)])
        clock.advance(seconds=-60)
    items = [
        it for text in ("第一", "second", "第三", "fourth") for it in (said(text), returned(text))
    ]
    assert await session.get_items() == items
    assert await session.pop_item() == items[-1]


async def test_settings_limit_what_is_read(memory: AsyncMemory) -> None:
    """Given as the SDK's object or as a dict; a limit of the call wins."""
    items = [said(text) for text in ("一", "two", "三")]
    await session_of(memory).add_items(items)
    for chosen in (SessionSettings(limit=2), {"limit": 2}):
        session: Session = session_of(memory, session_settings=chosen)
        assert session.session_settings == SessionSettings(limit=2)
        assert await session.get_items() == items[1:]
        assert await session.get_items(limit=1) == items[2:]
    assert session_of(memory).session_settings == SessionSettings()
    with pytest.raises(TypeError, match="limitt"):
        session_of(memory, session_settings={"limitt": 2})


# What is taken out


@ONE
async def test_a_popped_item_is_forgotten(memory: AsyncMemory, language: str) -> None:
    """It leaves the log, and so do the memories that were drawn from it alone."""
    session = session_of(memory)
    await session.add_items([said(SAID["zh"]), said(SAID["en"])][:: 1 if language == "en" else -1])
    await memory.run_jobs()
    before = len(await memory.get_all("u"))
    assert await session.pop_item() == said(SAID[language])
    assert 0 < len(await memory.get_all("u")) < before
    assert not await memory.search(ASKED[language], "u")


async def test_an_empty_session_pops_nothing(memory: AsyncMemory) -> None:
    """Also where another one is not empty."""
    await session_of(memory, "另一个").add_items([said("好"), said("ok")])
    assert await session_of(memory).pop_item() is None


async def test_concurrent_pops_take_each_item_once(memory: AsyncMemory) -> None:
    """Whichever object they are asked of."""
    items = [said("我叫周文博"), called(), returned("x" * 90_000), answered("好的"), said("bye")]
    await session_of(memory).add_items(items)
    popped = await asyncio.gather(*(session_of(memory).pop_item() for _ in range(8)))
    assert [it for it in popped if it] == items[::-1]
    assert await session_of(memory).get_items() == []


async def test_concurrent_turns_lose_nothing(memory: AsyncMemory) -> None:
    """And what was added together stays together."""
    turns = [[said(f"问 {n}"), called(f"c{n}"), returned(f"r {n}", f"c{n}")] for n in range(20)]
    await asyncio.gather(*(session_of(memory).add_items(it) for it in turns))
    kept = await session_of(memory).get_items()
    together = [kept[start : start + 3] for start in range(0, 60, 3)]
    assert sorted(together, key=str) == sorted(turns, key=str)


@ONE
async def test_clearing_a_session_leaves_all_others(memory: AsyncMemory, language: str) -> None:
    """Those of the same id that belong to another user or agent, too."""
    session, other = session_of(memory), session_of(memory, "other")
    strangers = [session_of(memory, user_id="someone"), session_of(memory, agent_id="guide")]
    for one in (session, *strangers):
        await one.add_items(turn(language))
    await other.add_items([said("我叫周文博。I live in Tacoma.")])
    await memory.run_jobs()
    kept = await memory.get_all("u", session_id="other")
    await session.clear_session()
    assert await session.get_items() == []
    assert not await memory.search(ASKED[language], "u", "default")
    assert list(await memory.get_all("u", "default")) == list(kept) != []
    assert await other.get_items() == [said("我叫周文博。I live in Tacoma.")]
    assert [await it.get_items() for it in strangers] == [turn(language)] * 2
    assert await memory.get_all("someone")


# Whose it is


@ONE
async def test_another_users_session_of_the_same_id_is_invisible(
    memory: AsyncMemory, language: str
) -> None:
    """It can be neither read nor taken from."""
    await session_of(memory).add_items(turn(language))
    stranger = session_of(memory, user_id="stranger")
    assert await stranger.get_items() == []
    assert await stranger.pop_item() is None
    await stranger.clear_session()
    assert await session_of(memory).get_items() == turn(language)


async def test_a_handle_gives_sessions_of_its_own_user_and_agent_only(memory: AsyncMemory) -> None:
    """What it is bound to holds; what is left open can be chosen."""
    handle = memory.for_user("u", agent_id="客服")
    await MemorySession(handle, "s", user_id="u").add_items([said("你好 hello")])
    assert await session_of(memory, agent_id="客服").get_items() == [said("你好 hello")]
    assert await session_of(memory).get_items() == []
    with pytest.raises(NotFound):
        MemorySession(handle, "s", user_id="stranger")
    with pytest.raises(NotFound):
        MemorySession(handle, "s", user_id="u", agent_id="default")
    with pytest.raises(InvalidArgument):
        session_of(memory, user_id="")


@ONE
async def test_sensitive_messages_are_items_only_where_that_is_granted(
    memory: AsyncMemory, language: str
) -> None:
    """As for every other reader of a user's data."""
    await memory.add(SAID[language], "u", session_id="s", sensitive=True)
    assert await session_of(memory).get_items() == []
    granted = memory.for_user("u", sensitive=True)
    assert await session_of(granted).get_items() == [said(SAID[language])]


# With the SDK's runner


@function_tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return RETURNED["zh"] if city == "成都" else RETURNED["en"]


async def run(question: str, session: Session, script: Script) -> list[dict[str, Any]]:
    """A turn of an agent; what its model was sent."""
    with running_openai_server(script) as server:
        async with AsyncOpenAI(base_url=server.base_url, api_key="any") as client:
            model = OpenAIChatCompletionsModel("scripted", client)
            agent = Agent(name="guide", model=model, tools=[get_weather])
            await Runner.run(agent, question, session=session, run_config=QUIET)
    return server.requests


CITY = {"zh": "成都", "en": "Chengdu"}
MORE = {"zh": "那明天呢？", "en": "And tomorrow?"}


@EACH
async def test_an_agent_remembers_its_turns_across_restarts(tmp_path: Path, language: str) -> None:
    """The second turn is sent the first one, calls and results included."""
    script: Script = [calling("get_weather", city=CITY[language]), ANSWERED[language]]
    async with opened(tmp_path) as memory:
        await run(SAID[language], session_of(memory), script)
    async with opened(tmp_path) as memory:
        session = session_of(memory)
        assert isinstance(session, Session)
        (request,) = await run(MORE[language], session, ["OK"])
        kept = await session.get_items()
    roles = [it["role"] for it in request["messages"]]
    assert roles == ["user", "assistant", "tool", "assistant", "user"]
    asked, call, result, reply, again = request["messages"]
    assert asked["content"] == SAID[language]
    assert call["tool_calls"][0]["function"]["name"] == "get_weather"
    assert result["content"] == RETURNED[language]
    assert reply["content"] == ANSWERED[language]
    assert again["content"] == MORE[language]
    assert [it.get("type", it.get("role")) for it in kept] == [
        *("user", "function_call", "function_call_output", "message", "user", "message")
    ]


@ONE
async def test_a_call_without_a_result_does_not_break_the_next_turn(
    tmp_path: Path, language: str
) -> None:
    """Where the process died between the two: it is kept, and the runner leaves it out."""
    async with opened(tmp_path) as memory:
        await session_of(memory).add_items([said(SAID[language]), called()])
    async with opened(tmp_path) as memory:
        session = session_of(memory)
        (request,) = await run(MORE[language], session, ["OK"])
        assert called() in await session.get_items()
    sent = [(it["role"], it["content"]) for it in request["messages"]]
    assert sent == [("user", SAID[language]), ("user", MORE[language])]
