"""How long does `kemem move` take, and how long do writers wait, while a large user is written to?

python -m bench.move [--rows 130000] [--writes 4] [--work-dir DIR]

One user of a store on SQLite, with as many messages and notes as rows are asked for and a vector of
each, is moved to a PostgreSQL that runs for the benchmark only. Another process writes to that user
all along: messages with their notes and vectors, of which it deletes every tenth.
"""

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from bench.scale import Place, batches
from bench.scale_rows import ClusteredEmbedder, resident_mb
from kemem import Memory, Unavailable, admin
from kemem.records import Change, Embedded, Note
from kemem.records.batch import Batch
from kemem.testing.postgres import running_postgres

USER = "u0"
CITED = 4  # one of so many rows is a note, which cites the message before it
SHOWN = 20  # writes before the move begins


def filled(rows: int) -> Iterator[Batch]:
    """The batches of `bench.scale`, with notes in the place of some messages."""
    for batch in batches(rows, 1):
        put = [it for at, it in enumerate(batch.put) if at % CITED]
        notes = [
            Note(
                note_id=f"n{it.message_id}",
                agent_id=it.agent_id,
                user_id=it.user_id,
                session_id=it.session_id,
                kind="user_info",
                content=it.content,
                digest=it.message_id,
                ts=it.ts,
                created=it.ts,
                updated=it.ts,
                valid_from=it.ts,
                keywords=("tea", "茶"),
                metadata={"from": "bench"},
                sources=(batch.put[at + 1].message_id,),
            )
            for at, it in enumerate(batch.put)
            if at % CITED == 0
        ]
        changes = [
            Change(it.agent_id, it.user_id, it.note_id, "add", it.ts, None, it.content)
            for it in notes
        ]
        (embedded,) = batch.vectors
        ids = [f"n{name}" if at % CITED == 0 else name for at, name in enumerate(embedded.ids)]
        vectors = Embedded(embedded.scope, embedded.model, tuple(ids), embedded.matrix)
        yield replace(batch, put=(*put,), notes=(*notes,), changes=(*changes,), vectors=(vectors,))


def build(folder: Path, rows: int) -> None:
    """The store that is moved, in a folder that is kept."""

    async def fill() -> None:
        store = Place(folder).open_store()
        for batch in filled(rows):
            await store.apply(batch)
        await store.close()

    asyncio.run(fill())


def write(folder: Path, pause: float) -> None:
    """Write until the store has moved; prints the seconds that each write took."""
    with Memory(data_dir=folder, embedder=ClusteredEmbedder()) as memory:
        for number in range(1_000_000):
            begun = time.perf_counter()
            moved = False
            try:
                added = memory.add(f"I live in town {number}. 我住在{number}号。", USER)
                if number % 10 == 0:
                    memory.delete(added.message_ids[0], user_id=USER)
            except Unavailable as error:
                print(json.dumps(error.message), flush=True)
                moved = "moved" in error.message
            print(time.perf_counter() - begun, flush=True)
            if moved:
                return
            time.sleep(pause)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.move", description=__doc__)
    parser.add_argument("--rows", type=int, default=130_000, help="messages and notes of the user")
    parser.add_argument("--writes", type=float, default=4, help="pause between writes: 1/WRITES s")
    parser.add_argument("--work-dir", type=Path, help="where the store is built and kept")
    parser.add_argument("--writer", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args(arguments)
    if chosen.writer:
        write(chosen.writer, 1 / chosen.writes)
        return 0
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        built = (chosen.work_dir or work) / f"move_{chosen.rows}"
        if not built.exists():
            build(built, chosen.rows)
        source = shutil.copytree(built, work / "source")
        url = stack.enter_context(running_postgres())
        command = [sys.executable, "-m", "bench.move", "--writer", str(source)]
        command += ["--writes", str(chosen.writes)]
        writer = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert writer.stdout
        for _ in range(SHOWN):
            writer.stdout.readline()
        begun, before = time.monotonic(), resident_mb()

        def report(done: object) -> None:
            print(f"{time.monotonic() - begun:6.1f} s: {done}", flush=True)

        moved = admin.move(str(source), url, report, lambda: None)
        report(moved)
        print(f"memory: {before:.0f} MB before, {resident_mb():.0f} MB after")
        waits = [json.loads(it) for it in writer.communicate()[0].splitlines()]
        refused = [it for it in waits if isinstance(it, str)]
        waits = sorted(it for it in waits if isinstance(it, float))
        print(f"{len(waits)} writes; the longest waited {waits[-1]:.2f} s, half of them at most")
        print(f"{waits[len(waits) // 2]:.3f} s; refused: {refused}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
