"""Messages that are kept verbatim first, and read for facts later."""

from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as bounds
from hypothesis import strategies as st

from kemem import Memory
from kemem.settings import Settings
from kemem.testing import FakeClock

NOW = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
SAID = {
    "我不吃辣": {"用户不吃辣"},
    "我住在北京。我的导师是张教授。": {"用户住在北京", "用户的导师是张教授"},
    "我对花生过敏": {"用户对花生过敏"},
    "I have a dog called Rex": {"User has a dog called Rex"},
    "你好 hello": set[str](),
}
STEPS = st.lists(st.tuples(st.sampled_from([*SAID]), st.sampled_from("vfe")), max_size=6)
USERS = count()


@pytest.fixture
def either(either_settings: Settings) -> Iterator[Memory]:
    """A memory by words and rules, on both databases."""
    with Memory(settings=either_settings, clock=FakeClock(NOW)) as memory:
        yield memory


def facts(memory: Memory, user: str) -> list[str]:
    """The texts of notes that are not verbatim, whatever has been said."""
    return sorted(it.memory for it in memory.get_all(user) if it.note.memory_type != "verbatim")


@bounds(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_facts_come_once_whenever_messages_are_read(
    either: Memory, steps: list[tuple[str, str]]
) -> None:
    """Verbatim first and extracted later, said again, in any order: each fact is there once."""
    user, expected = f"u_{next(USERS)}", set[str]()
    either.ingest("嗯 hm", user)
    for text, how in steps:
        either.add(text, user, infer=how != "v")
        expected |= SAID[text]
        if how == "e":
            either.extract(user)
    for _ in range(2):
        either.extract(user)
        assert facts(either, user) == sorted(expected)


@pytest.mark.parametrize("text", ["我不吃辣", "I have a dog called Rex"])
def test_what_was_verbatim_goes_with_its_fact_and_the_other_way_round(
    either: Memory, text: str
) -> None:
    """Both say what the deleted one said."""
    for user, is_verbatim in (("a", True), ("b", False)):
        either.add(text, user, infer=False)
        either.extract(user)
        notes = {it.note.memory_type == "verbatim": it.id for it in either.get_all(user)}
        assert len(notes) == 2
        either.delete(notes[is_verbatim])
        either.extract(user)
        assert list(either.get_all(user)) == list(either.search(text, user)) == []


@pytest.mark.parametrize("text", ["商店晚上九点关门。", "The store closes at 9pm."])
def test_knowledge_that_is_verbatim_is_not_kept_twice(either: Memory, text: str) -> None:
    """Rules have nothing to add to it."""
    either.add(text, agent_id="shop", infer=False)
    either.extract(agent_id="shop")
    assert [it.memory for it in either.get_all(agent_id="shop")] == [text]
