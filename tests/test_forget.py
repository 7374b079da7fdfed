"""What is forgotten, and what never is."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kemem import AsyncMemory
from kemem.add.edit import Policy, forget, strength
from kemem.errors import InvalidArgument
from kemem.jobs import ask_to_forget, run_due
from kemem.ports import Deps, read_messages, read_notes
from kemem.records import NOTES, Scope, Where
from kemem.records.batch import Batch, Job, Use
from kemem.records.times import to_rfc3339
from kemem.session import save_checkpoint
from kemem.settings import load
from kemem.testing import FakeClock
from tests.cases import each
from tests.talk import CHINESE, DAY, NOW, SCOPE, note, parts_with, told

USER = Scope("a", "u")
POLICIES = st.builds(Policy, below=st.floats(0, 1), half_life_days=st.floats(0.1, 1_000))


def fact(note_id: str, **changed: Any) -> Any:
    """A long-term note."""
    values = {"kind": "user_info", "session_id": None, **changed}
    return note(note_id, f"用户 fact {note_id}", **values)


async def left(deps: Deps, scope: Scope = USER) -> set[str]:
    return {one.id for one in await read_notes(deps.store, Where(scope, kinds=NOTES), limit=1_000)}


@given(
    policy=POLICIES,
    importance=st.floats(0, 1),
    uses=st.integers(0, 1_000),
    days=st.floats(0, 5_000),
    more=st.floats(0, 5_000),
)
def test_strength_lies_between_0_and_1_and_only_falls_with_time(
    policy: Policy, importance: float, uses: int, days: float, more: float
) -> None:
    """More important or more often used is never weaker; a clock that is behind adds nothing."""
    one = fact("n", importance=importance, uses=uses)
    now = NOW + round(days * DAY)
    held = strength(one, now, policy)
    assert 0 <= strength(one, now + round(more * DAY), policy) <= held <= 1
    assert held <= strength(replace(one, uses=uses + 1), now, policy)
    assert held <= strength(replace(one, importance=1.0), now, policy)
    assert held <= strength(replace(one, used=now), now, policy)
    assert strength(one, NOW - DAY, policy) == strength(one, NOW, policy)


def test_after_a_half_life_half_is_left() -> None:
    """The unit of the policy is what it says."""
    assert strength(fact("n"), NOW + 90 * DAY, Policy()) == pytest.approx(0.25)
    assert strength(fact("n"), NOW + 30 * DAY, Policy(half_life_days=30)) == pytest.approx(0.25)


async def test_what_expired_goes_whatever_its_kind() -> None:
    """At its time, not before; the history says why."""
    deps = parts_with()
    kinds = ("user_info", "experience", "knowledge", "short_term")
    gone = tuple(fact(f"gone_{kind}", kind=kind, expires=NOW) for kind in kinds)
    kept = tuple(fact(f"kept_{kind}", kind=kind, expires=NOW + 1) for kind in kinds)
    await deps.store.apply(Batch(notes=gone + kept))
    assert await forget(USER, Policy(), deps) == {one.id: "expired" for one in gone}
    assert await left(deps) == {one.id for one in kept}
    lines = await deps.store.history(USER)
    assert {(one.event, one.reason, one.at) for one in lines} == {("delete", "expired", NOW)}


async def test_what_faded_goes_unless_it_is_knowledge_or_the_past() -> None:
    """Short-term notes have their session's end, superseded ones tell what was."""
    deps = parts_with()
    old = {"updated": NOW - 900 * DAY}
    await deps.store.apply(
        Batch(
            notes=(
                fact("faded", **old),
                fact("lesson", kind="experience", **old),
                fact("known", kind="knowledge", **old),
                fact("session", kind="short_term", **old),
                fact("past", valid_until=NOW - DAY, **old),
                fact("fresh"),
                fact("in_use", **old),
            ),
            used=(Use("a", "u", "in_use", 3, NOW),),
        )
    )
    gone = await forget(USER, Policy(below=0.05), deps)
    assert gone == {"faded": "decayed", "lesson": "decayed"}
    assert await left(deps) == {"known", "session", "past", "fresh", "in_use"}
    assert await forget(USER, Policy(below=0.05), deps) == {}


async def test_the_default_forgets_only_what_expired() -> None:
    """Nobody loses anything without having asked for it."""
    deps = parts_with()
    await deps.store.apply(Batch(notes=(fact("old", updated=0, importance=0.0),)))
    assert await forget(USER, Policy(), deps) == {}


@pytest.mark.parametrize("limit", [1, 3, 250])
async def test_the_weakest_beyond_the_limit_go(limit: int) -> None:
    """Over all pages of a large memory; knowledge is not counted."""
    deps = parts_with()
    size = 450
    notes = [
        fact(f"n{at:03}", importance=(at * 7 % size) / size, ts=NOW + at) for at in range(size)
    ]
    await deps.store.apply(Batch(notes=(*notes, fact("known", kind="knowledge"))))
    gone = await forget(USER, Policy(limit=limit), deps)
    best = sorted(notes, key=lambda one: one.importance)[-limit:]
    assert await left(deps) == {"known", *(one.id for one in best)}
    assert len(gone) == size - limit and set(gone.values()) == {"limit"}


async def test_each_user_of_an_agent_has_a_limit_of_their_own() -> None:
    """And nobody outside the scope is touched."""
    deps = parts_with()
    await deps.store.apply(
        Batch(
            notes=tuple(
                replace(fact(f"{user}{at}"), user_id=user, agent_id=agent)
                for agent, user in (("a", "u"), ("a", "v"), ("b", "w"))
                for at in range(3)
            )
        )
    )
    gone = await forget(Scope("a"), Policy(limit=2), deps)
    assert sorted(gone) == ["u0", "v0"]
    assert await left(deps, Scope("b")) == {"w0", "w1", "w2"}


async def test_messages_and_the_state_of_sessions_stay() -> None:
    """A checkpoint loses only the note that is forgotten."""
    deps = parts_with()
    stored = await told(deps, CHINESE)
    await deps.store.apply(Batch(notes=(note("n1"), note("n2", "到期", expires=NOW))))
    saved = await save_checkpoint(SCOPE, deps)
    assert await forget(USER, Policy(limit=1, below=1.0), deps) == {"n2": "expired"}
    assert tuple(await read_messages(deps.store, Where(SCOPE), newest_first=False)) == stored
    (kept,) = await deps.store.checkpoints(SCOPE, limit=10)
    assert kept == replace(saved, notes=(note("n1"),))


@each(
    ("field", "wrong"),
    [
        *(("limit", -1), ("limit", 1.5), ("below", -0.1), ("below", 1.1), ("below", float("nan"))),
        *(("half_life_days", 0), ("half_life_days", float("inf"))),
    ],
)
def test_a_wrong_policy_is_refused_by_value(field: str, wrong: Any) -> None:
    """Before anything is deleted by it."""
    with pytest.raises(InvalidArgument, match=field):
        Policy(**{field: wrong})


async def test_an_owner_has_one_job_at_the_next_expiry(tmp_path: Path) -> None:
    """However many notes expire at however many times; each goes when its time has come."""
    clock = FakeClock(NOW)
    settings = load(data_dir=tmp_path, embedder="none", llm="none")
    async with AsyncMemory(settings=settings, clock=clock) as memory:
        for day in (3, 2, 5, 4, 2):
            end = to_rfc3339(NOW + day * DAY)
            await memory.add(f"day {day} 第{day}天", "u", infer=False, expires_at=end)
        (job,) = await memory.jobs()
        assert (job.kind, job.due) == ("forget", NOW + 2 * DAY)
        assert await memory.run_jobs() == 0
        counts = {}
        for day in (2, 3, 4, 5):
            clock.now = NOW + day * DAY
            await memory.run_jobs()
            counts[day] = (await memory.health()).notes
            assert [job.due for job in await memory.jobs()] == [NOW + (day + 1) * DAY][: day < 5]
        assert counts == {2: 3, 3: 2, 4: 1, 5: 0}


async def no_imports(job: Job) -> None:
    raise AssertionError(job)


async def test_a_job_for_later_does_not_hold_up_the_policy() -> None:
    """What is due in a year is no reason to forget nothing today."""
    deps = parts_with()
    weak = fact("weak", importance=0.0)
    later = Job("f", "forget", USER, NOW + 365 * DAY)
    await deps.store.apply(Batch(notes=(weak, fact("kept")), jobs=(later,)))
    await ask_to_forget(deps)
    assert await run_due(deps, Policy(below=0.1), no_imports) == 1
    assert await left(deps) == {"kept"}
    assert [job.job_id for job in await deps.store.jobs()] == ["f"]
