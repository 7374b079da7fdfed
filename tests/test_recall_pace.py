"""A recall knows how fast its model is: a slow one costs a tenth of the time at most.

Time is compressed: a recall has 3 seconds, so that a tenth is 300 ms. How long a model was heard is
counted in its own ticks: a busy machine makes them longer, not more.
"""

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Any

import pytest

from kemem.backends.llm import OpenAILLM
from kemem.ports import Deps, Prompt, Reply, Schema, Tool
from kemem.ports.pace import REST, Pace
from kemem.recall import Budget, RecallAgent
from kemem.testing import calling, running_openai_server
from tests.recalls import BOTH, ONE, TONGUES, Tongue, furnished, hand_over_what_is_shown, handle

BUDGET = Budget(seconds=3.0)
MOST = 0.1 * BUDGET.seconds
TICK = 0.01


class Slow:
    """A model that takes its time for each reply; it counts how long it was heard."""

    name = "slow"

    def __init__(self, seconds: float, *, talks: bool = False) -> None:
        self.seconds = seconds
        self.waited: list[float] = []  # by the clock
        self.ticks: list[int] = []
        self._talks = talks

    @property
    def heard(self) -> float:
        """The seconds for which it was heard in all; a tick that has begun counts."""
        return TICK * sum(self.ticks)

    async def reply(
        self, messages: Prompt, *, schema: Schema | None = None, tools: Sequence[Tool] = ()
    ) -> Reply:
        begun = time.monotonic()
        self.ticks.append(0)
        try:
            while time.monotonic() < begun + self.seconds:
                self.ticks[-1] += 1
                await asyncio.sleep(TICK)
        finally:
            self.waited.append(time.monotonic() - begun)
        if self._talks or not tools:
            return Reply('{"keywords": []}')
        if messages[-1]["role"] == "tool":
            return Reply("", calls=(hand_over_what_is_shown(messages),))
        query = messages[1]["content"].partition("<question>")[2].partition("</question>")[0]
        return Reply("", calls=(calling("search_memories", query=query.strip()),))


@pytest.fixture(scope="module")
def deps() -> Deps:
    """A store that recalls only read; what is loaded at the first recall is loaded already."""

    async def warmed() -> Deps:
        deps = await furnished()
        for tongue in TONGUES:
            await RecallAgent(handle(deps, tongue.user)).recall(tongue.question)
        return deps

    return asyncio.run(warmed())


@BOTH
async def test_a_slow_model_costs_a_tenth_of_the_time_once(deps: Deps, tongue: Tongue) -> None:
    """Then it is known to be slow, and rules answer at once."""
    model = Slow(1.2)
    agent = RecallAgent(handle(deps, tongue.user, model), budget=BUDGET)
    result = await agent.recall(tongue.question)
    assert (result.by, result.completed) == ("rules", True)
    assert tongue.answer in str(result.evidence)
    assert 0 < model.heard <= MOST + TICK
    again = await agent.recall(tongue.question)
    assert again.by == "rules" and tongue.answer in str(again.evidence)
    assert len(model.waited) == 1
    assert any(word in str(again.problems) for word in ("太慢", "too slow"))


@BOTH
async def test_whatever_a_model_was_asked_tells_its_speed(deps: Deps, tongue: Tongue) -> None:
    """A model that drew facts slowly is not asked to lead a recall."""
    model = Slow(0.6)
    memory = handle(deps, tongue.user, model)
    await (await memory.runtime.deps()).ask([{"role": "user", "content": "…"}], {})
    result = await RecallAgent(memory, budget=BUDGET).recall(tongue.question)
    assert result.by == "rules" and len(model.waited) == 1
    patient = RecallAgent(memory, budget=Budget(seconds=60))
    assert (await patient.recall(tongue.question)).by == "llm"  # there is time enough


@BOTH
async def test_a_model_that_is_fast_enough_leads(deps: Deps, tongue: Tongue) -> None:
    model = Slow(0.02)
    agent = RecallAgent(handle(deps, tongue.user, model), budget=BUDGET)
    for _ in range(2):
        result = await agent.recall(tongue.question)
        assert (result.by, result.completed) == ("llm", True)
        assert tongue.answer in str(result.evidence)


@ONE
async def test_a_model_that_only_talks_is_heard_for_a_tenth_of_the_time(
    deps: Deps, tongue: Tongue
) -> None:
    for seconds in (0.12, 0.2, 0.28):
        model = Slow(seconds, talks=True)
        agent = RecallAgent(handle(deps, tongue.user, model), budget=BUDGET)
        for _ in range(2):
            model.ticks.clear()
            result = await agent.recall(tongue.question)
            assert result.by == "rules" and tongue.answer in str(result.evidence)
            assert model.heard <= MOST + TICK * len(model.ticks)


@ONE
async def test_a_model_that_has_found_something_has_more_time(deps: Deps, tongue: Tongue) -> None:
    """Its hits are handed over if it never comes back, without another search."""
    model = Slow(0.02)
    memory = handle(deps, tongue.user, model)
    agent = RecallAgent(memory, budget=BUDGET)

    def slow_down(_: object) -> None:
        model.seconds = 0.8

    result = await agent.recall(tongue.question, on_step=slow_down)
    assert (result.by, result.completed) == ("llm", True)
    assert sum(model.waited) > MOST


def test_a_slow_model_is_tried_again_after_a_while() -> None:
    now = 0.0
    pace = Pace(lambda: now)
    assert pace.fits(0.1) and not pace.fits(0.0)
    pace.gave_up(6.0)
    assert not pace.fits(6.0) and pace.fits(7.0)
    now += REST
    assert pace.fits(6.0)
    pace.answered(2.0)
    assert pace.seconds == 4.0 and pace.fits(6.0) and not pace.fits(3.0)


@BOTH
async def test_a_model_whose_calls_come_as_text_leads(deps: Deps, tongue: Tongue) -> None:
    """A server that takes tools and has no parser: bare, in a fence, with an invented result."""
    search = {"name": "search_memories", "arguments": {"query": tongue.question}}

    def answer(request: dict[str, Any]) -> str:
        if request["messages"][-1]["role"] != "tool":
            result = '<tool_response>\n{"success": true, "results": []}\n</tool_response>'
            return f"```json\n{json.dumps(search, ensure_ascii=False)}\n```\n{result}"
        call = hand_over_what_is_shown(request["messages"])
        return f'{{"name": "handoff", "arguments": {call.arguments}}}'

    with running_openai_server(answer) as server:
        llm = OpenAILLM.connect("m", base_url=server.base_url)
        result = await RecallAgent(handle(deps, tongue.user, llm)).recall(tongue.question)
        await llm.close()
    assert (result.by, result.completed) == ("llm", True)
    assert [step.tool for step in result.trace] == ["search_memories", "handoff"]
    assert tongue.answer in str(result.evidence)
