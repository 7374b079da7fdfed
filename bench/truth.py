"""Does a memory answer with what is true now? No LLM is involved.

python -m bench.truth --data PATH [--system kemem,words,bm25,newest,chroma,mem0]
    [--frames FILE] [--save FILE] [--against FILE] [--quality FILE] [--fails]

PATH is a file of lives, one a line as JSON: id, lang, category; messages with role, content, ts and
session_id; questions with question, now, answerable, gold (or gold_all, a list for each of several
messages that are needed) and stale: strings that mark a right answer and an outdated one. Each life
goes into a fresh store through the public API, session by session, with the clock of its messages;
a question is asked with the clock at its `now`. --fails prints what was answered wrongly, --save
keeps every answer, and --against compares with answers that were kept, question by question.
With --frames (bench/data/frames) questions are asked bare, and as a chat may ask them: among small
talk, with thanks, in a hurry.
Intervals are by bootstrap over lives, since the questions of one life hang together. What --quality
writes, `kemem admin quality FILE` keeps for the dashboard.
"""

import argparse
import asyncio
import json
import random
import sys
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from bench.environment import WorkerFailed
from bench.report import table
from bench.truth_systems import CALIBRATED, SYSTEMS, Life, Question, Reply, in_frames, read_truth
from kemem.records.times import to_rfc3339
from kemem.runtime import system_clock

SURE = 0.5  # the confidence from which on a recall claims to know
ANSWERED = {  # columns of questions that have an answer
    "first_hit": "first hit",
    "within_three": "within three",
    "current_before_stale": "current before stale",
    "recall_first": "recall first",
    "recall_any": "recall any",
    "confident": "confidence ≥ 0.5",
}
UNKNOWN = "says_unknown"  # the column of those that have none
TITLES = {**ANSWERED, UNKNOWN: "unanswerable < 0.5", "confidence_auc": "AUC"}
NOWHERE = 1_000_000  # the place of what is not among the hits
SAMPLES = 1_000  # of the bootstrap
AUC_SAMPLES = 300  # the AUC takes longer

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Answer:
    """How well one question was answered; `marks` has the columns that apply to it."""

    system: str
    language: str
    category: str
    life: str
    question: str
    now: str  # when it is asked
    answerable: bool
    confidence: float
    marks: Mapping[str, bool]

    @property
    def key(self) -> tuple[str, ...]:
        """What tells a question from all others of a run."""
        return self.system, self.life, self.question, self.now


Figure = Callable[[Sequence[Answer]], float | None]


def has(text: str, strings: Sequence[str]) -> bool:
    """Whether a text contains one of some strings, in either case."""
    return any(it.casefold() in text.casefold() for it in strings)


def place(texts: Sequence[str], strings: Sequence[str]) -> int:
    """The place of the first text that contains one of some strings."""
    return next((at for at, text in enumerate(texts) if has(text, strings)), NOWHERE)


def judge(question: Question, reply: Reply, *, calibrated: bool = True) -> dict[str, bool]:
    """The columns that apply, and whether the reply is right in each.

    Where several messages are needed, the first hit may be any of them.
    """
    hops, stale = question.hop_texts, question.stale_texts
    if not hops:
        return {UNKNOWN: reply.confidence < SURE} if calibrated else {}
    gold = [it for hop in hops for it in hop]

    def first(texts: Sequence[str]) -> bool:
        return bool(texts) and has(texts[0], gold) and not has(texts[0], stale)

    def complete(texts: Sequence[str]) -> int:
        return max(place(texts, hop) for hop in hops)

    marks = {
        "first_hit": first(reply.hits),
        "within_three": complete(reply.hits) < 3,
        "recall_first": first(reply.evidence),
        "recall_any": complete(reply.evidence) < NOWHERE,
    }
    if stale:
        marks["current_before_stale"] = complete(reply.hits) < place(reply.hits, stale)
    if calibrated:
        marks["confident"] = reply.confidence >= SURE
    return marks


def share(column: str, answers: Sequence[Answer]) -> float | None:
    """The share of right answers in a column; None where it applies to none."""
    marks = [it.marks[column] for it in answers if column in it.marks]
    return sum(marks) / len(marks) if marks else None


def auc(answers: Sequence[Answer]) -> float | None:
    """How often an answerable question gets more confidence than an unanswerable one."""
    high = [it.confidence for it in answers if it.answerable]
    low = [it.confidence for it in answers if not it.answerable]
    if not high or not low:
        return None
    return sum((one > two) + (one == two) / 2 for one in high for two in low) / len(high) / len(low)


FIGURES: dict[str, Figure] = {
    name: auc if name == "confidence_auc" else partial(share, name) for name in TITLES
}


def interval(
    lives: Sequence[Sequence[Row]],
    figure: Callable[[Sequence[Row]], float | None],
    samples: int = SAMPLES,
) -> tuple[float, float]:
    """The 95 % interval of a figure by bootstrap; whole lives are drawn."""
    chance, values = random.Random(7), []
    for _ in range(samples):
        value = figure([row for life in chance.choices(lives, k=len(lives)) for row in life])
        if value is not None:
            values.append(value)
    values.sort()
    if not values:
        return 0.0, 0.0
    return values[int(0.025 * len(values))], values[int(0.975 * len(values))]


def by_life(answers: Sequence[Answer]) -> list[list[Answer]]:
    """Answers by their life, in the order of the file."""
    lives: dict[str, list[Answer]] = {}
    for answer in answers:
        lives.setdefault(answer.life, []).append(answer)
    return [*lives.values()]


def by_language(answers: Sequence[Answer]) -> dict[tuple[str, str], list[Answer]]:
    """Answers by language and system, the systems of one language beside each other."""
    parts: dict[tuple[str, str], list[Answer]] = {}
    for answer in sorted(answers, key=lambda it: it.language):
        parts.setdefault((answer.language, answer.system), []).append(answer)
    return parts


def cell(answers: Sequence[Answer], column: str) -> str:
    """A share with its count and interval."""
    marks = [it.marks[column] for it in answers if column in it.marks]
    if not marks:
        return "–"
    low, high = interval(by_life(answers), FIGURES[column])
    percent = f"{100 * sum(marks) / len(marks):.0f}% [{100 * low:.0f}-{100 * high:.0f}]"
    return f"{sum(marks)}/{len(marks)} {percent}"


def auc_cell(answers: Sequence[Answer]) -> str:
    """The AUC of the confidence, with its interval."""
    value = auc(answers)
    if value is None:
        return "–"
    low, high = interval(by_life(answers), auc, AUC_SAMPLES)
    return f"{value:.3f} [{low:.3f}-{high:.3f}]"


def report(answers: Sequence[Answer]) -> Iterator[str]:
    """Tables: each language and system with all categories, then each category."""
    rows, details = [], []
    for (language, system), some in by_language(answers).items():
        answered = [it for it in some if it.answerable]
        unknown = [it for it in some if not it.answerable]
        cells = [cell(answered, column) for column in ANSWERED]
        rows.append((language, system, *cells, cell(unknown, UNKNOWN), auc_cell(some)))
        categories: dict[str, list[Answer]] = defaultdict(list)
        for answer in answered:
            categories[answer.category].append(answer)
        lines = [
            (name, *(cell(part, column) for column in ANSWERED))
            for name, part in categories.items()
        ]
        details.append(f"\n{system}, {language}: {len(answered)} questions that have an answer\n")
        details.append(table(("category", *ANSWERED.values()), lines))
    yield table(("language", "system", *TITLES.values()), rows)
    yield from details


def difference(figure: Figure, pairs: Sequence[tuple[Answer, Answer]]) -> float | None:
    """What a figure gains from the first of each pair to the second."""
    before, now = (figure([pair[side] for pair in pairs]) for side in (0, 1))
    return None if before is None or now is None else now - before


def compared(answers: Sequence[Answer], before: Sequence[Answer]) -> Iterator[str]:
    """What changed, over the questions that both runs asked."""
    old = {it.key: it for it in before}
    rows = []
    for (language, system), some in by_language(answers).items():
        lives = [[(old[it.key], it) for it in life if it.key in old] for life in by_life(some)]
        pairs = [pair for life in lives for pair in life]
        for name, figure in FIGURES.items():
            change = partial(difference, figure)
            if (gain := change(pairs)) is not None:
                low, high = interval(lives, change, AUC_SAMPLES if figure is auc else SAMPLES)
                values = (figure([pair[side] for pair in pairs]) for side in (0, 1))
                cells = (*(f"{it:.3f}" for it in values), f"{gain:+.3f}")
                rows.append((language, system, TITLES[name], *cells, f"{low:+.3f} … {high:+.3f}"))
    yield table(
        ("language", "system", "figure", "before", "now", "difference", "95 % interval"), rows
    )


def runs(answers: Sequence[Answer], dataset: str) -> list[dict[str, Any]]:
    """What was measured in each language and category, as `kemem admin quality` takes it."""
    at = to_rfc3339(system_clock())
    parts: dict[tuple[str, str, str], list[Answer]] = defaultdict(list)
    for answer in answers:
        for category in {"all", answer.category}:
            parts[answer.system, answer.language, category].append(answer)
    rows = []
    for (system, language, category), some in sorted(parts.items()):
        values = {name: figure(some) for name, figure in FIGURES.items()}
        row = {"at": at, "name": system, "set": dataset, "language": language, "n": len(some)}
        row |= {"category": category, "version": version("kemem-memory")}
        row["metrics"] = {name: round(it, 4) for name, it in values.items() if it is not None}
        rows.append(row)
    return [row for row in rows if row["metrics"]]


async def measure(
    system: str, lives: Sequence[Life]
) -> AsyncGenerator[tuple[Answer, Question, Reply], None]:
    """All questions of all lives, each life in a fresh store."""
    async with aclosing(SYSTEMS[system](lives)) as stores:
        async for life, ask in stores:
            for question in life.questions:
                reply = await ask(question.text, question.now)
                answer = Answer(
                    system,
                    life.language,
                    life.category,
                    life.name,
                    question.text,
                    question.now.isoformat(),
                    bool(question.hop_texts),
                    reply.confidence,
                    judge(question, reply, calibrated=system in CALIBRATED),
                )
                yield answer, question, reply
            print(f"{system}: {life.name}", file=sys.stderr)


def failure(answer: Answer, question: Question, reply: Reply) -> str | None:
    """What a wrong answer looks like; None where it is right by its first hit or its doubt."""
    if answer.marks.get("first_hit" if answer.answerable else UNKNOWN, True):
        return None
    gold = " + ".join(" / ".join(hop) for hop in question.hop_texts) or "nothing"
    lines = [f"{answer.system} {answer.life} {answer.category}: {question.text}"]
    lines.append(f"    expected {gold}, confidence {reply.confidence:.2f}")
    return "\n".join([*lines, f"    hits {reply.hits[:2]}", f"    evidence {reply.evidence[:2]}"])


async def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.truth", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the file of lives")
    parser.add_argument("--system", default="kemem", help=f"of {', '.join(SYSTEMS)}, by commas")
    parser.add_argument("--frames", type=Path, help="turns of a chat to ask the questions in")
    parser.add_argument("--save", type=Path, help="keep every answer here")
    parser.add_argument("--against", type=Path, help="compare with answers that were kept")
    parser.add_argument("--quality", type=Path, help="write the figures, for kemem admin quality")
    parser.add_argument("--fails", action="store_true", help="print what was answered wrongly")
    chosen = parser.parse_args(arguments)
    systems = [*filter(None, chosen.system.split(","))]
    if missing := [it for it in systems if it not in SYSTEMS]:
        parser.error(f"--system must be of {', '.join(SYSTEMS)}, not {', '.join(missing)}")
    if not chosen.data.is_file():
        parser.error(f"--data must be a file, not {chosen.data}")
    lives, answers, unmeasured = read_truth(chosen.data), list[Answer](), list[str]()
    lives = in_frames(lives, chosen.frames) if chosen.frames else lives
    for system in systems:
        try:
            async with aclosing(measure(system, lives)) as rows:
                async for answer, question, reply in rows:
                    answers.append(answer)
                    if chosen.fails and (text := failure(answer, question, reply)):
                        print(text)
        except WorkerFailed as error:
            unmeasured.append(f"{system} ({error})")
            answers = [it for it in answers if it.system != system]
    print(*report(answers), *(f"\nNot measured: {it}" for it in unmeasured), sep="\n")
    if chosen.against:
        before = [Answer(**it) for it in json.loads(chosen.against.read_text("utf-8"))]
        print("", *compared(answers, before), sep="\n")
    if chosen.save:
        kept = json.dumps([asdict(it) for it in answers], ensure_ascii=False)
        chosen.save.write_text(kept, "utf-8")
    if chosen.quality:
        figures = json.dumps(runs(answers, f"truth-{chosen.data.stem}"[:64]), indent=2)
        chosen.quality.write_text(figures, "utf-8")
    if unmeasured:
        raise SystemExit(1)


if __name__ == "__main__":
    asyncio.run(main())
