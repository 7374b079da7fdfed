"""Seed 000, 2.4, 2.5 and 6.2: how a recall goes on, where it is limited and how it ends."""

import re
from collections.abc import Sequence
from typing import Any

import pytest

from kemem.memory import AsyncMemory
from kemem.ports import LLM
from kemem.recall import Budget, RecallAgent
from kemem.recall.results import Recalled
from kemem.recall.schemas import Language
from kemem.recall.state import RecallState
from kemem.testing import ScriptedLLM, calling
from tests.cases import each
from tests.typed_notes import Fact, notebook, state_for, used

LANGUAGES = pytest.mark.parametrize("language", ["zh", "en"])
QUESTION = {"zh": "我们刚才说的那个方案", "en": "The plan that we just talked about"}
TALK = {
    "zh": [f"第 {number} 句：方案要改" for number in range(1, 13)],
    "en": [f"Sentence {number}: change the plan" for number in range(1, 13)],
}
PLACE = {
    "zh": "当前是第 {} 轮，共 3 轮（还剩 {} 轮）。窗口里有最近 {} 条消息，最多可以拓展到 100 条。"
    "还可以调用 {} 次工具",
    "en": "This is round {} of 3 ({} left). The window holds the last {} messages and can grow to "
    "100. {} tool calls",
}
TOLD: dict[str, Any] = {"reason": "对得上 it fits", "search_summary": "总结 summary"}
END = calling("handoff", **TOLD, confidence=0.5)


def window_of(state: RecallState, size: int, *, more: bool = True) -> RecallState:
    """The state of a recall that is shown some messages."""
    state.windows, state.has_earlier = [size], more
    return state


async def talked(language: Language, llm: LLM) -> AsyncMemory:
    """A memory of a conversation of twelve messages."""
    memory = await notebook(llm=llm)
    talk = [{"content": it, "message_id": f"m_{at}"} for at, it in enumerate(TALK[language])]
    await memory.ingest(talk, "u")
    return memory


async def recalled(
    language: Language, script: Sequence[Any], **limits: Any
) -> tuple[Recalled, ScriptedLLM]:
    """What a model makes of a question in that conversation, and what it was asked."""
    llm = ScriptedLLM(script, repeat=True)
    memory = (await talked(language, llm)).for_user("u")
    agent = RecallAgent(memory, budget=Budget(**limits), by="llm")
    return await agent.recall(QUESTION[language]), llm


def shown(llm: ScriptedLLM, turn: int) -> tuple[str, list[str]]:
    """What a model is told of its place, and the messages that it is shown."""
    system, task, *_ = llm.calls[turn].messages
    talk = re.search("<conversation>\\n(.*)\\n</conversation>", task["content"], re.S)
    assert talk is not None
    return system["content"], talk[1].split("\n")


# 2.4 expand_context_window


@LANGUAGES
async def test_an_approved_expansion_relaunches_with_more_messages(language: Language) -> None:
    """The round ends at once, whatever else was called; what it found is not lost."""
    search = calling("search_memories", query=QUESTION[language], min_relevance_score=0.0)
    more = calling("expand_context_window", reason="…", current_size=5, requested_size=10)
    result, llm = await recalled(language, [search, [more, END], END])
    for turn, place, count in ((0, (1, 2, 5, 15), 5), (2, (2, 1, 10, 13), 10)):
        system, talk = shown(llm, turn)
        assert PLACE[language].format(*place) in system
        assert talk == [f"user: {said}" for said in TALK[language][-count:]]
    assert "<found_before>" in llm.calls[2].messages[1]["content"]
    assert "<found_before>" not in llm.calls[0].messages[1]["content"]
    assert len(llm.calls[2].messages) == 2
    tools = [(step.iteration, step.tool) for step in result.trace]
    assert tools == [(1, "search_memories"), (1, "expand_context_window"), (2, "handoff")]
    assert (result.iteration_used, result.context_window_used) == (2, 10)
    assert result.limits.windows == (5, 10) and result.completed


@LANGUAGES
async def test_a_refused_expansion_goes_on_in_the_same_round(language: Language) -> None:
    """The model is told why, and may do something else."""
    more = calling("expand_context_window", reason="…", current_size=5, requested_size=3)
    result, llm = await recalled(language, [more, END])
    assert '"approved":false' in llm.calls[1].messages[-1]["content"]
    assert (result.iteration_used, result.limits.windows) == (1, (5,))


@LANGUAGES
async def test_a_model_that_only_expands_is_stopped(language: Language) -> None:
    """After three rounds, with all there is to see; rules then find what there is."""
    more = calling("expand_context_window", reason="…", current_size=5, requested_size=10**9)
    result, _ = await recalled(language, [more], window=2, max_window=6)
    assert result.limits.windows == (2, 6)
    assert result.by == "rules" and result.evidence
    assert len(result.trace) <= 15


@LANGUAGES
async def test_a_larger_window_is_granted_for_the_next_round(language: Language) -> None:
    memory = await notebook()
    state = window_of(await state_for(memory, language), 5)
    asked = {"reason": "太少 few", "current_size": 5, "requested_size": 10}
    output = await used(state, "expand_context_window", **asked)
    wanted = "批准拓展到 10 条消息，进入第 2 轮迭代"
    assert output.message == (wanted if language == "zh" else "granted: 10 messages, in round 2")
    assert (output.approved, output.new_size, output.iteration) == (True, 10, 2)
    assert output.max_iterations == 3


@LANGUAGES
@each(
    ("iteration", "more", "requested", "zh", "en"),
    [
        (3, True, 10, "已达到最大迭代次数 (3)，无法继续拓展", "the most rounds (3) are used"),
        (1, False, 10, "没有更早的对话", "there are no earlier ones"),
        (1, True, 5, "必须大于当前的 5", "must be more than the current 5"),
        (1, True, -5, "必须大于当前的 5", "must be more than the current 5"),
    ],
)
async def test_a_larger_window_is_refused(
    language: Language,
    iteration: int,
    more: bool,
    requested: int,
    zh: str,
    en: str,
) -> None:
    """Without rounds, without earlier messages, or where it is not larger; the window stays."""
    memory = await notebook()
    state = window_of(await state_for(memory, language), 5, more=more)
    state.iteration = iteration
    asked = {"reason": "太少 few", "current_size": 1, "requested_size": requested}
    output = await used(state, "expand_context_window", **asked)
    assert (output.approved, output.new_size, output.iteration) == (False, 5, iteration)
    assert (zh if language == "zh" else en) in output.message


async def test_a_window_has_a_largest_size() -> None:
    """Whatever is asked for; at that size it grows no further."""
    memory = await notebook()
    asked = {"reason": "全部 all", "current_size": 5, "requested_size": 10**9}
    for shown, approved in ((5, True), (20, False)):
        state = await state_for(memory, budget=Budget(max_window=20))
        output = await used(window_of(state, shown), "expand_context_window", **asked)
        assert (output.approved, output.new_size) == (approved, 20)


# 2.5 handoff


@LANGUAGES
async def test_a_hand_off_keeps_the_keys_that_lead_to_a_memory(language: Language) -> None:
    """Each once, in order; of messages as of notes; not those of others or of nothing."""
    memory = await notebook([Fact(said) for said in TALK[language]])
    notes = [item.id for item in await memory.get_all("u")]
    (message,) = (await memory.add("闲聊 chat", "u", infer=False)).message_ids
    (foreign,) = (await memory.add(TALK[language][0], "v", infer=False)).results
    keys = [notes[1], "db_config_001", notes[0], notes[1], foreign.id, message, "", "k" * 99]
    state = window_of(await state_for(memory, language), 7)
    state.iteration = 2
    claimed = {"iteration_used": 99, "context_window_used": 0}
    output = await used(
        state, "handoff", **TOLD, relevant_memory_keys=keys, confidence=0.85, **claimed
    )
    kept = [notes[1], notes[0], message]
    assert output.success and output.task_completed
    assert state.handoff is not None
    assert state.handoff.relevant_memory_keys == kept
    assert (state.handoff.iteration_used, state.handoff.context_window_used) == (2, 7)
    assert [each.memory_key for each in state.evidence] == kept
    assert all(f"- {key}" in output.message for key in kept)
    assert foreign.id not in output.message and "db_config_001" not in output.message


@LANGUAGES
async def test_a_hand_off_without_evidence_is_not_confident(language: Language) -> None:
    """Whatever a model claims; `reason` is printed where the seed wants a field it has not."""
    memory = await notebook()
    state = await state_for(memory, language)
    output = await used(state, "handoff", **TOLD, relevant_memory_keys=["n_1"], confidence=1)
    heading = "## 记忆搜索完成 (信心度: 0%)\n\n### 搜索总结\n总结 summary\n\n### 相关性分析"
    if language == "en":
        heading = "## Memory search finished (confidence: 0%)\n\n### Summary\n总结 summary\n\n"
        heading += "### Relevance"
    assert output.message == f"{heading}\n对得上 it fits"
    assert state.handoff is not None and state.handoff.confidence == 0


@pytest.mark.parametrize(
    ("question", "answer", "echo"),
    [
        ("数据库的密码和端口", "数据库里有苹果香蕉橙子葡萄", "苹果香蕉橙子葡萄"),
        (
            "password and port of the database",
            "the database has apples bananas oranges grapes",
            "apples bananas oranges grapes",
        ),
    ],
    ids=["zh", "en"],
)
async def test_what_is_found_by_quoting_a_memory_adds_no_confidence(
    question: str, answer: str, echo: str
) -> None:
    """Rules search with the words of a hit as well: how sure they are, the question tells."""
    others = map(
        Fact, ("会议改到周四", "Hiking on weekends", "猫把沙发抓坏了", "The sofa is broken")
    )
    memory = (await notebook([Fact(answer), Fact(echo), *others])).for_user("u")
    best = (await memory.search(question, limit=1))[0]
    result = await RecallAgent(memory).recall(question)
    assert [each.content for each in result.evidence] == [answer, echo]
    assert result.confidence == best.score < result.evidence[1].score


# 6.2 Limits


@LANGUAGES
async def test_a_fourth_search_in_a_row_is_not_made(language: Language) -> None:
    """It is told so in the shape of a search; another tool in between allows three more."""
    memory = await notebook([Fact("方案 plan")])
    state = await state_for(memory, language)
    advice = "已连续搜索 3 次" if language == "zh" else "3 searches in a row are the most"
    for _ in range(2):
        for found in (True, True, True, False, False):
            output = await used(state, "search_memories", query="方案 plan")
            assert (output.success, output.total_found) == (found, int(found))
            assert found or (advice in output.message and output.results == [])
        await used(state, "extract_search_keywords", query="方案 plan")
    assert len(state.searches) == 6


@LANGUAGES
async def test_a_model_that_only_searches_is_stopped(language: Language) -> None:
    """What it has found is handed over, and is said to be the best so far."""
    search = calling("search_memories", query=QUESTION[language], min_relevance_score=0.0)
    result, llm = await recalled(language, [search])
    assert [step.success for step in result.trace] == [True] * 3 + [False] * 3 + [True]
    assert result.trace[-1].tool == "handoff" and len(llm.calls) == 6
    assert not result.completed and result.by == "llm" and len(result.evidence) == 5
    assert ("最佳结果" if language == "zh" else "best results") in result.reason


@LANGUAGES
async def test_a_search_returns_ten_at_most(language: Language) -> None:
    """More cannot be asked for."""
    state = await state_for(await notebook([Fact("方案 plan")]), language)
    for limit in (11, 1000, 0, -1):
        output = await used(state, "search_memories", query="方案 plan", limit=limit)
        assert (output.success, output.total_found, output.results) == (False, 0, [])
        assert "limit" in output.message and str(limit) in output.message
    assert state.searches == []


@LANGUAGES
async def test_a_recall_makes_fifteen_calls_at_most(language: Language) -> None:
    """Also of tools that work; then it hands over by itself."""
    look = calling("get_memory_detail", memory_key="m_3")
    result, _ = await recalled(language, [look])
    assert [step.tool for step in result.trace] == ["get_memory_detail"] * 15 + ["handoff"]
    assert not result.completed and result.confidence == 0
