"""The suite can fail: whatever is planted in the reference store, some test of it finds."""

import inspect
from collections.abc import Callable

import pytest
from kit import (
    faults,
    index_faults,
    journal_faults,
    note_faults,
    state_faults,
    withdrawal_faults,
)

from kemem.ports import Store
from kemem_conformance import StoreConformance
from kemem_conformance.journaling import JournalLaws
from kemem_conformance.laws import Laws
from kemem_conformance.note_laws import NoteLaws
from kemem_conformance.ram import RamStore
from kemem_conformance.talking import TalkLaws
from kemem_conformance.withdrawing import WithdrawalLaws

FAULTS = [
    fault
    for module in (
        *(faults, index_faults, note_faults, state_faults, journal_faults, withdrawal_faults),
    )
    for fault in vars(module).values()
    if inspect.isclass(fault) and issubclass(fault, RamStore)
    if fault not in (RamStore, faults.Changed, state_faults.ErasureLeaves, index_faults.MarksLost)
]
TESTS = [name for name in dir(StoreConformance) if name.startswith("test_")]
OF_LAWS = {
    name
    for suite in (Laws, NoteLaws, JournalLaws, TalkLaws, WithdrawalLaws)
    for name in vars(suite)
}
LAWS = {name for name in TESTS if name in OF_LAWS}
SLOW_LAST = sorted(TESTS, key=lambda name: name in LAWS)

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
        faults.SensitiveSeen,
        faults.SensitiveScanned,
        faults.TiesBackwards,
        faults.TiesById,
        faults.GivenTimesAreMoved,
        faults.EqualTimesStayEqual,
    ],
    "test_pages_of_a_scan_lose_and_repeat_nothing": [
        faults.CursorSkipsTies,
        faults.CursorRepeatsTies,
        faults.LimitBeforeFilter,
    ],
    "test_a_search_ranks_as_the_reference_does": [
        faults.UserIgnored,
        faults.SensitiveMessagesSeen,
        index_faults.SensitiveFoundByWords,
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
        faults.SensitiveMessagesSeen,
        index_faults.SensitiveIsNear,
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
    "test_rows_are_seen_as_the_definition_says": [
        note_faults.FiltersIgnored,
        note_faults.SensitiveNotesSeen,
        note_faults.SensitiveNotesListed,
        note_faults.MissingIsNotUnequal,
        note_faults.EndedNotesSeen,
        note_faults.EndsAMomentLate,
        note_faults.KnownAMomentLate,
        note_faults.ExpiryIgnored,
        note_faults.KindsIgnored,
        note_faults.SharedOfEveryAgent,
        note_faults.SharedMessagesSeen,
        note_faults.SharedNotesHidden,
    ],
    "test_pages_of_notes_lose_and_repeat_nothing": [note_faults.NoteCursorSkipsTies],
    "test_a_search_of_notes_ranks_as_the_reference_does": [
        note_faults.FiltersIgnoredInSearch,
        note_faults.SensitiveNotesSeen,
        note_faults.KeywordsNotIndexed,
        note_faults.StatisticsOfAllKinds,
    ],
    "test_notes_are_near_as_in_the_reference": [
        note_faults.FiltersIgnoredInNearest,
        note_faults.SensitiveNotesSeen,
        note_faults.NotesGetNoVectors,
    ],
    "test_a_drop_removes_what_the_definition_sees": [
        note_faults.FiltersIgnoredInDrops,
        note_faults.SensitiveErasedByEveryone,
        state_faults.DropIsNotRecorded,
        state_faults.DropLeavesHistory,
        state_faults.ErasureIsRecorded,
    ],
    "test_relations_are_found_as_in_the_reference": [
        state_faults.GraphOfEveryone,
        state_faults.GraphFollowsArrows,
        state_faults.TypesAreChosenLast,
        state_faults.GraphGoesOneHopFurther,
        state_faults.EndedNotesSupport,
        state_faults.SensitiveNotesSupport,
        state_faults.LastNameIsShown,
    ],
    "test_one_generation_is_one_state": [
        state_faults.GenerationCountsArrivals,
        state_faults.GenerationMissesVectors,
        state_faults.GenerationForgetsAtErasure,
    ],
    "test_any_history_of_notes_leaves_what_the_reference_has": [
        note_faults.NothingIsMerged,
        note_faults.EndedNotesRevived,
        note_faults.MergeLosesSources,
        note_faults.MergeKeepsTheFirstFlag,
        note_faults.MergedHistoryWritten,
        note_faults.ChangedNoteKeepsItsLinks,
        note_faults.ChangeMixesOldAndNew,
        state_faults.DropLeavesLinks,
        state_faults.DropLeavesStates,
        state_faults.ErasureLeavesSessions,
        state_faults.ConditionIgnored,
        state_faults.JobsThatGrewAreTheSame,
        state_faults.UseIsAChange,
        state_faults.EndLeavesStates,
        state_faults.EndsTheUsersSessions,
        state_faults.NotesCreateNoSession,
    ],
    "test_a_talk_ranks_as_in_the_reference": [
        index_faults.NothingIsLent,
        index_faults.SensitiveWordsLent,
        index_faults.LaterWordsLent,
        index_faults.OnlyAnswersLend,
        index_faults.SpeakersNotMarked,
        index_faults.QuestionsNotMarked,
    ],
    "test_any_journal_reads_as_in_the_reference": [
        journal_faults.NothingIsReplaced,
        journal_faults.OldestFirst,
        journal_faults.TiesUnordered,
        journal_faults.SinceIsExclusive,
        journal_faults.UntilIsInclusive,
        journal_faults.NobodyIsEverybody,
        journal_faults.TrimmedWithTheBorder,
        journal_faults.OldestAreKept,
        journal_faults.TrimmedInEveryKind,
        journal_faults.ErasureLeavesTheJournal,
        journal_faults.ErasureEmptiesTheJournal,
        journal_faults.SessionsTakeTheirUsersLines,
    ],
    "test_withdrawn_messages_are_where_the_reference_has_them": [
        withdrawal_faults.WithdrawnSeen,
        withdrawal_faults.WithdrawnHidden,
        withdrawal_faults.WithdrawnFound,
        withdrawal_faults.WithdrawalTakesAll,
    ],
}


def first_failure(store: type[RamStore], tests: list[str], many: int = 60) -> str | None:
    """The first test that fails for a store, or None."""

    class Suite(StoreConformance):
        examples = many
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
    assert first_failure(RamStore, TESTS, many=5) is None


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
    assert BY_LAW.keys() == LAWS


@pytest.mark.parametrize(
    ("law", "fault"), [(law, fault) for law, found in BY_LAW.items() for fault in found]
)
def test_a_law_finds_the_fault_by_itself(law: str, fault: type[RamStore]) -> None:
    """Without the examples that people thought of."""
    assert first_failure(fault, [law]) == law
