"""Suite `summaries`: what survives of written sessions with a model and without one."""

from collections.abc import Sequence
from dataclasses import dataclass

from bench.sessions import BUDGETS, PATIENCE, Session, contexts, messages, sessions, tells
from bench.state import SMALL_STATE
from kemem.add.experience import extract_experience, read_verdict
from kemem.ports import LLM, Deps
from kemem.serve.bench import JudgedModel, Row
from kemem.serve.bench.model import share
from kemem.testing import FakeClock
from kemem.text import summary
from kemem_conformance.ram import RamStore


@dataclass(frozen=True, slots=True)
class Lesson:
    """A problem of a session by the words of each part: what it was, what failed, what worked."""

    problem: tuple[str, ...]
    failed: tuple[str, ...]
    worked: tuple[str, ...]


LESSONS = {
    "en_02": (
        Lesson(("502",), ("max_connections", "smaller pool"), ("PgBouncer",)),
        Lesson(("test_refund_window",), ("fixture", "freeze"), ("TZ=UTC", "time zone")),
    ),
    "en_08": (
        Lesson(("memory",), ("chart library", "memoized"), ("removeEventListener", "cleanup")),
        Lesson(("14 minutes", "slow"), ("shards",), ("cache",)),
    ),
    "zh_02": (
        Lesson(("504",), ("连接池", "网关超时"), ("索引",)),
        Lesson(("test_coupon_expire",), ("假时钟",), ("东八区", "时区")),
    ),
    "zh_08": (
        Lesson(("内存",), ("图表库", "memo"), ("清理函数", "监听")),
        Lesson(("十四分钟", "14"), ("拆成四份", "四份"), ("缓存",)),
    ),
}


@dataclass(slots=True)
class Tally:
    """Counts over sessions; `kept` has a count for each budget."""

    facts: int = 0
    kept: tuple[int, ...] = (0,) * len(BUDGETS)
    newest: tuple[int, ...] = (0,) * len(BUDGETS)
    lessons: int = 0
    problems: int = 0
    failed: int = 0
    worked: int = 0
    wrong: int = 0  # lessons whose failed attempt is said to have worked


async def summarise(session: Session, llm: LLM | None, tally: Tally) -> None:
    """Count what the contexts of one session, and its experience, tell."""
    seen = await contexts(session.turns, SMALL_STATE, llm)
    tally.facts += len(session.facts)
    kept = [sum(tells(it.text, fact) for fact in session.facts) for it in seen]
    newest = [int(tells(it.text, session.newest)) for it in seen]
    tally.kept = _sum(tally.kept, kept)
    tally.newest = _sum(tally.newest, newest)
    lessons = LESSONS.get(session.name, ())
    if not lessons:
        return
    deps = Deps(RamStore(), None, FakeClock(0), llm=llm, llm_timeout=PATIENCE)
    fact = await extract_experience(messages(session.turns), (), deps)
    text = fact.text if fact else ""
    for lesson in lessons:
        tally.lessons += 1
        tally.problems += tells(text, lesson.problem)
        tally.failed += tells(text, lesson.failed)
        tally.worked += tells(text, lesson.worked)
        tally.wrong += any(
            read_verdict(one) and tells(one, lesson.failed) and not tells(one, lesson.worked)
            for one in summary.sentences(text)
        )


def _sum(one: Sequence[int], two: Sequence[int]) -> tuple[int, ...]:
    return tuple(a + b for a, b in zip(one, two, strict=True))


async def run(model: JudgedModel, cases: int) -> list[Row]:
    """At most so many sessions of each language; those with lessons first."""
    rows = list[Row]()
    systems: tuple[tuple[str, LLM | None], ...] = (("without a model", None), (model.name, model))
    for name, llm in systems:
        for language in ("en", "zh"):
            own = sorted(
                (it for it in sessions() if it.is_of(language)),
                key=lambda it: it.name not in LESSONS,
            )
            tally = Tally()
            for session in own[:cases]:
                await summarise(session, llm, tally)
            rows.append(row(name, language, len(own[:cases]), tally))
    return rows


def row(name: str, language: str, count: int, it: Tally) -> Row:
    """Shares of facts at each budget, sessions with their newest topic, lessons with each part."""
    facts = {f"facts in {b}": share(k, it.facts) for b, k in zip(BUDGETS, it.kept, strict=True)}
    return {
        "summaries": name,
        "language": language,
        "sessions": count,
        **facts,
        "newest topic": " ".join(f"{kept}/{count}" for kept in it.newest),
        "lessons": it.lessons,
        "problem": it.problems,
        "tried": it.failed,
        "worked": it.worked,
        "worked wrongly": it.wrong,
    }
