"""Seed 003: single and group chats whose tools are real, against a server process that leaks.

One evening of chats is played for all tests, in each language: every turn with what the model
answers, then what happened, what the server was sent, what was logged and what is stored.
"""

import asyncio
import json
import logging
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI

from kemem import AsyncMemory
from kemem.chat import (
    ChatService,
    DoneEvent,
    Event,
    GroupChatService,
    LeakCounts,
    Member,
    RecallEvent,
    TextEvent,
    ToolCallEvent,
    ToolResultEvent,
)
from kemem.records import Message
from kemem.settings import load
from kemem.testing import Streamed, calling
from kemem.testing.openai_server import STRICT, OpenAIServerProcess, openai_server_process
from tests.chats import CHINESE, ENGLISH, Talk

RECALL, OTHERS, MENTIONED = "recall_memory", "get_other_members_messages", "is_mentioned"
GROUP_TOOLS = [RECALL, OTHERS, MENTIONED]
LIN, AMY = Member("lin", name="林"), Member("amy", name="Amy")
LIMIT = 2  # recalls of the model's own in a turn; the default of the settings
MENTION = {
    "zh": ("被提及，需要发言", "未被提及，可自行判断"),
    "en": (
        "You are mentioned and need to speak",
        "You are not mentioned; judge by yourself whether to speak",
    ),
}
MARKUP = re.compile(r"DSML|function_calls|tool_calls>|<.?invoke|parameter name=")
WRAPPERS = {"V3.2": "function_calls", "V4": "tool_calls"}


def leaked(name: str, query: str = "", wrapper: str = "function_calls") -> str:
    """A call as DeepSeek's V3.2 or V4 writes it into its text."""
    value = f'<｜DSML｜parameter name="query" string="true">{query}</｜DSML｜parameter>\n'
    invoke = f'<｜DSML｜invoke name="{name}">\n{value if query else ""}</｜DSML｜invoke>\n'
    return f"\n\n<｜DSML｜{wrapper}>\n{invoke}</｜DSML｜{wrapper}>"


@dataclass(frozen=True, slots=True)
class Scene:
    """A turn that is to be played, and the model's answers in it."""

    name: str
    user: str
    answers: Sequence[Streamed]
    mentions: Sequence[str] | None = None  # of a group; None: a single chat


@dataclass(frozen=True, slots=True)
class Played:
    """What came of a turn."""

    scene: Scene
    events: list[Event]
    requests: list[dict[str, Any]]
    logged: list[logging.LogRecord]

    def of(self, member: Member | None) -> list[Event]:
        """What happened to a member, or in a single chat."""
        return [it for it in self.events if it.member_id == (member.id if member else "")]

    @property
    def text(self) -> str:
        """All that was said, as it came."""
        return "".join(it.delta for it in self.events if isinstance(it, TextEvent))


@dataclass(frozen=True, slots=True)
class Evening:
    """All turns of one language, and what is stored of them."""

    talk: Talk
    played: dict[str, Played]
    stored: list[Message]
    leaks: dict[tuple[str, str], int]

    def __getitem__(self, name: str) -> Played:
        return self.played[name]

    @property
    def singles(self) -> list[Played]:
        return [it for it in self.played.values() if it.scene.mentions is None]

    @property
    def groups(self) -> list[Played]:
        return [it for it in self.played.values() if it.scene.mentions is not None]

    @property
    def leaking(self) -> list[Played]:
        return [it for it in self.played.values() if "leak" in it.scene.name]


def scenes(talk: Talk) -> Iterator[Scene]:
    """The turns of an evening: ordinary ones, recalls beyond the limit, and every kind of leak."""
    said, thought = Streamed(talk.reply), Streamed(talk.reply, reasoning="嗯 hmm")
    yield Scene("nothing is called", "plain", [said])
    recalls = Streamed("", reasoning="想 think", calls=(calling(RECALL, query=talk.query),))
    yield Scene("it recalls", "plain", [recalls, thought])
    often = [Streamed(None, calls=(calling(RECALL, query=talk.query),)) for _ in range(LIMIT + 1)]
    yield Scene("it recalls too often", "often", [*often, said])
    again = Streamed(None, calls=(calling(RECALL, query=talk.query),))
    yield Scene("it recalls again", "often", [again, said])
    for version, wrapper in WRAPPERS.items():
        leak = leaked(RECALL, talk.query, wrapper)
        answers = [Streamed(f"{talk.note}{leak}", piece=1), said]
        yield Scene(f"{version} leaks", "leaks", answers)
        answers = [Streamed("", reasoning=f"想 think{leak}", piece=1), thought]
        yield Scene(f"{version} leaks in thoughts", "leaks", answers)
    yield from group_scenes(talk)


def group_scenes(talk: Talk) -> Iterator[Scene]:
    """The rounds of an evening: first Lin speaks, then Amy."""
    said = Streamed(talk.reply)
    for name, mentions in {"asks": [LIN.id], "is not mentioned": list[str]()}.items():
        asks = Streamed(None, calls=(calling(MENTIONED),))
        recall = calling(RECALL, query=talk.query)
        asks_all = Streamed("", calls=(calling(OTHERS), calling(MENTIONED), recall))
        yield Scene(f"the group {name}", "group", [asks, said, asks_all, said], mentions)
    for version, wrapper in WRAPPERS.items():
        mention = Streamed(f"{talk.note}{leaked(MENTIONED, wrapper=wrapper)}", piece=1)
        recall_leak = Streamed("", reasoning=leaked(RECALL, talk.query, wrapper), piece=1)
        answers = [mention, said, recall_leak, said]
        yield Scene(f"{version} leaks in a group", "group leaks", answers, [LIN.id])


class Lines(logging.Handler):
    """The lines of a log."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@contextmanager
def logged() -> Iterator[list[logging.LogRecord]]:
    """What is logged meanwhile."""
    log, lines = logging.getLogger("kemem"), Lines()
    before = log.level
    log.addHandler(lines)
    log.setLevel(logging.INFO)
    try:
        yield lines.records
    finally:
        log.setLevel(before)
        log.removeHandler(lines)


class Stage:
    """Both services on one memory."""

    def __init__(self, memory: AsyncMemory, client: AsyncOpenAI, counts: LeakCounts) -> None:
        named: dict[str, Any] = {"client": client, "model": "deepseek-chat", "counts": counts}
        self.chat, self.group = ChatService(memory, **named), GroupChatService(memory, **named)

    def turn(self, scene: Scene, talk: Talk) -> AsyncIterator[Event]:
        """A scene as it happens."""
        user = f"{talk.language} {scene.user}"
        if scene.mentions is None:
            return self.chat.turn(talk.message, user_id=user, session_id="s")
        return self.group.turn(
            talk.message,
            user_id=user,
            group_id="g",
            members=[LIN, AMY],
            mentions=scene.mentions,
        )

    async def close(self) -> None:
        await self.chat.close()
        await self.group.close()


async def play(talk: Talk, server: OpenAIServerProcess, memory: AsyncMemory) -> Evening:
    """An evening in one language."""
    users = {f"{talk.language} {it.user}": it.mentions for it in scenes(talk)}
    for user, mentions in users.items():
        for agent in ("default",) if mentions is None else (LIN.id, AMY.id):
            await memory.add(talk.note, user, agent_id=agent, infer=False)
    counts, played = LeakCounts(), {}
    sent, told = len(server.requests()), 0
    async with AsyncOpenAI(base_url=server.base_url, api_key="any", max_retries=0) as client:
        stage = Stage(memory, client, counts)
        with logged() as lines:
            for scene in scenes(talk):
                events = [event async for event in stage.turn(scene, talk)]
                requests = server.requests()[sent:]
                played[scene.name] = Played(scene, events, requests, lines[told:])
                sent, told = sent + len(requests), len(lines)
        await stage.close()
    logs = [(await memory.messages(user, page_size=100)).items for user in users]
    stored = [it for log in logs for it in log if it.session_id in ("s", "g")]
    return Evening(talk, played, stored, dict(counts))


@pytest.fixture(scope="module")
def evenings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Evening]:
    """Both evenings, with one server that refuses what DeepSeek and OpenAI refuse."""

    async def both(directory: Path) -> dict[str, Evening]:
        talks = (CHINESE, ENGLISH)
        script = [answer for talk in talks for it in scenes(talk) for answer in it.answers]
        chosen = load(data_dir=directory, embedder="none", llm="none", chat_recall="call")
        with openai_server_process(script, strict=STRICT) as server:
            async with AsyncMemory(settings=chosen) as memory:
                return {it.language: await play(it, server, memory) for it in talks}

    return asyncio.run(both(tmp_path_factory.mktemp("evening")))


@pytest.fixture(params=["zh", "en"])
def evening(request: pytest.FixtureRequest, evenings: dict[str, Evening]) -> Evening:
    """The evening of each language."""
    return evenings[request.param]


def tools_of(request: dict[str, Any]) -> dict[str, Any]:
    """The tools of a request by their names."""
    assert all(it["type"] == "function" for it in request["tools"])
    return {it["function"]["name"]: it["function"]["parameters"] for it in request["tools"]}


def after_user(request: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages behind the last one of the user."""
    messages: list[dict[str, Any]] = request["messages"]
    last = max(at for at, it in enumerate(messages) if it["role"] == "user")
    return messages[last + 1 :]


def pairs(request: dict[str, Any]) -> list[tuple[str, dict[str, Any], str]]:
    """The calls of a turn: tool, arguments, result."""
    found = after_user(request)
    results = {it["tool_call_id"]: it["content"] for it in found if it["role"] == "tool"}
    calls = [call for it in found for call in it.get("tool_calls") or ()]
    assert len(results) == len(calls)
    return [
        (it["function"]["name"], json.loads(it["function"]["arguments"]), results[it["id"]])
        for it in calls
    ]


def of_type(events: Iterable[Event], kind: type[Any]) -> list[Any]:
    """The events of a type."""
    return [event for event in events if isinstance(event, kind)]


def first_requests(played: Played) -> list[dict[str, Any]]:
    """The requests that begin a turn, or a member's part of one."""
    forced = 1 if played.scene.mentions is None else 3
    return [it for it in played.requests if len(pairs(it)) == forced]


# 目标 / 方案概述: the goals


def test_every_turn_recalls_before_the_model_is_asked(evening: Evening) -> None:
    """目标: 保持“每轮强制回忆”. One recall each turn, of each member in a group, and it finds."""
    for played in evening.singles:
        assert isinstance(played.events[0], RecallEvent)
        assert len(of_type(played.events, RecallEvent)) == 1
    for played in evening.groups:
        for member in (LIN, AMY):
            assert isinstance(played.of(member)[0], RecallEvent)
            assert len(of_type(played.of(member), RecallEvent)) == 1
    for played in evening.played.values():
        for recall in of_type(played.events, RecallEvent):
            assert recall.query == evening.talk.message
            assert evening.talk.note in [it["content"] for it in recall.events]


def test_the_forced_recall_is_a_synthetic_call_and_its_result(evening: Evening) -> None:
    """方案概述: 继续保留伪造工具调用项. After the user's message, with what was recalled."""
    for played in evening.played.values():
        recalls = of_type(played.events, RecallEvent)
        begun = first_requests(played)
        assert len(begun) == len(recalls)
        for request, recall in zip(begun, recalls, strict=True):
            *others, (name, arguments, result) = pairs(request)
            assert (name, arguments) == (RECALL, {"query": evening.talk.message})
            assert json.loads(result) == {"events": list(recall.events)}
            assert [it[0] for it in others] == (
                [] if played in evening.singles else GROUP_TOOLS[1:]
            )


def test_every_synthetic_call_has_an_id_of_its_own(evening: Evening) -> None:
    """In all turns, and beside the ids that the model gives."""
    ids = [
        call["id"]
        for played in evening.played.values()
        for request in first_requests(played)
        for it in after_user(request)
        for call in it.get("tool_calls") or ()
    ]
    assert len(ids) == len(set(ids)) == len(evening.singles) + 2 * 3 * len(evening.groups)


def test_the_model_may_call_a_tool_and_gets_a_real_answer(evening: Evening) -> None:
    """目标: 允许模型主动调用工具. What is found by the model's words is in the result."""
    played = evening["it recalls"]
    forced, own = pairs(played.requests[-1])
    assert own[:2] == (RECALL, {"query": evening.talk.query})
    (called,) = of_type(played.events, ToolCallEvent)
    (result,) = of_type(played.events, ToolResultEvent)
    assert called.call_id == result.call_id and result.result == own[2]
    assert evening.talk.note in [it["content"] for it in json.loads(own[2])["events"]]
    assert forced[0] == RECALL


# 详细设计


def test_a_group_registers_the_three_tools(evening: Evening) -> None:
    """1) 工具名称必须严格一致. In every request; only recall_memory takes something, a query."""
    for request in (it for played in evening.groups for it in played.requests):
        tools = tools_of(request)
        assert sorted(tools) == sorted(GROUP_TOOLS)
        assert tools[RECALL]["required"] == ["query"] == list(tools[RECALL]["properties"])
        assert tools[RECALL]["properties"]["query"]["type"] == "string"
        assert not tools[OTHERS]["properties"] and not tools[MENTIONED]["properties"]


def test_a_single_chat_registers_recall_memory_only(evening: Evening) -> None:
    """2) 仅添加 recall_memory(query: str). In every request, those after a tool's answer too."""
    for request in (it for played in evening.singles for it in played.requests):
        tools = tools_of(request)
        assert list(tools) == [RECALL] and list(tools[RECALL]["properties"]) == ["query"]


def test_other_members_messages_are_those_of_the_round(evening: Evening) -> None:
    """4) 返回当前轮次预先拼接的 others_content. The first speaker reads that there are none yet."""
    played, talk = evening["the group asks"], evening.talk
    lin, amy = (dict((name, told) for name, _, told in pairs(it)) for it in first_requests(played))
    assert talk.reply not in lin[OTHERS]
    assert amy[OTHERS] == f"林{'：' if talk.language == 'zh' else ': '}{talk.reply}"
    called = [it for it in of_type(played.of(AMY), ToolResultEvent) if it.name == OTHERS]
    assert [it.result for it in called] == [amy[OTHERS]]


def test_is_mentioned_says_so_in_the_words_of_the_seed(evening: Evening) -> None:
    """4) “被提及，需要发言” / “未被提及，可自行判断”: as a synthetic call, and when called."""
    yes, no = MENTION[evening.talk.language]
    for name, expected in {
        "the group asks": {LIN: yes, AMY: no},
        "the group is not mentioned": {LIN: no, AMY: no},
    }.items():
        begun = dict(zip((LIN, AMY), first_requests(evening[name]), strict=True))
        for member, answer in expected.items():
            assert [it[2] for it in pairs(begun[member]) if it[0] == MENTIONED] == [answer]
            called = of_type(evening[name].of(member), ToolResultEvent)
            assert [it.result for it in called if it.name == MENTIONED] == [answer]


def test_the_limit_of_recalls_stands_in_the_system_prompt(evening: Evening) -> None:
    """5) 回忆次数由系统提示词/设置项控制."""
    said = {"zh": f"本轮最多 {LIMIT} 次", "en": f"at most {LIMIT} times in this turn"}
    for request in (it for played in evening.played.values() for it in played.requests):
        (system,) = [it["content"] for it in request["messages"] if it["role"] == "system"]
        assert said[evening.talk.language] in system and RECALL in system


def test_tools_become_events_with_their_results(evening: Evening) -> None:
    """6) tool_call / tool_result: each call, made or leaked, is followed by its result."""
    for played in evening.played.values():
        called = of_type(played.events, ToolCallEvent)
        answered = of_type(played.events, ToolResultEvent)
        assert [(it.call_id, it.name) for it in called] == [
            (it.call_id, it.name) for it in answered
        ]
        for it in called:
            assert json.loads(it.arguments).keys() == ({"query"} if it.name == RECALL else set())
            assert it.to_dict()["type"] == "tool_call"
    expected = {"nothing is called": 0, "it recalls": 1, "it recalls too often": LIMIT + 1}
    expected |= {"the group asks": 4} | {
        it.scene.name: 1 for it in evening.singles if "leak" in it.scene.name
    }
    for name, count in expected.items():
        assert len(of_type(evening[name].events, ToolCallEvent)) == count


# 日志与监控


def test_a_tool_that_answers_is_logged_with_its_name_and_query(evening: Evening) -> None:
    """在工具调用返回时记录：tool_name / query. With hits and time, and without what was found."""
    lines = [it.getMessage() for it in evening["it recalls"].logged]
    (recalled,) = [it for it in lines if it.startswith(RECALL)]
    assert repr(evening.talk.query) in recalled and re.search(r"\b1 hits in \d+ ms", recalled)
    asked = [it.getMessage() for it in evening["the group asks"].logged]
    for name in (OTHERS, MENTIONED):
        assert [it for it in asked if it.startswith(name)]
    every = [line for it in evening.played.values() for line in it.logged]
    for line in every:
        assert evening.talk.note not in line.getMessage()
        assert evening.talk.reply not in line.getMessage()


def test_a_leak_is_an_error_in_the_log_and_is_counted(evening: Evening) -> None:
    """若出现模型输出 DSML 文本，追加错误日志并统计次数. Only then, and without the text."""
    for played in evening.played.values():
        errors = [it.getMessage() for it in played.logged if it.levelno >= logging.ERROR]
        assert len(errors) == (len(played.scene.answers) // 2 if played in evening.leaking else 0)
        for line in errors:
            assert "dsml" in line and ("recall_memory" in line or "is_mentioned" in line)
            assert evening.talk.query not in line and not MARKUP.search(line)
        counted = [it.leaks for it in of_type(played.events, DoneEvent)]
        assert sum(counted) == len(errors)
    assert evening.leaks == {("dsml", "run"): 4 + 2 * 2}


# 风险与对策


def test_recall_memory_returns_events(evening: Evening) -> None:
    """确保 recall_memory 返回 {events: [...]}. The forced one and the model's own."""
    for played in evening.played.values():
        for name, _, result in (it for request in played.requests for it in pairs(request)):
            if name == RECALL:
                told = json.loads(result)
                assert isinstance(told["events"], list)
                for event in told["events"]:
                    assert event.keys() >= {"id", "kind", "time", "content", "score"}


# 测试建议


@pytest.mark.parametrize("which", ["groups", "singles"])
def test_chats_leak_no_text_of_tool_calls(evening: Evening, which: str) -> None:
    """1) and 3): what is shown is what the model said beside its calls, whatever it wrote."""
    for played in getattr(evening, which):
        said = "".join(answer.text or "" for answer in played.scene.answers)
        assert played.text == re.sub(
            r"\n\n<｜DSML.*?_calls>$|\n\n<｜DSML.*_calls>", "", said, flags=re.S
        )
        whole = [it.text for it in of_type(played.events, DoneEvent)]
        assert "".join(whole) == played.text


def test_a_leaked_call_is_carried_out(evening: Evening) -> None:
    """2) and 3): in a single chat and in a group, from text and from thoughts, just once."""
    for played in evening.leaking:
        for member in (None,) if played in evening.singles else (LIN, AMY):
            (result,) = of_type(played.of(member), ToolResultEvent)
            if result.name == RECALL:
                found = json.loads(result.result)["events"]
                assert evening.talk.note in [it["content"] for it in found]
            else:
                assert result.result == MENTION[evening.talk.language][0]


def test_the_forced_recall_does_not_count_and_the_limit_is_kept(evening: Evening) -> None:
    """4) The model has all of its own recalls, then a structured answer instead of a search."""
    played = evening["it recalls too often"]
    answers = [json.loads(it.result) for it in of_type(played.events, ToolResultEvent)]
    *found, beyond = answers
    assert len(found) == LIMIT
    for answer in found:
        assert answer.keys() == {"events"} and answer["events"]
    assert beyond["events"] == [] and beyond["limit_reached"] is True
    assert str(LIMIT) in beyond["message"]
    lines = [it.getMessage() for it in played.logged if it.getMessage().startswith(RECALL)]
    assert len([it for it in lines if "query" in it]) == LIMIT
    assert isinstance(played.events[-1], DoneEvent)


def test_the_limit_is_one_of_each_turn(evening: Evening) -> None:
    """The next turn may recall again."""
    (result,) = of_type(evening["it recalls again"].events, ToolResultEvent)
    assert "limit_reached" not in json.loads(result.result)


def test_deepseek_is_asked_so_that_it_need_not_leak(evening: Evening) -> None:
    """5) Its server took every request: tools are sent, calls have results, thoughts come back."""
    for played in evening.played.values():
        assert len(played.requests) == len(played.scene.answers), "none was refused or repeated"
        for request in played.requests:
            assert request["model"] == "deepseek-chat" and request["tools"]
            assert request.get("tool_choice") in (None, "auto")
            spoken = [it for it in after_user(request) if it["role"] == "assistant"]
            assert spoken and all(isinstance(it["reasoning_content"], str) for it in spoken)
    thoughts = [
        it["reasoning_content"]
        for it in after_user(evening["it recalls"].requests[-1])
        if it["role"] == "assistant"
    ]
    assert thoughts == ["", "想 think"]


# 验收标准


def has_no_markup(texts: Iterable[str]) -> bool:
    """Whether nothing of a call is in any text, and there are texts."""
    found = [*texts]
    return bool(found) and not [text for text in found if MARKUP.search(text)]


@pytest.mark.parametrize("which", ["groups", "singles"])
def test_no_reply_event_or_request_holds_dsml(evening: Evening, which: str) -> None:
    """群聊/单聊回复不再出现 <｜DSML｜function_calls> 文本: nor what the model is shown later."""
    for played in getattr(evening, which):
        events = [json.dumps(it.to_dict(), ensure_ascii=False) for it in played.events]
        assert has_no_markup(it for it in events)
        messages = [it for request in played.requests for it in request["messages"]]
        assert has_no_markup(str(it.get("content")) for it in messages)
        assert has_no_markup(str(it.get("reasoning_content")) for it in messages)


def test_no_stored_message_holds_dsml(evening: Evening) -> None:
    """Nor is one marked as broken: both sides of every turn are there, in each member's log."""
    assert has_no_markup(it.content for it in evening.stored)
    replies = [it for it in evening.stored if it.role == "assistant"]
    talked = len(evening.singles) + 2 * len(evening.groups)
    assert len([it for it in replies if not it.metadata]) == talked
    assert not [it for it in evening.stored if "partial" in it.metadata]
    assert {it.content for it in replies} <= {
        evening.talk.reply,
        f"{evening.talk.note}{evening.talk.reply}",
    }


def test_every_turn_ends_well(evening: Evening) -> None:
    """工具调用事件在前端正常展示: the events of every turn end in `done`, never in an error."""
    for played in evening.played.values():
        assert isinstance(played.events[-1], DoneEvent)
        assert "error" not in [it.type for it in played.events]
    for played in evening.groups:
        for member in (LIN, AMY):
            assert isinstance(played.of(member)[-1], DoneEvent)
