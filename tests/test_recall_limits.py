"""Whatever a model does, a recall ends within its limits, with a result that can be trusted."""

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kemem import InvalidArgument, Memory, NotFound
from kemem.ports import Deps, Prompt, Reply, Schema, Tool, ToolCall
from kemem.recall import (
    MEMRECALL_TOOLS,
    Budget,
    RecallAgent,
    Recalled,
    Step,
    json_schemas,
)
from kemem.recall.registry import as_tools, short_tools
from kemem.recall.schemas import Language, ToolTexts
from kemem.records import Row
from kemem.testing import HashingEmbedder, ScriptedLLM, calling
from kemem.text.language import count_tokens, is_chinese
from kemem_conformance.ram import RamStore
from tests.cases import each
from tests.fixtures import EXAMPLES
from tests.recalls import (
    BOTH,
    CHINESE,
    ONE,
    TALK,
    TONGUES,
    Tongue,
    furnished,
    hand_over_what_is_shown,
    handing,
    handle,
    keys_of,
    notebook,
    parts_with,
    quiet,
    shown_keys,
)

SEARCH = "search_memories"


@pytest.fixture(scope="module")
def deps() -> Deps:
    """A store that recalls only read."""
    return asyncio.run(furnished())


async def recalled(
    deps: Deps,
    tongue: Tongue,
    llm: Any = None,
    budget: Budget | None = None,
    question: str | None = None,
) -> Recalled:
    """What comes of a recall, which must obey every law."""
    budget = budget or Budget()
    agent = RecallAgent(handle(deps, tongue.user, llm), budget=budget)
    async with asyncio.timeout(60):
        result = await agent.recall(question or tongue.question)
    obeys(result, budget)
    keys, messages = await keys_of(deps, tongue.user)
    assert {*result.memory_keys} <= keys and {*result.message_ids} <= messages
    if isinstance(llm, ScriptedLLM):
        extracted = [step for step in result.trace if step.tool == "extract_search_keywords"]
        moves = [call for call in llm.calls if call.tools]
        assert len(moves) <= budget.max_calls
        assert len(llm.calls) - len(moves) <= len(extracted)
    return result


def obeys(result: Recalled, budget: Budget) -> None:
    """The laws of every result."""
    trace, windows = result.trace, result.limits.windows
    model_failed = any("LLM" in problem for problem in result.problems)
    assert len(trace) <= budget.max_calls + model_failed + (not result.completed)
    for (tool, success), run in groupby(trace, lambda step: (step.tool, step.success)):
        assert (tool, success) != (SEARCH, True) or len(list(run)) <= 3
    assert all(len(step.keys) <= 10 for step in trace) and len(result.evidence) <= 10
    assert [step.number for step in trace] == list(range(1, len(trace) + 1))
    assert all(step.seconds >= 0 for step in trace)
    assert [step.iteration for step in trace] == sorted(step.iteration for step in trace)
    assert list(windows) == sorted({*windows}) and max(windows) <= budget.max_window
    assert len(windows) == result.iteration_used <= budget.max_iterations
    assert result.context_window_used == windows[-1]
    assert 0 <= result.confidence <= 1 and (result.evidence or result.confidence == 0)
    if not result.evidence and (result.by == "rules" or not result.completed):
        assert result.needs_more_info and result.follow_up_question
    assert json.loads(json.dumps(result.to_dict(), allow_nan=False))


# Any model


TEXTS = st.sampled_from(["数据库 端口", "the database port", "", "  ", "\ud800", '"', "x" * 5000])
SIZES = st.sampled_from([10**9, 1e9, -5, 0, 3, 7, 40, "all", None, True, 0.5, [5]])
NUMBERS = st.sampled_from([0, 1, 0.3, 5, -1, float("nan"), float("inf"), "0.5", None])
JUNK = st.sampled_from([None, "x", 7, [], {}, ["a"], [None], [["a"]], {"a": 1}, "message", True])
ASKED: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    SEARCH: {
        "query": TEXTS,
        "search_mode": st.sampled_from(["semantic", "keyword", "hybrid", "magic"]),
        "keywords": st.sampled_from([["端口"], ["port", ""], ["x"] * 50]) | JUNK,
        "memory_types": st.sampled_from([["message"], ["user_info", "x"]]) | JUNK,
        "time_range_days": SIZES,
        "limit": SIZES,
        "min_relevance_score": NUMBERS,
        "user_id": st.sampled_from(["zh", "en"]),
    },
    "get_memory_detail": {"memory_key": TEXTS | JUNK},
    "extract_search_keywords": {"query": TEXTS, "context": TEXTS | JUNK, "max_keywords": SIZES},
    "expand_context_window": {"reason": TEXTS, "current_size": SIZES, "requested_size": SIZES},
    "handoff": {
        "reason": TEXTS | JUNK,
        "search_summary": TEXTS,
        "relevant_memory_keys": JUNK | st.just(["n_1"] * 2_000),
        "confidence": NUMBERS,
        "needs_more_info": JUNK,
        "follow_up_question": TEXTS | JUNK,
    },
}
BROKEN = st.sampled_from(
    ['{"query": "端口', "not JSON", "[]", "null", "", "{" * 500, '{"limit": 5}']
)


@st.composite
def calls(draw: st.DrawFn) -> ToolCall:
    """A call of one of the tools, or of none, right or wrong."""
    name = draw(st.sampled_from([*ASKED, "delete_all", "", "工具" * 50]))
    if draw(st.integers(0, 5)) == 0:
        return ToolCall("call_1", name, draw(BROKEN))
    arguments = st.fixed_dictionaries({}, optional=ASKED.get(name, {"query": TEXTS}))
    return calling(name, **draw(arguments))


def look_closer(messages: Prompt) -> list[ToolCall]:
    """A model that reads whatever it is shown."""
    keys = shown_keys(messages) or ["nothing"]
    return [calling("get_memory_detail", memory_key=key) for key in keys]


GOOD = [
    calling(SEARCH, query="数据库端口 database port", min_relevance_score=0.0, limit=10),
    calling("expand_context_window", reason="more 更多", current_size=5, requested_size=8),
    look_closer,
    hand_over_what_is_shown,
]
REPLIES = (
    st.sampled_from(GOOD)
    | calls()
    | st.lists(calls(), min_size=1, max_size=4)
    | st.lists(calls(), min_size=2, max_size=2).map(lambda some: some * 25)
    | st.sampled_from(["端口是 5432", "<tool_call>", {"facts": []}, Reply("")])
    | st.sampled_from([RuntimeError("down"), TimeoutError(), ConnectionError(), ValueError()])
)
BUDGETS = st.builds(
    Budget,
    max_iterations=st.integers(1, 5),
    window=st.integers(1, 2 * TALK),
    max_window=st.integers(1, 2 * TALK),
    max_calls=st.integers(1, 20),
)


@given(st.lists(REPLIES, min_size=1, max_size=6), BUDGETS, st.sampled_from(TONGUES))
async def test_any_mixture_of_replies_ends_in_a_result(
    deps: Deps, replies: list[Any], budget: Budget, tongue: Tongue
) -> None:
    """A03-A07: over and over until a limit is reached."""
    await recalled(deps, tongue, ScriptedLLM(replies, repeat=True), budget)


@settings(max_examples=EXAMPLES)  # there are four questions
@given(BUDGETS, st.sampled_from([it for each in TONGUES for it in (each.question, "那个 it")]))
async def test_rules_obey_the_same_laws(deps: Deps, budget: Budget, question: str) -> None:
    for tongue in TONGUES:
        await recalled(deps, tongue, None, budget, question)


# One habit at a time


@BOTH
async def test_a_model_that_always_searches_is_stopped(deps: Deps, tongue: Tongue) -> None:
    """A03: three searches, then advice, then the best that was found."""
    asked = calling(SEARCH, query=tongue.question)
    result = await recalled(deps, tongue, ScriptedLLM([asked], repeat=True))
    assert [step.success for step in result.trace] == [True] * 3 + [False] * 3 + [True]
    assert not result.completed and result.by == "llm"
    assert tongue.answer in str(result)


@ONE
async def test_a_call_that_fails_makes_no_room_for_searches(deps: Deps, tongue: Tongue) -> None:
    """One that succeeds does."""
    search = calling(SEARCH, query=tongue.question)
    wrong = calling("get_memory_detail", memory_key="n_nowhere")
    right = calling("extract_search_keywords", query=tongue.question)
    reply = [search, search, search, wrong, search, right, search]
    result = await recalled(deps, tongue, ScriptedLLM([reply, "{}", handing()]))
    assert [step.success for step in result.trace] == [True] * 3 + [False] * 2 + [True] * 3


@ONE
async def test_rules_that_take_over_may_search_at_once(deps: Deps, tongue: Tongue) -> None:
    """What a model searched for in vain does not count against them."""
    asked = calling(SEARCH, query=tongue.nothing, min_relevance_score=0.9)
    for last in (asked, RuntimeError("down")):
        replies: list[Any] = [asked, asked, asked, last, last, last]
        result = await recalled(deps, tongue, ScriptedLLM(replies))
        assert (result.by, result.completed) == ("rules", True)
        assert tongue.answer in str(result)


@ONE
@pytest.mark.parametrize("size", [10**9, 1e9, -5, 0, 2, 7, TALK, "many"])
async def test_a_model_that_always_expands_is_stopped(
    deps: Deps, tongue: Tongue, size: Any
) -> None:
    """A04: the window never shrinks, and never grows beyond its limit."""
    asked = calling("expand_context_window", reason="?", current_size=5, requested_size=size)
    budget = Budget(max_iterations=4, window=3, max_window=9)
    result = await recalled(deps, tongue, ScriptedLLM([asked], repeat=True), budget)
    grows = isinstance(size, int | float) and size > 3
    assert result.limits.windows == ((3, min(int(size), 9)) if grows else (3,))


@ONE
@pytest.mark.parametrize(("rounds", "windows"), [(1, (3,)), (2, (3, 6)), (9, (3, 6, 9, TALK))])
async def test_each_round_can_show_more(
    deps: Deps, tongue: Tongue, rounds: int, windows: tuple[int, ...]
) -> None:
    """Until all is shown, or no round is left."""
    more = [
        calling("expand_context_window", reason="?", current_size=3, requested_size=size)
        for size in (6, 9, 40, 50, 60, 70)
    ]
    budget = Budget(max_iterations=rounds, window=3)
    result = await recalled(deps, tongue, ScriptedLLM(more), budget)
    assert result.limits.windows == windows


@ONE
async def test_the_first_window_is_within_its_limit(deps: Deps, tongue: Tongue) -> None:
    result = await recalled(deps, tongue, None, Budget(window=9, max_window=2))
    assert result.limits.windows == (2,)


@ONE
@pytest.mark.parametrize(
    "reply",
    [
        "我不调用工具 no tool",
        calling("delete_all", user_id="zh"),
        ToolCall("call_1", SEARCH, '{"query'),
        calling(SEARCH, query=5),
        handing(confidence=5),
        handing(confidence=float("nan")),
        calling("handoff", confidence=0.5),
        [calling("unknown"), calling("handoff"), calling(SEARCH)],
        RuntimeError("down"),
        TimeoutError(),
        Reply(""),
    ],
    ids=[
        "silent",
        "delete_all",
        "broken",
        "wrong_type",
        "sure",
        "nan",
        "incomplete",
        "several",
        "down",
        "late",
        "empty",
    ],
)
async def test_rules_take_over_from_a_model_that_errs(
    deps: Deps, tongue: Tongue, reply: Any
) -> None:
    """A05, A07: it is told so, three times at most, and the answer is found."""
    llm = ScriptedLLM([reply], repeat=True)
    result = await recalled(deps, tongue, llm)
    assert (result.by, result.completed) == ("rules", True)
    assert len(llm.calls) <= 3 and len(result.problems) >= 1
    assert tongue.answer in str(result)


@ONE
async def test_a_hand_off_ends_a_reply_of_many_calls(deps: Deps, tongue: Tongue) -> None:
    """Whatever stands behind it is not done; what stands before it is."""
    search = calling(SEARCH, query=tongue.question)
    for reply, tools in (
        ([handing(), search, search], ["handoff"]),
        ([search, handing(), search], [SEARCH, "handoff"]),
    ):
        result = await recalled(deps, tongue, ScriptedLLM([reply]))
        assert [step.tool for step in result.trace] == tools and result.completed


@ONE
async def test_fifty_calls_in_a_reply_are_cut_to_what_is_left(deps: Deps, tongue: Tongue) -> None:
    """A05: and then the hand-over is ours."""
    reply = [calling("extract_search_keywords", query=f"{tongue.question} {n}") for n in range(50)]
    result = await recalled(deps, tongue, ScriptedLLM([reply, *["{}"] * 50]))
    assert [step.tool for step in result.trace] == ["extract_search_keywords"] * 15 + ["handoff"]
    assert not result.completed


class Counting(RamStore):
    """A store that counts what is looked up."""

    looked_up = 0

    async def read(self, *asked: Any, **more: Any) -> list[Row]:
        self.looked_up += 1
        return await super().read(*asked, **more)


@ONE
async def test_a_hand_off_of_very_many_keys_is_cut(tongue: Tongue) -> None:
    """Neither the store nor the trace has to bear all of them."""
    store = Counting()
    deps = await furnished(store)
    keys, _ = await keys_of(deps, tongue.user)
    many = [f"n_{number}" for number in range(10_000)]
    by_rules = len((await recalled(deps, tongue)).evidence)
    for named, found in ((many, by_rules), ([*sorted(keys), *many], 10)):
        result = await recalled(deps, tongue, ScriptedLLM([handing(named)]))
        assert len(result.evidence) == found and len(str(result.trace)) < 5_000
    assert store.looked_up < 200


# Time


class Asleep:
    """A model that does not answer, after some replies."""

    name = "asleep"

    def __init__(self, *replies: Reply) -> None:
        self._replies = iter(replies)

    async def reply(
        self, messages: Prompt, *, schema: Schema | None = None, tools: Sequence[Tool] = ()
    ) -> Reply:
        reply = next(self._replies, None)
        return reply or await asyncio.Future[Reply]()


@BOTH
async def test_a_model_that_never_answers_is_not_waited_for(deps: Deps, tongue: Tongue) -> None:
    """Rules take over; with evidence at hand, that is handed over."""
    impatient = replace(deps, llm_timeout=0.05)
    result = await recalled(impatient, tongue, Asleep())
    assert (result.by, result.completed) == ("rules", True)
    assert "did not answer" in result.problems[0] and tongue.answer in str(result)
    search = calling(SEARCH, query=tongue.question)
    result = await recalled(impatient, tongue, Asleep(Reply("", calls=(search,))))
    assert (result.by, result.completed) == ("llm", False)
    assert "did not answer" in result.problems[0] and tongue.answer in str(result)


@ONE
async def test_half_of_the_time_is_left_when_a_model_does_not_answer(
    deps: Deps, tongue: Tongue
) -> None:
    result = await recalled(deps, tongue, Asleep(), Budget(seconds=3.0))
    waited = re.findall(r"did not answer within (\S+) s", result.problems[0])
    assert result.by == "rules" and 0 < float(waited[0]) <= 1.5


@BOTH
async def test_without_time_a_recall_still_ends(deps: Deps, tongue: Tongue) -> None:
    for llm in (None, Asleep()):
        result = await recalled(deps, tongue, llm, Budget(seconds=1e-6))
        assert not result.completed
        assert result.reason.startswith(("已到时间上限", "the time is up"))


# What a small model needs


@each("language", ["zh", "en"])
def test_the_tools_of_the_agent_take_700_tokens_at_most(language: Language) -> None:
    """By the estimate that budgets of the package use, which is rather too high."""
    tools = [tool.to_dict() for tool in short_tools(language)]
    assert count_tokens(json.dumps(tools, ensure_ascii=False)) <= 700
    assert [it["function"]["name"] for it in tools] == [*MEMRECALL_TOOLS]
    assert "command_output" not in str(tools)
    for tool in tools:
        name, short = tool["function"]["name"], tool["function"]["parameters"]
        whole = json_schemas(language)[name]["input"]
        assert {*short["properties"]} <= {*whole["properties"]}
        assert short["required"] == whole["required"]
        for text in (tool["function"], *short["properties"].values()):
            assert is_chinese(text["description"]) == (language == "zh"), text


@ONE
async def test_a_large_model_can_be_told_of_the_tools_in_full(deps: Deps, tongue: Tongue) -> None:
    ways: list[tuple[ToolTexts, list[Tool]]] = [
        ("full", as_tools("zh")),
        ("short", short_tools("zh")),
    ]
    for texts, told in ways:
        llm = ScriptedLLM([handing()])
        await RecallAgent(handle(deps, tongue.user, llm), tool_texts=texts).recall(tongue.question)
        assert [*llm.calls[0].tools] == told


@BOTH
async def test_a_filter_that_matches_nothing_is_dropped_and_the_trace_says_so(
    deps: Deps, tongue: Tongue
) -> None:
    """A model that copies a type from an example would hide everything from itself."""
    asked = {"memory_types": ["command_output"], "keywords": ["xyzzy"]}
    search = calling(SEARCH, query=tongue.question, min_relevance_score=0.0, **asked)
    result = await recalled(deps, tongue, ScriptedLLM([search, hand_over_what_is_shown]))
    assert result.by == "llm" and tongue.answer in str(result.evidence)
    assert "keywords, memory_types" in result.trace[0].outcome
    assert result.limits.memory_types == ()


# Arguments, and who watches


@pytest.fixture
def memory(tmp_path: Any) -> Iterator[Memory]:
    with Memory(settings=quiet(tmp_path), embedder=HashingEmbedder()) as memory:
        for tongue in TONGUES:
            memory.add(tongue.facts[0], tongue.user, session_id="s", infer=False)
        yield memory


@ONE
def test_what_cannot_be_asked_is_refused_by_name(memory: Memory, tongue: Tongue) -> None:
    """Before anything is opened or searched."""
    for question in ("", " \n", None, 5, ["?"], tongue.question * 1_000_000):
        with pytest.raises(InvalidArgument, match=r"(query|question) must be") as refused:
            memory.recall(question, tongue.user)  # type: ignore[arg-type]
        assert len(str(refused.value)) < 200
    for rounds in (0, 11, -1, "x", True, 2.0):
        with pytest.raises(InvalidArgument, match=f"max_iterations must be 1-10, not {rounds!r}"):
            memory.recall(tongue.question, tongue.user, max_iterations=rounds)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="user_id"):
        memory.recall(tongue.question, agent_id="a")
    with pytest.raises(InvalidArgument, match="question"):
        memory.recall(tongue.question, tongue.user, question=tongue.question)
    with pytest.raises(InvalidArgument, match="session_id must be 1-255 characters, not 0"):
        memory.recall(tongue.question, tongue.user, session_id="")
    with pytest.raises(NotFound):
        memory.for_user(tongue.user).recall(tongue.question, "other")


async def test_a_question_may_be_called_query(deps: Deps) -> None:
    """By name, as other methods call it; one of the two."""
    agent = RecallAgent(handle(deps, CHINESE.user))
    by_name = await agent.recall(query=CHINESE.question)
    assert by_name.evidence == (await agent.recall(CHINESE.question)).evidence != ()
    assert by_name.question == CHINESE.question
    for query in (" ", None):
        with pytest.raises(InvalidArgument, match="query must be a text that is not blank"):
            await agent.recall(query=query)
    with pytest.raises(InvalidArgument, match="question must be a text that is not blank"):
        await agent.recall(" ")
    with pytest.raises(InvalidArgument, match="give question or query, not both"):
        await agent.recall(CHINESE.question, query=CHINESE.question)


async def test_all_that_matches_is_counted_for_a_model_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To count is slow; rules do not read the number, and their trace says where it ends."""
    deps = parts_with()
    memory = notebook(deps)
    await memory.ingest([{"content": f"火锅 {number}"} for number in range(70)], "u")
    search, counted = type(memory).search, []

    async def watched(*asked: Any, **more: Any) -> Any:
        counted.append(more["count"])
        return await search(*asked, **more)

    monkeypatch.setattr(type(memory), "search", watched)
    result = await RecallAgent(handle(deps, "u")).recall("火锅")
    assert "找到 60+ 个，返回 10 个" in {step.outcome for step in result.trace}
    assert {*counted} == {False}
    counted.clear()
    llm = ScriptedLLM([calling(SEARCH, query="火锅", min_relevance_score=0.0), handing()])
    result = await RecallAgent(handle(deps, "u", llm), by="llm").recall("火锅")
    assert result.trace[0].outcome == "找到 70 个，返回 5 个" and counted == [True]


@ONE
async def test_an_agent_needs_a_user_and_a_session_that_can_be(deps: Deps, tongue: Tongue) -> None:
    """A mistake of the caller is not taken for a store that fails."""
    with pytest.raises(InvalidArgument, match="user_id"):
        RecallAgent(notebook(deps))
    with pytest.raises(InvalidArgument, match="session_id must not begin or end with blanks: ' s'"):
        await RecallAgent(handle(deps, tongue.user), session_id=" s").recall(tongue.question)
    bound = handle(deps, tongue.user, session_id="s")
    with pytest.raises(NotFound):
        await RecallAgent(bound, session_id="other").recall(tongue.question)


def test_a_budget_that_makes_no_sense_is_refused() -> None:
    values: list[Any] = [0, -1, True, "x", None, 10**6, float("nan"), float("inf")]
    for name in ("max_iterations", "window", "max_window", "max_calls", "seconds"):
        for value in values:
            if (name, value) != ("seconds", 10**6):
                with pytest.raises(InvalidArgument, match=f"{name} must be .*, not {value!r}"):
                    Budget(**{name: value})


@ONE
def test_a_conversation_may_be_new(memory: Memory, tongue: Tongue) -> None:
    """A session without messages has an empty window; memories of all sessions are found."""
    result = memory.recall(tongue.question, tongue.user, session_id="new")
    assert result.limits.windows == (0,) and tongue.answer in str(result)


@ONE
def test_whoever_watches_is_told_each_step_in_order(memory: Memory, tongue: Tongue) -> None:
    steps: list[Step] = []
    result = memory.recall(tongue.question, tongue.user, on_step=steps.append)
    assert tuple(steps) == result.trace and len(steps) > 1


@ONE
def test_what_a_watcher_raises_ends_no_recall(
    memory: Memory, tongue: Tongue, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged, and the watcher hears of the next step all the same."""
    steps: list[Step] = []

    def refuse(step: Step) -> None:
        steps.append(step)
        raise ZeroDivisionError(f"no more after {step.tool}")

    result = memory.recall(tongue.question, tongue.user, on_step=refuse)
    assert tongue.answer in str(result) and tuple(steps) == result.trace != ()
    assert caplog.text.count("on_step failed: ZeroDivisionError") == len(steps)
