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
    *(f"{__name__}.{chapter}" for chapter in ("journaling", "talking")),
)

from kemem.testing.conformance.filtering import FilteringRules  # noqa: E402
from kemem.testing.conformance.graphing import GraphingRules  # noqa: E402
from kemem.testing.conformance.journaling import JournalLaws, JournalRules  # noqa: E402
from kemem.testing.conformance.keeping import KeepingRules  # noqa: E402
from kemem.testing.conformance.laws import Laws  # noqa: E402
from kemem.testing.conformance.nearest import NearestRules  # noqa: E402
from kemem.testing.conformance.note_laws import NoteLaws  # noqa: E402
from kemem.testing.conformance.noting import NotingRules  # noqa: E402
from kemem.testing.conformance.reading import ReadingRules  # noqa: E402
from kemem.testing.conformance.searching import SearchingRules  # noqa: E402
from kemem.testing.conformance.states import StateRules  # noqa: E402
from kemem.testing.conformance.talking import TalkingRules, TalkLaws  # noqa: E402
from kemem.testing.conformance.writing import WritingRules  # noqa: E402

__all__ = ["StoreConformance"]


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
    Laws,
    NoteLaws,
    JournalLaws,
    TalkLaws,
):
    """Inherit, say how to open an empty store, and pytest runs everything that is promised."""
