"""Relations of users' own types, read without a model by the names and examples of the types."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kemem import AsyncMemory
from kemem.add.rules import read_by_rules
from kemem.facts.grammar import ME, Part
from kemem.facts.relations import RelationType, relation_types, relations_in
from kemem.ports.request import Neighborhood
from kemem.records import NOTES, Message, Scope, Where
from kemem.records.ontology import Ontology
from kemem.settings import load
from tests.cases import each
from tests.command import kemem
from tests.pages import browsing, text_of
from tests.server import local_server

TYPES: dict[str, Any] = {
    "entities": {"companion": {"description": "A pet. 宠物。", "examples": ["Biscuit", "豆豆"]}},
    "relations": {
        "treats": {
            "description": "A doctor or clinic treats a person or an animal. 医生给人看病。",
            "examples": ["Dr. Okafor treats my knee", "王大夫给豆豆看病"],
        },
        "mentors": {
            "description": "Somebody mentors or coaches a colleague. 有经验的人指导同事。",
            "examples": ["Priya mentors Tom", "I'm being coached by Elena", "张工指导我"],
        },
        "supplies": {
            "description": "A company supplies goods to another. 一家公司给另一家供货。",
            "examples": ["Baxter supplies bolts to Henley", "店里的咖啡豆由云禾供应"],
        },
        "depends_on": {
            "description": "A service depends on another one. 一个服务依赖另一个。",
            "examples": ["checkout-api needs Redis to start", "订单服务依赖库存服务"],
        },
        "tenant_of": {
            "description": "Somebody rents from a landlord. 某人租房东的房子。",
            "examples": ["Nadia is a tenant of Greystone", "小吴是张房东的租客"],
        },
        "managed_by": {
            "description": "A project is managed by a person. 项目由某人主管。",
            "examples": ["Atlas is managed by Joan", "灯塔项目由小高主管"],
        },
        "sits_beside": {
            "description": "Somebody has the seat beside another. 某人坐在另一个人旁边。",
            "examples": ["Jonas sits beside Ines", "我坐在小郑旁边", "老何和阿梅是同桌"],
        },
        "lends_to": {
            "description": "Somebody lends something. 借东西。",
            "examples": ["Mark lends tools to Paul", "老马把车借给小杜"],
        },
    },
}
KNOWN = relation_types(Ontology.parse(TYPES).relations)


def edges(text: str, types: tuple[RelationType, ...] = KNOWN) -> list[tuple[str, str, str]]:
    """The relations of a message that are certain by its words."""
    reading = read_by_rules([Message("m1", "a", "u", "s", "user", text, 0, 0)])
    parts = [it for _, _, sentences in reading.messages for one in sentences for it in one.parts]
    found = [it for part in parts for it in relations_in(part, "user", types) if not it.weak]
    return [(it.relation.source, it.relation.name, it.relation.target) for it in found]


@each(
    ("text", "source", "name", "target"),
    [
        ("Dr. Lin treats my mother.", "Dr. Lin", "treats", "user's mother"),
        ("李医生在给我妈看病。", "李医生", "treats", "user的妈"),
        ("Our vet Dr. Moss is treating Biscuit.", "Dr. Moss", "treats", "Biscuit"),
        ("我们家的兽医莫大夫在给饼干看病。", "莫大夫", "treats", "饼干"),
        ("My father is being treated by Dr. Wu.", "Dr. Wu", "treats", "user's father"),
        ("Since May, Dr. Silva treats Ravi twice a month.", "Dr. Silva", "treats", "Ravi"),
        ("My sister Anna coaches our intern.", "Anna", "mentors", "user's intern"),
        ("我同事小孙在指导实习生。", "小孙", "mentors", "实习生"),
        ("小葛由西蒙指导。", "西蒙", "mentors", "小葛"),
        ("My mentor is Sanjay.", "Sanjay", "mentors", "user"),
        ("Sanjay is my mentor.", "Sanjay", "mentors", "user"),
        ("Kranz supplies valves to our plant.", "Kranz", "supplies", "user's plant"),
        ("铁信给诺维供货。", "铁信", "supplies", "诺维"),
        ("The mailer depends on the template service.", "mailer", "depends_on", "template service"),
        ("通知模块强依赖用户服务。", "通知模块", "depends_on", "用户服务"),
        ("payments-core 依赖 ledger-db。", "payments-core", "depends_on", "ledger-db"),
        ("I found out that pixelkit depends on libpng.", "pixelkit", "depends_on", "libpng"),
        ("I'm a tenant of Brixton Council.", "user", "tenant_of", "Brixton Council"),
        ("我是区政府的租客。", "user", "tenant_of", "区政府"),
        ("Joan manages Orion.", "Orion", "managed_by", "Joan"),
        ("Orion is managed by a man called Piet.", "Orion", "managed_by", "Piet"),
        ("海星项目由阿布主管。", "海星项目", "managed_by", "阿布"),
        ("I sit beside Farah.", "user", "sits_beside", "Farah"),
        ("我和阿辉是同桌。", "user", "sits_beside", "阿辉"),
        ("用户和阿辉是同桌。", "user", "sits_beside", "阿辉"),
    ],
)
def test_a_clause_that_says_it_like_an_example_states_the_relation(
    text: str, source: str, name: str, target: str
) -> None:
    assert edges(text) == [(source, name, target)]


def test_several_ends_are_several_relations() -> None:
    expected = [("Eli", "depends_on", "Postgres"), ("API", "depends_on", "Postgres")]
    assert edges("Both Eli and the API depend on Postgres.") == expected
    assert edges("定时任务和接口都依赖 Postgres。") == [
        ("定时任务", "depends_on", "Postgres"),
        ("接口", "depends_on", "Postgres"),
    ]


@each(
    "text",
    [
        "Dr. Lin doesn't treat my mother any more.",
        "Does Dr. Lin treat my mother?",
        "I hope Dr. Lin will treat my mother.",
        "Dr. Lin might treat my mother.",
        "Dr. Lin used to treat my mother.",
        "Dr. Lin treated my mother last year.",
        "If Dr. Lin treats my mother, we can relax.",
        "My mother treats Dr. Lin to lunch.",
        "Nobody treats my mother.",
        "It depends on the weather.",
        "I sent the report to Priya.",
        "李医生不给我妈看病了。",
        "李医生给我妈看病吗？",
        "谁在给我妈看病？",
        "希望李医生能给我妈看病。",
        "李医生以前给我妈看过病。",
        "要是李医生给我妈看病就好了。",
        "我妈请李医生吃了顿饭。",
        "我想让张工指导我。",
        "恐怕依赖不了。",
    ],
)
def test_what_is_not_so_now_states_nothing(text: str) -> None:
    assert edges(text) == []


NAMES = st.sampled_from(["Dr. Amari", "Kofi", "Lena Holm", "the clinic", "my aunt", "Zed-9"])
HAN_NAMES = st.sampled_from(["李医生", "小满", "豆豆", "我妈", "晨星诊所", "阿拓"])


def _plain(name: str) -> str:
    return name.removeprefix("the ").replace("my ", "user's ").replace("我妈", "user的妈")


@given(NAMES, NAMES)
def test_active_and_passive_state_the_same(one: str, other: str) -> None:
    expected = [(_plain(one), "treats", _plain(other))] if one != other else []
    for text in (f"{one} treats {other}.", f"{other} is being treated by {one}."):
        assert edges(text[0].upper() + text[1:]) == [
            tuple(it[:1].upper() + it[1:] if it[:4] == "Clin" else it for it in edge)
            for edge in expected
        ]


@given(HAN_NAMES, HAN_NAMES)
def test_who_does_it_is_the_source_in_chinese(one: str, other: str) -> None:
    expected = [(_plain(one), "mentors", _plain(other))] if one != other else []
    for text in (f"{one}在指导{other}。", f"{other}由{one}指导。", f"{other}是{one}在指导。"):
        assert edges(text) == expected


WORDS = st.text("ab 给由看病是在的和我小李于.'-,Dr(+*[?", max_size=40).filter(str.strip)
OWN_NAMES = st.from_regex(r"own_[a-z]{0,6}(_to|_by|_of)?", fullmatch=True)


@settings(max_examples=60)
@given(st.lists(WORDS, min_size=1, max_size=3), WORDS, OWN_NAMES)
def test_no_example_or_text_breaks_the_reading(examples: list[str], text: str, name: str) -> None:
    own = {name: {"description": text, "examples": examples}}
    types = relation_types(Ontology.parse({"relations": own}).relations)
    for said in (text, *examples):
        for found in relations_in(Part(said, said), ME, types):
            assert found.relation.source != found.relation.target


def test_signs_in_examples_are_no_patterns() -> None:
    own = {"description": "医生看病(急的人", "examples": ["小李看病(急给我们", "小李看病(急我的人"]}
    assert relation_types(Ontology.parse({"relations": {"own": own}}).relations)


@each("text", ["现在一直都也就还正在正" * 14, "监控是" * 50, "treats is a " * 12, "依赖" * 75])
def test_a_strange_clause_is_read_in_no_time(text: str) -> None:
    for said in (f"{text}依赖", f"{text} treats"):
        began = perf_counter()
        list(relations_in(Part(said, said), ME, KNOWN))
        assert perf_counter() - began < 2  # it takes 20 ms; by backtracking it would take minutes


@pytest.fixture(scope="module")
async def memory(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[AsyncMemory]:
    """A memory with the types in its settings, the local embedder and no model."""
    chosen = load(data_dir=tmp_path_factory.mktemp("relations"), llm="none", ontology=TYPES)
    async with AsyncMemory(settings=chosen) as memory:
        yield memory


@each(
    ("user", "text", "ends", "types"),
    [
        ("en", "Dr. Moss treats Biscuit.", ("Dr. Moss", "Biscuit"), ("person", "companion")),
        ("zh", "李医生给豆豆看病。", ("李医生", "豆豆"), ("person", "companion")),
        ("en2", "WEB-7 depends on WEB-19.", ("WEB-7", "WEB-19"), ("thing", "thing")),
        ("en3", "Dr. Lin treats my mother.", ("Dr. Lin", "user's mother"), ("person", "person")),
    ],
)
async def test_an_edge_cites_its_note_and_message(
    memory: AsyncMemory, user: str, text: str, ends: tuple[str, str], types: tuple[str, str]
) -> None:
    await memory.add(text, user_id=user)
    (edge,) = await memory.graph(user_id=user)
    assert (edge.source, edge.destination) == ends
    assert (edge.source_type, edge.destination_type) == types
    (note_id,) = edge.note_ids
    note = (await memory.get(note_id, user_id=user)).note
    (message,) = (await memory.messages(user_id=user)).items
    assert note.sources == (message.id,)


@each(
    ("user", "text", "expected"),
    [
        ("w1", "billing-api needs Kafka to start.", 1),
        ("w2", "I need a nap.", 0),
        ("w3", "我把书借给了小叶。", 1),
        ("w5", "我妹坐在林阿姨旁边。", 1),
        ("w6", "车停在商场旁边。", 0),
    ],
)
async def test_a_common_verb_counts_only_near_an_example(
    memory: AsyncMemory, user: str, text: str, expected: int
) -> None:
    await memory.add(text, user_id=user)
    assert len(await memory.graph(user_id=user)) == expected


async def test_relations_need_no_embedder_and_old_messages_get_them(tmp_path: Path) -> None:
    chosen = load(data_dir=tmp_path, llm="none", embedder="none")
    async with AsyncMemory(settings=chosen) as memory:
        for user, text in (("en", "Dr. Lin treats my mother."), ("zh", "李医生给我妈看病。")):
            await memory.add(text, user_id=user)
            assert await memory.graph(user_id=user) == []
        await memory.ontology.set(TYPES)
        for user in ("en", "zh"):
            await memory.extract(user_id=user)
            (edge,) = await memory.graph(user_id=user)
            assert edge.relationship == "treats"


@each(
    ("example", "said", "ends"),
    [
        ("结算服务依赖账本服务", "支付网关依赖风控服务", ("支付网关", "风控服务")),
        ("老周指导小林", "王姐指导小吴", ("王姐", "小吴")),
        ("老周带小林", "老郑带小高", ("老郑", "小高")),
    ],
)
def test_one_chinese_example_is_enough_where_its_form_tells_the_verb(
    example: str, said: str, ends: tuple[str, str]
) -> None:
    """It is a guess: only what is near to the example counts in the end."""
    one = {"relations": {"own": {"description": "Something.", "examples": [example]}}}
    types = relation_types(Ontology.parse(one).relations)
    (found,) = relations_in(Part(said, said), "me", types)
    assert (found.relation.source, found.relation.target) == ends
    assert found.weak


SAID = ("Dr. Lin treats my mother.", "李医生给我妈看病。", "I live in Leeds.")


async def test_the_graph_is_asked_for_some_types_of_relations(memory: AsyncMemory) -> None:
    for text in SAID:
        await memory.add(text, user_id="f")
    treated = await memory.graph(user_id="f", relationship="treats")
    assert [it.source for it in treated] == ["李医生", "Dr. Lin"]
    both = await memory.graph(user_id="f", relationship=["treats", "lives_in"])
    assert both == await memory.graph(user_id="f") and len(both) == 3
    assert await memory.graph(user_id="f", around="Leeds", relationship="treats") == []


async def test_a_graph_database_is_not_asked_for_types(tmp_path: Path) -> None:
    """It mirrors the store, and does not know the parameter."""

    class NoMirror:
        name = "mirror"

        async def put(self, note: Any, relations: Any) -> None: ...

        async def around(self, *given: Any, **options: Any) -> list[Any]:
            raise AssertionError("asked")

    chosen = load(data_dir=tmp_path, llm="none", embedder="none", ontology=TYPES)
    async with AsyncMemory(settings=chosen) as memory:
        await memory.add(SAID[0], user_id="u")
        deps = replace(await memory.runtime.deps(), graph=cast(Any, NoMirror()))
        where = Where(Scope("default", "u"), kinds=NOTES)
        assert len(await deps.relations(Neighborhood(where, relationships=("treats",)))) == 1


def test_the_server_and_the_command_list_edges_of_a_type(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with local_server(data, api_key="k") as server, server.client("k") as client:
        client.put("/v1/ontology", json=TYPES)
        for text in SAID:
            client.post("/v1/memories", json={"user_id": "u", "messages": text})
        for chosen, count in ({"relationship": "treats"}, 2), ({"relationship": "x"}, 0), ({}, 3):
            found = client.get("/v1/graph", params={"user_id": "u", **chosen}).json()["relations"]
            assert len(found) == count
    place = ("--data-dir", str(data))
    shown = kemem(tmp_path, "graph", "--user", "u", "--relationship", "treats", *place).stdout
    assert "Dr. Lin —treats→ user's mother" in shown and "Leeds" not in shown


@each(
    ("language", "title", "none"),
    [
        ("en", "Types of relations", "There is no relation of the type “tenant of” here."),
        ("zh", "关系类型", "这里没有“tenant of”类型的关系。"),
    ],
)
async def test_the_dashboard_shows_one_type_of_relations(
    tmp_path: Path, language: str, title: str, none: str
) -> None:
    async with browsing(tmp_path / language, ontology=TYPES) as (browser, app):
        for text in SAID:
            await app.state.memory.add(text, user_id="u")
        address = f"/dashboard/graph?user_id=u&language={language}"
        page = (await browser.get(address)).text
        assert title in page and "A doctor or clinic treats" in page and "Leeds" in page
        chosen = text_of(await browser.get(f"{address}&relationship=treats"))
        assert "李医生" in chosen and "Leeds" not in chosen
        assert none in text_of(await browser.get(f"{address}&relationship=tenant_of"))


def test_an_end_that_says_the_relation_again_is_none() -> None:
    own = {"relations": {"plays_for": {"description": "A player is in a team.", "examples": []}}}
    types = relation_types(Ontology.parse(own).relations)
    said = "Sana plays for Ajax and Nour plays for PSV"
    found = [it.relation for it in relations_in(Part(said, said), "me", types)]
    assert (found[0].source, found[0].target) == ("Sana", "Ajax")
    assert not [it for it in found if "plays" in f"{it.source} {it.target}"]
