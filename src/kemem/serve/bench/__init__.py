"""What a model makes of memory, beside memory without one: `kemem admin bench`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kemem.errors import InvalidArgument, Unavailable
from kemem.runtime import open_llm
from kemem.serve.bench import chat, facts
from kemem.serve.bench.model import JudgedModel, Row, Suite, table
from kemem.settings import Settings

SUITES: Mapping[str, Suite] = {"facts": facts.run, "chat": chat.run}
TIMEOUT = 600.0  # seconds for one answer: a processor without an accelerator is slow


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a suite measured, and what the model's calls have cost."""

    suite: str
    rows: list[Row]
    cost: str

    def __str__(self) -> str:
        return f"{table(self.rows)}\n\n{self.cost}\n"


async def judge(
    settings: Settings, suite: str, cases: int, folder: Path, suites: Mapping[str, Suite] = SUITES
) -> Verdict:
    """Run one suite; what the model was asked and answered is kept in the folder."""
    patient = {"llm_timeout_seconds": max(TIMEOUT, settings.llm_timeout_seconds)}
    settings = settings.model_copy(update=patient)
    llm = open_llm(settings, None)
    if llm is None:
        raise InvalidArgument(
            "there is no model to judge: set KEMEM_LLM_BASE_URL or KEMEM_LLM_API_KEY, or --base-url"
        )
    folder.mkdir(parents=True, exist_ok=True)
    transcript = folder / f"{suite}.jsonl"
    transcript.unlink(missing_ok=True)
    model = JudgedModel(llm, settings, transcript)
    try:
        rows = await suites[suite](model, cases)
        if not model.calls:
            raise Unavailable(f"{model.name} answered no question: is its server up?")
        return Verdict(suite, rows, model.cost())
    finally:
        if close := getattr(llm, "close", None):
            await close()


__all__ = ["SUITES", "JudgedModel", "Row", "Suite", "Verdict", "judge"]
