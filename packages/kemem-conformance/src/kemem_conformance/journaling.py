"""What a store promises about its journal: lines for operators, which are no memories."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from kemem.ports import Store, read_health, read_owners
from kemem.records import Line, Scope, Where
from kemem.records.batch import Batch, Job, Trim
from kemem_conformance.note_world import ALL_KINDS
from kemem_conformance.ram import RamStore
from kemem_conformance.suite import (
    ALL_MINE,
    EVERYTHING,
    ME,
    MINE,
    Suite,
    law,
    put,
    remember,
    rule,
    said,
)
from kemem_conformance.suite import noted as note_of
from kemem_conformance.world import NOW, TIMES, USERS, rarely

KINDS = ("metric", "追踪")
BODIES: tuple[dict[str, Any], ...] = (
    {},
    {"n": 1, "秒": 0.25, "ok": True, "none": None},
    {"question": '火锅?\0 "hotpot"', "steps": [{"深": ["deep", {}]}]},
)


def line(id_: str, ts: int = NOW, **changed: Any) -> Line:
    """A metric that tells of nobody, with some fields changed."""
    return replace(Line("metric", id_, ts, {"n": 1}), **changed)


async def ids(store: Store, kind: str = "metric", **asked: Any) -> list[str]:
    """The ids of lines in the order of the journal."""
    return [one.id for one in await store.journal(kind, **asked)]


class JournalRules(Suite):
    """The journal, by example."""

    @rule
    async def test_a_line_comes_back_as_it_was_noted(self, store: Store) -> None:
        """Every field, in any script."""
        told = [line(f"行{n}", NOW - n, body=body) for n, body in enumerate(BODIES)]
        told.append(line("last", NOW - 9, user_id="小明"))
        await log(store, told)
        await log(store, [])
        assert await store.journal("metric") == told

    @rule
    async def test_the_same_id_again_replaces_the_line(self, store: Store) -> None:
        """Within its kind, also in one call; another kind has ids of its own."""
        await log(store, [line("a"), line("甲"), line("a", kind="追踪")])
        newer = line("a", NOW + 5, body={"n": 2}, user_id="小明")
        await log(store, [line("a", body={"n": 0}), newer])
        assert await store.journal("metric") == [newer, line("甲")]
        assert await store.journal("追踪") == [line("a", kind="追踪")]

    @rule
    async def test_lines_come_newest_first(self, store: Store) -> None:
        """Equal times go by id, in the order of code points; a limit takes the newest."""
        await log(
            store, [line("b"), line("行"), line("B"), line("old", NOW - 1), line("z", NOW + 1)]
        )
        assert await ids(store) == ["z", "B", "b", "行", "old"]
        assert await ids(store, limit=2) == ["z", "B"]
        assert await ids(store, "没有") == []

    @rule
    async def test_lines_are_asked_for_by_time_and_user(self, store: Store) -> None:
        """`since` is inclusive, `until` is not; the empty user is nobody, and not everybody."""
        told = [line(f"行{n}", NOW + n, user_id=("", "u_", "小明")[n % 3]) for n in range(6)]
        await log(store, told)
        assert await ids(store, since=NOW + 4) == ["行5", "行4"]
        assert await ids(store, until=NOW + 2) == ["行1", "行0"]
        assert await ids(store, since=NOW + 2, until=NOW + 3) == ["行2"]
        assert await ids(store, user_id="小明") == ["行5", "行2"]
        assert await ids(store, user_id="") == ["行3", "行0"]
        assert await ids(store, user_id="u_%") == []
        assert await ids(store, user_id="u_", since=NOW + 2, limit=1) == ["行4"]

    @rule
    async def test_old_lines_can_be_trimmed(self, store: Store) -> None:
        """Those from before a time; other kinds are untouched."""
        told = [line(f"行{n}", NOW + n) for n in range(4)]
        await log(store, [*told, line("other", NOW - 9, kind="追踪")])
        assert await trim(store, "metric", before=NOW + 2) == 2
        assert await ids(store) == ["行3", "行2"]
        assert await trim(store, "metric", before=NOW + 2) == 0
        assert await ids(store, "追踪") == ["other"]

    @rule
    async def test_all_but_the_newest_lines_can_be_trimmed(self, store: Store) -> None:
        """Counted in the order of the journal; both limits hold where both are given."""
        told = [line(f"行{n}", NOW + n // 2) for n in range(6)]
        await log(store, [*told, line("other", kind="追踪")])
        assert await trim(store, "metric") == 0
        assert await trim(store, "metric", keep=9) == 0
        assert await trim(store, "metric", keep=3) == 3
        assert await ids(store) == ["行4", "行5", "行2"]
        assert await trim(store, "metric", before=NOW + 2, keep=1) == 2
        assert await ids(store) == ["行4"]
        assert await trim(store, "metric", keep=0) == 1
        assert await ids(store, "追踪") == ["other"]

    @rule
    async def test_who_is_erased_is_erased_from_the_journal(self, store: Store) -> None:
        """A user, whatever the agent; with an agent its users; what tells of nobody stays."""
        told = [line(f"of {user_id}", user_id=user_id) for user_id in ("", "u_", "小明", "Ann")]
        for scope, left in (
            (ME, {"", "小明", "Ann"}),
            (Scope(user_id="小明"), {"", "u_", "Ann"}),
            (Scope("助手"), {"", "u_", "Ann"}),
            (Scope("agent", ""), {"", "u_", "小明", "Ann"}),
            (Scope("agent", "u_", "s"), {"", "u_", "小明", "Ann"}),
        ):
            await log(store, told)
            await put(store, said("a"), said("消息", agent_id="助手", user_id="小明"))
            await remember(store, note_of("公", user_id="", agent_id="助手"))
            await store.apply(Batch(drop=(Where(scope, kinds=ALL_KINDS),)))
            assert {one.user_id for one in await store.journal("metric")} == left, scope

    @rule
    async def test_to_drop_some_rows_leaves_the_journal(self, store: Store) -> None:
        """Only who is erased whole is; a batch that is refused erases nobody."""
        await log(store, [line("a", user_id="u_"), line("行", user_id="小明")])
        await put(store, said("a"), said("消息", user_id="小明"))
        await store.apply(Batch(drop=(MINE, Where(Scope(user_id="小明"), role="user"))))
        await store.apply(Batch(drop=(ALL_MINE,), only_if=(Job("没有", "extract", ME, NOW),)))
        assert await ids(store) == ["a", "行"]

    @rule
    async def test_the_journal_is_no_memory(self, store: Store) -> None:
        """It is in no count, no directory and no generation."""
        await put(store, said("a"))
        before = (await read_health(store), await store.generation(MINE), await read_owners(store))
        await log(store, [line("a", user_id="u_"), line("行", user_id="没有")])
        after = (await read_health(store), await store.generation(MINE), await read_owners(store))
        assert after == before
        assert [one.id for one in await store.directory("user", None)] == ["u_"]


lines = st.builds(
    Line,
    kind=st.sampled_from(KINDS),
    id=st.sampled_from(("a", "A", "行", "é", "'; --")),
    ts=st.sampled_from(TIMES),
    body=st.sampled_from(BODIES),
    user_id=st.sampled_from(("", *USERS)),
)
kinds = st.sampled_from(KINDS)
trims = st.fixed_dictionaries({"kind": kinds, "before": st.sampled_from(TIMES)})
trims |= st.fixed_dictionaries({"kind": kinds, "keep": st.sampled_from((0, 1, 1, 2, 2, 3, 4))})
erased = st.builds(Scope, user_id=st.sampled_from(USERS))
erased |= st.builds(
    Scope, st.just("agent"), st.sampled_from(("", *USERS)), st.sampled_from((None, "s"))
)
steps = st.lists(lines, min_size=1, max_size=5) | trims | erased
questions = st.fixed_dictionaries(
    {
        "kind": kinds,
        "since": rarely(st.sampled_from(TIMES)),
        "until": rarely(st.sampled_from(TIMES)),
        "user_id": rarely(st.sampled_from(("", *USERS))),
        "limit": st.sampled_from((1, 3, EVERYTHING)),
    }
)


class JournalLaws(Suite):
    """The journal, by generated examples."""

    @law(
        told=st.lists(lines, min_size=8, max_size=12),
        steps=st.lists(steps, min_size=2, max_size=4),
        asked=st.lists(questions, min_size=6, max_size=8),
    )
    async def test_any_journal_reads_as_in_the_reference(
        self, store: Store, *, told: list[Line], steps: list[Any], asked: list[dict[str, Any]]
    ) -> None:
        """Whatever was noted, trimmed and erased."""
        for kind in KINDS:
            await trim(store, kind, keep=0)
        reference = RamStore()
        for step in (told, *steps):
            assert await taken(store, step) == await taken(reference, step)
        for question in asked:
            assert await store.journal(**question) == await reference.journal(**question)


async def log(store: Store, lines: Sequence[Line]) -> None:
    """Write lines of the journal."""
    await store.apply(Batch(journal=tuple(lines)))


async def trim(
    store: Store, kind: str, *, before: int | None = None, keep: int | None = None
) -> int:
    """Erase lines of the journal; returns how many went."""
    return (await store.apply(Batch(trim=(Trim(kind, before, keep),)))).dropped


async def taken(store: Store, step: Any) -> int | None:
    """What a step of a history answers."""
    match step:
        case Scope():
            await store.apply(Batch(drop=(Where(step, kinds=ALL_KINDS),)))
        case dict():
            return await trim(store, **step)
        case _:
            await log(store, step)
    return None
