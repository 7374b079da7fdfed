"""Curves of growth: one space of more and more rows, and more and more users of some messages.

`python -m bench.scale` prints a table. Each store is built once in --work-dir and kept there; what
is measured runs in a process of its own, so that its first search is a cold one and its memory is
that of a server. The files themselves are in the cache of the operating system.
"""

import argparse
import asyncio
import json
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Literal

import numpy as np

from bench.corpus import SEED, Words, questions
from bench.environment import kemem_environment
from bench.measure import Timing, measure, percentile
from bench.phrases import CHINESE, ENGLISH, MIXED
from bench.plots import write_plots
from kemem import Memory
from kemem.records import Embedded, Matrix, Message, Model, Scope, Vector
from kemem.records.batch import Batch
from kemem.search.judge import JUDGED_MODEL
from kemem.store.schema import (
    SEQ_BITS,
    app_user,
    message,
    row_vector,
    session,
    space,
    space_state,
)
from kemem.store.sqlite import FILE, Sqlite
from kemem.store.store import SqlStore
from kemem.text.query import index_text

WIDTH = 512  # of the default embedder
BATCH = 1_000
SESSION = 50
MADE = 100  # users who are written one by one; more are copies of them
OF_USERS = (app_user, space, space_state, session, message, row_vector)  # tables
CLUSTERS = 4_096
SPREAD = 0.9  # length of what sets a vector apart from its cluster's centre, which has length 1
BEGINNING = 1_700_000_000_000_000
LIMIT = 10
QUESTIONS = 40
MODEL = Model(JUDGED_MODEL, WIDTH)  # the whole recipe runs, as with the default embedder


def centres() -> Matrix:
    chance = np.random.default_rng(SEED)
    return np.asarray(chance.standard_normal((CLUSTERS, WIDTH)) / WIDTH**0.5, np.float32)


class ClusteredEmbedder:
    """A vector near some centre for any text, the same in every process."""

    name, width, in_process = MODEL.name, MODEL.width, True

    def __init__(self) -> None:
        self._centres = centres()

    async def embed(self, texts: Sequence[str], *, purpose: Literal["query", "passage"]) -> Matrix:
        return np.stack([self.vector(text) for text in texts])

    def vector(self, text: str) -> Vector:
        chance = np.random.default_rng([*text.encode()])
        return np.asarray(clustered(self._centres, chance, 1)[0])


def clustered(middles: Matrix, chance: np.random.Generator, count: int) -> Matrix:
    noise = chance.standard_normal((count, WIDTH), np.float32) * (SPREAD / WIDTH**0.5)
    return np.asarray(middles[chance.integers(CLUSTERS, size=count)] + noise, np.float32)


def vectors(count: int, seed: int = SEED) -> Iterator[Matrix]:
    """The vectors of the first rows, batch by batch."""
    middles, chance = centres(), np.random.default_rng(seed + 1)
    for start in range(0, count, BATCH):
        yield clustered(middles, chance, min(BATCH, count - start))


def texts() -> Iterator[str]:
    """Messages without end: 40 % Chinese, 40 % English, 20 % both in one sentence."""
    chance = random.Random(SEED)
    words = Words(chance)
    while True:
        (kind,) = chance.choices((CHINESE, ENGLISH, MIXED), weights=(2, 2, 1))
        yield chance.choice(kind).format_map(words)


def messages(user_id: str, count: int, said: Iterator[str]) -> Iterator[Message]:
    for number in range(count):
        yield Message(
            message_id=f"m{number:07d}",
            agent_id="default",
            user_id=user_id,
            session_id=f"s{number // SESSION:05d}",
            role="assistant" if number % 2 else "user",
            content=next(said),
            ts=BEGINNING + number * 60_000_000,
            ingest_time=BEGINNING + number * 60_000_000,
        )


def batches(rows: int, users: int) -> Iterator[Batch]:
    """Batches of 1,000 messages with their vectors."""
    said = texts()
    everything = (
        item for number in range(users) for item in messages(f"u{number}", rows // users, said)
    )
    for matrix in vectors(rows):
        put = tuple(islice(everything, len(matrix)))
        own: dict[str, list[int]] = {}
        for at, item in enumerate(put):
            own.setdefault(item.user_id, []).append(at)
        embedded = [
            Embedded(
                Scope("default", user_id),
                MODEL,
                tuple(put[at].message_id for at in ats),
                matrix[ats],
            )
            for user_id, ats in own.items()
        ]
        yield Batch(put=put, vectors=tuple(embedded))


def build(folder: Path, rows: int, users: int) -> float:
    """A store of so many rows, spread over users; returns the rows written in a second.

    Above some users the others are copies of these, which takes minutes instead of hours.
    """
    written = folder / "built.json"
    if written.exists():
        return float(json.loads(written.read_text()))
    if users > MADE and users % MADE == 0:
        each = rows // users
        first = folder.with_name(f"users_{MADE}_{each}")
        rate = build(first, MADE * each, MADE)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(first, folder)
        multiply(first / FILE, folder / FILE, MADE * each, users // MADE)
        return rate

    async def fill() -> float:
        store, spent = SqlStore(Sqlite(folder), 1 << 20), 0.0
        for batch in batches(rows, users):
            before = time.perf_counter()
            await store.apply(batch)
            spent += time.perf_counter() - before
        await store.close()
        return rows / spent

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    rate = asyncio.run(fill())
    written.write_text(json.dumps(rate))
    return rate


def multiply(first: Path, copy: Path, rows: int, times: int) -> None:
    """Give a copy of a store that many times its users, under other ids."""
    put = [item for batch in batches(rows, MADE) for item in batch.put]
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("ATTACH ? AS first", [str(first)])
        connection.execute("CREATE TEMP TABLE said (id INTEGER PRIMARY KEY, body TEXT)")
        known = connection.execute("SELECT user_id, message_id, id FROM first.message")
        numbers = {(user_id, name): number for user_id, name, number in known}
        texts = [(numbers[it.user_id, it.message_id], index_text(it)) for it in put]
        connection.executemany("INSERT INTO said VALUES (?, ?)", texts)
        for at in range(1, times):
            ids = {
                "space_no": f"space_no + {at * MADE}",
                "id": f"id + ({at * MADE} << {SEQ_BITS})",
                "user_id": f"'u' || (substr(user_id, 2) + {at * MADE})",
            }
            for table in OF_USERS:
                names = [it.name for it in table.c]
                values = ", ".join(ids.get(name, name) for name in names)
                copied = f"SELECT {values} FROM first.{table.name}"
                connection.execute(f"INSERT INTO {table.name} ({', '.join(names)}) {copied}")
            words = f"SELECT {ids['id']}, body FROM said"
            connection.execute(f"INSERT INTO row_words (rowid, body) {words}")
        connection.execute("UPDATE tally SET amount = amount * ?", [times])
        connection.commit()


def resident_mb() -> float:
    """Memory of this process that no file backs."""
    lines = Path("/proc/self/status").read_text().splitlines()
    (anonymous,) = (line for line in lines if line.startswith("RssAnon"))
    return int(anonymous.split()[1]) / 1024


def search_space(memory: Memory, rows: int) -> dict[str, float]:
    """Searches in one space: the first, then warm ones by kind, and how exact the vectors are."""
    asked = questions(QUESTIONS + 1)
    embed = ClusteredEmbedder().vector
    first = measure(lambda _: memory.hybrid_search(asked[-1], user_id="u0", limit=LIMIT), 1)
    hybrid = measure(lambda n: memory.hybrid_search(asked[n], user_id="u0", limit=LIMIT), QUESTIONS)
    lexical = measure(
        lambda n: memory.lexical_search(asked[n], user_id="u0", page_size=LIMIT), QUESTIONS
    )
    wanted = [embed(text) for text in asked[:QUESTIONS]]
    answers: list[list[str]] = []

    def nearest(number: int) -> None:
        vector = wanted[number].tolist()
        hits = memory.semantic_search(query_embedding=vector, user_id="u0", top_k=LIMIT)
        answers.append([hit.id for hit in hits])

    semantic = measure(nearest, QUESTIONS)
    resident = resident_mb()
    add = adding(memory, lambda number: "u0")  # before recall(), whose threads wait busily
    return {
        "first_ms": first.wall_ms[0],
        **cpu("hybrid", hybrid),
        **cpu("lexical", lexical),
        **cpu("semantic", semantic),
        "resident_mb": resident,
        "recall": recall(rows, np.stack(wanted), answers),
        "add_cpu_ms": percentile(add.cpu_ms, 50),
    }


def cpu(kind: str, timing: Timing) -> dict[str, float]:
    return {
        f"{kind}_p50": percentile(timing.cpu_ms, 50),
        f"{kind}_p95": percentile(timing.cpu_ms, 95),
    }


def adding(memory: Memory, user: Callable[[int], str]) -> Timing:
    """One message after the other, each durable when the call returns."""
    said = random.Random(SEED + 3)
    return measure(
        lambda n: memory.ingest(
            [{"role": "user", "content": f"今天 lunch {said.random()}", "session_id": f"new{n}"}],
            user_id=user(n),
        ),
        QUESTIONS,
    )


def recall(rows: int, wanted: Matrix, answers: Sequence[Sequence[str]]) -> float:
    """The part of the exact nearest ten that was found; messages added later take no part."""
    units = wanted / np.linalg.norm(wanted, axis=1, keepdims=True)
    best: Matrix = np.zeros((len(wanted), 0), np.float32)
    near_rows = np.zeros((len(wanted), 0), np.int64)
    for number, matrix in enumerate(vectors(rows)):
        near = units @ (matrix / np.linalg.norm(matrix, axis=1, keepdims=True)).T
        own = np.tile(number * BATCH + np.arange(len(matrix)), (len(wanted), 1))
        best, near_rows = np.hstack([best, near]), np.hstack([near_rows, own])
        order = np.argsort(-best, axis=1)[:, :LIMIT]
        best = np.take_along_axis(best, order, 1)
        near_rows = np.take_along_axis(near_rows, order, 1)
    parts = []
    for exact, answer in zip(near_rows.tolist(), answers, strict=True):
        size = LIMIT - sum(not is_own(name) for name in answer)
        parts.append(len({f"m{row:07d}" for row in exact[:size]} & {*answer}) / size)
    return float(np.mean(parts))


def is_own(name: str) -> bool:
    """Whether a message is one of those that a store was built of."""
    return len(name) == 8 and name[0] == "m" and name[1:].isdigit()


def search_users(memory: Memory, users: int) -> dict[str, float]:
    """Searches and adds of users, each asking for the first time."""
    asked, chance = questions(QUESTIONS), random.Random(SEED + 4)
    names = [f"u{chance.randrange(users)}" for _ in range(QUESTIONS * 2)]
    memory.hybrid_search("warm up", user_id="u0", limit=LIMIT)
    search = measure(
        lambda n: memory.hybrid_search(asked[n], user_id=names[n], limit=LIMIT), QUESTIONS
    )
    add = adding(memory, lambda n: names[QUESTIONS + n])
    listing = measure(lambda _: memory.users(limit=100), 5)
    overview = measure(lambda _: (memory.health(), memory.census()), 1)
    return {
        **cpu("search", search),
        **cpu("add", add),
        "listing_ms": percentile(listing.cpu_ms, 50),
        "overview_ms": overview.cpu_ms[0],
        "resident_mb": resident_mb(),
    }


def work(kind: str, folder: Path, count: int) -> None:
    """Measure one store in this process."""
    with Memory(data_dir=folder, embedder=ClusteredEmbedder()) as memory:
        memory.users(limit=1)  # opens the store, as a server does when it starts
        figures = search_space(memory, count) if kind == "rows" else search_users(memory, count)
    print(json.dumps(figures))


def measured(kind: str, folder: Path, count: int, each: int) -> dict[str, float]:
    """Build a store where it is missing, and measure it in a process of its own."""
    rows, users = (count, 1) if kind == "rows" else (count * each, count)
    print(f"{kind}: {count:,}", file=sys.stderr)
    rate = build(folder, rows, users)
    size = sum(it.stat().st_size for it in folder.rglob("*") if it.is_file())
    command = [sys.executable, "-m", "bench.scale", "--work", kind, str(folder), str(count)]
    told = subprocess.run(
        command, check=True, env=kemem_environment(), stdout=subprocess.PIPE, text=True
    )
    figures = json.loads(told.stdout)
    own = {"ingest_per_s": rate} if kind == "rows" else {}  # most users are copies
    return {**own, "bytes_per_message": size / rows, **figures}


def table(kind: str, results: dict[int, dict[str, float]]) -> str:
    """One line for each figure, one column for each size."""
    lines = [f"| {kind} | " + " | ".join(f"{count:,}" for count in results) + " |"]
    lines.append("|---" * (len(results) + 1) + "|")
    for name in next(iter(results.values())):
        values = [it[name] for it in results.values()]
        shown = (f"{it:,.3f}" if name == "recall" else f"{it:,.1f}" for it in values)
        lines.append(f"| {name} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def numbers(text: str) -> list[int]:
    return [int(part) for part in filter(None, text.split(","))]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--rows", type=numbers, default=[10_000, 100_000], help="rows in one space")
    parser.add_argument("--users", type=numbers, default=[100, 10_000], help="users of one store")
    parser.add_argument("--each", type=int, default=100, help="messages of each of the users")
    parser.add_argument("--work-dir", type=Path, help="where the stores are written and kept")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--plots", type=Path, help="also draw the figures into this folder")
    parser.add_argument("--work", nargs=3, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.work:
        work(chosen.work[0], Path(chosen.work[1]), int(chosen.work[2]))
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.work_dir or Path(temporary)
        results = {
            kind: {
                count: measured(kind, folder / f"{kind}_{count}_{chosen.each}", count, chosen.each)
                for count in counts
            }
            for kind, counts in (("rows", chosen.rows), ("users", chosen.users))
            if counts
        }
    print("\n\n".join(table(kind, each) for kind, each in results.items()))
    for kind, each in results.items() if chosen.plots else ():
        write_plots(chosen.plots, kind, each)
    if chosen.json:
        chosen.json.write_text(json.dumps(results, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
