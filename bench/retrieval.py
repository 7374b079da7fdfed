"""Which share of the evidence does a search find? No LLM is involved.

python -m bench.retrieval --data PATH [--datasets locomo,madial-zh] [--system kemem]
    [--questions madial-en] [--candidates] [--save FILE] [--against FILE] [--quality FILE]
python -m bench.retrieval --data PATH --leave-one-out [N] [--helpers PATH] [--processes N]
    # bench/leave_one_out.py

PATH is a file of conversations, one user a line as JSON (or gzipped): messages with message_id,
ts, role, speaker, session, content; queries with query, evidence_groups, answerable, ts, when the
question is asked, and until, before which messages count. Any message of a group counts, and every
group is wanted. Each user goes into a fresh store through the public API with the settings that a
new user gets. --questions asks those of another set about the same user, in another language.
--candidates searches every space as one of more than 100,000 rows: on candidates, not on all rows.
--save keeps every answer, and --against compares with answers that were kept: question by
question, with intervals. What --quality writes, `kemem admin quality FILE` keeps for the dashboard.
"""

import argparse
import asyncio
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bench.leave_one_out import leave_one_out
from bench.retrievers import RETRIEVERS, Found, Retriever
from bench.scoring import JUDGED, KS, evidence, interval, mean, score, texts, users, with_interval
from kemem.records.times import to_rfc3339
from kemem.runtime import system_clock
from kemem.store import codes
from kemem.text.language import is_chinese

MANY = 200  # hits that sessions are ranked by
MORE = 4  # hits of a session that count half, besides its best one
BINS = 10  # of scores
SURE = 0.5  # the score at which a caller may cut
SESSIONS = ("sessions@10", "session@5")  # the share of them, and whether one is found
OTHERS = ("recall@1", "recall@5", "recall@20", "hit@10", "mrr")


@dataclass(frozen=True, slots=True)
class Answer:
    """How well one question was answered, and in which time."""

    dataset: str
    language: str
    category: str
    question: str  # its id, the user's included
    metrics: Mapping[str, float]  # none of a question that has no answer
    seconds: float
    scores: Sequence[tuple[float, bool]]  # of the first ten hits, and whether each is evidence


@dataclass(frozen=True, slots=True)
class Stored:
    """How long the messages of one user took."""

    dataset: str
    messages: int
    seconds: float


def ranked_sessions(hits: Found, session_of: Mapping[str, str]) -> list[str]:
    """The sessions of hits: they are as good as their best ones."""
    scores: dict[str, list[float]] = defaultdict(list)
    for name, worth in hits:
        scores[session_of[name]].append(worth)
    return sorted(scores, key=lambda it: -(scores[it][0] + sum(scores[it][1 : 1 + MORE]) / 2))


def session_score(
    groups: Sequence[Sequence[str]], hits: Found, session_of: Mapping[str, str]
) -> dict[str, float]:
    """What a ranking is worth by its sessions."""
    ranked = ranked_sessions(hits, session_of)
    wanted = {session_of[group[0]] for group in groups}
    return {
        "sessions@10": len(wanted & {*ranked[:10]}) / len(wanted),
        "session@5": float(not wanted.isdisjoint(ranked[:5])),
    }


async def measure(user: dict[str, Any], retriever: Retriever) -> tuple[Stored, list[Answer]]:
    """All questions of a user, asked of a fresh store."""
    messages = texts(user)
    session_of = {it["message_id"]: it["session"] for it in messages}
    answers = []
    begun = time.perf_counter()
    async with retriever(messages) as ask:
        stored = Stored(user["dataset"], len(messages), time.perf_counter() - begun)
        for query in user["queries"]:
            groups = evidence(query, messages)
            if query["answerable"] and not groups:
                continue
            asked = time.perf_counter()
            hits = await ask(query, max(KS))
            took = time.perf_counter() - asked
            metrics: dict[str, float] = {}
            if groups:
                many = await ask(query, MANY)
                metrics = score(groups, [it for it, _ in hits])
                metrics |= session_score(groups, many, session_of)
            evident = {it for group in groups for it in group}
            answers.append(
                Answer(
                    user["dataset"],
                    "zh" if is_chinese(query["query"]) else "en",
                    str(query.get("category") or ""),
                    f"{user['user']} {query['qid']}",
                    metrics,
                    took,
                    [(worth, it in evident) for it, worth in hits[:10]],
                )
            )
    return stored, answers


def asking(user: dict[str, Any], others: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A user with the questions of one of the same name; without any, where there is none."""
    name = user["user"].rpartition("/")[-1]
    queries = (it["queries"] for it in others if it["user"].rpartition("/")[-1] == name)
    return {**user, "queries": next(queries, [])}


def by_set(answers: Sequence[Answer]) -> dict[str, list[Answer]]:
    """Answers by their set, in the order of the file."""
    sets: dict[str, list[Answer]] = {}
    for answer in answers:
        sets.setdefault(answer.dataset, []).append(answer)
    return sets


def report(answers: Sequence[Answer], stored: Sequence[Stored]) -> Iterator[str]:
    """Tables: the sets, then their categories, of the questions that have an answer."""
    answers = [it for it in answers if it.metrics]
    names = (*(f"{it}, 95 %" for it in JUDGED), *OTHERS, *SESSIONS)
    yield "| set | n | " + " | ".join(names) + " | ms | messages/s |"
    yield "|---" * (len(names) + 4) + "|"
    for name, rows in by_set(answers).items():
        others = (
            100 * mean([it.metrics[metric] for it in rows]) for metric in (*OTHERS, *SESSIONS)
        )
        speed = [it for it in stored if it.dataset == name]
        cells = [
            *judged(rows),
            *(f"{share:.1f}" for share in others),
            f"{1_000 * mean([it.seconds for it in rows]):.1f}",
            f"{sum(it.messages for it in speed) / sum(it.seconds for it in speed):,.0f}",
        ]
        yield f"| {name} | {len(rows)} | " + " | ".join(cells) + " |"
    yield ""
    yield "| set | category | n | " + " | ".join(names[: len(JUDGED)]) + " |"
    yield "|---" * (len(JUDGED) + 3) + "|"
    for name, rows in by_set(answers).items():
        for category in sorted({it.category for it in rows}):
            some = [it for it in rows if it.category == category]
            yield f"| {name} | {category} | {len(some)} | " + " | ".join(judged(some)) + " |"


def judged(answers: Sequence[Answer]) -> list[str]:
    """The metrics that decide, each with its interval."""
    return [with_interval([100 * it.metrics[metric] for it in answers]) for metric in JUDGED]


def reliability(answers: Sequence[Answer]) -> Iterator[str]:
    """Whether scores mean what they say: in each language, and where nothing answers."""
    languages = sorted({it.language for it in answers})
    yield "| score | " + " | ".join(f"hits, {it} | evidence, {it}" for it in languages) + " |"
    yield "|---" * (1 + 2 * len(languages)) + "|"
    for number in range(BINS):
        cells = []
        for language in languages:
            found = [
                evident
                for it in answers
                if it.language == language and it.metrics
                for worth, evident in it.scores
                if min(int(worth * BINS), BINS - 1) == number
            ]
            cells.append(f"{len(found):,} | {100 * mean(found):.0f} %")
        yield f"| {number / BINS:.1f} – {(number + 1) / BINS:.1f} | " + " | ".join(cells) + " |"
    yield ""
    yield f"| | evidence that scores {SURE} | hits without an answer below it | their best |"
    yield "|---|---|---|---|"
    for name, chosen in (("all", languages), *((it, [it]) for it in languages)):
        some = [it for it in answers if it.language in chosen]
        kept = [worth >= SURE for it in some for worth, evident in it.scores if evident]
        lost = [it.scores for it in some if not it.metrics and it.scores]
        dropped = [worth < SURE for scores in lost for worth, _ in scores]
        best = [scores[0][0] < SURE for scores in lost]
        cells = [f"{100 * mean(it):.1f} % of {len(it):,}" for it in (kept, dropped, best)]
        yield f"| {name} | " + " | ".join(cells) + " |"


def compared(answers: Sequence[Answer], before: Sequence[Answer]) -> Iterator[str]:
    """What changed, question by question."""
    known = {it.question: it for it in before}
    yield "| set | n | metric | before | now | difference | 95 % interval |"
    yield "|---|---|---|---|---|---|---|"
    for name, rows in by_set(answers).items():
        pairs = [(known[it.question], it) for it in rows if it.metrics and it.question in known]
        for metric in JUDGED if pairs else ():
            old, new = (
                [100 * it.metrics[metric] for it in side] for side in zip(*pairs, strict=True)
            )
            changes = [after - earlier for earlier, after in zip(old, new, strict=True)]
            low, high = interval(changes)
            yield (
                f"| {name} | {len(pairs)} | {metric} | {mean(old):.1f} | {mean(new):.1f} "
                f"| {mean(changes):+.1f} | {low:+.1f} … {high:+.1f} |"
            )


def runs(answers: Sequence[Answer], system: str) -> list[dict[str, Any]]:
    """What was measured on each set and category, as `kemem admin quality` takes it."""
    at = to_rfc3339(system_clock())
    groups: dict[tuple[str, str, str], list[Answer]] = defaultdict(list)
    for each in (it for it in answers if it.metrics):
        for category in {"all", each.category} - {""}:
            groups[each.dataset, each.language, category].append(each)
    return [
        {
            "at": at,
            "name": system,
            "set": dataset,
            "language": language,
            "category": category,
            "n": len(rows),
            "metrics": {
                it: round(mean([row.metrics[it] for row in rows]), 4) for it in (*JUDGED, *OTHERS)
            },
            "version": version("kemem-memory"),
        }
        for (dataset, language, category), rows in sorted(groups.items())
    ]


async def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.retrieval", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the file of conversations")
    parser.add_argument("--datasets", default="", help="names of sets, separated by commas")
    parser.add_argument("--system", choices=sorted(RETRIEVERS), default="kemem")
    parser.add_argument("--questions", help="a set whose questions are asked instead of their own")
    parser.add_argument(
        "--leave-one-out",
        type=int,
        nargs="?",
        const=120,
        metavar="N",
        help="ask each set with numbers that were chosen on N questions (120) of each other set",
    )
    parser.add_argument("--helpers", type=Path, help="sets that help to choose these numbers")
    parser.add_argument("--processes", type=int, default=1, help="how many ask at the same time")
    parser.add_argument("--candidates", action="store_true", help="as in a very large space")
    parser.add_argument("--save", type=Path, help="keep every answer here")
    parser.add_argument("--against", type=Path, help="compare with answers that were kept")
    parser.add_argument("--quality", type=Path, help="write the figures, for kemem admin quality")
    chosen = parser.parse_args(arguments)
    datasets = [*filter(None, chosen.datasets.split(","))]
    if (most := chosen.leave_one_out) is not None:
        if most < 1 or chosen.system != "kemem":
            wrong = f"{most} of {chosen.system}"
            parser.error(f"--leave-one-out takes one or more questions of kemem, not {wrong}")
        helpers = users(chosen.helpers, ()) if chosen.helpers else ()
        sets = users(chosen.data, datasets)
        print(*await leave_one_out(sets, helpers, most, chosen.processes), sep="\n")
        return
    answers: list[Answer] = []
    stored: list[Stored] = []
    others = [*users(chosen.data, [chosen.questions])] if chosen.questions else []
    with patch.object(codes, "EXACT", 0) if chosen.candidates else nullcontext():
        for user in users(chosen.data, datasets):
            user = asking(user, others) if others else user
            kept, answered = await measure(user, RETRIEVERS[chosen.system])
            stored.append(kept)
            answers += answered
            print(f"{user['user']}: {len(answers)} questions", file=sys.stderr)
    print(*report(answers, stored), "", *reliability(answers), sep="\n")
    if chosen.save:
        chosen.save.write_text(json.dumps([asdict(it) for it in answers]), "utf-8")
    if chosen.against:
        before = [Answer(**it) for it in json.loads(chosen.against.read_text("utf-8"))]
        print("", *compared(answers, before), sep="\n")
    if chosen.quality:
        chosen.quality.write_text(json.dumps(runs(answers, chosen.system), indent=2), "utf-8")


if __name__ == "__main__":
    asyncio.run(main())
