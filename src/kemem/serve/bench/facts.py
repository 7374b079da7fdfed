"""Facts by a model beside facts without one: what is found, what is made up, what is destroyed."""

import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from kemem import AsyncMemory
from kemem.ports import LLM
from kemem.records.times import to_micros
from kemem.serve.bench.cases import Case, Gold, read_cases
from kemem.serve.bench.model import JudgedModel, Row, share
from kemem.settings import Settings

_USER, _BEFORE = "u", "before"  # who talks, and the session in which memories became known
_PATIENCE = 600.0  # seconds for one answer, as a late one would count as a model that finds nothing
_HOUR = 18  # at which all is said; before it, everything that is known


@dataclass(slots=True)
class Tally:
    """Counts over cases; `ended_wrongly` are true memories that a turn ended."""

    cases: int = 0
    gold: int = 0
    found: int = 0
    made: int = 0
    right: int = 0
    dates: int = 0
    dates_right: int = 0
    to_end: int = 0
    ended: int = 0
    ended_wrongly: int = 0
    forbidden: int = 0

    def add(self, other: "Tally") -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


def choose(cases: Sequence[Case], most: int, seed: int = 1) -> list[Case]:
    """So many cases of each language, of all kinds alike."""
    chosen: list[Case] = []
    for language in sorted({it.language for it in cases}):
        kinds: dict[str, list[Case]] = {}
        own = [it for it in cases if it.language == language]
        for case in random.Random(seed).sample(own, len(own)):
            kinds.setdefault(case.kind, []).append(case)
        rounds = [kind[at] for at in range(len(own)) for kind in kinds.values() if at < len(kind)]
        chosen += rounds[:most]
    return chosen


async def extract(case: Case, llm: LLM | None) -> Tally:
    """What one case comes to."""
    said = datetime(case.now.year, case.now.month, case.now.day, _HOUR, tzinfo=UTC)
    clock = [to_micros(said.isoformat()) - 86_400_000_000]
    with tempfile.TemporaryDirectory() as home:
        settings = Settings(data_dir=Path(home), llm="none", llm_timeout_seconds=_PATIENCE)
        async with AsyncMemory(settings=settings, clock=lambda: clock[0]) as memory:
            known = {name: await _store(text, memory) for name, text in case.known.items()}
        clock[0] = to_micros(said.isoformat())
        async with AsyncMemory(settings=settings, llm=llm, clock=lambda: clock[0]) as memory:
            turn = [{"role": role, "content": text} for role, text in case.messages]
            await memory.add(turn, user_id=_USER)
            notes = {it.id: it.memory for it in await memory.get_all(user_id=_USER)}
    return _judge(case, known, notes)


async def _store(text: str, memory: AsyncMemory) -> str:
    added = await memory.add(text, user_id=_USER, session_id=_BEFORE)
    if len(added.results) != 1:
        added = await memory.add(text, user_id=_USER, session_id=_BEFORE, infer=False)
    return added.results[0].id


def _judge(case: Case, known: dict[str, str], notes: dict[str, str]) -> Tally:
    new = [text for name, text in notes.items() if name not in known.values()]
    found = [[text for text in new if gold.fits(text)] for gold in case.gold]
    dated = [(gold, texts) for gold, texts in zip(case.gold, found, strict=True) if gold.day]
    right = [*case.gold, *case.harmless]
    lost = {name for name, note_id in known.items() if note_id not in notes}
    return Tally(
        cases=1,
        gold=len(case.gold),
        found=sum(bool(texts) for texts in found),
        made=len(new),
        right=sum(any(gold.fits(text) for gold in right) for text in new),
        dates=sum(bool(texts) for _, texts in dated),
        dates_right=sum(_is_dated(gold, texts) for gold, texts in dated),
        to_end=len(case.ended),
        ended=len(lost & case.ended),
        ended_wrongly=len(lost - case.ended),
        forbidden=sum(gold.fits(text) for gold in case.wrong for text in new),
    )


def _is_dated(gold: Gold, texts: Sequence[str]) -> bool:
    return gold.day is not None and any(gold.day.isoformat() in text for text in texts)


async def run(model: JudgedModel, cases: int) -> list[Row]:
    """Suite: at most so many cases of each language, without the model and with it."""
    chosen, rows = choose(read_cases(), cases), list[Row]()
    systems: tuple[tuple[str, LLM | None], ...] = (("without a model", None), (model.name, model))
    for name, llm in systems:
        tallies: dict[str, Tally] = {}
        for case in chosen:
            tallies.setdefault(case.language, Tally()).add(await extract(case, llm))
        rows += [_row(name, language, it) for language, it in sorted(tallies.items())]
    return rows


def _row(name: str, language: str, it: Tally) -> Row:
    return {
        "facts": name,
        "language": language,
        "cases": it.cases,
        "found": share(it.found, it.gold),
        "right": share(it.right, it.made),
        "dates": share(it.dates_right, it.dates),
        "ended": share(it.ended, it.to_end),
        "ended wrongly": it.ended_wrongly,
        "made up": it.forbidden,
    }
