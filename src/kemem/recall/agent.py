"""RecallAgent: a bounded loop of tool calls, planned by a model or by rules."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any

from kemem.errors import InvalidArgument, NotFound, Unavailable
from kemem.ports import ToolCall
from kemem.ports.entries import check_enabled
from kemem.recall.prompt import known_memories, task, tool_data, with_keys
from kemem.recall.registry import as_tools, run_tool, short_tools, succeeded, with_types
from kemem.recall.results import Driver, Recalled, Step
from kemem.recall.rules import handoff_from, plan
from kemem.recall.schemas import ExpandContextWindowOutput, Language, Model, ToolTexts
from kemem.recall.state import MAX_RESULTS, TOOL_SECONDS, Budget, Caches, MemoryReader, RecallState
from kemem.results import Item
from kemem.scope import check_flag
from kemem.settings import Settings
from kemem.text.language import is_chinese
from kemem.text.past import is_about_past
from kemem.text.query import check_query

MAX_FAILURES = 3  # in a row: then a model is not called any further

log = logging.getLogger("kemem")

Call = ToolCall | Model  # of a model as it was written, of rules as the input of a tool
# The next calls, after the last ones and their outputs; none at all is a failure.
Planner = Callable[[Sequence[tuple[Call, Model]]], Awaitable[Sequence[Call]]]
Round = Callable[[RecallState, Sequence[Item]], Awaitable[int | None]]


class RecallAgent:
    """Finds among one user's memories what a question needs, for another agent.

    The user is settled here: no tool takes one, and whatever a model says about it is ignored.
    Sensitive memories are seen only through a handle that was granted them. Rules find evidence at
    once; where there is an LLM, it then lifts what it takes for evidence and adds to it. `by`
    leaves that to one of them alone: "rules" calls no model, "llm" has nothing to build on. The
    LLM is told of its tools in few words, or in many by `tool_texts="full"`. Memories that the
    caller has already are left out if it names them in `without`.

        agent = RecallAgent(memory.for_user("u_1"))
        result = await agent.recall("按照我之前的数据库配置来")
    """

    def __init__(
        self,
        memory: MemoryReader,
        *,
        session_id: str | None = None,
        budget: Budget | None = None,
        language: Language | None = None,
        caches: Caches | None = None,
        by: Driver | None = None,
        without: Collection[str] = (),
        tool_texts: ToolTexts = "short",
    ) -> None:
        if memory.scope.user_id is None:
            raise InvalidArgument(
                "a recall is about one user: give user_id, or a handle of memory.for_user(...)",
                field="user_id",
            )
        self._memory, self._context = memory, MemoryContext(memory, session_id)
        self._budget, self._caches = budget or Budget(), caches or Caches()
        self._language, self._driver, self._tool_texts = language, by, tool_texts
        self._excluded = without  # read at each recall: the caller may add to it

    @classmethod
    def from_settings(
        cls,
        memory: MemoryReader,
        settings: Settings,
        caches: Caches,
        session_id: str | None,
        max_iterations: int | None,
    ) -> "RecallAgent":
        """An agent with the limits and the language of the settings."""
        budget = Budget(
            settings.recall_max_iterations if max_iterations is None else max_iterations,
            settings.recall_window,
            settings.recall_max_window,
            settings.recall_max_calls,
            settings.recall_seconds,
        )
        language = None if settings.recall_language == "auto" else settings.recall_language
        return cls(
            memory,
            session_id=session_id,
            budget=budget,
            language=language,
            caches=caches,
            tool_texts=settings.recall_tools,
        )

    async def recall(
        self,
        question: str | None = None,
        *,
        query: str | None = None,
        past: bool = False,
        on_step: Callable[[Step], None] | None = None,
    ) -> Recalled:
        """Search, read details, hand off: whatever goes wrong on the way, there is a result.

        What has ended is evidence where the question asks for the past, or `past` says so.
        `query` is another name of `question`.
        """
        if question is not None and query is not None:
            raise InvalidArgument(
                "give question or query, not both: they mean the same", field="query"
            )
        field, asked = ("query", query) if question is None else ("question", question)
        text = check_query(asked, field)
        if on_step is not None and not callable(on_step):
            problem = f"on_step must be a function that takes a step, not {on_step!r:.80}"
            raise InvalidArgument(problem, field="on_step")
        deps = await self._memory.runtime.deps()
        await check_enabled(deps.store, self._memory.scope.scope)
        state = RecallState(
            memory=self._memory,
            deps=deps,
            caches=self._caches,
            budget=self._budget,
            question=text,
            language=self._language or ("zh" if is_chinese(text) else "en"),
            driver=self._driver or ("rules" if deps.llm is None else "llm"),
            excluded=frozenset(self._excluded),
            past=check_flag(past, "past") or is_about_past(text, deps.clock()),
            past_asked=past,
            on_step=on_step,
            tool_texts=self._tool_texts,
        )
        if state.driver == "llm" and self._driver is None:
            state.by_rules = state.started_by_rules()
            await self._context.relaunch(state.by_rules, run_round)
            state.problems += state.by_rules.problems
        await self._context.relaunch(state, run_round)
        return state.result()


class MemoryContext:
    """Shows a round the last messages, and starts another with more whenever one asks for them."""

    def __init__(self, memory: MemoryReader, session_id: str | None = None) -> None:
        self._memory = memory
        self._session_id = session_id

    async def relaunch(self, state: RecallState, play: Round) -> None:
        """Run rounds until one asks for no larger window."""
        size: int | None = min(state.budget.window, state.budget.max_window)
        while size is not None:
            window: Sequence[Item] = ()
            try:
                async with asyncio.timeout(min(TOOL_SECONDS, state.seconds_left)):
                    page = await self._memory.get_all(
                        session_id=self._session_id, kinds=["message"], limit=size
                    )
                window = [item for item in page.items[::-1] if not item.withdrawn]
                state.has_earlier = page.next_cursor is not None
            except (InvalidArgument, NotFound):
                raise
            except Exception as error:  # the store's code or network, which may raise anything
                log.warning("recall: the conversation failed: %s", type(error).__name__)
                state.problems.append(state.text("no_conversation"))
            state.windows.append(len(window))
            size = await play(state, window)
            if size is not None:
                state.iteration += 1
                state.searches_in_a_row = 0


async def run_round(state: RecallState, window: Sequence[Item]) -> int | None:
    """One round: the size of the window that the next one needs, None when the recall has ended."""
    planner = (_by_model if state.driver == "llm" else _by_rules)(state, window)
    results: list[tuple[Call, Model]] = []
    failures, model_failed = 0, False
    while state.calls_left and state.seconds_left and failures < MAX_FAILURES:
        calls: Sequence[Call] = ()
        problem = state.text("no_tool_called")
        try:
            calls = await planner(results)
        except Unavailable as error:
            problem = error.message
            log.warning("%s; the recall goes on without it", problem)
            state.problems.append(problem)
            failures, model_failed = MAX_FAILURES, True
        else:
            if not calls:
                failures += 1
                state.calls += 1
        if not calls:  # a reply of the model that calls no tool is a step as well
            state.record("model", {}, False, problem, (), state.deps.clock(), 0.0)
        results = []
        for call in calls[: state.calls_left]:
            output = await run_tool(call, state)
            results.append((call, output))
            failures = 0 if succeeded(output) else failures + 1
            if state.handoff is not None:
                state.completed = True
                return None
            if isinstance(output, ExpandContextWindowOutput) and output.approved:
                return output.new_size
        if failures >= MAX_FAILURES and state.driver == "llm" and not state.hits:
            state.problems.append(state.text("rules_took_over"))
            state.driver, state.by_rules, state.searches_in_a_row = "rules", None, 0
            failures, model_failed, results = 0, False, []
            planner = _by_rules(state, window)
    await _force_handoff(state, failures, model_failed)
    return None


def _by_rules(state: RecallState, window: Sequence[Item]) -> Planner:
    steps = plan(state, window)

    async def next_calls(results: Sequence[tuple[Call, Model]]) -> Sequence[Call]:
        try:
            return [steps.send(results[-1][1] if results else None)]
        except StopIteration:
            return ()

    return next_calls


def _by_model(state: RecallState, window: Sequence[Item]) -> Planner:
    """A model that is shown the window of a conversation, and the outputs of its calls."""
    tools = (short_tools if state.tool_texts == "short" else as_tools)(state.language)
    rounds_left = state.budget.max_iterations - state.iteration
    instructions = state.text("agent_prompt", state=state, rounds_left=rounds_left)
    known = known_memories(state)
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": instructions},
        {"role": "user", "content": task(state, window, known)},
    ]

    async def next_calls(results: Sequence[tuple[Call, Model]]) -> Sequence[Call]:
        for call, output in results:
            call_id, data = call.id if isinstance(call, ToolCall) else "", tool_data(output, state)
            messages.append({"role": "tool", "tool_call_id": call_id, "content": data})
        if not (limit := state.patience):
            raise Unavailable(state.text("model_too_slow", seconds=state.deps.pace.seconds))
        with state.waiting_for_model():
            ontology = await state.deps.ontology.read(state.deps.store)
            own = with_types(tools, ontology)
            reply = await state.deps.converse(messages, own, timeout=limit)
        if not reply.calls:
            advice = state.text("call_a_tool", calls_left=state.calls_left)
            messages.append({"role": "assistant", "content": reply.text})
            messages.append({"role": "user", "content": advice})
            return ()
        calls = []
        for call in reply.calls:
            function = {"name": call.name, "arguments": call.arguments}
            calls.append({"id": call.id, "type": "function", "function": function})
        text = reply.text or None
        messages.append({"role": "assistant", "content": text, "tool_calls": calls})
        return [with_keys(call, known) for call in reply.calls]

    return next_calls


async def _force_handoff(state: RecallState, failures: int, model_failed: bool) -> None:
    """Hand off the best hits when a limit or a failure ends the recall."""
    reason = state.text("out_of_calls")
    if model_failed:
        reason = state.text("model_failed")
    elif failures >= MAX_FAILURES:
        reason = state.text("too_many_failures")
    elif not state.seconds_left:
        reason = state.text("out_of_time")
    keys = None
    if state.by_rules is not None:  # what was found on the way is named by nobody: it comes after
        own = sorted(state.hits, key=lambda key: -state.hits[key].score)
        keys = list(dict.fromkeys([*state.adopt(state.by_rules), *own]))[:MAX_RESULTS]
        state.by_rules = None
    best = handoff_from(state, keys, reason=reason)
    await run_tool(best, state)
    if state.handoff is None:  # the store cannot be read: no hit can be vouched for
        await run_tool(best.model_copy(update={"relevant_memory_keys": []}), state)
