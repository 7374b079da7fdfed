"""Seed 000, chapter 4: its three flows, led by a model over HTTP, and by rules without one."""

import json
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kemem import AsyncMemory
from kemem.ports import ToolCall
from kemem.recall import RecallAgent, Recalled
from kemem.recall.registry import short_tools
from kemem.recall.schemas import Language, message
from kemem.settings import load
from kemem.testing import FakeClock, calling, running_openai_server
from kemem.testing.openai_server import OpenAIServer
from tests.typed_notes import NOW, Fact, opened, tell

Answers = list[dict[str, Any]]  # of the tools so far
Move = Callable[[Answers], ToolCall | list[ToolCall]]
SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Flow:
    """What the three flows are about, in one language."""

    language: Language
    settings: tuple[Fact, ...]  # the first is asked for
    asked_settings: str
    settings_query: str
    keywords: list[str]
    plans: str
    others: str
    asked_plan: str
    asked_nothing: str
    nothing_query: str
    reason: str
    summary: str
    follow_up: str
    round: str  # what the system prompt says
    layout: str
    layout_of_nothing: str

    @property
    def plan_facts(self) -> list[Fact]:
        """Twelve plans, three of them outputs of commands, two of these of the last days."""
        about = "数据库迁移方案：" if self.language == "zh" else "Database migration plan: "
        texts = [about + plan for plan in self.plans.split("|")]
        kinds = ["command_output"] * 3 + ["general"] * 9
        plans = map(Fact, texts, kinds, [2, 5, 30, *range(8, 17)])
        return [*plans, *(Fact(other, days=50) for other in self.others.split("|"))]


CHINESE = Flow(
    "zh",
    (
        Fact("数据库配置：PostgreSQL 16，端口 5433，连接池 20", "configuration", 3),
        Fact("缓存配置：Redis，内存 2 GB，数据库 0", "configuration", 1),
        Fact("数据库备份放在上海机房", "general", 2),
        Fact("用户周末喜欢爬山", "hobby", 20),
        Fact("会议改到周四下午三点", "general", 9),
        Fact("用户养了一只橘猫", "general", 30),
    ),
    "按照我之前的数据库配置来",
    "用户之前的数据库配置",
    ["数据库", "配置", "database"],
    "把日志迁到对象存储|首页改成瀑布流|用消息队列削峰|客服接入机器人|仓库搬到郊区|周末轮流值班|"
    "广告投放到短视频|停车场改为预约|合同改用电子签名|食堂引入新窗口|培训改到线上|门禁换成刷脸",
    "用户养了一只橘猫|妈妈下个月生日|早餐常吃豆浆油条|孩子在学小提琴|最爱看科幻电影|每天骑车上班|"
    "对花生过敏|冰箱修好了|机票订在五号|牙医约在周三|新买了一台相机|邻居搬去了成都|晚上十点睡觉|"
    "不喝含糖饮料|正在读红楼梦|手机屏幕碎了|爷爷喜欢下象棋|周日去游泳|耳机落在车上|阳台种了番茄",
    "上次说的数据库迁移方案",
    "我之前让你做的那个东西",
    "之前做的东西",
    "第一条与问题一致",
    "找到用户之前的数据库配置",
    "您能否提供更多细节，比如大概什么时间或什么主题？",
    "当前是第 1 轮，共 3 轮（还剩 2 轮）。窗口里有最近 5 条消息，最多可以拓展到 100 条。"
    "还可以调用 15 次工具，剩余时间约",
    """## 记忆搜索完成 (信心度: 85%)

### 搜索总结
找到用户之前的数据库配置

### 相关性分析
第一条与问题一致

### 相关记忆标识
共找到 {count} 个相关记忆:
{keys}""",
    """## 记忆搜索完成 (信心度: 0%)

### 搜索总结
未找到用户提到的历史记忆

### 相关性分析
{reason}

### 需要进一步澄清
您能否提供更多细节，比如大概什么时间或什么主题？""",
)
ENGLISH = Flow(
    "en",
    (
        Fact("Database settings: PostgreSQL 16, port 5433, pool of 20", "configuration", 3),
        Fact("Cache settings: Redis with 2 GB, database 0", "configuration", 1),
        Fact("The database backup settings are kept in Oslo", "general", 2),
        Fact("User likes to hike on weekends", "hobby", 20),
        Fact("The meeting moved to Thursday at three", "general", 9),
        Fact("User keeps a ginger cat", "general", 30),
    ),
    "Set it up with my database settings from before",
    "the user's PostgreSQL database settings",
    ["database", "settings", "数据库"],
    "move the logs to object storage|show the home page as a grid|smooth the load with a queue|"
    "let a bot answer customers|move the warehouse|take turns on weekends|advertise in videos|"
    "book parking in advance|sign contracts online|open a new canteen|hold the training online|"
    "open doors by face",
    "User keeps a ginger cat|Mother has her birthday in May|Breakfast is porridge|Likes violins|"
    "Favourite films are westerns|Rides a bike to work|Allergic to peanuts|The fridge is repaired|"
    "Flies on the fifth|Has a dentist called Ann|Bought a camera|The neighbour moved to Leeds|"
    "Goes to bed at ten|Drinks no soda|Is reading Middlemarch|The phone is broken|"
    "Grandfather likes chess|Swims on Sundays|Lost the earphones|Grows tomatoes",
    "The database migration plan from last time",
    "That thing I asked you to do before",
    "what was done before",
    "the first one is what was asked for",
    "the database settings from before were found",
    "Could you tell me more, such as about when it was or what it was about?",
    "This is round 1 of 3 (2 left). The window holds the last 5 messages and can grow to 100. "
    "15 tool calls and about",
    """## Memory search finished (confidence: 85%)

### Summary
the database settings from before were found

### Relevance
the first one is what was asked for

### Relevant memories
{count} in all:
{keys}""",
    """## Memory search finished (confidence: 0%)

### Summary
What the user refers to was not found

### Relevance
{reason}

### To be clarified
Could you tell me more, such as about when it was or what it was about?""",
)
BOTH = pytest.mark.parametrize("flow", [CHINESE, ENGLISH], ids=["zh", "en"])


class Model:
    """Makes its moves, a second apart."""

    def __init__(self, moves: Sequence[Move], clock: FakeClock) -> None:
        self.moves, self.clock = moves, clock
        self.turn = 0

    def __call__(self, request: dict[str, Any]) -> Any:
        self.clock.advance(seconds=1)
        self.turn += 1
        return self.moves[self.turn - 1](answers(request))


def answers(request: dict[str, Any]) -> Answers:
    """What the tools answered, each inside a fence."""
    found = []
    for said in request["messages"]:
        if said["role"] == "tool":
            opening, text, closing = said["content"].split("\n")
            assert (opening, closing) == ("<tool_data>", "</tool_data>")
            found.append(json.loads(text))
    return found


@asynccontextmanager
async def led(
    directory: Path, facts: Sequence[Fact], *moves: Move
) -> AsyncIterator[tuple[AsyncMemory, OpenAIServer]]:
    """A memory of a user with these notes, and the server of the model that leads its recalls."""
    clock = FakeClock(NOW)
    with running_openai_server(Model(moves, clock)) as server:
        server_settings = {"llm_base_url": server.base_url, "llm_api_key": "k"}
        settings = load(data_dir=directory, **server_settings, recall_seconds=600)
        async with AsyncMemory(settings=settings, clock=clock) as memory:
            if facts:
                await tell(memory, facts, "s")
            server.requests.clear()
            yield memory, server


def steps(result: Recalled) -> list[str]:
    """The tools in order; each step has its number and its time."""
    assert [step.number for step in result.trace] == [*range(1, len(result.trace) + 1)]
    assert all(step.seconds >= 0 for step in result.trace)
    rounds = [step.iteration for step in result.trace]
    assert rounds == sorted(rounds) and rounds[-1] == result.iteration_used
    begun = [step.started for step in result.trace]
    assert begun == sorted(begun) and begun[0] >= NOW
    return [step.tool for step in result.trace]


async def check_evidence(memory: AsyncMemory, result: Recalled) -> None:
    """Every key leads to a memory, with its words, and every message id to one of its messages."""
    for each in result.evidence:
        item = await memory.get(each.memory_key, user_id="u")
        assert (each.content, each.kind, each.event_time) == (item.memory, item.kind, item.row.ts)
        assert each.message_ids == item.sources != ()
        for message_id in each.message_ids:
            assert (await memory.get(message_id, user_id="u")).message.content == item.memory
    assert f"- {result.evidence[0].memory_key}" in result.message


def keys_of(answer: dict[str, Any]) -> list[str]:
    return [each["memory_key"] for each in answer["results"]]


# 4.1 Found


@BOTH
async def test_a_model_finds_looks_closer_and_hands_over(tmp_path: Path, flow: Flow) -> None:
    """Search, the detail of the best of three results, the hand-off."""

    def search(_: Answers) -> ToolCall:
        asked = {"query": flow.settings_query, "search_mode": "hybrid"}
        return calling("search_memories", **asked, keywords=flow.keywords)

    def look(found: Answers) -> ToolCall:
        return calling("get_memory_detail", memory_key=keys_of(found[0])[0])

    def end(found: Answers) -> ToolCall:
        told = {"reason": flow.reason, "search_summary": flow.summary, "confidence": 0.85}
        return calling("handoff", **told, relevant_memory_keys=[found[1]["memory_key"]])

    async with led(tmp_path, flow.settings, search, look, end) as (memory, server):
        result = await memory.recall(flow.asked_settings, "u", session_id="s")
        await check_evidence(memory, result)
    assert steps(result) == ["search_memories", "get_memory_detail", "handoff"]
    assert [step.started - NOW for step in result.trace] == [SECOND, 2 * SECOND, 3 * SECOND]
    key = result.memory_keys[0]  # rules have found the others
    found, detail = answers(server.requests[2])
    assert (found["success"], found["total_found"], keys_of(found)[0]) == (True, 3, key)
    assert (detail["content"], detail["memory_type"]) == (flow.settings[0].text, "configuration")
    listed = "\n".join(f"- {each}" for each in result.memory_keys)
    assert result.message == flow.layout.format(count=len(result.memory_keys), keys=listed)
    assert (result.by, result.completed, result.confidence) == ("llm", True, 0.85)
    assert (result.needs_more_info, result.follow_up_question) == (False, None)
    assert (result.iteration_used, result.context_window_used) == (1, 5)
    assert result.limits.windows == (5,) and result.limits.min_relevance_score == 0.5


@BOTH
async def test_a_model_is_told_where_it_stands(tmp_path: Path, flow: Flow) -> None:
    """Round, window and what is left, in the language of the question; all that is said as data,
    with what rules have found.
    """

    def end(_: Answers) -> ToolCall:
        return calling("handoff", reason="…", search_summary="…", confidence=0)

    async with led(tmp_path, flow.settings, end) as (memory, server):
        rules = await RecallAgent(memory.for_user("u"), by="rules").recall(flow.asked_settings)
        await memory.recall(flow.asked_settings, "u", session_id="s")
    (request,) = server.requests
    system, task = request["messages"]
    assert system["role"] == "system" and flow.round in system["content"]
    assert request["tools"] == [tool.to_dict() for tool in short_tools(flow.language)]
    last = sorted(flow.settings, key=lambda fact: -fact.days)[-5:]
    talk = "\n".join(f"user: {fact.text}" for fact in last)
    assert task["role"] == "user"
    found = "\n".join(f"[{at}] {it.dates} {it.text}" for at, it in enumerate(rules.evidence, 1))
    assert task["content"] == (
        f"<conversation>\n{talk}\n</conversation>\n\n<found_before>\n{found}\n</found_before>\n\n"
        f"<question>\n{flow.asked_settings}\n</question>\n\n"
        + message("choose_known", flow.language)
    )


# 4.2 Too many


@BOTH
async def test_a_model_narrows_down_what_is_too_much(tmp_path: Path, flow: Flow) -> None:
    """More than it is shown, then two by type and time; both details in one reply. These are the
    first of the evidence.
    """

    def search(_: Answers) -> ToolCall:
        return calling("search_memories", query=flow.asked_plan, search_mode="semantic")

    def narrow(found: Answers) -> ToolCall:
        assert found[0]["total_found"] > 10 and len(found[0]["results"]) == 5
        only = {"memory_types": ["command_output"], "time_range_days": 7}
        return calling("search_memories", query=flow.asked_plan, **only)

    def look(found: Answers) -> list[ToolCall]:
        return [calling("get_memory_detail", memory_key=key) for key in keys_of(found[1])]

    def end(found: Answers) -> ToolCall:
        told = {"reason": flow.reason, "search_summary": flow.summary, "confidence": 0.7}
        return calling("handoff", **told, relevant_memory_keys=keys_of(found[1]))

    async with led(tmp_path, flow.plan_facts, search, narrow, look, end) as (memory, server):
        result = await memory.recall(flow.asked_plan, "u")
        await check_evidence(memory, result)
    tools = ["search_memories"] * 2 + ["get_memory_detail"] * 2 + ["handoff"]
    assert steps(result) == tools
    best = result.evidence[:2]
    assert {each.content for each in best} == {it.text for it in flow.plan_facts[:2]}
    assert {each.memory_type for each in best} == {"command_output"}
    _, narrowed, *details = answers(server.requests[-1])
    assert narrowed["total_found"] == 2 and [it["success"] for it in details] == [True, True]
    assert (result.limits.memory_types, result.limits.time_range_days) == ((), None)


# 4.3 Nothing


@BOTH
async def test_a_model_broadens_and_then_asks_the_user(tmp_path: Path, flow: Flow) -> None:
    """Nothing twice, the second time with less demanded: a hand-off with a question."""

    def search(_: Answers) -> ToolCall:
        return calling("search_memories", query=flow.nothing_query, search_mode="semantic")

    def broaden(_: Answers) -> ToolCall:
        wider = {"min_relevance_score": 0.3, "limit": 10}
        return calling("search_memories", query=flow.nothing_query, **wider)

    def end(found: Answers) -> ToolCall:
        assert [it["total_found"] for it in found] == [0, 0]
        told = {"search_summary": flow.layout_of_nothing.splitlines()[3], "confidence": 0.0}
        more = {"needs_more_info": True, "follow_up_question": flow.follow_up}
        return calling("handoff", reason=flow.reason, **told, **more)

    async with led(tmp_path, flow.settings, search, broaden, end) as (memory, server):
        result = await memory.recall(flow.asked_nothing, "u", session_id="s")
    assert steps(result) == ["search_memories", "search_memories", "handoff"]
    assert (result.confidence, result.evidence, result.completed) == (0, (), True)
    assert (result.needs_more_info, result.follow_up_question) == (True, flow.follow_up)
    assert result.message == flow.layout_of_nothing.format(reason=flow.reason)
    assert result.limits.min_relevance_score == 0.1  # where it named none, less was demanded
    for answer in answers(server.requests[-1]):
        assert answer["success"] and "min_relevance_score" in answer["message"]


# The same without a model


@BOTH
async def test_rules_find_look_closer_and_hand_over(tmp_path: Path, flow: Flow) -> None:
    async with opened(tmp_path, flow.settings, embedder=None) as memory:
        result = await memory.recall(flow.asked_settings, "u")
        await check_evidence(memory, result)
        (best, *_) = result.evidence
        hit = (await memory.search(flow.asked_settings, "u", limit=1))[0]
    tools = steps(result)
    assert (tools[0], tools[-1]) == ("search_memories", "handoff")
    assert 0 < tools.index("get_memory_detail") < len(tools) - 1
    assert (result.by, result.completed) == ("rules", True)
    assert best.content == flow.settings[0].text
    assert 0.5 <= best.score <= result.confidence == hit.score
    assert (result.needs_more_info, result.follow_up_question) == (False, None)
    layout = flow.layout.replace("85%", f"{result.confidence:.0%}")
    assert re.findall("^##.*", result.message, re.M) == re.findall("^##.*", layout, re.M)


@BOTH
async def test_rules_narrow_down_what_is_too_much(tmp_path: Path, flow: Flow) -> None:
    """A question about last time, and more than ten matches: the last week is searched as well."""
    async with opened(tmp_path, flow.plan_facts, embedder=None) as memory:
        result = await memory.recall(flow.asked_plan, "u")
        await check_evidence(memory, result)
        dated = "去年的数据库迁移方案" if flow.language == "zh" else "Last year's migration plan"
        other = await memory.recall(dated, "u")
    first, second, *_ = result.trace
    assert first.tool == second.tool == "search_memories"
    assert first.outcome.startswith("找到 12" if flow.language == "zh" else "12 found")
    assert (second.arguments["time_range_days"], len(second.keys)) == (7, 2)
    assert {*second.keys} <= {*result.memory_keys}
    assert len(result.evidence) == 10 and result.confidence >= 0.5
    assert "get_memory_detail" in steps(result) and result.completed
    assert all("time_range_days" not in step.arguments for step in other.trace)


@BOTH
async def test_rules_broaden_and_then_ask_the_user(tmp_path: Path, flow: Flow) -> None:
    async with opened(tmp_path, flow.settings, embedder=None) as memory:
        result = await memory.recall(flow.asked_nothing, "u")
    first, second, *_ = result.trace
    assert first.tool == second.tool == "search_memories" and first.keys == second.keys == ()
    assert second.arguments["min_relevance_score"] < 0.5
    assert "min_relevance_score" not in first.arguments
    assert steps(result)[-1] == "handoff"
    assert (result.confidence, result.evidence, result.completed) == (0, (), True)
    assert (result.needs_more_info, result.follow_up_question) == (True, flow.follow_up)
    reason = "没有足够相关的记忆" if flow.language == "zh" else "no memory is relevant enough"
    assert result.message == flow.layout_of_nothing.format(reason=reason)
