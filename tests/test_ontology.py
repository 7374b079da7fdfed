"""Own types: how they are checked, which notes get them with and without a model, who sees them."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kemem import AsyncMemory
from kemem.add.extract import extract
from kemem.errors import InvalidArgument, PermissionDenied
from kemem.ports import Deps
from kemem.ports.ontology import CurrentOntology
from kemem.records import Message
from kemem.records.ontology import MAX_EXAMPLES, MAX_TYPES, Ontology
from kemem.settings import load
from kemem.testing import FakeClock, ScriptedLLM
from kemem.testing.openai_server import running_openai_server
from kemem_conformance.ram import RamStore
from tests.cases import each
from tests.command import kemem
from tests.pages import browsing, send, text_of
from tests.server import local_server, refusal

TYPES: dict[str, Any] = {
    "notes": {
        "allergy": {
            "description": "What somebody must not eat or touch. 对什么过敏。",
            "examples": ["I break out in hives when I eat peanuts.", "我一吃花生就起疹子。"],
        },
        "bug_report": {
            "description": "A fault of software that somebody reports. 用户报告的软件故障。",
            "examples": ["The app crashes when I rotate the screen.", "一点保存就闪退。"],
        },
    },
    "entities": {
        "companion": {
            "description": "An animal that lives with somebody. 家里养的动物。",
            "examples": ["Biscuit, our beagle", "My cat Miso", "我家猫叫年糕", "团子"],
        }
    },
    "relations": {"treats": {"description": "A doctor treats somebody. 医生给人看病。"}},
}
NOTES = TYPES["notes"]


def one(name: str = "bug", **fields: Any) -> dict[str, Any]:
    return {"notes": {name: {"description": "x", **fields}}}


@pytest.fixture(scope="module")
async def memory(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AsyncMemory]:
    """A memory with the types in its settings, the local embedder and no model."""
    chosen = load(data_dir=tmp_path_factory.mktemp("types"), llm="none", ontology=TYPES)
    async with AsyncMemory(settings=chosen) as memory:
        yield memory


async def typed(memory: AsyncMemory, text: str, user: str) -> list[tuple[str, str]]:
    """The notes that a text becomes, each with its type."""
    added = await memory.add(text, user_id=user)
    items = [await memory.get(it.id, user_id=user) for it in added.results]
    return [(item.memory, item.memory_type) for item in items]


@each(
    ("given", "reason"),
    [
        ([], "ontology must be an object, not []"),
        ({"things": {}}, "ontology must have only entities, notes, relations, not 'things'"),
        (one("bug report"), "not 'bug report'"),
        (one("Bug"), "lowercase letters"),
        (one("错误"), "not '错误'"),
        (one(""), "not ''"),
        (one("health"), "ontology.notes.health is a built-in type: choose another name"),
        (one("message"), "built-in"),
        ({"entities": {"person": {"description": "x"}}}, "ontology.entities.person is a built-in"),
        ({"notes": {"bug": {}}}, "ontology.notes.bug.description must be a text of 1-500"),
        (one(description=" "), "must be a text of 1-500 characters, not ' '"),
        (one(description="x" * 501), "1-500 characters"),
        (one(examples="a text"), "examples must be a list of texts"),
        (one(examples=["x"] * 10_000), f"at most {MAX_EXAMPLES} texts, not 10000"),
        (one(examples=[""]), "1-300 characters, not ''"),
        (one(examples=[3]), "1-300 characters, not 3"),
        (one(color="red"), "must have only description, examples, not 'color'"),
        (
            {"notes": {f"t{it}": {"description": "x"} for it in range(MAX_TYPES + 1)}},
            f"at most {MAX_TYPES} types, not 51",
        ),
    ],
)
def test_a_bad_ontology_is_named(given: object, reason: str) -> None:
    with pytest.raises(InvalidArgument) as refused:
        Ontology.parse(given)
    assert reason in refused.value.message


def test_a_bad_ontology_in_the_settings_is_named() -> None:
    with pytest.raises(InvalidArgument, match=r"ontology\.notes\.health is a built-in type"):
        load(ontology=one("health"))


NAMES = st.from_regex(r"own_[a-z0-9_]{0,9}", fullmatch=True)
TEXTS = st.text("ab 花", min_size=1, max_size=9).filter(str.strip)
OWN = st.builds(
    lambda text, more: {"description": text, "examples": more}, TEXTS, st.lists(TEXTS, max_size=4)
)
GROUPS = st.fixed_dictionaries(
    {}, optional={it: st.dictionaries(NAMES, OWN, max_size=3) for it in TYPES}
)


@given(GROUPS)
def test_an_ontology_is_its_json(groups: dict[str, Any]) -> None:
    parsed = Ontology.parse(groups)
    assert Ontology.parse(json.loads(json.dumps(parsed.to_dict()))) == parsed
    assert parsed.merged(Ontology.parse(TYPES)).merged(parsed) == parsed.merged(
        Ontology.parse(TYPES)
    )


@each(
    ("user", "text", "expected"),
    [
        ("en1", "Peanuts? I break out in hives when I eat them.", "allergy"),
        ("zh1", "我对花生过敏，一吃就起疹子。", "allergy"),
        ("en2", "The app crashes when I open the settings.", "bug_report"),
        ("zh2", "一点导出就闪退。", "bug_report"),
        ("en3", "I moved to Leeds last year.", "residence"),
        ("zh3", "我住在杭州。", "residence"),
    ],
)
async def test_a_note_gets_the_own_type_that_it_is_near_to(
    memory: AsyncMemory, user: str, text: str, expected: str
) -> None:
    notes = await typed(memory, text, user)
    assert [own for _, own in notes] == [expected]
    found = await memory.get_all(user_id=user, filters={"memory_type": expected})
    assert [item.memory for item in found] == [note for note, _ in notes]
    assert found[0].to_dict()["memory_type"] == expected
    other = await memory.get_all(user_id=user, filters={"memory_type": "unknown_type"})
    assert list(other) == []


@each(("user", "text"), [("en4", "It crashes when I save."), ("zh4", "一点发送就闪退")])
async def test_what_is_very_near_to_a_type_becomes_a_note(
    memory: AsyncMemory, tmp_path: Path, user: str, text: str
) -> None:
    assert [own for _, own in await typed(memory, text, user)] == ["bug_report"]
    async with AsyncMemory(settings=load(data_dir=tmp_path, llm="none")) as plain:
        assert await typed(plain, text, user) == []


@each(
    ("user", "text", "name"),
    [
        ("en5", "My dog is called Rex and I live in Leeds.", "Rex"),
        ("zh5", "我的猫叫团子。", "团子"),
    ],
)
async def test_an_entity_gets_the_type_of_what_is_said_of_it(
    memory: AsyncMemory, user: str, text: str, name: str
) -> None:
    await memory.add(text, user_id=user)
    types = {it.destination: it.destination_type for it in await memory.graph(user_id=user)}
    assert types[name] == "companion"
    assert types.get("Leeds", "place") == "place"


async def test_the_type_of_the_metadata_wins(memory: AsyncMemory) -> None:
    added = await memory.add(
        "I break out in hives when I eat nuts.", user_id="m", metadata={"memory_type": "mine"}
    )
    assert (await memory.get(added.results[0].id, user_id="m")).memory_type == "mine"


async def test_old_messages_get_new_types_when_they_are_extracted_again(tmp_path: Path) -> None:
    async with AsyncMemory(settings=load(data_dir=tmp_path, llm="none")) as memory:
        for user, text in (("en", "I'm allergic to peanuts."), ("zh", "我对花生过敏。")):
            assert [own for _, own in await typed(memory, text, user)] == ["health"]
            await memory.ontology.set({"notes": NOTES})
            (item,) = await memory.get_all(user_id=user)
            assert item.memory_type == "health"
            await memory.extract(user_id=user)
            (item,) = await memory.get_all(user_id=user)
            assert item.memory_type == "allergy"
            assert item.note.memory_type == "health"
            await memory.ontology.set({})


async def test_the_store_keeps_types_and_backups_have_them(tmp_path: Path) -> None:
    settings = load(data_dir=tmp_path / "a", llm="none", embedder="none", ontology={"notes": NOTES})
    mine = {"notes": {"deadline": {"description": "A last day. 截止日期。", "examples": []}}}
    async with AsyncMemory(settings=settings) as memory:
        assert set((await memory.ontology.set(mine)).notes) == {*NOTES, "deadline"}
        with pytest.raises(InvalidArgument, match="allergy is in the settings: change it there"):
            await memory.ontology.set({"notes": {"allergy": {"description": "other"}}})
        with pytest.raises(PermissionDenied):
            await memory.for_user("u").ontology.set(mine)
        backup = await memory.backup(tmp_path / "backup.json")
    async with AsyncMemory(settings=settings) as memory:
        assert set((await memory.ontology.stored()).notes) == {"deadline"}
    async with AsyncMemory(data_dir=tmp_path / "b", embedder=None) as other:
        await other.restore(backup.path)
        assert set((await other.ontology.get()).notes) == {"deadline"}


def said(text: str) -> Message:
    return Message("m1", "a", "u", "s", "user", text, 0, 0)


def asking(llm: Any, types: dict[str, Any] = TYPES) -> Deps:
    ontology = CurrentOntology(Ontology.parse(types))
    return Deps(RamStore(), None, FakeClock(0), llm=llm, ontology=ontology)


def answer(text: str, own: str, **graph: Any) -> dict[str, Any]:
    return {"facts": [{"text": text, "type": own, "date": "", "replaces": [], **graph}]}


@each(
    ("text", "fact", "title"),
    [
        ("Hm, the export gives an empty file", "The export gives an empty file", "may also have"),
        ("嗯，导出的文件是空的", "导出的文件是空的", "事实还可以是以下类型"),
    ],
)
async def test_a_model_is_told_of_the_types(text: str, fact: str, title: str) -> None:
    with running_openai_server([answer(fact, "Bug Report")]) as server:
        from_env = load(llm_base_url=server.base_url, llm_api_key="k", ontology={"notes": NOTES})
        async with AsyncMemory(settings=from_env, store=RamStore()) as memory:
            added = await memory.add(text, user_id="u")
            types = [(await memory.get(it.id, user_id="u")).memory_type for it in added.results]
        assert types == ["bug_report"]
        (request,) = server.requests
    asked = request["messages"][-1]["content"]
    assert title in asked
    assert "- bug_report: A fault of software" in asked and "一点保存就闪退。" in asked


async def test_a_type_that_a_model_makes_up_is_the_default() -> None:
    text = "嗯，导出的文件是空的"
    read = await extract([said(text)], [], None, asking(ScriptedLLM([answer(text, "made_up")])))
    assert [(it.memory_type, it.own_type) for it in read.facts] == [("general", "")]


@each(
    ("text", "source", "target"),
    [
        ("Dr. Okafor treats my beagle Biscuit", "Dr. Okafor", "Biscuit"),
        ("王大夫给我家豆豆看病", "王大夫", "豆豆"),
    ],
)
async def test_a_model_names_entities_and_relations(text: str, source: str, target: str) -> None:
    right = {"source": source, "type": "treats", "target": target}
    graph = {
        "entities": [{"name": target, "type": "companion"}, {"name": "X", "type": "companion"}],
        "relations": [right, {**right, "type": "made_up"}, {**right, "target": "Nobody"}, "?"],
    }
    llm = ScriptedLLM([answer(text, "general", **graph)])
    read = await extract([said(text)], [], None, asking(llm))
    triples = [it for fact in read.facts for it in fact.relations if it.relationship == "treats"]
    assert [tuple(it) for it in triples] == [(source, "treats", target)]
    assert read.entities[target] == "companion"
    assert "X" not in read.entities


async def test_a_long_ontology_fits_the_prompt() -> None:
    own = {"description": "d" * 500, "examples": ["e" * 300] * 20}
    many = {it: {f"t{number}": own for number in range(MAX_TYPES)} for it in TYPES}
    llm = ScriptedLLM([{"facts": []}])
    await extract([said("hello there")], [], None, asking(llm, many))
    shown = llm.calls[0].messages[-1]["content"]
    assert "- t49: ddd" in shown
    assert len(shown) < 8_000


def test_operators_replace_types_over_http(tmp_path: Path) -> None:
    with local_server(tmp_path / "data", api_key="k") as server, server.client("k") as client:
        assert client.get("/v1/ontology").json() == {"notes": {}, "entities": {}, "relations": {}}
        put = client.put("/v1/ontology", json={"notes": NOTES})
        assert put.json()["notes"] == client.get("/v1/ontology").json()["notes"] == NOTES
        bad = client.put("/v1/ontology", json={"notes": {"plan": {"description": "x"}}})
        assert refusal(bad) == (400, "INVALID_ARGUMENT")
        assert client.get("/v1/ontology").json()["notes"] == NOTES
        tagged = {"user_id": "u", "messages": "花生", "infer": False}
        client.post("/v1/memories", json={**tagged, "metadata": {"memory_type": "allergy"}})
        shown = client.post("/v2/memories/", json={"filters": {"user_id": "u"}}).json()
        assert [it["categories"] for it in shown["results"]] == [["allergy"]]
        chosen = {"AND": [{"user_id": "u"}, {"categories": {"in": ["allergy"]}}]}
        assert client.post("/v2/memories/", json={"filters": chosen}).json()["results"]
        other = {"AND": [{"user_id": "u"}, {"categories": {"in": ["bug_report"]}}]}
        assert not client.post("/v2/memories/", json={"filters": other}).json()["results"]


def test_the_command_shows_and_replaces_types(tmp_path: Path) -> None:
    file = tmp_path / "types.toml"
    file.write_text('[ontology.notes.allergy]\ndescription = "过敏 allergies"\n', "utf-8")
    assert "no types" in kemem(tmp_path, "ontology", "show").stdout
    assert "过敏 allergies" in kemem(tmp_path, "ontology", "set", str(file)).stdout
    tagged = ("--metadata", '{"memory_type": "allergy"}', "--no-infer", "--user", "u")
    kemem(tmp_path, "add", "花生 peanuts", *tagged)
    assert "allergy  1" in kemem(tmp_path, "ontology", "show").stdout
    listed = [kemem(tmp_path, "list", "--user", "u", "--type", it) for it in ("allergy", "other")]
    assert ["花生" in it.stdout for it in listed] == [True, False]
    file.write_text("[notes.health]\ndescription = 'x'\n", "utf-8")
    refused = kemem(tmp_path, "ontology", "set", str(file))
    assert refused.returncode == 2 and "built-in type" in refused.stderr


@each(
    ("language", "saved"), [("en", "The type deadline is saved."), ("zh", "类型 deadline 已保存。")]
)
async def test_the_dashboard_edits_types(tmp_path: Path, language: str, saved: str) -> None:
    page = "/dashboard/ontology"
    form = {"group": "notes", "name": "deadline", "description": "A last day. <b>截止</b>"}
    async with browsing(tmp_path, ontology={"entities": TYPES["entities"]}) as (browser, app):
        first = text_of(await browser.get(page, params={"language": language}))
        assert "companion" in first and "Biscuit, our beagle" in first
        await send(browser, page, page, **form, examples="due on Friday\n周五交\n")
        assert saved in text_of(await browser.get(page))
        types = (await app.state.memory.ontology.stored()).notes
        assert types["deadline"].examples == ("due on Friday", "周五交")
        wrong = await send(browser, page, page, **form | {"name": "plan"})
        assert {"en": "is a built-in type", "zh": "是内置类型"}[language] in text_of(wrong, 400)
        await send(browser, f"{page}/remove", page, group="notes", name="deadline")
        assert (await app.state.memory.ontology.stored()).notes == {}
