"""A store of someone else's: it passes the suite, and Memory uses it by object or by URL."""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from kemem import InvalidArgument, Memory
from kemem.ports import Store
from kemem.records import Embedded, Match, Model, Scope, Vector, Where
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


class DictVectors:
    """A vector database of the user's own: vectors in a dict, compared one by one."""

    def __init__(self) -> None:
        self.rows: dict[tuple[Scope, str], Vector] = {}
        self.is_away = False

    async def put(self, embedded: Embedded) -> None:
        self._check()
        for at, row_id in enumerate(embedded.ids):
            self.rows[embedded.scope, row_id] = embedded.matrix[at]

    async def remove(self, owner: Scope, ids: Sequence[str] | None = None) -> None:
        self._check()
        for scope, row_id in list(self.rows):
            if scope.user_id == owner.user_id and (ids is None or row_id in ids):
                del self.rows[scope, row_id]

    async def nearest(self, where: Where, vector: Vector, model: Model, limit: int) -> list[Match]:
        self._check()
        matches = [
            Match(str(scope.agent_id), str(scope.user_id), row_id, 0, float(row @ vector))
            for (scope, row_id), row in self.rows.items()  # of all users: the store must check
        ]
        return sorted(matches, key=lambda it: -it.score)[:limit]

    async def close(self) -> None:
        raise AssertionError("whoever passes it in closes it")

    def _check(self) -> None:
        if self.is_away:
            raise OSError("away")


@pytest.mark.parametrize(("text", "query"), [("我不吃辣", "不吃辣"), ("I eat no pork", "no pork")])
def test_a_vector_database_beside_the_store_answers_by_meaning(text: str, query: str) -> None:
    """It learns of changes through jobs, shows nobody else's rows, and can be away."""
    vectors = DictVectors()
    with Memory(store=RamStore(), vectors=vectors, embedder=HashingEmbedder()) as memory:
        vectors.is_away = True
        (message,) = memory.add(text, "u").message_ids
        memory.add(text, "v")
        memory.run_jobs()
        assert vectors.rows == {}
        assert memory.search(query, "u").missing == ("semantic",)
        assert text in str(memory.search(query, "u", kinds=["message"]))
        vectors.is_away = False
        for job in memory.jobs():
            memory.retry_job(job.job_id)
        memory.run_jobs()
        hits = memory.search(query, "u", mode="semantic")
        assert message in [hit.id for hit in memory.search(query, "u", kinds=["message"])]
        assert {hit.row.user_id for hit in hits} == {"u"}
        kept = memory.add(text, "u", infer=False)
        assert memory.delete(kept.results[0].id).withdrawn == kept.message_ids
        memory.run_jobs()
        assert kept.message_ids[0] not in str(vectors.rows) and message in str(vectors.rows)
        memory.delete_all("u")
        memory.delete(memory.messages("v").items[0].message_id, user_id="v")
        memory.run_jobs()
        assert vectors.rows == {}


@pytest.mark.parametrize(("text", "query"), [("我不吃辣", "不吃辣"), ("I eat no pork", "no pork")])
def test_what_only_the_vector_database_finds_is_a_hit(
    tmp_path: Path, text: str, query: str
) -> None:
    """Messages, too, on a store that has not ranked them itself."""
    with Memory(data_dir=tmp_path, vectors=DictVectors(), embedder=HashingEmbedder()) as memory:
        ids = memory.add(text, "u").message_ids
        memory.run_jobs()
        hits = memory.search(query, "u", mode="semantic", kinds=["message"])
        assert tuple(hit.id for hit in hits) == ids


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
