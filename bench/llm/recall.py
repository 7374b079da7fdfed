"""Suite `recall`: evidence by rules beside recalls that a model leads, same questions, same store.

The questions are those of `bench.truth` (--truth) and of LoCoMo (--talks, as `bench.recall` reads
it), whose files are not part of the product.
"""

import random
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from bench.retrievers import BATCH, given
from bench.scoring import users
from bench.truth import has
from bench.truth_systems import SECOND, Life, read_truth
from kemem import AsyncMemory
from kemem.ports import LLM
from kemem.recall import Budget, RecallAgent, Recalled
from kemem.recall.results import Driver
from kemem.records.times import to_micros
from kemem.serve.bench import JudgedModel, Row, Suite
from kemem.settings import load
from kemem.testing import FakeClock

USER = "user"
PATIENCE = 600.0  # seconds for a reply, if the recall has as many
PLACES = 5  # of the evidence that count
TRUTH = "truth"


@dataclass(frozen=True, slots=True)
class Asked:
    """A question about what one user said; without groups nothing answers it."""

    dataset: str
    user: int  # the place of the user in the file
    text: str
    now: str
    until: str | None  # only what was said before it is known
    groups: tuple[tuple[str, ...], ...]  # of message ids, or of strings that mark the evidence


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one way of recalling makes of a question."""

    way: str
    found: float | None  # the share of the evidence within five places; None: nothing answers it
    first: bool  # whether the first place is evidence
    by: str
    seconds: float
    calls: int  # of the model
    tokens: int
    waited: float  # seconds that the model took


class Metered:
    """A model whose calls, tokens and seconds are counted, also those that are given up."""

    def __init__(self, llm: LLM) -> None:
        self._llm, self.name = llm, llm.name
        self.calls, self.tokens, self.seconds = 0, 0, 0.0

    async def reply(self, *args: Any, **options: Any) -> Any:
        """What the model answers."""
        begun = time.monotonic()
        self.calls += 1
        try:
            reply = await self._llm.reply(*args, **options)
        finally:
            self.seconds += time.monotonic() - begun
        self.tokens += reply.prompt_tokens + reply.completion_tokens
        return reply


def truth_questions(lives: Sequence[Life]) -> Iterator[Asked]:
    for at, life in enumerate(lives):
        for it in life.questions:
            name = f"{TRUTH} {life.language}"
            yield Asked(name, at, it.text, it.now.isoformat(), None, it.hop_texts)


def talk_questions(everyone: Sequence[dict[str, Any]]) -> Iterator[Asked]:
    for at, user in enumerate(everyone):
        for it in user["queries"]:
            if it["answerable"] and it["evidence_groups"]:
                now = it["ts"] or it["until"] or user["messages"][-1]["ts"]
                groups = tuple(tuple(group) for group in it["evidence_groups"])
                yield Asked(user["dataset"], at, it["query"], now, it["until"], groups)


def choose(questions: Sequence[Asked], most: int, seed: int = 1) -> list[Asked]:
    """So many questions of each set, in the order of the file."""
    kept = []
    for name in sorted({it.dataset for it in questions}):
        own = [at for at, it in enumerate(questions) if it.dataset == name]
        kept += random.Random(seed).sample(own, min(most, len(own)))
    return [questions[at] for at in sorted(kept)]


def marks(asked: Asked, recalled: Recalled) -> list[tuple[bool, ...]]:
    """For each of the first places, which parts of the evidence it has."""
    of_truth = asked.dataset.startswith(TRUTH)
    return [
        tuple(has(it.content, g) if of_truth else it.memory_key in g for g in asked.groups)
        for it in recalled.evidence[:PLACES]
    ]


@asynccontextmanager
async def life_memory(life: Life, llm: LLM, clock: FakeClock) -> AsyncIterator[AsyncMemory]:
    """A memory of a life, stored without a model."""
    with tempfile.TemporaryDirectory() as directory:
        settings = load(data_dir=directory, llm="none", llm_timeout_seconds=PATIENCE)
        async with AsyncMemory(settings=settings, clock=clock) as memory:
            for session, some in groupby(life.messages, lambda it: it.session):
                messages = [
                    {"role": it.role, "content": it.content, "ts": it.at.isoformat()} for it in some
                ]
                clock.now = to_micros(messages[-1]["ts"]) + SECOND
                await memory.add(messages, user_id=USER, session_id=session)
        async with AsyncMemory(settings=settings, clock=clock, llm=llm) as memory:
            yield memory


@asynccontextmanager
async def talk_memory(
    user: dict[str, Any], until: str | None, llm: LLM, clock: FakeClock
) -> AsyncIterator[AsyncMemory]:
    """A memory of the messages before a time, verbatim."""
    ordered = sorted(user["messages"], key=lambda it: it["ts"])
    said = [given(it) for it in ordered if it["content"].strip() and it["ts"] < (until or "~")]
    with tempfile.TemporaryDirectory() as directory:
        settings = load(data_dir=directory, llm="none", llm_timeout_seconds=PATIENCE)
        async with AsyncMemory(settings=settings, clock=clock, llm=llm) as memory:
            clock.now = to_micros(said[-1]["ts"])
            for start in range(0, len(said), BATCH):
                await memory.ingest(said[start : start + BATCH], USER)
            yield memory


async def ask(
    memory: AsyncMemory, asked: Asked, by: Driver | None, model: Metered, seconds: float
) -> Outcome:
    """One question, recalled one way."""
    agent = RecallAgent(memory.for_user(USER), budget=Budget(seconds=seconds), by=by)
    calls, tokens, waited, begun = model.calls, model.tokens, model.seconds, time.monotonic()
    result = await agent.recall(asked.text)
    places = marks(asked, result)
    parts = [any(it) for it in zip(*places, strict=True)] or [False for _ in asked.groups]
    return Outcome(
        way="rules" if by else "model",
        found=sum(parts) / len(parts) if parts else None,
        first=bool(places) and any(places[0]),
        by=result.by,
        seconds=time.monotonic() - begun,
        calls=model.calls - calls,
        tokens=model.tokens - tokens,
        waited=model.seconds - waited,
    )


def suite(truth: Path | None, talks: Path | None, seconds: float) -> Suite:
    """The suite over some files, with so many seconds for a recall."""

    async def run(model: JudgedModel, cases: int) -> list[Row]:
        lives = read_truth(truth) if truth else []
        everyone = [*users(talks, ["locomo"])] if talks else []
        questions = choose([*truth_questions(lives), *talk_questions(everyone)], cases)
        metered, outcomes = Metered(model), dict[str, list[Outcome]]()
        for (name, at, until), some in groupby(questions, lambda q: (q.dataset, q.user, q.until)):
            clock = FakeClock(0)
            opened = (
                life_memory(lives[at], metered, clock)
                if name.startswith(TRUTH)
                else talk_memory(everyone[at], until, metered, clock)
            )
            async with opened as memory:
                for asked in some:
                    clock.now = to_micros(asked.now)
                    ways: tuple[Driver | None, ...] = ("rules", None)
                    for by in ways:
                        outcome = await ask(memory, asked, by, metered, seconds)
                        outcomes.setdefault(name, []).append(outcome)
                        model.write({"question": asked.text, **asdict(outcome)})
        return [
            row(name, way, [it for it in some if it.way == way], seconds)
            for name, some in outcomes.items()
            for way in ("rules", "model")
        ]

    return run


def row(name: str, way: str, outcomes: Sequence[Outcome], seconds: float) -> Row:
    """Figures of one way on one set; what the model took where rules had to take over is lost."""
    known = [it for it in outcomes if it.found is not None]
    lost = [it.waited / seconds for it in outcomes if it.calls and it.by == "rules"]
    count = len(outcomes)
    return {
        "recall": way,
        "set": name,
        "questions": count,
        f"R@{PLACES}": _mean([it.found or 0.0 for it in known]),
        "first": _mean([float(it.first) for it in known]),
        "seconds": f"{sum(it.seconds for it in outcomes) / count:.1f}",
        "calls": f"{sum(it.calls for it in outcomes) / count:.1f}",
        "tokens": sum(it.tokens for it in outcomes) // count,
        "rules took over": sum(it.by == "rules" for it in outcomes) if way == "model" else "-",
        "time lost": _mean(lost) if lost else "-",
    }


def _mean(values: Sequence[float]) -> str:
    return f"{100 * sum(values) / len(values):.0f} %" if values else "-"
