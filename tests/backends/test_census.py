"""A census counts the same on every store."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from kemem.errors import InvalidArgument, PermissionDenied
from kemem.memory import AsyncMemory
from kemem.ports import Counted, read_holdings
from kemem.records import NOTES, Census, Holding, Link, Scope, Where
from kemem.records.batch import Batch
from kemem.settings import Settings
from kemem.store.postgres import Postgres
from kemem.store.sqlite import Sqlite
from kemem.store.store import SqlStore
from kemem_conformance.ram import RamStore
from kemem_conformance.suite import noted, put, remember, said


@pytest.fixture(params=["ram", "sqlite", "postgres"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[RamStore | SqlStore]:
    """A fresh store of each kind."""
    opened: RamStore | SqlStore = RamStore()
    if request.param == "sqlite":
        opened = SqlStore(Sqlite(tmp_path), cache_bytes=1 << 20)
    elif request.param == "postgres":
        url = make_url(request.getfixturevalue("store_database"))
        opened = SqlStore(Postgres(url), cache_bytes=1 << 20)
    yield opened
    await opened.close()


async def test_an_empty_store_has_nothing_to_count(store: RamStore | SqlStore) -> None:
    """Zeros, no kinds, no users."""
    assert isinstance(store, Counted)
    assert await store.census(10) == Census(0, 0, 0, {}, 0, 0, ())


async def test_everything_is_counted_once(store: RamStore | SqlStore) -> None:
    """Users of several agents are one, an agent's shared part is nobody, who has most is first."""
    await put(
        store, said("m1", "我不吃辣"), said("m2", "I can't eat spicy food", ts=2, session_id="t")
    )
    await put(store, said("m3", "你好 hello", ts=3, user_id="王", agent_id="other"))
    link = Link("n1", "用户", "lives in", "Beijing")
    await remember(store, noted("n1", "住在北京"), links=(link,))
    await remember(store, noted("n2", "lives in Beijing", agent_id="other", kind="experience"))
    await remember(store, noted("n3", "共享 shared", user_id="", kind="knowledge"))
    counted = await store.census(1)
    assert counted == Census(
        agents=2,
        users=2,
        sessions=3,
        notes={"user_info": 1, "experience": 1, "knowledge": 1},
        entities=2,
        relations=1,
        largest=(Holding("u_", 2, 2),),
    )
    assert (await store.census(9)).largest == (Holding("u_", 2, 2), Holding("王", 1, 0))
    await store.apply(Batch(drop=(Where(Scope(user_id="u_"), kinds=NOTES),)))
    after = await store.census(9)
    assert (after.notes, after.entities, after.relations) == ({"knowledge": 1}, 0, 0)
    assert after.largest[0] == Holding("u_", 2, 0)


async def test_what_an_owner_holds_is_counted(store: RamStore | SqlStore) -> None:
    """With one agent or with all, in the order that was asked for; of nobody there is nothing."""
    await put(store, said("m1", "我不吃辣"), said("m2", "no spicy food", ts=2, session_id="t"))
    await put(store, said("m3", "你好 hello", ts=3, agent_id="other"))
    await remember(store, noted("n1", "住在北京"))
    await remember(store, noted("n2", "共享 shared", user_id="", kind="knowledge"))
    agent = noted("n1", "").agent_id
    owners = [Scope(user_id="u_"), Scope(agent, "u_"), Scope("other", "u_"), Scope(agent, "")]
    assert await read_holdings(store, [*owners, Scope(user_id="无人")]) == [
        *(Holding("u_", 3, 1, 3), Holding("u_", 2, 1, 2), Holding("u_", 1, 0, 1)),
        *(Holding("", 0, 1, 0), Holding("无人", 0, 0, 0)),
    ]


async def test_only_operators_take_a_census(tmp_path: Path) -> None:
    """A handle of one user is denied it, and the number of users is bounded."""
    async with AsyncMemory(settings=Settings(data_dir=tmp_path, embedder="none")) as memory:
        await memory.add("我不吃辣 no spicy food", user_id="u", infer=False)
        assert (await memory.census()).largest[0].user_id == "u"
        with pytest.raises(PermissionDenied):
            await memory.for_user("u").census()
        for wrong in (0, -1):
            with pytest.raises(InvalidArgument, match="largest"):
                await memory.census(largest=wrong)


async def test_own_types_are_counted_and_take_the_place_of_built_in_ones(
    store: RamStore | SqlStore,
) -> None:
    """Notes by their metadata, entities and relations by what they are."""
    own = {"metadata": {"memory_type": "过敏_allergy"}}
    animal = Link("n1", "用户", "has_pet", "年糕", "person", "animal")
    await remember(store, noted("n1", "有只猫叫年糕", **own), links=(animal,))
    await remember(store, noted("n2", "peanuts", **own))
    await remember(store, noted("n3", "other", metadata={"memory_type": 3}))
    names = (["过敏_allergy", "none"], ["animal", "companion"], ["has_pet", "treats"])
    counted = await store.count_types(*names)
    assert counted["notes"] == {"过敏_allergy": 2, "none": 0}
    assert counted["entities"] == {"animal": 1, "companion": 0}
    assert counted["relations"] == {"has_pet": 1, "treats": 0}
    companion = Link("n4", "用户", "has_pet", "年糕", "person", "companion")
    await remember(store, noted("n4", "年糕是一只猫"), links=(companion,))
    back = Link("n5", "用户", "has_pet", "年糕", "person", "animal")
    await remember(store, noted("n5", "年糕两岁了"), links=(back,))
    assert (await store.count_types(*names))["entities"] == {"animal": 0, "companion": 1}
    assert await store.count_types([], [], []) == {"notes": {}, "entities": {}, "relations": {}}
