"""Questions to the made-up people: what is asked leaves traces, figures and a measured run."""

import time
import tomllib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.resources import files

from kemem.assemble import system_clock
from kemem.memory import AsyncMemory
from kemem.serve.demo.world import QUESTIONS
from kemem.serve.telemetry.metrics import Metrics
from kemem.serve.telemetry.quality import Run, keep_runs
from kemem.serve.telemetry.traces import Traces
from kemem.text.language import is_chinese
from kemem.text.times import to_rfc3339

_LIMIT = 10  # hits among which an answer is looked for


@dataclass(frozen=True, slots=True)
class Question:
    """A question, and a text that what answers it holds."""

    user: str
    category: str
    asks: str
    answer: str

    @property
    def language(self) -> str:
        """The language it is asked in."""
        return "zh" if is_chinese(self.asks) else "en"


def read_questions() -> list[Question]:
    """The questions that ship with the package."""
    told = tomllib.loads((files(__package__) / QUESTIONS).read_text("utf-8"))
    return [Question(**given) for given in told["question"]]


async def ask(
    questions: Sequence[Question], memory: AsyncMemory, advance: Callable[[float], None]
) -> None:
    """Search and recall for each question, and keep how many answers were found."""
    metrics, traces = Metrics(memory), Traces(memory, route="kemem demo")
    found: defaultdict[tuple[str, str, str], list[bool]] = defaultdict(list)
    for question in questions:
        begun = time.perf_counter()
        hits = await memory.search(question.asks, question.user, limit=_LIMIT)
        between = time.perf_counter()
        recalled = await memory.recall(question.asks, question.user)
        metrics.count("search_memories", between - begun)
        metrics.count("recall", time.perf_counter() - between)
        for name, texts in (
            ("search", [hit.row.content for hit in hits]),
            ("recall", [it.content for it in recalled.evidence[:_LIMIT]]),
        ):
            answered = any(question.answer in text for text in texts)
            for category in ("all", question.category):
                found[name, question.language, category].append(answered)
        advance(1)
    await traces.flush()
    await metrics.flush()
    at = to_rfc3339(system_clock())
    measured = [
        Run(
            at=at,
            name=name,
            set="demo",
            language="zh" if language == "zh" else "en",
            category=category,
            n=len(answers),
            metrics={f"recall@{_LIMIT}": sum(answers) / len(answers)},
            version=version("kemem-memory"),
        )
        for (name, language, category), answers in found.items()
    ]
    await keep_runs(memory, measured)
