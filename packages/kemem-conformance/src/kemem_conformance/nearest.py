"""What `nearest` promises: cosine similarity among the messages of one model."""

from collections.abc import Mapping
from typing import Any

import pytest

from kemem.errors import InvalidArgument
from kemem.ports import Store, read_health
from kemem.ports.request import SearchRequest
from kemem.records import Embedded, Match, Model, Scope, Where
from kemem.records.batch import Batch
from kemem_conformance.comparing import HALF_PRECISION
from kemem_conformance.suite import ME, Suite, nearest, put, rule, said
from kemem_conformance.world import MODELS, NOW, vector

ONE, TWO = MODELS
ASKED = vector((0.8, 0.6, 0, 0))


async def embed(
    store: Store, vectors: Mapping[str, tuple[float, ...]], model: Model = ONE, scope: Scope = ME
) -> None:
    """Give messages their vectors."""
    matrix = vector(tuple(number for row in vectors.values() for number in row))
    rows = matrix.reshape(len(vectors), -1)
    await store.apply(Batch(vectors=(Embedded(scope, model, tuple(vectors), rows),)))


def scores(hits: list[Match]) -> list[tuple[str, Any]]:
    """Ids and scores, best first, in a form that compares with tolerance."""
    return [(hit.id, pytest.approx(hit.score, abs=HALF_PRECISION)) for hit in hits]


class NearestRules(Suite):
    """Vectors, by example."""

    @rule
    async def test_the_most_similar_come_first(self, store: Store) -> None:
        """By the angle: not by length, and what points away scores 0."""
        stored = await put(store, *(said(name) for name in ("火", "b", "c", "d", "none")))
        by_id = {one.message_id: one for one in stored}
        vectors = {
            "火": (9000, 0, 0, 0),
            "b": (0, 0.001, 0, 0),
            "c": (3, 4, 0, 0),
            "d": (-1, 0, 0, 0),
        }
        await embed(store, vectors)
        hits = await nearest(store, Where(ME), ASKED * 50, ONE, 9)
        assert scores(hits) == [("c", 0.96), ("火", 0.8), ("b", 0.6), ("d", 0)]
        for hit in hits:
            assert hit == Match.of(by_id[hit.id], round(hit.score, 6))
        assert [hit.id for hit in await nearest(store, Where(ME), ASKED, ONE, 2)] == [
            "c",
            "火",
        ]

    @rule
    async def test_equal_vectors_go_by_time_then_by_id(self, store: Store) -> None:
        """Newest first, and ids in the order of code points."""
        tied = [said(name, ts=NOW, session_id=name) for name in ("b", "B", "火")]
        await put(store, *tied, said("new", ts=NOW + 1), said("旧", ts=NOW - 1))
        await embed(store, dict.fromkeys(("旧", "火", "b", "B", "new"), (0, 1, 0, 0)))
        hits = await nearest(store, Where(ME), ASKED, ONE, 9)
        assert [hit.id for hit in hits] == ["new", "B", "b", "火", "旧"]

    @rule
    async def test_vectors_of_another_model_are_not_compared(self, store: Store) -> None:
        """A model is its name and its width."""
        await put(store, said("a"), said("消息"), said("c"))
        await embed(store, {"a": (1, 0, 0, 0)}, ONE)
        await embed(store, {"消息": (1, 0, 0, 0)}, TWO)
        await embed(store, {"c": (1, 0, 0)}, Model("one", 3))
        for model, name in ((ONE, "a"), (TWO, "消息")):
            hits = await nearest(store, Where(ME), ASKED, model, 9)
            assert scores(hits) == [(name, 0.8)]
        assert await nearest(store, Where(ME), ASKED, Model("三", 4), 9) == []

    @rule
    async def test_visible_rows_are_counted(self, store: Store) -> None:
        """Those without a vector as well: they tell how large a memory is."""
        await put(store, said("a"), said("火"), said("c", role="assistant"))
        await embed(store, {"a": (1, 0, 0, 0), "火": (0, 1, 0, 0)})
        nobody = Where(Scope(user_id="nobody"))
        for where, count in ((Where(ME), 3), (Where(ME, role="user"), 2), (nobody, 0)):
            request = SearchRequest(where, vectors=ASKED.reshape(1, -1), model=ONE, limit=1)
            assert (await store.search(request)).candidates.rows == count

    @rule
    async def test_a_new_vector_replaces_the_old_one(self, store: Store) -> None:
        """Also one of another model: a message has one vector."""
        await put(store, said("a"), said("消息"))
        await embed(store, {"a": (1, 0, 0, 0), "消息": (1, 0, 0, 0)})
        await embed(store, {"a": (0, 1, 0, 0)})
        hits = await nearest(store, Where(ME), ASKED, ONE, 9)  # what a store may cache
        assert scores(hits) == [("消息", 0.8), ("a", 0.6)]
        await embed(store, {"消息": (0, 1, 0, 0)}, TWO)
        assert scores(await nearest(store, Where(ME), ASKED, ONE, 9)) == [("a", 0.6)]
        assert scores(await nearest(store, Where(ME), ASKED, TWO, 9)) == [("消息", 0.6)]
        assert (await read_health(store)).vectors == 2

    @rule
    async def test_vectors_of_unknown_messages_are_ignored(self, store: Store) -> None:
        """Unknown is what does not exist or lies outside of the scope that was named."""
        await put(store, said("a"), said("消息", session_id="会话"), said("a", user_id="小明"))
        vectors = dict.fromkeys(("a", "消息", "没有"), (1.0, 0.0, 0.0, 0.0))
        await embed(store, vectors, scope=Scope("agent", "u_", "会话"))
        assert scores(await nearest(store, Where(ME), ASKED, ONE, 9)) == [("消息", 0.8)]
        await embed(store, vectors)
        assert len(await nearest(store, Where(ME), ASKED, ONE, 9)) == 2
        assert await nearest(store, Where(Scope("agent", "小明")), ASKED, ONE, 9) == []
        assert (await read_health(store)).vectors == 2

    @rule
    async def test_a_message_and_its_vector_fit_in_one_batch(self, store: Store) -> None:
        """Vectors come after the messages they belong to."""
        matrix = vector((1, 0, 0, 0, 0, 1, 0, 0)).reshape(2, 4)
        embedded = Embedded(ME, ONE, ("a", "消息"), matrix)
        await store.apply(Batch(put=(said("a"), said("消息")), vectors=(embedded,)))
        hits = await nearest(store, Where(ME), ASKED, ONE, 9)
        assert scores(hits) == [("a", 0.8), ("消息", 0.6)]

    @rule
    async def test_only_visible_messages_are_near(self, store: Store) -> None:
        """The filters apply before the limit."""
        vectors = {}
        for number in range(6):
            name = f"火{number}"
            role = "tool" if number % 2 else "user"
            await put(store, said(name, ts=NOW + number, role=role, session_id=f"s{number // 3}"))
            vectors[name] = (1.0, number / 5, 0.0, 0.0)
        await embed(store, vectors)
        for where, wanted in (
            (Where(ME, role="tool"), ["火3", "火5"]),
            (Where(ME, until=NOW + 3), ["火2", "火1"]),
            (Where(ME, since=NOW + 4), ["火4", "火5"]),
            (Where(Scope("agent", "u_", "s0")), ["火2", "火1"]),
            (Where(ME, ids=frozenset({"火0"})), ["火0"]),
            (Where(Scope("agent", "u_%")), []),
        ):
            hits = await nearest(store, where, ASKED, ONE, 2)
            assert [hit.id for hit in hits] == wanted

    @rule
    async def test_dropped_vectors_are_gone(self, store: Store) -> None:
        """A message that comes back under the same id has none."""
        await put(store, said("a"), said("消息"))
        await embed(store, {"a": (1, 0, 0, 0), "消息": (0, 1, 0, 0)})
        await store.apply(Batch(drop=(Where(ME, ids=frozenset({"消息"})),)))
        assert scores(await nearest(store, Where(ME), ASKED, ONE, 9)) == [("a", 0.8)]
        await put(store, said("消息"))
        assert scores(await nearest(store, Where(ME), ASKED, ONE, 9)) == [("a", 0.8)]
        assert (await read_health(store)).vectors == 1

    @rule
    async def test_a_question_without_direction_is_refused(self, store: Store) -> None:
        """It must be finite, not zero, and as wide as the model."""
        await put(store, said("a"), said("消息"))
        await embed(store, {"a": (1, 0, 0, 0), "消息": (0, 1, 0, 0)})
        for wrong in ((0, 0, 0, 0), (float("nan"), 0, 0, 0), (float("inf"), 0, 0, 0), (1, 0, 0)):
            with pytest.raises(InvalidArgument):
                await nearest(store, Where(ME), vector(wrong), ONE, 9)
