"""What a recall keeps for a while: never another's, never older than the store, never too much."""

import asyncio
import subprocess
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kemem import AsyncMemory, Memory
from kemem.ports import Deps, Prompt, Reply, Schema, Tool
from kemem.recall import Cache, Caches, GetMemoryDetailOutput, RecallAgent, Recalled
from kemem.records import Matrix
from kemem.records.times import to_rfc3339
from kemem.testing import FakeClock, HashingEmbedder, ScriptedLLM, calling
from tests import warm
from tests.fixtures import EXAMPLES
from tests.recalls import (
    NOW,
    ONE,
    TONGUES,
    Tongue,
    furnished,
    handing,
    handle,
    notebook,
    parts_with,
    quiet,
    shown_keys,
    told,
)

SEARCH, DETAIL, EXTRACT = "search_memories", "get_memory_detail", "extract_search_keywords"
CACHED = {EXTRACT: 300, SEARCH: 60, DETAIL: 600}  # seconds


def model(question: str) -> ScriptedLLM:
    """A model that extracts, searches, reads the best, and hands over, over and over."""

    def move(messages: Prompt) -> Any:
        done = [it for it in messages if it["role"] == "tool"]
        if len(messages) == 2 and messages[1]["content"].startswith("{"):
            return {"keywords": [{"keyword": question, "weight": 1, "type": "concept"}]}
        keys = shown_keys(messages)
        moves = [
            calling(EXTRACT, query=question),
            calling(SEARCH, query=question, min_relevance_score=0.0),
            calling(DETAIL, memory_key=keys[0] if keys else "n_nowhere"),
        ]
        return moves[len(done)] if len(done) < len(moves) else handing(keys)

    return ScriptedLLM([move], repeat=True)


def cached(result: Recalled) -> dict[str, bool]:
    """For each tool that has a cache, whether the answer came out of it."""
    steps = [step for step in result.trace if step.tool in CACHED]
    assert all(step.success for step in steps)
    return {step.tool: step.cached for step in steps}


def found(result: Recalled) -> object:
    """What a recall found, and by which steps."""
    steps = [(step.tool, step.arguments, step.outcome, step.keys) for step in result.trace]
    return result.evidence, result.confidence, steps


# Served again


@ONE
async def test_what_was_just_found_is_served_again(tongue: Tongue) -> None:
    """By any handle of the same reach; hits and misses are counted."""
    deps, caches = await furnished(), Caches()
    results = []
    for _ in range(3):
        bound = handle(deps, tongue.user, model(tongue.question))
        agent = RecallAgent(bound, caches=caches, by="llm")
        results.append(await agent.recall(tongue.question))
    first, *later = results
    assert cached(first) == dict.fromkeys(CACHED, False)
    for result in later:
        assert cached(result) == dict.fromkeys(CACHED, True) and found(result) == found(first)
    assert [(it.name, it.hits, it.misses, len(it)) for it in caches] == [
        ("expansion", 2, 1, 1),
        ("search", 2, 1, 1),
        ("content", 2, 1, 1),
        ("profile", 0, 0, 0),
    ]


@ONE
async def test_handles_of_a_memory_share_its_caches(tmp_path: Path, tongue: Tongue) -> None:
    async with opened(tmp_path) as memory:
        await memory.add(tongue.facts[0], tongue.user, infer=False)
        first = await memory.recall(tongue.question, tongue.user)
        again = await memory.for_user(tongue.user).recall(tongue.question)
        assert not any(cached(first).values()) and all(cached(again).values())
        served = [step for step in again.trace if step.cached]
        assert sum(cache.hits for cache in memory.caches) == len(served) > 1
        assert memory.for_user(tongue.user).caches is memory.caches


@ONE
async def test_nothing_is_served_across_users_agents_sessions_or_grants(tongue: Tongue) -> None:
    """Not even the keywords of a question: that someone has asked it is nobody's business."""
    deps, caches = await furnished(), Caches()
    memory = notebook(replace(deps, llm=model(tongue.question)))
    for user in ("zh", "en"):
        for agent in ("a", "b"):
            for session in ("s", "t"):
                await memory.add(tongue.facts[0], user, agent, session, infer=False)
    handles = [
        memory.for_user(user, agent_id=agent, session_id=session, sensitive=sensitive)
        for user in ("zh", "en")
        for agent in (None, "a", "b")
        for session in (None, "s", "t")
        for sensitive in (False, True)
    ]
    for expected in (False, True):
        for bound in handles:
            recaller = RecallAgent(bound, caches=caches, by="llm")
            result = await recaller.recall(tongue.question)
            assert cached(result) == dict.fromkeys(CACHED, expected), bound.scope


@ONE
async def test_each_answer_is_kept_for_its_own_time(tongue: Tongue) -> None:
    """Keywords for five minutes, results for one, contents for ten."""
    clock = FakeClock(0)
    bound = handle(await furnished(), tongue.user, model(tongue.question))
    for seconds in (59, 61, 299, 301, 599, 601):
        agent = RecallAgent(bound, caches=Caches(timer=lambda: clock() / 1e6), by="llm")
        await agent.recall(tongue.question)
        clock.advance(seconds=seconds)
        expected = {name: seconds < kept for name, kept in CACHED.items()}
        assert cached(await agent.recall(tongue.question)) == expected


# Never older than the store


Change = Callable[[AsyncMemory, Tongue, str], Any]
CHANGES: dict[str, Change] = {
    "add": lambda memory, tongue, key: memory.add(tongue.facts[0] + "!", tongue.user, infer=False),
    "ingest": lambda memory, tongue, key: memory.ingest(
        {"role": "user", "content": tongue.facts[0] + "?"}, tongue.user
    ),
    "update": lambda memory, tongue, key: memory.update(key, "改了 changed", user_id=tongue.user),
    "metadata": lambda memory, tongue, key: memory.update(
        key, metadata={"k": "v"}, user_id=tongue.user
    ),
    "delete": lambda memory, tongue, key: memory.delete(key, user_id=tongue.user),
    "delete all": lambda memory, tongue, key: memory.delete_all(tongue.user),
    "shared": lambda memory, tongue, key: memory.add(
        tongue.facts[0], agent_id="default", infer=False
    ),
}


@ONE
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
async def test_after_a_change_nothing_older_is_served(tongue: Tongue, change: Change) -> None:
    """E01: what warm caches give is what none would."""
    deps, caches = await furnished(), Caches()
    bound = handle(deps, tongue.user)
    warm = RecallAgent(bound, caches=caches)
    await warm.recall(tongue.facts[0])
    notes = [
        it.id for it in (await bound.get_all(limit=1000)).items if it.memory == tongue.facts[0]
    ]
    assert all(cached(await warm.recall(tongue.facts[0])).values())
    await change(notebook(deps), tongue, notes[0])
    after = await warm.recall(tongue.facts[0])
    fresh = await RecallAgent(bound).recall(tongue.facts[0])
    assert found(after) == found(fresh)
    assert [step.cached for step in after.trace] == [step.cached for step in fresh.trace]


LIVED = [
    (("我住在北京", "我住在上海"), "用户住在哪里？"),
    (("I live in Berlin", "I live in Oslo"), "Where does the user live?"),
]


@pytest.mark.parametrize(("places", "question"), LIVED, ids=["zh", "en"])
async def test_what_is_superseded_is_not_served(places: tuple[str, str], question: str) -> None:
    """Neither found, nor read, nor handed over by its key."""
    deps, caches = parts_with(), Caches()
    memory = notebook(deps)
    (old,) = (await memory.add(places[0], "u")).results
    warm = RecallAgent(memory.for_user("u"), caches=caches)
    assert old.id in (await warm.recall(question)).memory_keys
    deps.clock.advance(seconds=30)  # type: ignore[attr-defined]
    (new,) = (await memory.add(places[1], "u")).results
    assert new.event == "UPDATE"
    keys = (await warm.recall(question)).memory_keys
    assert new.id in keys and old.id not in keys
    assert await read(deps, "u", old.id, caches) == (False, ())


async def read(deps: Deps, user: str, key: str, caches: Caches) -> tuple[bool, tuple[str, ...]]:
    """Whether a model that has a key can read it, and what is handed over of it."""
    llm = ScriptedLLM([calling(DETAIL, memory_key=key), handing([key])])
    bound = handle(deps, user, llm)
    result = await RecallAgent(bound, caches=caches, by="llm").recall("?")
    (answer,) = told(llm.calls[-1].messages)
    return answer["success"], result.memory_keys


@ONE
async def test_what_has_expired_is_not_served(tongue: Tongue) -> None:
    """At once, with warm caches and without any write that tells them."""
    deps, caches = parts_with(), Caches()
    clock = deps.clock
    assert isinstance(clock, FakeClock)
    memory = notebook(deps)
    ends = to_rfc3339(NOW + 30_000_000)
    (added,) = (
        await memory.add(tongue.facts[0], tongue.user, infer=False, expires_at=ends)
    ).results
    warm = RecallAgent(memory.for_user(tongue.user), caches=caches)
    assert added.id in (await warm.recall(tongue.question)).memory_keys
    assert await read(deps, tongue.user, added.id, caches) == (True, (added.id,))
    clock.advance(seconds=29)
    assert added.id in (await warm.recall(tongue.question)).memory_keys
    clock.advance(seconds=1)
    result = await warm.recall(tongue.question)
    assert added.id not in str([step.keys for step in result.trace])
    assert await read(deps, tongue.user, added.id, caches) == (False, ())


class Acting:
    """A model that searches, and does something to what it found before it reads that."""

    name = "acting"

    def __init__(self, query: str, kind: str, deed: Callable[[str], Any]) -> None:
        self._search = calling(SEARCH, query=query, memory_types=[kind])
        self._deed = deed
        self._found = ""
        self.answer: dict[str, Any] = {}

    async def reply(
        self, messages: Prompt, *, schema: Schema | None = None, tools: Sequence[Tool] = ()
    ) -> Reply:
        answers = told(messages)
        if len(answers) == 2:
            self.answer = answers[1]
            return Reply("", calls=(handing([self._found]),))
        if not answers:
            return Reply("", calls=(self._search,))
        self._found = shown_keys(messages)[0]
        await self._deed(self._found)
        return Reply("", calls=(calling(DETAIL, memory_key=self._found),))


@ONE
@pytest.mark.parametrize("kind", ["user_info", "message"])
async def test_what_is_deleted_after_the_search_is_not_found(tongue: Tongue, kind: str) -> None:
    """A10: between search and detail, however warm the caches are."""
    deps, caches = await furnished(), Caches()
    memory = notebook(deps)
    gone: list[str] = []

    async def erase(key: str) -> None:
        if key not in gone:
            await memory.delete(key, user_id=tongue.user)
            gone.append(key)

    async def spare(key: str) -> None:
        """Do nothing to it."""

    for deed in (spare, spare, erase):
        llm = Acting(tongue.facts[0], kind, deed)
        bound = handle(deps, tongue.user, llm)
        result = await RecallAgent(bound, caches=caches, by="llm").recall("?")
        search, detail, _ = result.trace
        assert search.keys and search.tool == SEARCH and detail.tool == DETAIL
        assert detail.success == bool(result.evidence) == (deed is spare)
    assert search.cached and not detail.cached
    assert gone == [search.keys[0]] and [*llm.answer] == ["success", "message"]


ELSEWHERE = """
import sys
from kemem import Memory
from kemem.settings import load

directory, user, deleted, updated = sys.argv[1:]
with Memory(settings=load(data_dir=directory, embedder="none", llm="none")) as memory:
    memory.delete(deleted, user_id=user)
    memory.update(updated, "改了 changed", user_id=user)
"""


async def test_what_another_process_changes_is_seen_at_once(tmp_path: Path) -> None:
    """E02, M21: between two recalls on warm caches."""
    async with opened(tmp_path) as memory:
        keys = [
            (await memory.add(tongue.facts[0], "u", infer=False)).results[0].id
            for tongue in TONGUES
        ]
        for _ in range(2):
            results = [await memory.recall(tongue.question, "u") for tongue in TONGUES]
            for result, key in zip(results, keys, strict=True):
                assert key in result.memory_keys
        assert all(all(cached(result).values()) for result in results)
        command = [*warm.python(), "-c", ELSEWHERE, str(tmp_path), "u", *keys]
        await asyncio.to_thread(subprocess.run, command, check=True, timeout=60)
        for tongue, key in zip(TONGUES, keys, strict=True):
            after = await memory.recall(tongue.question, "u")
            assert not after.trace[0].cached
            contents = [it.content for it in after.evidence if it.memory_key == key]
            assert tongue.answer not in str(contents) and (key == keys[1] or not contents)


@ONE
def test_what_another_thread_deletes_is_gone_at_once(tmp_path: Path, tongue: Tongue) -> None:
    """E01: from a recall of the blocking mirror too."""
    with Memory(settings=quiet(tmp_path), embedder=HashingEmbedder()) as memory:
        (added,) = memory.add(tongue.facts[0], tongue.user, infer=False).results
        assert added.id in memory.recall(tongue.question, tongue.user).memory_keys
        thread = threading.Thread(target=memory.delete, args=(added.id,))
        thread.start()
        thread.join()
        assert added.id not in str(memory.recall(tongue.question, tongue.user).to_dict())


OPERATIONS = st.lists(
    st.tuples(
        st.sampled_from(["add", "expiring", "update", "delete", "wait", "recall", "recall"]),
        st.sampled_from(TONGUES),
        st.integers(0, 5),
    ),
    min_size=3,
    max_size=12,
)


@settings(max_examples=EXAMPLES)
@given(OPERATIONS)
async def test_warm_caches_change_nothing(operations: list[tuple[str, Tongue, int]]) -> None:
    """Whatever is done in whatever order, a recall finds what one without caches would find."""
    deps, caches = parts_with(), Caches()
    clock, memory = deps.clock, notebook(deps)
    assert isinstance(clock, FakeClock)
    for name, tongue, number in operations:
        text = f"{tongue.facts[number % 3]} {number}"
        keys = sorted(it.id for it in await memory.get_all(tongue.user))
        key = keys[number % len(keys)] if keys else None
        if name == "add":
            await memory.add(text, tongue.user, infer=False)
        elif name == "expiring":
            ends = to_rfc3339(clock() + 10_000_000 * (1 + number))
            await memory.add(text, tongue.user, infer=False, expires_at=ends)
        elif name == "update" and key:
            await memory.update(key, text, user_id=tongue.user)
        elif name == "delete" and key:
            await memory.delete(key, user_id=tongue.user)
        elif name == "wait":
            clock.advance(seconds=10)
        else:
            bound = memory.for_user(tongue.user)
            warm = await RecallAgent(bound, caches=caches).recall(tongue.question)
            assert found(warm) == found(await RecallAgent(bound).recall(tongue.question))


# Never too much


@given(
    st.lists(
        st.tuples(st.sampled_from("abc火"), st.text("茶x", max_size=12), st.sampled_from("12"))
    ),
    st.integers(1, 20),
)
def test_a_cache_holds_what_its_room_allows(puts: list[tuple[str, str, str]], room: int) -> None:
    """What it gives is what was last put there under that mark; what is too large it never has."""
    cache: Cache[str] = Cache("any", 60, room, len)
    last: dict[str, tuple[str, str]] = {}
    for key, value, mark in puts:
        cache.put(key, value, mark)
        last[key] = (value, mark)
        kept = {name: cache.get(name, last[name][1]) for name in last}
        held = {name: text for name, text in kept.items() if text is not None}
        assert sum(len(text) for text in held.values()) <= room
        assert all(
            last[name][0] == text or len(last[name][0]) > room for name, text in held.items()
        )
        assert (kept[key] is None) == (len(value) > room)
        assert cache.get(key, "other") is None


def test_large_contents_push_each_other_out() -> None:
    """A megabyte is a megabyte, whether it is text or metadata."""
    for detail in (
        GetMemoryDetailOutput(success=True, content="长" * 100_000),
        GetMemoryDetailOutput(success=True, metadata={"k": "long" * 25_000}),
    ):
        caches = Caches()
        for number in range(200):
            caches.content.put(number, detail)
        assert 10 < len(caches.content) < 160
    caches.content.put("huge", GetMemoryDetailOutput(success=True, content="x" * 20_000_000))
    assert caches.content.get("huge") is None


@ONE
async def test_a_long_question_does_not_fill_a_cache_with_its_key(tongue: Tongue) -> None:
    keys: list[Hashable] = []

    class Watched(Cache[Any]):
        def put(self, key: Hashable, value: Any, mark: str = "") -> None:
            keys.append(key)

    caches = Caches()
    caches.search = caches.expansion = Watched("any", 60, 1_000, lambda _: 1)
    long = (tongue.question * 200)[:2_000]
    named = {"keywords": [{"keyword": "端口 port", "weight": 0.5, "type": "concept"}]}
    llm = ScriptedLLM([calling(SEARCH, query=long), calling(EXTRACT, query=long), named, handing()])
    bound = handle(await furnished(), tongue.user, llm)
    await RecallAgent(bound, caches=caches, by="llm").recall(tongue.question)
    assert len(keys) == 2 and all(len(repr(key)) < 300 for key in keys)


def opened(directory: Path) -> AsyncMemory:
    return AsyncMemory(settings=quiet(directory), embedder=HashingEmbedder())


class Shaky(HashingEmbedder):
    """An embedder that is sometimes away."""

    away = False

    async def embed(self, texts: Sequence[str], *, purpose: Literal["query", "passage"]) -> Matrix:
        if self.away:
            raise ConnectionError
        return await super().embed(texts, purpose=purpose)


@ONE
def test_a_search_that_lacked_a_signal_is_not_kept(tmp_path: Path, tongue: Tongue) -> None:
    embedder = Shaky()
    with Memory(settings=quiet(tmp_path), embedder=embedder) as memory:
        memory.add(tongue.answer, user_id="u", infer=False)
        embedder.away = True
        memory.recall(tongue.answer, "u")
        embedder.away = False
        first, second = (memory.recall(tongue.answer, "u").trace[0] for _ in range(2))
    assert (first.cached, second.cached) == (False, True)
