"""What operators look at costs the same however many users there are."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa

from kemem import AsyncMemory
from kemem.records import Link
from kemem.records.batch import Batch
from kemem.runtime import open_store
from kemem.settings import Settings
from kemem.store import directory
from kemem_conformance.suite import noted, said

FEW, MANY = 25, 200
MOST = 20  # rows that are counted, instead of ten thousand


async def fill(settings: Settings, users: range) -> None:
    """Users with messages in two sessions, one of which all of them have, and a linked note."""
    store, batch = open_store(settings), Batch()
    for number in users:
        user: dict[str, Any] = {"user_id": f"u{number}", "ts": number}
        told = noted(f"n{number}", "住在北京", session_id=None, **user)
        messages = (said(f"m{number}", **user), said(f"o{number}", session_id=f"s{number}", **user))
        link = Link(told.note_id, "用户", "lives in", "Beijing")
        batch = replace(batch, put=(*batch.put, *messages), notes=(*batch.notes, told))
        batch = replace(batch, links=(*batch.links, link))
    await store.apply(batch)
    await store.close()


async def look(memory: AsyncMemory) -> None:
    """As the dashboard's first page, its lists, and what supervises the server do."""
    await memory.health()
    await memory.census()
    await memory.jobs(limit=1)
    first = await memory.users(limit=5)
    await memory.users(limit=5, cursor=first.next_cursor)
    await memory.agents(limit=5)
    await memory.sessions(agent_id="agent", limit=5)


class Work:
    """Steps of SQLite's machine, or rows that PostgreSQL has looked at."""

    operator: psycopg.Connection[Any]
    amount = 0.0

    @contextmanager
    def counted(self, url: str | None) -> Iterator[None]:
        event = "connect" if url is None else "before_cursor_execute"
        listener = self._count_steps if url is None else self._explain
        if url is not None:
            self.operator = psycopg.connect(url, autocommit=True)
            self.operator.execute("ANALYZE")
            for kind in ("seqscan", "hashjoin", "mergejoin"):  # which suit small tables alone
                self.operator.execute(f"SET enable_{kind} = off")
        sa.event.listen(sa.Engine, event, listener)
        try:
            yield
        finally:
            sa.event.remove(sa.Engine, event, listener)
            if url is not None:
                self.operator.close()

    def _count_steps(self, connection: sqlite3.Connection, _: Any) -> None:
        def step() -> None:
            self.amount += 1

        connection.set_progress_handler(step, 1)

    def _explain(self, _: Any, _cursor: Any, statement: str, values: Any, *_more: Any) -> None:
        if not statement.startswith("SELECT") or "set_config" in statement:
            return
        explain = f"EXPLAIN (ANALYZE, FORMAT JSON) {statement}"
        for (plans,) in self.operator.execute(explain, values):
            self._add(plans[0]["Plan"])

    def _add(self, plan: dict[str, Any]) -> None:
        names = ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Join Filter")
        self.amount += plan["Actual Loops"] * sum(plan.get(name, 0) for name in names)
        for part in plan.get("Plans", ()):
            self._add(part)


async def test_an_overview_costs_the_same_with_many_more_users(
    either_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "MOST_COUNTED", MOST)
    monkeypatch.setattr(directory, "_WROTE_LAST", MOST)
    costs = []
    for users in (range(FEW), range(FEW, MANY)):
        await fill(either_settings, users)
        work = Work()
        with work.counted(either_settings.database_url):
            async with AsyncMemory(settings=either_settings) as memory:
                await look(memory)
        costs.append(work.amount)
    assert costs[1] <= 1.1 * costs[0]
