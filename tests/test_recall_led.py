"""A model that leads a recall builds on what rules have found, and cannot make it worse."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kemem.ports import Deps, ToolCall
from kemem.recall import RecallAgent, Recalled
from kemem.recall.prompt import with_keys
from kemem.recall.ranking import ADDED, LEAST, bounded, with_named
from kemem.testing import ScriptedLLM, calling
from tests.cases import each
from tests.recalls import BOTH, ONE, TONGUES, Tongue, furnished, handing, handle, keys_of

SEARCH = "search_memories"


@pytest.fixture
async def deps() -> Deps:
    return await furnished()


async def led(deps: Deps, tongue: Tongue, *replies: Any) -> tuple[Recalled, ScriptedLLM]:
    """A recall that a model leads, and what the model was asked."""
    llm = ScriptedLLM(replies)
    return await RecallAgent(handle(deps, tongue.user, llm)).recall(tongue.question), llm


async def by_rules(deps: Deps, tongue: Tongue) -> Recalled:
    return await RecallAgent(handle(deps, tongue.user)).recall(tongue.question)


@BOTH
async def test_a_model_that_names_nothing_loses_nothing(deps: Deps, tongue: Tongue) -> None:
    """Nor one that names what does not exist."""
    rules = await by_rules(deps, tongue)
    likely = [it.memory_key for it in rules.evidence if it.score >= LEAST]
    assert likely
    for named in ((), ("n_nowhere",), (99, "[0]")):
        result, _ = await led(deps, tongue, handing(named))
        assert result.by == "llm" and [*result.memory_keys] == likely
        assert tongue.answer in str(result)


@BOTH
async def test_what_rules_have_found_is_shown_by_numbers(deps: Deps, tongue: Tongue) -> None:
    """A model can hand over, or look closer, without a search; the trace has the keys."""
    rules = await by_rules(deps, tongue)
    detail = calling("get_memory_detail", memory_key="[2]")
    result, llm = await led(deps, tongue, detail, handing([2, "1", "#2"]))
    shown = llm.calls[0].messages[1]["content"]
    for number, it in enumerate(rules.evidence, 1):
        assert f"[{number}] {it.dates} " in shown and it.content in shown
    assert [step.tool for step in result.trace] == ["get_memory_detail", "handoff"]
    first, second = rules.memory_keys[:2]
    assert result.trace[0].arguments == {"memory_key": second}
    assert result.trace[1].arguments["relevant_memory_keys"] == [second, first, second]
    assert {*result.memory_keys[:2]} == {first, second}


@BOTH
async def test_a_model_adds_what_rules_have_not_found(deps: Deps, tongue: Tongue) -> None:
    rules = await by_rules(deps, tongue)
    keys, _ = await keys_of(deps, tongue.user)
    added = sorted(keys - {*rules.memory_keys})[0]
    result, _ = await led(deps, tongue, handing([added]))
    assert added in result.memory_keys and rules.memory_keys[0] in result.memory_keys


@ONE
async def test_a_model_alone_has_nothing_to_build_on(deps: Deps, tongue: Tongue) -> None:
    llm = ScriptedLLM([handing()])
    result = await RecallAgent(handle(deps, tongue.user, llm), by="llm").recall(tongue.question)
    assert not result.evidence and "found_before" not in llm.calls[0].messages[1]["content"]


@pytest.mark.parametrize(
    ("tongue", "query"),
    [(TONGUES[0], "谁要吃清汤？"), (TONGUES[1], "Where does the user live?")],
    ids=["zh", "en"],
)
async def test_less_relevance_is_enough_where_a_model_demands_none(
    deps: Deps, tongue: Tongue, query: str
) -> None:
    """A model that is told of no hit gives up; the trace says what was changed."""
    result, _ = await led(deps, tongue, calling(SEARCH, query=query), handing())
    demanding = calling(SEARCH, query=query, min_relevance_score=0.5)
    demanded, _ = await led(deps, tongue, demanding, handing())
    assert result.trace[0].keys and not demanded.trace[0].keys
    assert "0.1" in result.trace[0].outcome and "0.1" not in demanded.trace[0].outcome


@BOTH
async def test_a_model_s_confidence_is_taken_with_that_of_rules(deps: Deps, tongue: Tongue) -> None:
    """It moves their chance by as much as its word counts; who names nothing does not summarise."""
    rules = await by_rules(deps, tongue)
    for claim in (0.0, 1.0):
        result, _ = await led(deps, tongue, handing([1], confidence=claim))
        assert result.confidence == bounded(claim, rules.confidence)
        assert result.search_summary != rules.search_summary
    nothing, _ = await led(deps, tongue, handing(confidence=0))
    assert (nothing.search_summary, nothing.reason) == (rules.search_summary, rules.reason)
    assert nothing.confidence == bounded(0, rules.confidence) < rules.confidence


CHANCES = st.floats(0, 1)


@given(claim=CHANCES, chance=CHANCES)
def test_no_claim_turns_what_rules_are_sure_of(claim: float, chance: float) -> None:
    """From 0.2 on a claim can pass one half, and from 0.8 on it cannot fall below."""
    confidence = bounded(claim, chance)
    assert 0 < confidence < 1
    assert chance >= 0.2 or confidence < 0.500001
    assert chance <= 0.8 or confidence > 0.499999
    assert bounded(confidence, chance) == pytest.approx(confidence, abs=1e-5)


@given(
    by_rules=st.lists(CHANCES, max_size=10).map(
        lambda it: {f"r{at}": c for at, c in enumerate(it)}
    ),
    named=st.lists(st.sampled_from(["r0", "r1", "r5", "r9", "new", "other"]), unique=True),
)
def test_a_model_s_word_decides_between_what_is_about_as_likely(
    by_rules: dict[str, float], named: list[str]
) -> None:
    """All that it names is there, all that was likely stays, and what is far likelier is first."""
    ranked = with_named(by_rules, named)
    chances = {**dict.fromkeys(named, ADDED), **by_rules}
    kept = {key for key, chance in by_rules.items() if chance >= LEAST} | {*named}
    assert {*ranked} == kept and len(ranked) == len(kept)
    for at, key in enumerate(ranked):
        for later in ranked[at + 1 :]:
            if (key in named) == (later in named):
                clipped = [min(max(chances[it], LEAST), 1 - LEAST) for it in (key, later)]
                assert clipped[0] >= clipped[1]
            if later in named and key not in named:
                assert chances[key] >= min(chances[later], 1 - LEAST)


@each(
    ("written", "read"),
    [
        ('{"relevant_memory_keys": [1, "2", "[1]"]}', {"relevant_memory_keys": ["a", "b", "a"]}),
        ('{"relevant_memory_keys": ["n_3", 3, 0]}', {"relevant_memory_keys": ["n_3", "3", "0"]}),
        ('{"memory_key": 2}', {"memory_key": "b"}),
        ('{"memory_key": "user: the port is 5432"}', {"memory_key": "a"}),
        ('{"relevant_memory_keys": ["我们改用 6543 端口了"]}', {"relevant_memory_keys": ["b"]}),
        ('{"relevant_memory_keys": ["5432"]}', {"relevant_memory_keys": ["5432"]}),
        ('{"query": "2", "limit": 2}', {"query": "2", "limit": 2}),
        ('{"memory_key": null}', {"memory_key": None}),
    ],
)
def test_numbers_stand_for_keys_that_were_shown(written: str, read: dict[str, Any]) -> None:
    known = {"a": "2026-01-01 user: the port is 5432", "b": "2026-01-02 我们改用 6543 端口了"}
    call = with_keys(ToolCall("c", "handoff", written), known)
    assert json.loads(call.arguments) == read


@each("written", ["", "[1]", "not JSON", '"x"', '{"relevant_memory_keys": "1"}'])
def test_arguments_that_name_nothing_are_left_as_they_are(written: str) -> None:
    call = ToolCall("c", "handoff", written)
    assert with_keys(call, {"a": "the port is 5432"}) == call
