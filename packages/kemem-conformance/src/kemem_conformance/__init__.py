"""The suite that every store must pass.

class TestMyStore(StoreConformance):
    async def open_store(self) -> Store:
        return await MyStore.open("my://test", empty=True)
"""

import pytest

pytest.register_assert_rewrite(  # before their import: failures then show the values compared
    *(f"{__name__}.{chapter}" for chapter in ("writing", "reading", "searching", "nearest")),
    *(f"{__name__}.{chapter}" for chapter in ("noting", "graphing", "filtering", "states")),
    *(f"{__name__}.{chapter}" for chapter in ("keeping", "laws", "note_laws", "comparing")),
    *(f"{__name__}.{chapter}" for chapter in ("journaling", "talking", "withdrawing")),
)

from kemem_conformance.filtering import FilteringRules  # noqa: E402
from kemem_conformance.graphing import GraphingRules  # noqa: E402
from kemem_conformance.journaling import JournalLaws, JournalRules  # noqa: E402
from kemem_conformance.keeping import KeepingRules  # noqa: E402
from kemem_conformance.laws import Laws  # noqa: E402
from kemem_conformance.nearest import NearestRules  # noqa: E402
from kemem_conformance.note_laws import NoteLaws  # noqa: E402
from kemem_conformance.noting import NotingRules  # noqa: E402
from kemem_conformance.ram import RamStore  # noqa: E402
from kemem_conformance.reading import ReadingRules  # noqa: E402
from kemem_conformance.searching import SearchingRules  # noqa: E402
from kemem_conformance.states import StateRules  # noqa: E402
from kemem_conformance.talking import TalkingRules, TalkLaws  # noqa: E402
from kemem_conformance.withdrawing import BranchRules, WithdrawalLaws, WithdrawalRules  # noqa: E402
from kemem_conformance.writing import WritingRules  # noqa: E402

__all__ = ["RamStore", "StoreConformance"]


class StoreConformance(
    WritingRules,
    ReadingRules,
    SearchingRules,
    TalkingRules,
    NearestRules,
    NotingRules,
    GraphingRules,
    FilteringRules,
    StateRules,
    KeepingRules,
    JournalRules,
    WithdrawalRules,
    BranchRules,
    Laws,
    NoteLaws,
    JournalLaws,
    TalkLaws,
    WithdrawalLaws,
):
    """Inherit, say how to open an empty store, and pytest runs everything that is promised."""
