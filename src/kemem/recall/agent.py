"""RecallAgent: a bounded loop of tool calls that always ends in a result."""

from collections.abc import Callable, Collection, Sequence

from kemem.errors import InvalidArgument, Unavailable
from kemem.recall.caches import Caches
from kemem.recall.context import MemoryContext
from kemem.recall.desk import Budget, Desk, Language, MemoryReader
from kemem.recall.mind import Mind, ModelMind, RuleMind
from kemem.recall.models import ExpandContextWindowOutput
from kemem.recall.policy import calling, hand_over, walk
from kemem.recall.render import as_tools
from kemem.recall.result import By, Recalled, Step
from kemem.recall.use import Used, succeeded, use
from kemem.results import Item
from kemem.text.language import is_chinese

LONGEST_QUESTION = 10_000  # characters
FAULTS = 3  # in a row: then a model is not asked any further


class RecallAgent:
    """Finds among one user's memories what a question needs, for another agent.

    The user is settled here: no tool takes one, and whatever a model says about it is ignored.
    Sensitive memories are seen only through a handle that was granted them. Steps are decided `by`
    the LLM where there is one; "rules" asks no model.

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
        by: By | None = None,
        without: Collection[str] = (),
    ) -> None:
        if memory.reach.user_id is None:
            raise InvalidArgument(
                "a recall is about one user: give user_id, or a handle of memory.for_user(...)",
                field="user_id",
            )
        self._memory = memory
        self._context = MemoryContext(memory, session_id)
        self._budget = budget or Budget()
        self._language = language
        self._caches = caches or Caches()
        self._by = by
        self._without = without  # memories that whoever asks has before them

    async def recall(
        self, question: str, *, on_step: Callable[[Step], None] | None = None
    ) -> Recalled:
        """Search, look closer, hand over: whatever goes wrong on the way, there is a result."""
        _check(question)
        deps = await self._memory.runtime.deps()
        desk = Desk(
            memory=self._memory,
            deps=deps,
            by=self._by or ("rules" if deps.llm is None else "llm"),
            caches=self._caches,
            budget=self._budget,
            question=question,
            language=self._language or ("zh" if is_chinese(question) else "en"),
            on_step=on_step,
            without=frozenset(self._without),
        )
        await self._context.relaunch(desk, _play)
        return _result(desk)


async def _play(desk: Desk, window: Sequence[Item]) -> int | None:
    """One round: the size of the window that the next one needs, None when the recall has ended."""
    mind = _mind(desk, window)
    answers: list[Used] = []
    faults, failed = 0, False
    while desk.calls_left and desk.seconds_left and faults < FAULTS:
        try:
            calls = await mind.next(answers)
        except Unavailable as error:
            desk.problems.append(error.message)
            _note_reply(desk, error.message)
            calls, faults = (), FAULTS
            failed = True
        if not calls and faults < FAULTS:
            faults += 1
            desk.calls += 1
            _note_reply(desk, desk.say("回复没有调用工具", "the reply called no tool"))
        answers = []
        for call in calls[: desk.calls_left]:
            used = await use(call, desk)
            answers.append(used)
            faults = 0 if succeeded(used.output) else faults + 1
            if desk.handed is not None:
                desk.completed = True
                return None
            if isinstance(used.output, ExpandContextWindowOutput) and used.output.approved:
                return used.output.new_size
        if faults >= FAULTS and desk.by == "llm" and not desk.seen:
            desk.problems.append(
                desk.say("模型没有完成召回，改用规则", "rules took over from the model")
            )
            desk.by, desk.in_a_row, faults, answers = "rules", 0, 0, []
            failed = False
            mind = _mind(desk, window)
    await _give_up(desk, faults, failed)
    return None


def _mind(desk: Desk, window: Sequence[Item]) -> Mind:
    if desk.by == "llm":
        return ModelMind(desk, window, as_tools(desk.language))
    return RuleMind(walk(desk, window))


def _note_reply(desk: Desk, outcome: str) -> None:
    """A reply that calls no tool is a step as well."""
    desk.note(
        Step(
            number=len(desk.trace) + 1,
            iteration=desk.iteration,
            tool="model",
            arguments={},
            success=False,
            outcome=outcome,
            keys=(),
            started=desk.deps.clock(),
            seconds=0.0,
        )
    )


async def _give_up(desk: Desk, faults: int, failed: bool) -> None:
    """Hand over the best there is when a limit or a failure ends the recall."""
    if failed:
        reason = desk.say("模型失败", "the model failed")
    elif faults >= FAULTS:
        reason = desk.say("连续多次无效的调用", "too many calls in a row led nowhere")
    elif not desk.seconds_left:
        reason = desk.say("已到时间上限", "the time is up")
    else:
        reason = desk.say("已达到调用次数上限", "the most calls are used")
    reason = desk.say(f"{reason}，返回当前最佳结果", f"{reason}; these are the best results so far")
    best = hand_over(desk, reason=reason).model_dump()
    await use(calling("handoff", **best), desk)
    if desk.handed is None:  # the store cannot be read: nothing that was found can be vouched for
        await use(calling("handoff", **{**best, "relevant_memory_keys": []}), desk)


def _result(desk: Desk) -> Recalled:
    handed = desk.handed
    assert handed is not None, "a recall ends with a hand-off"
    return Recalled(
        question=desk.question,
        completed=desk.completed,
        by=desk.by,
        reason=handed.reason,
        search_summary=handed.search_summary,
        confidence=handed.confidence,
        needs_more_info=handed.needs_more_info,
        follow_up_question=handed.follow_up_question,
        evidence=tuple(desk.evidence),
        message=desk.message,
        iteration_used=desk.iteration,
        context_window_used=desk.window,
        limits=desk.limits(),
        trace=tuple(desk.trace),
        problems=tuple(desk.problems),
    )


def _check(question: object) -> None:
    if not isinstance(question, str) or not question.strip():
        raise InvalidArgument(
            f"question must be a text that is not blank, not {question!r:.80}", field="question"
        )
    if len(question) > LONGEST_QUESTION:
        raise InvalidArgument(
            f"question must be at most {LONGEST_QUESTION} characters, not {len(question)}",
            field="question",
        )
