"""A store of someone else's: it passes the suite, and Memory uses it by object or by URL."""

import sys
from pathlib import Path

import pytest

from kemem import InvalidArgument, Memory
from kemem.ports import Store
from kemem.testing import HashingEmbedder
from kemem_conformance import RamStore, StoreConformance
from tests.toy.kemem_toy import ToyStore

TOY = Path(__file__).parent / "toy"
METHODS = 12


class TestToyStore(StoreConformance):
    """Every promise of a store."""

    examples = 3

    @pytest.fixture(autouse=True)
    def directory(self, tmp_path: Path) -> None:
        self.path = tmp_path / "toy"

    async def open_store(self) -> Store:
        return ToyStore(self.path)


def test_a_store_has_few_methods() -> None:
    """Whoever writes one has to write no more than these."""
    assert len([name for name in vars(Store) if not name.startswith("_")]) <= METHODS


@pytest.mark.parametrize(("text", "query"), [("我不吃辣", "火锅 辣"), ("I eat no pork", "pork")])
def test_a_memory_works_on_a_store_that_is_passed_in(tmp_path: Path, text: str, query: str) -> None:
    """It stays open: whoever passed it in closes it."""
    store = RamStore()
    for _ in range(2):
        with Memory(store=store, embedder=HashingEmbedder()) as memory:
            memory.add(text, "u")
            assert text in str(memory.search(query, "u", kinds=["message"]))


def test_a_url_opens_the_store_of_an_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The distribution beside the toy declares the scheme toy://."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(TOY)])
    with Memory(database_url=f"toy://{tmp_path}/file", embedder=HashingEmbedder()) as memory:
        memory.add("I live in Oslo.", "u")
        assert "Oslo" in str(memory.get_all("u"))
    assert b"Oslo" in (tmp_path / "file").read_bytes()


def test_a_scheme_that_nobody_serves_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error lists the schemes that are installed."""
    monkeypatch.setattr(sys, "path", [*sys.path, str(TOY)])
    with (
        Memory(database_url="mysql://x/y") as memory,
        pytest.raises(InvalidArgument, match="postgresql:// or toy://, not mysql://"),
    ):
        memory.search("x", "u")


def test_a_store_and_a_directory_are_not_both_given(tmp_path: Path) -> None:
    """One of them would be ignored."""
    with pytest.raises(InvalidArgument, match="not both"):
        Memory(store=RamStore(), data_dir=tmp_path)


async def test_a_toy_store_opens_as_it_was_left(tmp_path: Path) -> None:
    """Replaying its file gives the same rows."""
    path = tmp_path / "toy"
    store = ToyStore(path)
    with Memory(store=store, embedder=HashingEmbedder()) as memory:
        memory.add("我住在北京", "u")
    await store.close()
    again = await ToyStore.open(path)
    with Memory(store=again, embedder=HashingEmbedder()) as memory:
        assert "北京" in str(memory.get_all("u"))
    await again.close()
