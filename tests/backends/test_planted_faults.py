"""The suite can fail: whatever is planted in the reference store, some test of it finds."""

import inspect
from collections.abc import Callable

import pytest

from kemem.ports import Store
from kemem.testing import RamStore
from kemem.testing.conformance import StoreConformance
from kemem.testing.conformance.laws import Laws
from tests.backends import faults, index_faults

FAULTS = [
    fault
    for fault in (*vars(faults).values(), *vars(index_faults).values())
    if inspect.isclass(fault) and issubclass(fault, RamStore)
    if fault not in (RamStore, faults.Changed)
]
TESTS = [name for name in dir(StoreConformance) if name.startswith("test_")]
SLOW_LAST = sorted(TESTS, key=lambda name: name in vars(Laws))

# What a law must find by itself, as a check that the small world is rich enough.
BY_LAW: dict[str, list[type[RamStore]]] = {
    "test_a_scan_shows_what_the_definition_sees": [
        faults.InclusiveUntil,
        faults.ExclusiveSince,
        faults.UserIgnored,
        faults.UserAsPattern,
        faults.AgentIgnored,
        faults.SessionIgnored,
        faults.RoleIgnored,
        faults.IdsIgnored,
        faults.TiesBackwards,
        faults.EqualTimesStayEqual,
    ],
    "test_pages_of_a_scan_lose_and_repeat_nothing": [
        faults.CursorSkipsTies,
        faults.CursorRepeatsTies,
        faults.LimitBeforeFilter,
    ],
    "test_a_search_ranks_as_the_reference_does": [
        faults.UserIgnored,
        index_faults.SharedStatistics,
        index_faults.FilteredStatistics,
        index_faults.SpeakersNotIndexed,
    ],
    "test_pages_of_a_search_are_one_ranking": [
        index_faults.PagesSeeNewRows,
        index_faults.SearchIgnoresItsCursor,
    ],
    "test_the_same_messages_are_near_as_in_the_reference": [
        faults.SessionIgnored,
        index_faults.OtherModelsCompared,
        index_faults.VectorsIgnoreTheirScope,
    ],
    "test_any_history_leaves_what_the_reference_has": [
        faults.ChangeIgnored,
        faults.ChangeOverwrites,
        faults.NoTransaction,
        faults.JobsSurviveAFailure,
        faults.PutBeforeDrop,
        index_faults.DropLeavesVectors,
        index_faults.DropLeavesStatistics,
    ],
    "test_any_text_comes_back_and_is_found_by_itself": [faults.NulStripped],
}


def first_failure(store: type[RamStore], tests: list[str]) -> str | None:
    """The first test that fails for a store, or None."""

    class Suite(StoreConformance):
        shrink = False

        async def open_store(self) -> Store:
            return store()

    for name in tests:
        try:
            getattr(Suite(), name)()
        except (Exception, pytest.fail.Exception):
            return name
    return None


def test_the_sound_store_passes() -> None:
    """Run in this way the suite fails for no other reason than a fault."""
    assert first_failure(RamStore, TESTS) is None


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_the_suite_finds_the_fault(
    fault: type[RamStore], record_property: Callable[[str, object], None]
) -> None:
    """The test that did is reported with the result."""
    found_by = first_failure(fault, SLOW_LAST)
    record_property("found_by", found_by)
    print(f"{fault.__name__}: {found_by}")
    assert found_by is not None


def test_each_law_is_put_to_the_test() -> None:
    """A new law comes with a fault that it finds."""
    assert BY_LAW.keys() == {name for name in TESTS if name in vars(Laws)}


@pytest.mark.parametrize(
    ("law", "fault"), [(law, fault) for law, found in BY_LAW.items() for fault in found]
)
def test_a_law_finds_the_fault_by_itself(law: str, fault: type[RamStore]) -> None:
    """Without the examples that people thought of."""
    assert first_failure(fault, [law]) == law
