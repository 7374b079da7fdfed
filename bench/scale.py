"""Curves of growth: one space of more and more rows, and more and more users of some messages.

`python -m bench.scale` prints a table. Each store is built once in --work-dir and kept there; what
is measured runs in a process of its own, so that its space is a cold one and its memory is that of
a server. The files themselves are in the cache of the operating system. `--system postgres` starts
a PostgreSQL server; chroma and qdrant are asked the same by vectors, where they are installed.
"""

import argparse
import asyncio
import gc
import json
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import sqlalchemy as sa

from bench import scale_peers
from bench.corpus import SEED, questions
from bench.environment import kemem_environment
from bench.measure import Timing, measure, percentile
from bench.plots import write_plots
from bench.scale_rows import (
    LIMIT,
    MODEL,
    QUESTIONS,
    ClusteredEmbedder,
    cpu,
    messages,
    recall,
    resident_mb,
    texts,
    vectors,
)
from kemem import Memory
from kemem.records import Embedded, Scope
from kemem.records.batch import Batch
from kemem.store.postings import BLOCK
from kemem.store.schema import (
    SEQ_BITS,
    app_user,
    message,
    row_vector,
    session,
    space,
    space_posting,
    space_state,
)
from kemem.store.sqlite import FILE, Sqlite
from kemem.store.store import SqlStore
from kemem.text.query import index_text

MADE = 100  # users who are written one by one; more are copies of them
SYSTEMS = ("sqlite", "postgres", *scale_peers.PEERS)
OF_USERS = (app_user, space, space_state, session, message, row_vector)  # tables


@dataclass(frozen=True, slots=True)
class Place:
    """Where a store is: a folder, or with a URL a database of a server."""

    folder: Path
    url: str | None = None

    def open_store(self) -> SqlStore:
        """The store that is filled."""
        if self.url is None:
            return SqlStore(Sqlite(self.folder), 1 << 20)

        from bench.systems.kemem_postgres import create_database
        from kemem.store.postgres import Postgres

        url = sa.make_url(self.url)
        create_database(url.set(database="postgres"), url.database or "")
        return SqlStore(Postgres(url), 1 << 20)

    def open_memory(self) -> Memory:
        """The memory that is asked."""
        embedder = ClusteredEmbedder()
        if self.url is not None:
            return Memory(database_url=self.url, embedder=embedder)
        return Memory(data_dir=self.folder, embedder=embedder)

    def size(self) -> int:
        """Its bytes on the disk."""
        if self.url is None:
            return sum(it.stat().st_size for it in self.folder.rglob("*") if it.is_file())
        engine = sa.create_engine(self.url)
        with engine.connect() as connection:
            size = connection.scalar(sa.select(sa.func.pg_database_size(engine.url.database)))
        engine.dispose()
        return int(size or 0)


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


def build(place: Place, rows: int, users: int) -> float:
    """A store of so many rows, spread over users; returns the rows written in a second.

    Above some users the others are copies of these, which takes minutes instead of hours.
    """
    folder, written = place.folder, place.folder / "built.json"
    if written.exists():
        return float(json.loads(written.read_text()))
    if place.url is None and users > MADE and users % MADE == 0:
        each = rows // users
        first = folder.with_name(f"users_{MADE}_{each}")
        rate = build(Place(first), MADE * each, MADE)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(first, folder)
        multiply(first / FILE, folder / FILE, MADE * each, users // MADE)
        return rate

    async def fill() -> float:
        store, spent = place.open_store(), 0.0
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


def search_space(memory: Memory, rows: int) -> dict[str, float]:
    """Searches in one space: the first, then warm ones by kind, and how exact the vectors are."""
    asked = questions(QUESTIONS)
    embed = ClusteredEmbedder().vector
    first_search(memory)
    hybrid, again = (
        measure(lambda n: memory.hybrid_search(asked[n], user_id="u0", limit=LIMIT), QUESTIONS)
        for _ in range(2)
    )
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
        **cpu("hybrid", hybrid),
        **cpu("hybrid_again", again),  # the rows of their common words are remembered
        **cpu("lexical", lexical),
        **cpu("semantic", semantic),
        "resident_mb": resident,
        "recall": recall(rows, np.stack(wanted), answers),
        "add_cpu_ms": percentile(add.cpu_ms, 50),
    }


def first_search(memory: Memory) -> dict[str, float]:
    """The times of the first search in a space, in milliseconds."""
    *_, asked = questions(QUESTIONS + 1)
    timing = measure(lambda _: memory.hybrid_search(asked, user_id="u0", limit=LIMIT), 1)
    return {"first_ms": timing.wall_ms[0], "first_cpu_ms": timing.cpu_ms[0]}


def very_first_search(memory: Memory, place: Place, rows: int) -> dict[str, float]:
    """The same in a space that nobody has searched; then searches until all is stored of it that
    later processes read.
    """
    first = first_search(memory)
    engine = sa.create_engine(place.url or f"sqlite:///{place.folder / FILE}")
    blocks = sa.select(sa.func.count()).where(space_posting.c.phrase == "")
    with engine.connect() as connection:
        while connection.execute(blocks).scalar_one() < rows // BLOCK:
            connection.rollback()
            first_search(memory)
            time.sleep(0.5)
    engine.dispose()
    return first


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


def work(system: str, kind: str, place: Place, count: int) -> dict[str, float]:
    """Measure one store in this process."""
    if system in scale_peers.PEERS:
        return scale_peers.search(system, place.folder, count)
    warm_up()
    with place.open_memory() as memory:
        memory.users(limit=1)  # opens the store, as a server does when it starts
        if kind == "first":
            return very_first_search(memory, place, count)
        if kind == "again":
            return {f"later_{name}": value for name, value in first_search(memory).items()}
        return search_space(memory, count) if kind == "rows" else search_users(memory, count)


def warm_up() -> None:
    """What a server does when it starts, so that the first search waits for its space alone."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Memory(data_dir=folder, embedder=ClusteredEmbedder()) as memory,
    ):
        memory.ingest(["I moved to Porto.", "我搬到了杭州。"], user_id="u")
        memory.hybrid_search("Where do I live?", user_id="u")
        memory.hybrid_search("我住在哪里？", user_id="u")
    gc.collect()
    gc.freeze()


def measured(system: str, kind: str, place: Place, count: int, each: int) -> dict[str, float]:
    """Build a store where it is missing, and measure it in a process of its own."""
    rows, users = (count, 1) if kind == "rows" else (count * each, count)
    print(f"{system}, {kind}: {count:,}", file=sys.stderr)
    if system in scale_peers.PEERS:
        rate = scale_peers.build(system, place.folder, rows)
    else:
        rate = build(place, rows, users)
    size = place.size()
    figures: dict[str, float] = {}
    # Later processes read what the first one has stored for them.
    is_space = kind == "rows" and system not in scale_peers.PEERS
    for part in ["first", kind, "again"] if is_space else [kind]:
        command = [sys.executable, "-m", "bench.scale", "--system", system, "--work", part]
        command += [str(place.folder), place.url or "", str(count)]
        told = subprocess.run(
            command, check=True, env=kemem_environment(), stdout=subprocess.PIPE, text=True
        )
        figures |= json.loads(told.stdout)
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
    parser.add_argument("--system", choices=SYSTEMS, default="sqlite", help="what is measured")
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    system: str = chosen.system
    if chosen.work:
        kind, folder, url, count = chosen.work
        print(json.dumps(work(system, kind, Place(Path(folder), url or None), int(count))))
        return 0
    with ExitStack() as stack:
        top = chosen.work_dir or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = None
        if system == "postgres":  # a store ends with the server
            from kemem.testing.postgres import running_postgres

            top = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            server = sa.make_url(stack.enter_context(running_postgres()))

        def place_of(name: str) -> Place:
            if server is None:
                return Place(top / (name if system == "sqlite" else f"{system}_{name}"))
            url = server.set(drivername="postgresql+psycopg", database=name)
            return Place(top / name, url.render_as_string(hide_password=False))

        users = () if system in scale_peers.PEERS else chosen.users
        results = {
            kind: {
                count: measured(
                    system, kind, place_of(f"{kind}_{count}_{chosen.each}"), count, chosen.each
                )
                for count in counts
            }
            for kind, counts in (("rows", chosen.rows), ("users", users))
            if counts
        }
    print("\n\n".join(table(kind, each) for kind, each in results.items()))
    for kind, each in results.items() if chosen.plots else ():
        write_plots(chosen.plots / ("" if system == "sqlite" else system), kind, each)
    if chosen.json:
        chosen.json.write_text(json.dumps(results, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
