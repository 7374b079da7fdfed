"""Metrics: figures of a server that are true, bounded, and outlive it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kemem import AsyncMemory, InvalidArgument
from kemem.chat import LeakCounts
from kemem.errors import Unavailable
from kemem.journal import AsyncJournal
from kemem.ports import Reply
from kemem.records import Health
from kemem.runtime import system_clock
from kemem.serve.http.app import create_app
from kemem.serve.http.process import background_worker
from kemem.serve.telemetry.metrics import DAY, HOUR, MINUTE, Metrics, Point, Timing
from kemem.serve.telemetry.prometheus import report
from kemem.settings import load
from kemem.testing import FakeClock, HashingEmbedder, ScriptedLLM
from kemem.text.leaks import Leak

NOON = 1_767_268_800_000_000  # 2026-01-01 12:00
KINDS = ("metric", "metric.hour", "metric.day")


class Faulty(AsyncMemory):
    """A memory whose store may be away or slow to count, and that cannot list messages."""

    away = False
    counted = 0
    slow = 0.0  # seconds that a count takes

    async def health(self) -> Health:
        self.counted += 1
        await asyncio.sleep(self.slow)
        return await super().health()

    @property
    def journal(self) -> AsyncJournal:
        if self.away:
            raise Unavailable("the store is away")
        return super().journal

    async def messages(self, *given: Any, **named: Any) -> Any:
        raise RuntimeError("a fault of ours")


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Faulty]:
    async with Faulty(
        settings=load(data_dir=tmp_path, llm="none"), embedder=HashingEmbedder()
    ) as opened:
        yield opened


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOON)


@pytest.fixture
def metrics(memory: Faulty, clock: FakeClock) -> Metrics:
    return Metrics(memory, clock=clock)


async def total(metrics: Metrics, since: int = NOON - DAY) -> Point:
    """All that was counted in a year."""
    whole = Point(since)
    for point in await metrics.series(since, since + 365 * DAY, DAY):
        whole.merge(point)
    return whole


async def kept(memory: AsyncMemory) -> tuple[int, ...]:
    """How many lines there are of minutes, hours and days."""
    return tuple([len(await memory.journal.lines(kind)) for kind in KINDS])


@pytest.mark.parametrize("question", ["火锅 hotpot"])
async def test_each_request_is_counted_by_its_operation(memory: Faulty, question: str) -> None:
    """A fault of ours is an error; what we refuse is not."""
    app = create_app(memory)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        for body in ({"query": question}, {"query": question}, {"问": question}):
            await client.post("/v1/memories/search", json={"user_id": "u", **body})
        assert (await client.get("/v1/users/u/messages")).status_code == 500
        assert (await client.get(f"/{question}")).status_code == 404
    counted = (await total(app.state.metrics, system_clock() - DAY)).operations
    assert (counted["search_memories"].n, counted["search_memories"].errors) == (3, 0)
    assert 0 < (counted["search_memories"].mean or 0) < 60
    assert (counted["read_messages"].n, counted["read_messages"].errors) == (1, 1)
    assert (counted["none"].n, counted["none"].errors) == (1, 0)


async def test_a_minute_is_one_line_that_grows(
    memory: Faulty, metrics: Metrics, clock: FakeClock
) -> None:
    """What comes after a write is added to it; where nothing came, nothing is written."""
    for _ in range(3):
        metrics.count("search", 0.01)
        metrics.count("搜索", 0.02, failed=True)
        await metrics.flush()
    assert await kept(memory) == (1, 0, 0)
    clock.advance(seconds=60)
    metrics.count("search", 0.01)
    before, point = await metrics.series(NOON, NOON + 2 * MINUTE)
    assert (before.operations["search"].n, point.operations["search"].n) == (3, 1)
    assert (before.operations["搜索"].errors, point.operations["搜索"].n) == (3, 0)
    assert before.operations["搜索"].seconds == pytest.approx(0.06)
    (last, _) = await memory.journal.lines("metric")
    await metrics.flush()
    assert (await memory.journal.lines("metric"))[0] == last


@pytest.mark.parametrize("operation", ["搜索 search"])
async def test_processes_are_added_up(memory: Faulty, clock: FakeClock, operation: str) -> None:
    """Also one that has ended; how much is stored is counted once."""
    await memory.add("我不吃辣 no spice", user_id="u", infer=False)
    for number in range(3):
        process = Metrics(memory, clock=clock)
        for _ in range(number + 1):
            process.count(operation, 0.01)
        await process.flush()
    point = await total(Metrics(memory, clock=clock))
    assert point.operations[operation].n == 6
    assert (point.gauges["messages"], point.gauges["notes"]) == (1, 1)
    assert (point.gauges["vectors"], point.gauges["jobs.pending"]) == (2, 0)


@pytest.mark.parametrize("name", ["搜索 search"])
async def test_what_is_counted_while_the_store_is_away_is_written_later(
    memory: Faulty, metrics: Metrics, clock: FakeClock, name: str
) -> None:
    """Up to two hours of it."""
    memory.away = True
    for _ in range(130):
        metrics.count(name, 0.01)
        with pytest.raises(Unavailable):
            await metrics.flush()
        clock.advance(seconds=60)
    memory.away = False
    metrics.count(name, 0.01)
    assert (await total(metrics)).operations[name].n == 120


async def test_old_lines_are_folded_and_nothing_is_lost(
    memory: Faulty, metrics: Metrics, clock: FakeClock
) -> None:
    """Minutes after two days, hours after ninety; the sums stay what they were."""
    at = (0, 1, 59, 61, 24 * 60, 47 * 60, 49 * 60, 4_000, 100 * 1_440, 150 * 1_440)  # minutes
    for number, minute in enumerate(at, 1):
        clock.now = NOON + minute * MINUTE
        metrics.count("search", 0.001 * number, failed=number % 2 == 0)
        metrics.count_reply(0.5, number % 3 > 0, Reply("火锅", 100, 10))
        whole = await total(metrics)
        assert whole.operations["search"].n == number
        assert whole.operations["search"].errors == number // 2
        assert whole.operations["search"].buckets.total() == number
        assert whole.operations["llm"].errors == number // 3
        tokens = {"prompt_tokens": 100 * number, "completion_tokens": 10 * number}
        model = {f"model.gpt-4o-mini.{name}": it for name, it in tokens.items()}
        counted = {f"llm.{name}": it for name, it in tokens.items()} | model
        assert whole.counts == {**counted, "model.gpt-4o-mini.replies": number}
    assert await kept(memory) == (1, 1, 4)  # the first eight lie on four days


async def test_a_fold_that_was_interrupted_counts_nothing_twice(
    memory: Faulty, metrics: Metrics, clock: FakeClock
) -> None:
    """Minutes that are still there beside their hour are not seen, and go with the next fold."""
    for _ in range(3):
        metrics.count("搜索 search", 0.01)
        await metrics.flush()
        clock.advance(seconds=60)
    minutes = await memory.journal.lines("metric")
    clock.advance(seconds=3 * 86_400)
    await metrics.flush()
    await memory.journal.note(minutes)
    assert await kept(memory) == (4, 1, 0)
    assert (await total(metrics)).operations["搜索 search"].n == 3
    clock.advance(seconds=3_600)
    assert (await total(metrics)).operations["搜索 search"].n == 3
    assert await kept(memory) == (2, 1, 0)


@pytest.mark.parametrize("text", ["我不吃辣 I eat no spice"])
async def test_replies_of_a_model_are_counted(tmp_path: Path, text: str) -> None:
    """With their tokens; one that fails or is of no use is an error."""
    useless = Reply("不是 JSON at all", 30, 3)
    llm = ScriptedLLM([Reply('{"facts": []}', 70, 7), useless, TimeoutError()])
    async with AsyncMemory(data_dir=tmp_path, embedder=HashingEmbedder(), llm=llm) as memory:
        app = create_app(memory)
        for number in range(3):
            await memory.add(f"{text} {number}", user_id="u")
        point = await total(app.state.metrics, system_clock() - DAY)
    assert (point.operations["llm"].n, point.operations["llm"].errors) == (3, 2)
    assert point.counts["llm.prompt_tokens"] == 100
    assert point.counts["llm.completion_tokens"] == 10


async def test_a_slow_count_of_all_rows_is_made_seldom(
    memory: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scrape says at once whether the store answers, and meanwhile shows the last count."""
    monkeypatch.setattr("kemem.serve.telemetry.metrics.CHEAP", 0.1)
    memory.slow = 0.2
    metrics = Metrics(memory)
    for _ in range(5):
        text = (await report(metrics)).decode()
        assert "kemem_store_up 1.0" in text and "kemem_messages 0.0" in text
        await metrics.flush()
    assert memory.counted == 1


async def test_buckets_are_exact_at_the_bounds_that_are_exposed(memory: Faulty) -> None:
    """And what is counted as no request is in no metric of requests."""
    metrics = Metrics(memory)
    for seconds in (0.0, 0.001, 0.00101, 0.25, 10.0, 10.1, 1e9):
        metrics.count_request("/v1/x", "x", "GET", 200, seconds)
    metrics.count("llm", 0.1)
    text = (await report(metrics)).decode()
    for bound, count in (("0.001", 2), ("0.0025", 3), ("0.1", 3), ("0.25", 4), ("10.0", 5)):
        sample = f'kemem_request_seconds_bucket{{le="{bound}",method="GET",route="/v1/x"}}'
        assert f"{sample} {count}.0" in text, bound
    assert 'kemem_request_seconds_count{method="GET",route="/v1/x"} 7.0' in text
    assert "llm" not in text


@pytest.mark.parametrize("question", ["火锅？ hotpot?"])
async def test_lookups_of_caches_are_counted_as_they_come(
    memory: Faulty, metrics: Metrics, clock: FakeClock, question: str
) -> None:
    """Each in the minute in which it was seen, not all since the start again."""
    await memory.add("火锅 hotpot", user_id="u", infer=False)
    seen = []
    for _ in range(2):
        await memory.recall(question, user_id="u")
        (point,) = await metrics.series(clock.now, clock.now + MINUTE)
        seen.append(point.counts["cache.search.hits"] + point.counts["cache.search.misses"])
        clock.advance(seconds=60)
    cache = memory.caches.search
    assert sum(seen) == cache.hits + cache.misses > 0
    assert all(seen)


@pytest.mark.parametrize("name", ["搜索 search"])
async def test_what_was_counted_last_is_written_at_the_end(
    memory: Faulty, tmp_path: Path, name: str
) -> None:
    """Leaked tool calls too, which are counted by their guards."""
    leaks = LeakCounts()
    metrics = Metrics(memory, leaks)
    async with background_worker(memory, metrics.flush):
        await metrics.flush()
        metrics.count(name, 0.01)
        leaks.note(Leak(name, (), ""), "hidden")
    async with AsyncMemory(data_dir=tmp_path, embedder=HashingEmbedder()) as later:
        point = await total(Metrics(later), system_clock() - DAY)
    assert (point.operations[name].n, point.counts["leaks"]) == (1, 1)


@settings(deadline=None)
@given(
    times=st.lists(st.floats(0.0002, 300), min_size=1, max_size=40),
    share=st.sampled_from((0.5, 0.95, 0.99)),
)
def test_a_percentile_is_off_by_a_tenth_at_most(times: list[float], share: float) -> None:
    timing = Timing()
    for seconds in times:
        timing.add(seconds, failed=False)
    exact = next(it for at, it in enumerate(sorted(times), 1) if at >= share * len(times))
    assert timing.percentile(share) == pytest.approx(exact, rel=0.1)


def test_of_nothing_there_is_no_percentile() -> None:
    """And times beyond the scale are counted at its ends."""
    assert (Timing().percentile(0.5), Timing().mean) == (None, None)
    timing = Timing()
    for seconds in (0.0, 1e9):
        timing.add(seconds, failed=False)
    low, high = timing.percentile(0.5), timing.percentile(1.0)
    assert low is not None and high is not None and low < 0.0002 < 300 < high


async def test_a_series_has_a_point_for_each_step(memory: Faulty, metrics: Metrics) -> None:
    """Also where nothing was done; what would be too many is refused."""
    metrics.count("搜索 search", 0.01)
    points = await metrics.series(NOON - HOUR + 1, NOON + HOUR, 30 * MINUTE)
    assert [point.ts for point in points] == [NOON + n * 30 * MINUTE for n in range(-2, 2)]
    assert [point.operations["搜索 search"].n for point in points] == [0, 0, 1, 0]
    for since, until, step in ((0, NOON, MINUTE), (NOON, NOON + 9, 9), (NOON, 0, HOUR)):
        with pytest.raises(InvalidArgument, match="steps of a minute or more"):
            await metrics.series(since, until, step)
