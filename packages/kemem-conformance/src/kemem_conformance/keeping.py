"""What a store promises besides rows: jobs, its secret, its model, its health, its end."""

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from kemem.errors import Unavailable
from kemem.ports import Store, read_health, read_messages, read_notes, read_owners
from kemem.records import MESSAGES, NOTES, Embedded, Link, Position, Scope, Where
from kemem.records.batch import Batch, Job, Use
from kemem.text.query import parse
from kemem_conformance.suite import (
    ALL_MINE,
    ME,
    Suite,
    around,
    nearest,
    noted,
    put,
    ranking,
    remember,
    rule,
    said,
)
from kemem_conformance.world import AGENTS, MODELS, NOW, USERS, vector

LEASE = 60_000_000


def job(job_id: str, due: int = NOW, **changed: Any) -> Job:
    """A job that waits, with some fields changed."""
    return replace(Job(job_id, "embed", ME, due, ids=("a", "消息")), **changed)


def timeless(jobs: Iterable[Job | None]) -> list[Job | None]:
    """Jobs without their due times, which a claim may move."""
    return [replace(each, due=0) if each else None for each in jobs]


class KeepingRules(Suite):
    """The outbox and the rest, by example."""

    @rule
    async def test_a_job_comes_back_as_it_was_put(self, store: Store) -> None:
        """Every field; by due time, then by id; put again it is changed."""
        told = (
            job("z", NOW - 1, kind="reembed", after=Position(NOW, 7 << 32), ids=()),
            job(
                "J", scope=Scope(user_id="小明"), state="failed", error="超时 timed out", attempts=5
            ),
            job("j", scope=Scope(session_id="会话")),
            job("任务"),
        )
        await store.apply(Batch(jobs=(told[3], told[1], told[2], told[0])))
        assert await store.jobs() == list(told)
        assert await store.jobs(limit=2) == list(told[:2])
        assert await store.jobs(None) == list(told)
        assert await store.jobs(None, kinds=[told[0].kind]) == [told[0]]
        later = replace(told[0], due=NOW + 1, attempts=2, error="again 再来")
        await store.apply(Batch(jobs=(later,)))
        assert await store.jobs() == [*told[1:], later]

    @rule
    async def test_finished_jobs_are_removed(self, store: Store) -> None:
        """Also one put in the same batch; ids that are unknown do not matter."""
        await store.apply(Batch(jobs=(job("a"), job("任务"))))
        await store.apply(Batch(jobs=(job("b"),), done=("任务", "b", "没有")))
        assert await store.jobs() == [job("a")]
        assert timeless([await store.claim(NOW, LEASE)]) == timeless([job("a", attempts=1)])

    @rule
    async def test_the_oldest_due_job_is_claimed(self, store: Store) -> None:
        """Then by id; none before its time."""
        await store.apply(Batch(jobs=(job("b"), job("a"), job("任务", NOW - 5), job("x", NOW + 1))))
        claimed = [await store.claim(NOW, LEASE) for _ in range(4)]
        assert timeless(claimed) == timeless(
            [job("任务", attempts=1), job("a", attempts=1), job("b", attempts=1), None]
        )

    @rule
    async def test_a_claimed_job_is_hidden_until_its_lease_ends(self, store: Store) -> None:
        """It stays in the list, and the attempts are counted."""
        await store.apply(Batch(jobs=(job("任务"),)))
        assert await store.claim(NOW - 1, LEASE) is None
        assert timeless([await store.claim(NOW, LEASE)]) == timeless([job("任务", attempts=1)])
        assert await store.claim(NOW + LEASE - 1, LEASE) is None
        assert timeless(await store.jobs()) == timeless([job("任务", attempts=1)])
        again = await store.claim(NOW + LEASE, LEASE)
        assert timeless([again]) == timeless([job("任务", attempts=2)])
        assert await store.claim(NOW + LEASE, LEASE) is None
        await store.apply(Batch(jobs=(job("任务", NOW + 9, attempts=2),)))
        assert await store.claim(NOW + 8, LEASE) is None
        assert timeless([await store.claim(NOW + 9, LEASE)]) == timeless([job("任务", attempts=3)])

    @rule
    async def test_a_failed_job_is_never_claimed(self, store: Store) -> None:
        """It waits for people, also one that failed while it was claimed."""
        await store.apply(Batch(jobs=(job("a", 0, state="failed", error="超时"), job("b"))))
        claimed = await store.claim(NOW, LEASE)
        assert claimed is not None and claimed.job_id == "b"
        await store.apply(Batch(jobs=(replace(claimed, state="failed", due=NOW),)))
        assert await store.claim(NOW + 9 * LEASE, LEASE) is None
        assert len(await store.jobs()) == 2

    @rule
    async def test_workers_at_once_claim_each_job_once(self, store: Store) -> None:
        """However many there are."""
        await store.apply(Batch(jobs=tuple(job(f"任务{number}") for number in range(8))))
        claimed = await asyncio.gather(*(store.claim(NOW, LEASE) for _ in range(20)))
        names = [each.job_id for each in claimed if each]
        assert sorted(names) == [f"任务{number}" for number in range(8)]

    @rule
    async def test_scopes_are_those_with_messages_or_notes(self, store: Store) -> None:
        """Sorted by user, then by agent, by code point; an agent's shared part is one."""
        pairs = [(agent_id, user_id) for agent_id in AGENTS for user_id in (*USERS, "U_")]
        for agent_id, user_id in reversed(pairs):
            await put(store, said(f"{agent_id}", agent_id=agent_id, user_id=user_id))
        await remember(store, noted("n", user_id=""), noted("笔记", user_id="小红"))
        pairs += [("agent", ""), ("agent", "小红")]
        pairs.sort(key=lambda pair: pair[::-1])
        assert await read_owners(store) == [Scope(*pair) for pair in pairs]
        await store.apply(Batch(drop=(Where(Scope(user_id="小明")), Where(Scope("agent", "U_")))))
        left = [(a, u) for a, u in pairs if u != "小明" and (a, u) != ("agent", "U_")]
        assert await read_owners(store) == [Scope(*pair) for pair in left]

    @rule
    async def test_every_change_makes_a_generation_of_its_own(self, store: Store) -> None:
        """Whatever came, changed or went: no mark comes again, not even where all was erased."""
        matrix = vector((1, 0, 0, 0)).reshape(1, 4)
        vectors = (Embedded(ME, MODELS[0], ("a",), matrix),)
        batches = (
            Batch(put=(said("a"), said("消息", session_id="会话"))),
            Batch(notes=(noted("n"), noted("笔", "茶 tea"))),
            Batch(notes=(noted("n", metadata={"标": "tag"}),)),
            Batch(notes=(noted("n", valid_until=NOW),)),
            Batch(notes=(noted("n", "火锅 hotpot"),)),
            Batch(notes=(noted("又", "茶 tea", sources=("a",)),)),
            Batch(notes=(noted("笔", "茶 tea"),), links=(Link("笔", "小明", "在 in", "Berlin"),)),
            Batch(vectors=vectors),
            Batch(vectors=vectors),
            Batch(drop=(Where(ME, ids=frozenset({"消息"})),)),
            Batch(drop=(Where(ME, kinds=NOTES, ids=frozenset({"n"})),)),
        )
        erased = Batch(drop=(Where(ME, kinds=MESSAGES | NOTES),))
        marks = [await store.generation(ALL_MINE)]
        for batch in (*batches, erased, *batches, erased, *batches):
            await store.apply(batch)
            marks.append(await store.generation(ALL_MINE))
        assert len(set(marks)) == len(marks)

    @rule
    async def test_a_generation_is_of_what_the_scope_reaches(self, store: Store) -> None:
        """Not of other users, not of reading; the shared notes count where they are asked for."""
        await put(store, said("a"), said("消息", session_id="会话"))
        await remember(store, noted("n"))
        scopes = (ME, Scope("agent"), Scope(user_id="u_"), Scope("agent", "u_", "会话"))
        wheres = [Where(scope) for scope in scopes] + [Where(ME, shared="agent")]
        before = [await store.generation(where) for where in wheres]
        await store.apply(Batch(used=(Use("agent", "u_", "n", 3, NOW),)))
        await ranking(store, ALL_MINE, parse("辣 OR spice"), limit=9)
        assert [await store.generation(where) for where in wheres] == before
        await put(store, said("b", user_id="小明"))
        await remember(store, noted("公", user_id=""))
        after = [await store.generation(where) for where in wheres]
        same = [one == other for one, other in zip(before, after, strict=True)]
        assert same == [True, False, True, True, False]

    @rule
    async def test_the_secret_is_long_and_stable(self, store: Store) -> None:
        """It seals cursors, so it must not be guessed or change."""
        secret = (await store.info()).secret
        assert len(secret) >= 32
        assert len(set(secret)) > 8
        assert (await store.info()).secret == secret

    @rule
    async def test_the_model_in_use_is_remembered(self, store: Store) -> None:
        """The last one that was recorded; the same name with another width is another model."""
        one, two = MODELS
        assert (await store.info()).model is None
        for model in (one, one, two, replace(one, width=8), one):
            await store.apply(Batch(model=model))
            assert (await store.info()).model == model

    @rule
    async def test_health_counts_what_is_there(self, store: Store) -> None:
        """Messages, notes, the vectors of both, and jobs; claimed ones still wait."""
        fresh = await read_health(store)
        assert (fresh.messages, fresh.notes, fresh.vectors) == (0, 0, 0)
        assert (fresh.pending_jobs, fresh.failed_jobs) == (0, 0)
        assert (bool(fresh.backend), fresh.schema_version >= 1) == (True, True)
        assert fresh.oldest_error is None
        await put(store, said("a"), said("消息"), said("a", user_id="小明"))
        await remember(store, noted("a"), noted("笔记", "Ann likes tea"))
        matrix = vector((1, 0, 0, 0, 1, 0, 0, 0)).reshape(2, 4)
        failed = job("failed", 0, state="failed", error="超时")
        jobs = (job("b"), job("任务"), failed)
        await store.apply(
            Batch(vectors=(Embedded(ME, MODELS[0], ("a", "消息"), matrix),), jobs=jobs)
        )
        await store.claim(NOW, LEASE)
        full = await read_health(store)
        assert (full.messages, full.notes) == (3, 2)
        assert (full.vectors, full.pending_jobs, full.failed_jobs) == (3, 2, 1)
        assert full.oldest_error == "超时"

    @rule
    async def test_a_closed_store_answers_nothing(self, store: Store) -> None:
        """Every call says so; closing it again is harmless."""
        await put(store, said("a"), said("消息"))
        await store.close()
        await store.close()
        for call in (
            lambda: store.apply(Batch(put=(said("b"),))),
            lambda: read_messages(store, Where(ME)),
            lambda: read_notes(store, Where(ME)),
            lambda: store.history(ME),
            lambda: store.checkpoints(ME),
            lambda: store.directory("agent", None),
            lambda: store.generation(Where(ME)),
            lambda: read_owners(store),
            lambda: around(store, Where(ME), ("小明",)),
            lambda: ranking(store, Where(ME), parse("辣"), limit=1),
            lambda: nearest(store, Where(ME), vector((1, 0, 0, 0)), MODELS[0], 1),
            lambda: store.claim(NOW, LEASE),
            lambda: store.jobs(),
            lambda: store.journal("metric"),
            lambda: store.info(),
            lambda: store.apply(Batch(rebuild_words=True)),
            lambda: read_health(store),
        ):
            with pytest.raises(Unavailable):
                await call()
