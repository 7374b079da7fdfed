"""Memory is AsyncMemory without awaiting: the same methods, wherever it is called from."""

import asyncio
import functools
import inspect
import re
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import pytest

import kemem
from kemem import AsyncMemory, Memory, Policy
from kemem.errors import InvalidArgument, KeMemError, NotFound, Unavailable
from kemem.records import Matrix
from kemem.testing import FakeClock, HashingEmbedder
from tests.cases import each

NOW = 1_767_225_600_000_000  # 2026-01-01
PATIENCE = 20  # seconds
AT_ONCE = {"__init__", "for_agent", "for_user", "process"}  # nothing to wait for
RENAMED = {"__aenter__": "__enter__", "__aexit__": "__exit__"}


def public(kind: type[object]) -> dict[str, Any]:
    """What a class offers, by name; dunders only where it is a context manager."""
    own = {name: value for each in reversed(kind.__mro__) for name, value in vars(each).items()}
    return {
        RENAMED.get(name, name): value
        for name, value in own.items()
        if callable(value) and (not name.startswith("_") or name in {*RENAMED, *RENAMED.values()})
    }


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(data_dir=tmp_path, embedder=HashingEmbedder(), clock=FakeClock(NOW)) as opened:
        yield opened


def test_both_have_the_same_methods() -> None:
    assert public(Memory).keys() == public(AsyncMemory).keys()


@each("name", ["__init__", *public(AsyncMemory)])
def test_a_method_takes_and_returns_the_same(name: str) -> None:
    """Names, order, kinds, defaults and annotations; only the waiting differs."""
    blocking = inspect.getattr_static(Memory, name)
    waiting = AsyncMemory.__init__ if name == "__init__" else public(AsyncMemory)[name]
    assert str(inspect.signature(blocking)) == str(inspect.signature(waiting))
    assert not inspect.iscoroutinefunction(blocking)
    assert inspect.iscoroutinefunction(waiting) == (name not in AT_ONCE)


def test_both_are_what_the_package_shows() -> None:
    assert {"Memory", "AsyncMemory"} <= set(kemem.__all__)


SAID: list[dict[str, Any]] = [
    {"message_id": f"m_{at}", "content": text, "ts": f"2025-12-31T00:0{at}:00Z"}
    for at, text in enumerate(["我不吃辣", "I can't eat spicy food", "明天吃火锅", "hotpot it is"])
]
NOTE = {"user_id": "u", "agent_id": "助手"}
ARGUMENTS: dict[str, Callable[[str], tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "ingest": lambda word: ((SAID, "u"), {"agent_id": "助手", "session_id": "s"}),
    "add": lambda word: ((f"我喜欢{word}",), {**NOTE, "run_id": "t", "metadata": {"a": 1}}),
    "feedback": lambda word: (("n_none", "up"), {"query": word, "user_id": "u"}),
    "learn": lambda word: ((word,), {"summary": word, "tags": [word], "agent_id": "助手"}),
    "search": lambda word: (
        (word, "u"),
        {"top_k": 3, "explain": True, "filters": {"a": 1}, "mode": "lexical", "count": True}
        | {"since": "2025-01-01T00:00:00Z", "until": "2027-01-01T00:00:00Z", "keywords": [word]},
    ),
    "get_all": lambda word: (("u",), {"kinds": ["message", "user_info"], "limit": 2}),
    "get": lambda word: (("m_1",), {"user_id": "u"}),
    "sources": lambda word: (("m_1",), {"user_id": "u"}),
    "recall": lambda word: ((word, "u"), {"session_id": "s", "max_iterations": 2}),
    "history": lambda word: (("m_404",), {"user_id": "u"}),
    "update": lambda word: (("m_404", word), {"user_id": "u"}),
    "delete": lambda word: (("m_0",), {"user_id": "u"}),
    "extract": lambda word: (("u",), {"session_id": "s", "prompt": word}),
    "graph": lambda word: (("u",), {"around": ["用户"], "hops": 2, "limit": 5}),
    "summarize": lambda word: (("s", "u"), {}),
    "context": lambda word: (("s", "u"), {"max_tokens": 60}),
    "checkpoint": lambda word: (("s", "u"), {"agent_id": "助手"}),
    "restore_checkpoint": lambda word: ((), {"run_id": "s", "user_id": "u"}),
    "end_session": lambda word: ((), {"run_id": "t", "user_id": "u"}),
    "forget": lambda word: (("u",), {"policy": Policy(limit=1)}),
    "forgotten": lambda word: (("u",), {"limit": 5}),
    "ended": lambda word: (("u",), {"model": "m", "limit": 5}),
    "reopen": lambda word: (("n",), {"user_id": "u"}),
    "agents": lambda word: ((), {"limit": 5}),
    "configure": lambda word: (("user", "u"), {"name": word, "config": {"a": 1}}),
    "users": lambda word: (("助手",), {}),
    "sessions": lambda word: ((), {"user_id": "u", "limit": 1}),
    "session": lambda word: (("s", "u"), {}),
    "notes": lambda word: (("u",), {"sources": ["m_1"], "limit": 2}),
    "retry_job": lambda word: (("j_404",), {}),
    "retry_jobs": lambda word: ((), {}),
    "profile": lambda word: (("u",), {"agent_id": "助手", "max_tokens": 60}),
    "generation": lambda word: (("u",), {"agent_id": "助手"}),
    "delete_all": lambda word: (("u",), {"filters": {"a": 1}}),
    "messages": lambda word: (("u",), {"page_size": 1, "role": "user"}),
    "lexical_search": lambda word: ((word, "u"), {"page_size": 1}),
    "semantic_search": lambda word: ((word, "u"), {"top_k": 2, "min_score": 0.01}),
    "hybrid_search": lambda word: ((word, "u", 2), {"since": "2025-01-01T00:00:00Z"}),
    "neighbors": lambda word: (("m_2", "u"), {"before": 1, "after": 1}),
    "run_jobs": lambda word: ((), {}),
    "jobs": lambda word: ((5,), {}),
    "reindex": lambda word: ((), {}),
    "backup": lambda word: ((), {}),
    "restore": lambda word: (("memory_backup_20260101_000000.json",), {}),
    "health": lambda word: ((), {}),
    "census": lambda word: ((), {"largest": 2}),
}


@pytest.mark.parametrize("word", ["火锅", "hotpot"])
async def test_both_answer_the_same(memory: Memory, tmp_path: Path, word: str) -> None:
    """Every call, with every argument passed on; the blocking one inside a running loop."""
    others = {"close", "for_agent", "for_user", "process", "workspaces", *RENAMED.values()}
    assert {*ARGUMENTS, *others} == public(Memory).keys()
    other = AsyncMemory(
        data_dir=tmp_path / "other", embedder=HashingEmbedder(), clock=FakeClock(NOW)
    )
    async with other:
        for name, arguments in ARGUMENTS.items():
            args, named = arguments(word)
            blocking = functools.partial(getattr(memory, name), *args, **named)
            waiting = await _outcome(getattr(other, name)(*args, **named))
            assert await _outcome(asyncio.to_thread(blocking)) == waiting, name


async def _outcome(call: Awaitable[Any]) -> str:
    """What a call answers or raises, without ids, cursors and paths, which are each store's own."""
    try:
        answer = repr(await call)
    except KeMemError as error:
        answer = repr(error)
    return re.sub(r"c_[\w=-]{20,}|\b[a-z]_[0-9A-Z]{26}\b|PosixPath\([^)]*\)", "…", answer)


@pytest.mark.parametrize("text", ["我不吃辣", "I can't eat spicy food"])
def test_pages_go_on_across_calls(memory: Memory, text: str) -> None:
    memory.ingest([{"content": text}] * 5, "u")
    seen, cursor = [], None
    for _ in range(5):
        page = memory.lexical_search(text, "u", page_size=2, cursor=cursor)
        seen += [hit.id for hit in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert len(seen) == len(set(seen)) == 5


def test_errors_come_through_as_they_are(memory: Memory) -> None:
    """And leave the memory usable."""
    with pytest.raises(InvalidArgument, match="user_id"):
        memory.ingest("你好", "")
    with pytest.raises(NotFound):
        memory.neighbors("m_404", "u")
    with pytest.raises(TypeError, match=r"^Memory\.ingest\(\) missing"):
        memory.ingest()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^Memory\.add\(\) got .* 'user'"):
        memory.for_user("u").add("你好", user="u")  # type: ignore[call-arg]
    assert memory.health().messages == 0


@pytest.mark.parametrize("text", ["我不吃辣", "I can't eat spicy food"])
def test_many_threads_may_share_one_memory(memory: Memory, text: str) -> None:
    """Each finds its own; the first calls of all of them open one store."""

    def work(number: int) -> tuple[int, str]:
        user = f"u_{number}"
        memory.ingest(f"{text} {number}", user)
        (hit,) = memory.lexical_search(text, user).items
        return number, hit.message.content

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(work, range(32)))
    assert answers == [(number, f"{text} {number}") for number in range(32)]
    assert memory.health().messages == 32


async def test_it_works_inside_several_loops_at_once(memory: Memory) -> None:
    """A blocking call needs no loop of its caller and disturbs none."""

    async def inside() -> int:
        await asyncio.sleep(0)
        return len(memory.ingest("你好 hello", "u").inserted)

    def elsewhere() -> int:
        return asyncio.run(inside())

    ran = await asyncio.gather(
        inside(), asyncio.to_thread(elsewhere), asyncio.to_thread(elsewhere), inside()
    )
    assert list(ran) == [1, 1, 1, 1]


def test_no_thread_starts_before_the_first_call(tmp_path: Path) -> None:
    """Nor is a file made."""
    before = set(threading.enumerate())
    memory = Memory(data_dir=tmp_path / "unused", embedder=HashingEmbedder())
    assert set(threading.enumerate()) == before
    memory.close()
    assert not (tmp_path / "unused").exists()
    assert set(threading.enumerate()) == before


@pytest.mark.parametrize("text", ["你好", "hello"])
def test_no_thread_is_left_after_close(tmp_path: Path, text: str) -> None:
    before = set(threading.enumerate())
    with Memory(data_dir=tmp_path, embedder=HashingEmbedder()) as memory:
        memory.ingest(text, "u")
        assert memory.hybrid_search(text, "u")
        assert set(threading.enumerate()) > before
    deadline = time.monotonic() + PATIENCE
    while set(threading.enumerate()) - before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert set(threading.enumerate()) <= before


@pytest.mark.parametrize("opened", [True, False])
def test_a_closed_memory_stays_closed(tmp_path: Path, opened: bool) -> None:
    """Closing again does nothing; every other call says what is wrong."""
    memory = Memory(data_dir=tmp_path, embedder=HashingEmbedder())
    if opened:
        memory.ingest("你好", "u")
    for _ in range(3):
        memory.close()
    with memory:
        pass
    for name, arguments in ARGUMENTS.items():
        args, named = arguments("火锅")
        with pytest.raises(Unavailable, match="closed"):
            getattr(memory, name)(*args, **named)
    with pytest.raises(Unavailable, match="closed"):
        memory.ingest("hello", "u")


@pytest.mark.parametrize("opened", [True, False])
async def test_a_closed_async_memory_stays_closed_too(tmp_path: Path, opened: bool) -> None:
    memory = AsyncMemory(data_dir=tmp_path, embedder=HashingEmbedder())
    if opened:
        await memory.ingest("你好", "u")
    for _ in range(3):
        await memory.close()
    async with memory:
        pass
    for name, arguments in ARGUMENTS.items():
        args, named = arguments("hotpot")
        with pytest.raises(Unavailable, match="closed"):
            await getattr(memory, name)(*args, **named)
    with pytest.raises(Unavailable, match="closed"):
        await memory.ingest("hello", "u")


@pytest.mark.parametrize("text", ["我不吃辣", "I can't eat spicy food"])
def test_what_was_stored_is_there_when_opened_again(tmp_path: Path, text: str) -> None:
    for count in (1, 2):
        with Memory(data_dir=tmp_path, embedder=HashingEmbedder()) as memory:
            memory.ingest(text, "u")
            assert [message.content for message in memory.messages("u").items] == [text] * count


class Slow(HashingEmbedder):
    """A hosted embedder that has begun, and takes its time."""

    in_process = False

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()

    async def embed(self, texts: Sequence[str], *, purpose: Literal["query", "passage"]) -> Matrix:
        self.begun.set()
        await asyncio.sleep(PATIENCE)
        return await super().embed(texts, purpose=purpose)


def outcomes(works: Sequence[Callable[[], object]]) -> list[object]:
    """What calls at the same time returned or raised; None for one that never came back."""
    results: list[object] = [None] * len(works)

    def run(at: int) -> None:
        try:
            results[at] = works[at]() or "done"
        except BaseException as error:
            results[at] = error

    threads = [threading.Thread(target=run, args=(at,), daemon=True) for at in range(len(works))]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + PATIENCE / 2
    for thread in threads:
        thread.join(max(deadline - time.monotonic(), 0))
    return results


@pytest.mark.parametrize("text", ["你好", "hello"])
def test_a_call_that_runs_when_another_thread_closes_ends(tmp_path: Path, text: str) -> None:
    """At once and with an error of ours; what was stored before the model was asked is kept."""
    embedder = Slow()
    memory = Memory(data_dir=tmp_path, embedder=embedder)

    def close() -> None:
        assert embedder.begun.wait(PATIENCE)
        memory.close()

    called, closed = outcomes([lambda: memory.ingest(text, "u"), close])
    assert closed == "done"
    assert isinstance(called, Unavailable)
    with Memory(data_dir=tmp_path, embedder=HashingEmbedder()) as again:
        assert [message.content for message in again.messages("u").items] == [text]


@pytest.mark.parametrize("attempt", range(3))
def test_threads_that_close_at_the_same_time_all_return(tmp_path: Path, attempt: int) -> None:
    """Whoever is first, and whoever still calls gets an answer or an error of ours."""
    memory = Memory(data_dir=tmp_path, embedder=HashingEmbedder())
    memory.ingest("你好", "u")
    results = outcomes([*[memory.close] * 4, *[memory.health] * 4])
    assert results[:4] == ["done"] * 4
    for result in results[4:]:
        assert result is not None
        assert not isinstance(result, BaseException) or isinstance(result, KeMemError)


@pytest.mark.parametrize("text", ["你好", "hello"])
def test_a_function_that_the_memory_calls_cannot_wait_for_it(
    memory: Memory, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It runs in the memory's own thread: waiting there would be waiting for ever."""
    memory.ingest(text, "u")
    recalled = memory.recall(text, "u", on_step=lambda _: print(memory.search(text, "u")))
    assert recalled.evidence and "a hook called Memory" in caplog.text
