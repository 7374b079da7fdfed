"""The mirror of vectors in Qdrant: its local mode, and a server where one is named."""

import os

import numpy as np
import pytest
from qdrant_client import AsyncQdrantClient

from kemem import InvalidArgument, Memory
from kemem.backends.qdrant import QdrantVectors
from kemem.records import Embedded, Model, Scope, Where
from kemem.testing import HashingEmbedder
from kemem_conformance.ram import RamStore

pytestmark = pytest.mark.filterwarnings("ignore:Payload indexes have no effect")  # locally
SERVER = os.environ.get("KEMEM_TEST_QDRANT_URL")
MODEL = Model("test", 4)
ROWS = np.eye(4, dtype=np.float32)


@pytest.fixture
def vectors() -> QdrantVectors:
    """An empty one of this test's own."""
    if SERVER:
        return QdrantVectors.connect(SERVER)
    return QdrantVectors(AsyncQdrantClient(":memory:"))


async def test_an_owner_finds_only_its_own_and_what_is_shared(vectors: QdrantVectors) -> None:
    """By similarity, in the collection of one model; what is put again replaces."""
    for agent, user, names in (("a", "u", "xy"), ("a", "v", "xy"), ("a", "", "k"), ("b", "u", "z")):
        ids = tuple(names)
        await vectors.put(Embedded(Scope(agent, user), MODEL, ids, ROWS[: len(ids)]))
    own = await vectors.nearest(Where(Scope("a", "u")), ROWS[0], MODEL, 10)
    assert [(it.agent_id, it.user_id, it.id) for it in own] == [("a", "u", "x"), ("a", "u", "y")]
    assert [round(it.score, 3) for it in own] == [1.0, 0.0]
    shared = await vectors.nearest(Where(Scope("a", "u"), shared="a"), ROWS[0], MODEL, 10)
    assert {it.id for it in shared} == {"x", "y", "k"}
    assert await vectors.nearest(Where(Scope("a", "u")), ROWS[0], Model("other", 4), 10) == []
    await vectors.put(Embedded(Scope("a", "u"), MODEL, ("x",), ROWS[3:]))
    (best, _) = await vectors.nearest(Where(Scope("a", "u")), ROWS[3], MODEL, 10)
    assert best.id == "x"
    await vectors.remove(Scope("a", "u"), ["x"])
    assert [it.id for it in await vectors.nearest(Where(Scope("a", "u")), ROWS[0], MODEL, 9)] == [
        "y"
    ]
    await vectors.remove(Scope("a", "u"))
    assert await vectors.nearest(Where(Scope("a", "u")), ROWS[0], MODEL, 9) == []
    assert len(await vectors.nearest(Where(Scope("a", "v")), ROWS[0], MODEL, 9)) == 2
    await vectors.remove(Scope("a"))
    await vectors.remove(Scope("b"))
    await vectors.close()


@pytest.mark.parametrize(("text", "query"), [("我不吃辣", "不吃辣"), ("I eat no pork", "no pork")])
def test_the_outbox_carries_vectors_to_it(vectors: QdrantVectors, text: str, query: str) -> None:
    """Search, delete, and a rebuild by `reindex`."""
    with Memory(store=RamStore(), vectors=vectors, embedder=HashingEmbedder()) as memory:
        (message,) = memory.add(text, "u").message_ids
        memory.add(text, "v")
        memory.run_jobs()
        hits = memory.search(query, "u", mode="semantic", kinds=["message"])
        assert [hit.id for hit in hits] == [message]
        memory.reindex()
        assert [it.id for it in memory.search(query, "u", mode="semantic", kinds=["message"])]
        memory.delete_all("u")
        memory.run_jobs()
        assert not memory.search(query, "u", mode="semantic").items
        memory.delete_all("v")
        memory.run_jobs()


def test_another_address_is_refused() -> None:
    """With what would be right, and without the address, which may hold a key."""
    with pytest.raises(InvalidArgument, match="http://host:6333") as caught:
        QdrantVectors.connect("grpc://秘密secret@host")
    assert "secret" not in caught.value.message
