"""What does an HNSW index of pgvector cost, and what does it save?

python -m bench.hnsw [--rows 120000]

One space of a PostgreSQL that runs for the benchmark only, with the vectors of `bench.scale`. The
store is asked for the nearest ten, and for the nearest fifty, which a search of ten hits asks for,
before `kemem admin index` and after it. Times are those of the processor, of this process and of
the server's together.
"""

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa

from bench.corpus import questions
from bench.measure import percentile
from bench.scale import Place, build
from bench.scale_rows import MODEL, QUESTIONS, ClusteredEmbedder, vectors
from kemem import admin
from kemem.ports.request import SearchRequest
from kemem.records import Matrix, Scope, Where
from kemem.store.schema import SEQ_BITS
from kemem.testing.postgres import running_postgres

LISTS = (10, 50)  # how many of the nearest
INSERTED = 200  # rows, one by one
MEMORY_MB = 1024
_INSERT = "INSERT INTO row_vector VALUES (1, :id, 1, CAST(:vector AS halfvec))"
_SIZE = (
    "SELECT sum(pg_relation_size(indexrelid)) FROM pg_stat_user_indexes "
    "WHERE starts_with(indexrelname, 'hnsw_')"
)

Ask = Callable[[Any, int], Sequence[int]]  # a vector and how many -> places of rows


def exact(wanted: Matrix, rows: int, most: int) -> list[list[int]]:
    """The places of the nearest rows, by their numbers of 16 bits."""
    near = []
    for matrix in vectors(rows):
        halves = matrix.astype(np.float16).astype(np.float32)
        near.append(wanted @ (halves / np.linalg.norm(halves, axis=1, keepdims=True)).T)
    return [it[:most] for it in np.argsort(-np.hstack(near), axis=1).tolist()]


def processor_ms(connection: sa.Connection) -> float:
    """The time of this process and of the server's that serve the database."""
    pids = connection.scalars(sa.text("SELECT pid FROM pg_stat_activity WHERE datname IS NOT NULL"))
    spent = time.process_time()
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        spent += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return spent * 1e3


def measured(
    name: str, ask: Ask, wanted: Matrix, truth: list[list[int]], connection: sa.Connection
) -> None:
    """Print a line for each length of a list."""
    for count in LISTS:
        ask(wanted[0], count)
        before, walls, found = processor_ms(connection), list[float](), list[float]()
        for vector, nearest in zip(wanted, truth, strict=True):
            begun = time.perf_counter()
            places = ask(vector, count)
            walls.append((time.perf_counter() - begun) * 1e3)
            found.append(len({*places} & {*nearest[:count]}) / count)
        spent = (processor_ms(connection) - before) / len(wanted)
        wall = percentile(tuple(walls), 50)
        print(f"| {name} | {count} | {spent:.1f} | {wall:.1f} | {np.mean(found):.3f} |", flush=True)


def insert_ms(connection: sa.Connection, rows: int) -> float:
    """The server's and our time for a vector that comes, after all of a space."""
    new = next(vectors(1_000))[:INSERTED]
    before = processor_ms(connection)
    for number, vector in enumerate(new):
        row = (1 << SEQ_BITS) + rows + number + 1
        connection.execute(sa.text(_INSERT), {"id": row, "vector": str(vector.tolist())})
    connection.rollback()
    return (processor_ms(connection) - before) / INSERTED


@contextmanager
def built(rows: int) -> Iterator[tuple[sa.Engine, Place]]:
    """A space on a server."""
    with tempfile.TemporaryDirectory() as folder, running_postgres() as address:
        url = sa.make_url(address).set(drivername="postgresql+psycopg", database="rows")
        place = Place(Path(folder) / "rows", url.render_as_string(hide_password=False))
        build(place, rows, 1)
        engine = sa.create_engine(url)
        yield engine, place
        engine.dispose()


def main(arguments: Sequence[str] | None = None) -> None:
    """Build and measure."""
    parser = argparse.ArgumentParser(prog="python -m bench.hnsw", description=__doc__)
    parser.add_argument("--rows", type=int, default=120_000, help="rows of the space")
    rows: int = parser.parse_args(arguments).rows
    embed = ClusteredEmbedder().vector
    asked = np.stack([embed(text) for text in questions(QUESTIONS)])
    wanted = asked / np.linalg.norm(asked, axis=1, keepdims=True)
    truth, where = exact(wanted, rows, max(LISTS)), Where(Scope(user_id="u0"))
    with built(rows) as (engine, place), engine.connect() as connection:
        store = place.open_store()

        def ask(vector: Any, count: int) -> list[int]:
            request = SearchRequest(where, vectors=vector[np.newaxis], model=MODEL, limit=count)
            response = asyncio.run(store.search(request))
            return [int(match.id[1:]) for match in response.candidates.vectors[0]]

        print("| nearest by | how many | CPU ms | wall ms | recall |\n|---|---|---|---|---|")
        measured("signs", ask, wanted, truth, connection)
        before = insert_ms(connection, rows)
        (made,) = admin.index_vectors(place.url or "", MEMORY_MB)
        measured("index", ask, wanted, truth, connection)
        after, size = insert_ms(connection, rows), int(connection.scalar(sa.text(_SIZE)) or 0)
        print(f"\nbuilt in {made.seconds:.0f} s, {size / rows:,.0f} bytes for each row")
        print(f"a vector that comes: CPU ms {before:.2f} before, {after:.2f} after")
        asyncio.run(store.close())


if __name__ == "__main__":
    main()
