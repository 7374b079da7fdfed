"""A long message or query must not block the event loop: other requests are served meanwhile."""

import asyncio
import gc
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from random import Random

import numpy as np
import pytest

from kemem import AsyncMemory
from kemem.settings import Settings
from kemem.text.query import MAX_CHARACTERS

LIMIT = 0.05  # seconds
BYTES = 99_000
SCHEDULED = Path("/proc/thread-self/schedstat")  # of Linux: time on a core, time waiting, turns
TRIES = 12
TURNS = 3  # to wake, to ask for the lock, to get it; a thread that is denied it wakes every 5 ms

CHINESE = ["我喜欢茶", "我住在北京", "他在谷歌工作", "我妈妈叫王芳", "昨天去了上海", "今天不错"]
ENGLISH = ["I like tea", "my mom lives in Rome", "we moved to Oslo", "he works at Siemens", "well"]
CHAT = [
    "对了，我下周三要去上海出差，顺便见见张伟。",
    "I'm a nurse and I live in Rome with my husband, who works at Siemens.\n",
    "你觉得呢？我不太确定，可能还是算了吧……",
    "Last Friday I went to the dentist; it took forever, and I hated it.\n",
    "我的猫叫咪咪，今年三岁，特别喜欢吃鱼。\n",
    "Could you summarise what we said about the database yesterday?\n",
    "```python\nprint('hello')\n```\n",
    "服务器的端口是5433，数据库用的是 PostgreSQL。",
]


def text(pieces: list[str], border: str) -> str:
    """99 KB of pieces in a random order."""
    random, parts, size = Random(7), list[str](), 0
    while size < BYTES:
        parts.append(random.choice(pieces))
        size += len((parts[-1] + border).encode())
    return border.join(parts[:-1])


MESSAGES = {
    "Chinese sentences": text(CHINESE, "。"),
    "English sentences": text(ENGLISH, ". "),
    "Chinese lines": text(CHINESE, "\n"),
    "English lines": text(ENGLISH, "\n"),
    "Chinese clauses in long sentences": text([*CHINESE * 5, "好。"], "，"),
    "English clauses in long sentences": text([*ENGLISH * 4, "OK."], ", "),
    "chat": text(CHAT, ""),
    "one Chinese sentence": text(CHINESE, "，"),
    "letters": "a" * BYTES,
    "dots": "." * BYTES + "a",
    "blanks": "我" + " " * (BYTES - 10) + "喜欢",
    "quotes that open": "“" * (BYTES // 3),
    "particles": "了" * (BYTES // 3) + "喜欢",
}
QUERIES = {name: content[:MAX_CHARACTERS] for name, content in MESSAGES.items()}
QUERIES["line breaks"] = "a" + "\n" * (MAX_CHARACTERS - 2) + "b"


async def largest_gap(work: Callable[[], Awaitable[object]]) -> float:
    """Seconds of CPU time that this process spent between two ticks of the loop, at most.

    CPU time, so that other processes do not count; of all threads, since one that keeps the
    interpreter's lock (in a long match of `re`) blocks the loop just as well. What they do while
    the loop's thread waits for a core does not count, no gap is longer than the clock says (the
    time of a thread on the other core is booked late), and one counts only if it comes each time.
    """
    gap = await _largest_gap(work())
    for _ in range(TRIES - 1):
        if gap > LIMIT:
            gap = min(gap, await _largest_gap(work()))
    return round(gap, 3)


async def _largest_gap(work: Awaitable[object]) -> float:
    gaps: list[float] = []

    async def tick() -> None:
        last = _times(scheduled)
        while True:
            await asyncio.sleep(0.001)
            passed, own, others, waiting, turns = np.subtract(_times(scheduled), last)
            busy = own + max(0, others - waiting * min(1, TURNS / max(1, turns)))
            gaps.append(min(passed, busy))
            last = _times(scheduled)

    scheduled = os.open(SCHEDULED, os.O_RDONLY) if SCHEDULED.exists() else None
    gc.disable()  # a collection holds the lock, too: the longer, the more tests are loaded
    ticker = asyncio.create_task(tick())
    try:
        await asyncio.sleep(0)
        await work
        await asyncio.sleep(0.003)
    finally:
        ticker.cancel()
        gc.enable()
        if scheduled is not None:
            os.close(scheduled)
    return max(gaps)


def _times(scheduled: int | None) -> tuple[float, float, float, float, int]:
    """The clock, CPU time of this thread and of all others, how long this one waited, how often.

    The file stays open: each call of the system lets go of the lock, and has to ask for it again.
    """
    clock, own = time.perf_counter(), time.thread_time()
    others = time.process_time() - own
    if scheduled is None:
        return clock, own, others, 0.0, 0
    _, waiting, turns = map(int, os.pread(scheduled, 100, 0).split())
    return clock, own, others, waiting / 1e9, turns


def spin() -> None:
    """Take 100 ms of CPU time, and let other threads work meanwhile."""
    started = time.thread_time()
    while time.thread_time() - started < 0.1:
        pass


@pytest.mark.anyio
async def test_the_measure_tells_what_blocks_the_loop_from_what_does_not() -> None:
    """Work of the loop blocks it, as does a long match in another thread; a busy one does not."""

    async def work() -> None:
        spin()

    match = partial(re.match, "(a+)+$", "a" * 21 + "b")  # tries every way to split the letters
    assert await _largest_gap(work()) > LIMIT
    # On a busy machine the loop's thread may wait for a core meanwhile, which is not counted.
    assert max([await _largest_gap(asyncio.to_thread(match)) for _ in range(TRIES)]) > LIMIT
    assert await largest_gap(lambda: asyncio.to_thread(spin)) < LIMIT


@asynccontextmanager
async def opened(data: Path) -> AsyncIterator[AsyncMemory]:
    """A memory without models that has compiled its rules."""
    async with AsyncMemory(settings=Settings(data_dir=data, embedder="none")) as memory:
        await memory.add("我住在北京。I live in Rome.", user_id="u_0")
        yield memory


@pytest.mark.anyio
async def test_a_long_message_does_not_block_the_loop(tmp_path: Path) -> None:
    """Neither by what is read in it, nor by a summary of the session, which is due after eight."""
    async with opened(tmp_path) as memory:
        gaps = {
            name: await largest_gap(lambda text=content: memory.add(text, user_id="u_1"))  # type: ignore[misc]
            for name, content in MESSAGES.items()
        }
        # Not the session before: the longer the work, the likelier that a busy machine disturbs it.
        await memory.add(MESSAGES["chat"], user_id="u_1", session_id="short", infer=False)
        gaps["end of the session"] = await largest_gap(
            lambda: memory.end_session("short", user_id="u_1")
        )
        assert not {name: gap for name, gap in gaps.items() if gap > LIMIT}, gaps


@pytest.mark.anyio
async def test_a_long_query_does_not_block_the_loop(tmp_path: Path) -> None:
    """Nor do its hits, which are long."""
    async with opened(tmp_path) as memory:
        for content in MESSAGES.values():
            await memory.add(content, user_id="u_1", infer=False)
        gaps = {
            name: await largest_gap(lambda text=query: memory.search(text, user_id="u_1"))  # type: ignore[misc]
            for name, query in QUERIES.items()
        }
        assert not {name: gap for name, gap in gaps.items() if gap > LIMIT}, gaps
