"""The systems whose retrieval is measured: each stores the messages of one user, then is asked."""

import asyncio
import json
import tempfile
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from itertools import pairwise
from math import log
from pathlib import Path
from subprocess import PIPE
from typing import Any

from bench.environment import BENCH, peers_environment, peers_python
from kemem import AsyncMemory
from kemem.records.times import to_micros
from kemem.runtime import system_clock
from kemem.settings import load
from kemem.text.query import plain
from kemem.text.segment import search_text

Message = Mapping[str, Any]
Query = Mapping[str, Any]  # a question, with its times
Found = list[tuple[str, float]]  # ids and scores, best first
Ask = Callable[[Query, int], Awaitable[Found]]
Load = Callable[[Sequence[Message]], Awaitable[Ask]]  # forgets the user before
Retriever = Callable[[Sequence[Message]], AbstractAsyncContextManager[Ask]]

BATCH = 500  # messages of one write
USER = "user"
LONGEST_LINE = 1 << 26  # bytes that a peer may answer with


@asynccontextmanager
async def kemem(messages: Sequence[Message]) -> AsyncIterator[Ask]:
    """KeMem with the settings that a new user gets; its clock shows when a question was asked."""
    now: list[int] = []

    def clock() -> int:
        return now[0] if now else system_clock()

    with tempfile.TemporaryDirectory() as directory:
        settings = load(data_dir=directory, llm="none")
        async with AsyncMemory(settings=settings, clock=clock) as memory:
            for start in range(0, len(messages), BATCH):
                await memory.ingest([given(it) for it in messages[start : start + BATCH]], USER)
            await memory.run_jobs()

            async def ask(query: Query, limit: int) -> Found:
                now[:] = [to_micros(query["ts"])] if query.get("ts") else []
                found = await memory.search(query["query"], USER, limit=limit, until=query["until"])
                return [(hit.id, hit.score) for hit in found]

            yield ask


def given(message: Message) -> dict[str, Any]:
    """A message as KeMem takes it."""
    metadata = {"speaker": message["speaker"]} if message.get("speaker") else {}
    kept = {name: message[name] for name in ("message_id", "ts", "role", "content")}
    return {**kept, "session_id": str(message["session"])[:64], "metadata": metadata}


@asynccontextmanager
async def bm25(messages: Sequence[Message]) -> AsyncIterator[Ask]:
    """Plain BM25 over stems, and over Chinese characters and their pairs."""
    rows = [terms(f"{it.get('speaker') or ''} {it['content']}") for it in messages]
    lengths = [sum(row.values()) for row in rows]
    usual = sum(lengths) / max(len(rows), 1) or 1.0

    async def ask(query: Query, limit: int) -> Found:
        until = query["until"]
        seen = [at for at, it in enumerate(messages) if until is None or it["ts"] < until]
        scores: dict[int, float] = defaultdict(float)
        for unit in plain(query["query"]).units:
            term = " ".join(unit.tokens)
            holding = [at for at in seen if term in rows[at]]
            rarity = log(1 + (len(seen) - len(holding) + 0.5) / (len(holding) + 0.5))
            for at in holding:
                often = rows[at][term]
                scores[at] += rarity * often * 2.2 / (often + 0.3 + 0.9 * lengths[at] / usual)
        best = sorted(scores, key=lambda at: -scores[at])[:limit]
        return [(messages[at]["message_id"], scores[at]) for at in best]

    yield ask


def terms(text: str) -> Counter[str]:
    """The tokens of a text and, for Chinese, their pairs."""
    tokens = search_text(text).split()
    pairs = (f"{one} {two}" for one, two in pairwise(tokens))
    return Counter([*tokens, *pairs])


@asynccontextmanager
async def peer_process(name: str) -> AsyncIterator[Load]:
    """A system that other people make, in its own process; see bench/peer.py."""
    python = await asyncio.to_thread(peers_python)
    with tempfile.TemporaryDirectory() as home:
        process = await asyncio.create_subprocess_exec(
            *(str(python), "-m", "bench.peer", name),
            cwd=BENCH.parent,
            env=peers_environment(Path(home)),
            stdin=PIPE,
            stdout=PIPE,
            limit=LONGEST_LINE,
        )

        async def answer(line: object) -> str:
            assert process.stdin and process.stdout
            process.stdin.write(json.dumps(line).encode() + b"\n")
            answered = await process.stdout.readline()
            if not answered:
                raise RuntimeError(f"{name} has ended, with status {await process.wait()}")
            return answered.decode()

        async def load(messages: Sequence[Message]) -> Ask:
            said_at = {it["message_id"]: it["ts"] for it in messages}

            async def ask(query: Query, limit: int) -> Found:
                until = query["until"]  # none of them knows such a limit
                most = len(messages) if until else limit
                found = json.loads(await answer([query["query"], most]))
                seen = [(it, score) for it, score in found if until is None or said_at[it] < until]
                return seen[:limit]

            await answer(messages)
            return ask

        yield load
        if process.stdin:
            process.stdin.close()
        await process.wait()


@asynccontextmanager
async def peer(name: str, messages: Sequence[Message]) -> AsyncIterator[Ask]:
    """A process for one user alone."""
    async with peer_process(name) as load:
        yield await load(messages)


RETRIEVERS: dict[str, Retriever] = {
    "bm25": bm25,
    "kemem": kemem,
    **{name: partial(peer, name) for name in ("chroma", "langgraph", "mem0")},
}
