"""What `scan` promises: exactly what `Where.matches` sees, in one order, page after page."""

from kemem.ports import Store, read_messages
from kemem.records import ROLES, Position, Scope, Where
from kemem.records.batch import Batch
from kemem_conformance.suite import ME, Suite, ids, put, rule, said
from kemem_conformance.world import AGENTS, NOW, SESSIONS, USERS


class ReadingRules(Suite):
    """Visibility and order, by example."""

    @rule
    async def test_since_is_inclusive_and_until_exclusive(self, store: Store) -> None:
        """So ranges that touch share no message and miss none."""
        await put(store, said("a", ts=NOW), said("火", ts=NOW + 1), said("c", ts=NOW + 2))
        assert await ids(store, Where(ME, since=NOW + 1)) == ["火", "c"]
        assert await ids(store, Where(ME, until=NOW + 1)) == ["a"]
        assert await ids(store, Where(ME, since=NOW + 1, until=NOW + 2)) == ["火"]
        assert await ids(store, Where(ME, since=NOW + 1, until=NOW + 1)) == []

    @rule
    async def test_a_scope_shows_only_its_own(self, store: Store) -> None:
        """By agent, user and session, alone and together; ids are no patterns."""
        for number, (agent_id, user_id, session_id) in enumerate(
            (a, u, s) for a in AGENTS for u in USERS for s in SESSIONS
        ):
            names = {"agent_id": agent_id, "user_id": user_id, "session_id": session_id}
            await put(store, said(f"{agent_id} {user_id} {session_id}", ts=number, **names))
        assert len(await ids(store, Where(Scope(agent_id="助手")))) == 6
        assert len(await ids(store, Where(Scope(user_id="u_")))) == 4
        assert len(await ids(store, Where(Scope(session_id="会话")))) == 6
        assert await ids(store, Where(Scope("agent", "小明"))) == [
            "agent 小明 s",
            "agent 小明 会话",
        ]
        assert await ids(store, Where(Scope("助手", "u_%", "s"))) == ["助手 u_% s"]
        for stranger in ("u", "u_1", "U_", "%", "", "小"):
            assert await ids(store, Where(Scope(user_id=stranger))) == []

    @rule
    async def test_roles_and_ids_are_filters(self, store: Store) -> None:
        """Ids that do not exist are not seen, and no ids see nothing."""
        await put(store, *(said(role, role=role) for role in ROLES), said("消息"))
        assert await ids(store, Where(ME, role="tool")) == ["tool"]
        assert await ids(store, Where(ME, role="user")) == ["user", "消息"]
        wanted = frozenset({"消息", "system", "Tool", "没有"})
        assert await ids(store, Where(ME, ids=wanted)) == ["system", "消息"]
        assert await ids(store, Where(ME, role="tool", ids=wanted)) == []
        assert await ids(store, Where(ME, ids=frozenset())) == []

    @rule
    async def test_many_ids_can_be_asked_for(self, store: Store) -> None:
        """More than an engine may take as parameters."""
        await put(store, said("a"), said("消息"))
        wanted = frozenset(f"{number}" for number in range(70_000)) | {"消息"}
        assert await ids(store, Where(ME, ids=wanted)) == ["消息"]

    @rule
    async def test_equal_times_go_by_arrival(self, store: Store) -> None:
        """Of one batch and of several, of one session and of several; the newest came last."""
        tied = ["b", "B", "a", "é", "火", "A"]
        for names in (tied[:4], tied[4:]):
            await put(store, *(said(name, ingest_time=NOW + 9) for name in names))
        await put(store, said("new", ts=NOW + 1), said("旧", ts=NOW - 1))
        await put(store, said("别处", ingest_time=NOW + 9, session_id="t"))
        tied.append("别处")
        assert await ids(store, Where(ME), newest_first=False) == ["旧", *tied, "new"]
        assert await ids(store, Where(ME), newest_first=True) == ["new", *tied[::-1], "旧"]

    @rule
    async def test_a_time_that_is_given_is_kept(self, store: Store) -> None:
        """To the microsecond, however many have it; one that is not given gets a free one."""
        given = [said(name, ts=NOW + at, ingest_time=NOW) for at, name in ((5, "a"), (5, "b"))]
        stored = await put(store, *given, *(said(name) for name in "cde"), given[0])
        assert [one.ts - NOW for one in stored] == [5, 5, 0, 1, 2]
        later = [said("f", ts=NOW + 4, ingest_time=NOW + 4), said("g", ts=NOW, ingest_time=NOW + 4)]
        later += [said("h", ts=NOW + 4, ingest_time=NOW + 4)]
        assert [one.ts - NOW for one in await put(store, *later)] == [4, 0, 6]
        assert await ids(store, Where(ME)) == ["c", "g", "d", "e", "f", "a", "b", "h"]

    @rule
    async def test_a_page_begins_strictly_beyond_its_cursor(self, store: Store) -> None:
        """Also among equal times, and when the message at the cursor is gone."""
        tied = ("火", "b", "a")
        stored = await put(store, *(said(name, ingest_time=NOW + 9) for name in tied))
        _, end = await put(store, said("new", ts=NOW + 1), said("旧", ts=NOW - 1))
        here = stored[1].position
        await self._see_beyond(store, here)
        await store.apply(Batch(drop=(Where(ME, ids=frozenset({"b"})),)))
        await self._see_beyond(store, here)
        assert await ids(store, Where(ME), after=end.position, newest_first=True) == []

    async def _see_beyond(self, store: Store, here: Position) -> None:
        where = Where(ME)
        assert await ids(store, where, after=here, newest_first=True) == ["火", "旧"]
        assert await ids(store, where, after=here, newest_first=False) == ["a", "new"]
        assert await ids(store, where, after=here, newest_first=True, limit=1) == ["火"]

    @rule
    async def test_a_limit_counts_what_is_seen(self, store: Store) -> None:
        """What the filters hide takes no place on a page."""
        for number in range(9):
            await put(
                store,
                said(f"我{number}", ts=number, role="assistant" if number % 3 else "user"),
                said(f"you{number}", ts=number, user_id="u_%"),
            )
        where = Where(ME, role="user")
        assert await ids(store, where, limit=2, newest_first=True) == ["我6", "我3"]
        assert await ids(store, where, limit=2, newest_first=False) == ["我0", "我3"]
        (first,) = await read_messages(store, where, limit=1, newest_first=False)
        assert await ids(store, where, limit=2, after=first.position) == ["我3", "我6"]
