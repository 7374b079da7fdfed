"""Two hops: what is told of a name answers a question about whom another message names so."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kemem import Memory
from kemem.ports.request import SearchRequest, SearchResponse
from kemem.testing import FakeClock, HashingEmbedder
from kemem.text.naming import is_named, may_share_name, namings
from kemem_conformance import RamStore

FILL = {
    "en": ["My uncle works at the brickyard", "The bus was late again", "I painted the hall green"],
    "zh": ["我二叔在砖厂上班", "公交车又晚点了", "我把走廊刷成了绿色"],
}
NAMES = {"en": "My cousin goes by Pip", "zh": "我表妹大名叫沈若溪"}
TELLS = {"en": "Pip got a job at the lighthouse", "zh": "若溪去灯塔博物馆上班了"}
ASKED = {"en": "Where does my cousin work?", "zh": "我表妹在哪上班？"}
# The other way round: the question has the name, and the answer has not.
IS = {"en": "Pip is my cousin", "zh": "孙志宏是我的上司"}
TOLD = {"en": "My cousin got a job at the lighthouse", "zh": "我上司的生日是2月5号"}
NAMED = {"en": "Where does Pip work?", "zh": "孙志宏的生日是哪天？"}
ANOTHER = {"en": "My aunt works at the bakery", "zh": "我二叔的生日是3月4号"}
EACH = pytest.mark.parametrize("language", ["en", "zh"])


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(data_dir=tmp_path, clock=FakeClock(1_770_000_000_000_000)) as memory:
        yield memory


def tell(memory: Memory, texts: list[str], user_id: str = "u") -> None:
    """Messages, each of a session of its own."""
    for at, text in enumerate(texts):
        line = {"message_id": text, "content": text, "ts": f"2026-01-{at + 1:02}T10:00:00Z"}
        memory.ingest([line], user_id, session_id=f"s{at}")


class CountingStore(RamStore):
    """A store that counts how often it is searched."""

    searches = 0

    async def search(self, request: SearchRequest) -> SearchResponse:
        self.searches += 1
        return await super().search(request)


@EACH
def test_a_question_about_somebody_is_answered_by_what_is_told_of_the_name(
    memory: Memory, language: str
) -> None:
    """The row that gives the name comes next, and `why` shows the hop."""
    tell(memory, [NAMES[language], *FILL[language], TELLS[language]])
    first, second, *_ = memory.search(ASKED[language], "u", explain=True)
    assert [first.id, second.id] == [TELLS[language], NAMES[language]]
    name = {"en": "Pip", "zh": "若溪"}[language]
    assert f'hop: {name} -> "{NAMES[language]}"' in first.why
    assert not any(reason.startswith("hop") for reason in second.why)


@EACH
def test_a_question_about_a_name_is_answered_by_what_is_told_of_whose_it_is(
    memory: Memory, language: str
) -> None:
    """The row that gives the name comes next, and `why` shows the hop."""
    tell(memory, [IS[language], *FILL[language], ANOTHER[language], TOLD[language]])
    first, second, *_ = memory.search(NAMED[language], "u", explain=True)
    assert [first.id, second.id] == [TOLD[language], IS[language]]
    role = {"en": "my cousin", "zh": "我上司"}[language]
    assert f'hop: {role} -> "{IS[language]}"' in first.why
    assert not any(reason.startswith("hop") for reason in second.why)


@pytest.mark.parametrize(
    ("texts", "question"),
    [
        (
            ["My cousin turned 30", "My boss turned 41", "Pip is my cousin", "Tom is my boss"],
            "Who is older, Pip or Tom?",
        ),
        (
            [
                "我上司的生日是2月5号",
                "我表妹的生日是4月21号",
                "孙志宏是我的上司",
                "赵雅琳是我的表妹",
            ],
            "孙志宏和赵雅琳谁的生日更早？",
        ),
    ],
)
def test_a_comparison_follows_both_names(memory: Memory, texts: list[str], question: str) -> None:
    """What is told of each comes before the row that gives its name."""
    tell(memory, [*FILL["en"], *FILL["zh"], *texts])
    hits = {hit.id: hit for hit in memory.search(question, "u", explain=True)}
    order = [*hits]
    for told, named in zip(texts[:2], texts[2:], strict=True):
        assert any(reason.startswith("hop") for reason in hits[told].why)
        assert order.index(told) < order.index(named)


@pytest.mark.parametrize(
    ("language", "text", "sure"),
    [
        ("en", "My other cousin got a job at the brewery", True),
        ("en", "Ann's cousin got a job at the brewery", True),
        ("en", "My cousin's wife got a job at the brewery", True),
        ("en", "My cousin Tom got a job at the brewery", False),
        ("zh", "我前上司的生日是6月1号", True),
        ("zh", "小王的上司的生日是6月1号", True),
        ("zh", "我上司的老婆的生日是6月1号", True),
        ("zh", "我上司叫赵雅琳", False),
    ],
)
def test_what_is_told_of_another_is_not_led_to(
    memory: Memory, language: str, text: str, sure: bool
) -> None:
    """Where a second one has a name, it is open whom "my cousin" means."""
    tell(memory, [IS[language], *FILL[language], text, TOLD[language]])
    hits = memory.search(NAMED[language], "u", limit=50, explain=True)
    led = [hit.id for hit in hits if any(reason.startswith("hop") for reason in hit.why)]
    assert led == ([TOLD[language]] if sure else [])


@EACH
def test_a_hop_stays_in_its_scope(memory: Memory, language: str) -> None:
    """What another user tells of the name is not found, nor what the filters leave out."""
    tell(memory, [NAMES[language], *FILL[language]])
    tell(memory, [TELLS[language]], "another")
    hits = memory.search(ASKED[language], "u", limit=50)
    assert TELLS[language] not in [hit.id for hit in hits]
    tell(memory, [TELLS[language]])
    hits = memory.search(ASKED[language], "u", limit=50, since="2026-01-02T00:00:00Z")
    assert TELLS[language] not in [hit.id for hit in hits]
    tell(memory, [IS[language]])
    tell(memory, [TOLD[language]], "another")
    assert TOLD[language] not in [hit.id for hit in memory.search(NAMED[language], "u", limit=50)]


@pytest.mark.parametrize(
    ("question", "times"),
    [
        ("Where does my cousin work?", 2),
        ("Where does my uncle work?", 1),  # nobody gives him a name
        ("Where does Pip work?", 2),
        ("Who is Pip?", 1),
        ("Where does Tom work?", 1),  # nobody says who he is
        ("What is my cousin's name?", 1),  # it asks for it
        ("Who is my cousin?", 1),
        ("cousin", 1),
        ("我表妹在哪上班？", 2),
        ("我二叔在哪上班？", 1),
        ("若溪在哪上班？", 2),
        ("若溪是谁？", 1),
        ("李志宏在哪上班？", 1),
        ("我表妹叫什么？", 1),
    ],
)
def test_the_store_is_asked_twice_only_for_a_hop(question: str, times: int) -> None:
    """A name leads on that the question lacks or has, and does not ask about."""
    store = CountingStore()
    with Memory(store=store, embedder=HashingEmbedder()) as memory:
        tell(memory, [text for it in (NAMES, TELLS) for text in it.values()])
        tell(memory, FILL["en"] + FILL["zh"])
        store.searches = 0
        memory.search(question, "u")
    assert store.searches == times


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("our landlord is a Mr Okafor", {"Okafor"}),
        ("The puppy is here. We named her Waffle", {"Waffle"}),
        ("we call the old van 'Greta'", {"Greta"}),
        ("Kofi is my brother-in-law", {"Kofi"}),
        ("my therapist, Oona, called", {"Oona"}),
        ("I called my sister in Berlin", set()),
        ("That's great practice, John", set()),
        ("Here's our latest work", set()),
        ("Thankfully, my son was fine", set()),
        ("房东姓蒲，都叫他蒲叔", {"蒲叔"}),
        ("阿克就是我姐夫", {"阿克"}),
        ("我的咨询师是欧老师", {"欧老师"}),
        ("我妈李芳退休了", {"李芳"}),
        ("随便叫几个人", set()),
        ("我妹妹叫我去吃饭", set()),
        ("我妈妈的家乡是武汉", set()),
    ],
)
def test_names_are_read_where_a_text_gives_them(text: str, names: set[str]) -> None:
    """A call, an address or a place gives nobody a name; a question may have each that is given."""
    assert {it.name for it in namings(text)} == names
    questions = [f"Where is {it} now?" for it in names] + [f"{it}现在在哪里？" for it in names]
    assert all(may_share_name(text, it) for it in [*questions, *map(str.lower, questions)])


@pytest.mark.parametrize(
    ("text", "name", "whose"),
    [
        ('Everybody calls my husband Tom "Bear" now', "Bear", ("my husband", "Tom")),
        ("My landlady, whom everyone knows as Mama Rosa, rang", "Mama Rosa", ("my landlady", "")),
        ("My boss wants to be called Ace", "Ace", ("my boss", "")),
        ("My sister's nickname is Pebble", "Pebble", ("my sister", "")),
        ("My mate Duncan, Dunc to his friends, rang", "Dunc", ("my mate", "Duncan")),
        ("Our tutor Beatrix, or Bea, started", "Bea", ("our tutor", "Beatrix")),
        ("Nobody calls my son anything but Zed", "Zed", ("my son", "")),
        ("Mr Shaw, who we all call the Colonel, left", "Colonel", ("", "Mr Shaw")),
        ("Dr Feld, a.k.a. the Butcher, signed", "Butcher", ("", "Dr Feld")),
        ("People refer to it, and Ann goes by Sunny", "Sunny", ("", "Ann")),
        ("She goes by Sunny", "Sunny", ("", "")),
        ("现在大家都管我老公叫“大壮”", "大壮", ("我老公", "")),
        ("我妹妹，大家喊她团子。", "团子", ("我妹妹", "")),
        ("我表弟网名“夜雨”", "夜雨", ("我表弟", "")),
        ("我爸被大家称为“老船长”", "老船长", ("我爸", "")),
        ("我上司姓薛，我们背后叫他“薛霸”", "薛霸", ("我上司", "")),
        ("同学们都称呼我导师为“老佛爷”", "老佛爷", ("我导师", "")),
        ("我同学周凯，江湖绰号“神行”", "神行", ("我同学", "周凯")),
        ("郝经理外号“元帅”", "元帅", ("", "郝经理")),
        ("隔壁的何阿姨，小孩都管她叫“糖奶奶”", "糖奶奶", ("", "何阿姨")),
        ("我们管李志宏叫“老李”", "老李", ("", "李志宏")),
    ],
)
def test_whose_a_name_is_may_be_said_in_many_ways(
    text: str, name: str, whose: tuple[str, str]
) -> None:
    """What the named one is to the speaker, and another name of theirs."""
    thing, other = next((it.thing, it.bearer) for it in namings(text) if it.name == name)
    assert (thing.text if thing else "", other) == whose


@pytest.mark.parametrize(
    ("naming", "told", "question"),
    [
        ("Mr Shaw, who we all call the Colonel, rang", "The Colonel keeps two ponies", "Mr Shaw"),
        ("Mr Shaw, who we all call the Colonel, rang", "Mr Shaw keeps two ponies", "the Colonel"),
        ('Everybody calls my husband Tom "Bear" now', "Tom keeps two ponies", "Bear"),
        ('Everybody calls my husband Tom "Bear" now', "Bear keeps two ponies", "Tom"),
        ("郝经理外号“元帅”", "元帅养了两匹马", "郝经理"),
        ("郝经理外号“元帅”", "郝经理养了两匹马", "元帅"),
        ("我闺蜜的英文名是Cindy", "Cindy养了两匹马", "我闺蜜"),
    ],
)
def test_two_names_of_one_lead_to_each_other(
    memory: Memory, naming: str, told: str, question: str
) -> None:
    language = "en" if question.isascii() else "zh"
    asked = {"en": f"Which animals does {question} have?", "zh": f"{question}养了什么动物？"}
    tell(memory, [naming, *FILL[language], told])
    first, second, *_ = memory.search(asked[language], "u", explain=True)
    assert [first.id, second.id] == [told, naming]
    assert any(line.startswith("hop: ") for line in first.why)


def test_a_name_that_is_a_common_word_has_its_capital(memory: Memory) -> None:
    """Who cannot bear crowds is not Bear; who writes nothing large may mean either."""
    texts = ['Everybody calls my husband "Bear" now', "I cannot bear heights", "Bear fears heights"]
    tell(memory, [*texts, *FILL["en"]])
    hits = memory.search("What is my husband afraid of?", "u", explain=True)
    hops = {hit.id for hit in hits if any(line.startswith("hop: ") for line in hit.why)}
    assert hops == {texts[2]}
    assert is_named("Bear", "bear fears heights")


def test_a_day_or_place_is_no_other_name(memory: Memory) -> None:
    """What my boss does at Christmas is told of my boss."""
    told = "My boss is retiring at Christmas"
    tell(memory, ["My boss is nicknamed Thunder", *FILL["en"], told])
    first = memory.search("When does Thunder retire?", "u", explain=True)[0]
    assert first.id == told
    assert any(line.startswith("hop: my boss") for line in first.why)


def test_a_question_without_the_name_shares_none() -> None:
    assert not may_share_name("Kofi is my brother-in-law", "Where does Pip work?")
    assert not may_share_name("Kofi is my brother-in-law", "我姐夫在哪上班？")


@pytest.mark.parametrize(
    ("naming", "told", "question"),
    [
        (
            "We named our dinghy Marigold",
            "Marigold is in the shed by the pub",
            "Where is our dinghy?",
        ),
        ("My mother-in-law is Soraya", "Soraya plays chess", "What does my mother-in-law play?"),
        ("我岳母叫沈慧珍", "沈慧珍住在绍兴", "我岳母住哪儿？"),
    ],
)
def test_who_only_gives_the_name_answers_nothing(
    memory: Memory, naming: str, told: str, question: str
) -> None:
    tell(memory, [told, *FILL["zh" if question[0] == "我" else "en"], naming])
    memory.run_jobs()
    assert memory.hybrid_search(question, "u")[0].memory == told


def test_the_wife_of_a_friend_is_no_friend(memory: Memory) -> None:
    """What a name has is asked of its own name, before the other is taken for a role."""
    told = "Lucille broke her ankle on the ice"
    tell(memory, ["My friend Dario teaches", *FILL["en"], "Dario's wife is Lucille", told])
    memory.run_jobs()
    assert memory.hybrid_search("What happened to Dario's wife?", "u")[0].memory == told


def test_a_mother_in_law_is_no_mother(memory: Memory) -> None:
    own = "My own mother lives in Bath"
    tell(memory, ["My mother-in-law is Soraya", "Soraya lives in Leeds", *FILL["en"], own])
    memory.run_jobs()
    assert memory.hybrid_search("Where does my mother live?", "u")[0].memory == own


DESCRIBED = [
    (
        ["My friend Kaya moved to Oslo in March", "Kaya works as a nurse at the harbour clinic"],
        "What does my friend who moved to Oslo do for work?",
    ),
    (
        ["Tom from the office lives in Leeds", "Tom's birthday is on 3 May"],
        "When is the birthday of the colleague who lives in Leeds?",
    ),
    (
        ["The summer fair takes place in Ghent", "The summer fair costs 20 euros"],
        "How much does the event that takes place in Ghent cost?",
    ),
    (["我舅舅上周满60岁了", "我舅舅是个厨师"], "那个满60岁的人是做什么的？"),
    (["小林是我的大学同学，在做保险", "小林的电话是13800001111"], "做保险的那个同学电话多少？"),
    (["孙志宏是我的上司，工作地是杭州", "我上司今年五十岁"], "那个在杭州工作的人，他多大了？"),
    (["读书会的地点是北京", "读书会的主题是唐诗"], "那个地点是北京的活动，主题是什么？"),
    (["老范教我下围棋", "老范是退休的校长"], "教我下围棋的人是做什么的？"),
    (
        ["My mate Bo Shaw won the lottery", "Bo Shaw bought a caravan"],
        "What did the mate who won the lottery buy?",
    ),
    (
        ["Binnie and I shared a desk at school", "Binnie is moving to the Azores"],
        "Where is my old school friend moving to?",
    ),
    (["我和表姐想开个网店", "表姐以前在药厂做质检"], "和我一起开店的人以前做什么工作？"),
    (["财务部的老魏滑雪把腿摔断了", "老魏想去敦煌旅游"], "那个摔断腿的同事想去哪儿旅游？"),
    (["我弟打电话来，说踢球把膝盖伤了", "我弟在青岛上班"], "膝盖受伤的那个人在哪里上班？"),
]


@pytest.mark.parametrize(("texts", "question"), DESCRIBED)
def test_who_is_described_is_found_by_what_describes_them(
    memory: Memory, texts: list[str], question: str
) -> None:
    """What describes them comes next, and `why` shows the hop."""
    language = "en" if question.isascii() else "zh"
    more = {"en": ["Kay lives in Porto", "My aunt bakes"], "zh": ["我姑姑喜欢养花", "小周住在大连"]}
    tell(memory, [texts[0], *FILL[language], *more[language], texts[1]])
    first, second, *_ = memory.search(question, "u", explain=True)
    assert [first.id, second.id] == [texts[1], texts[0]]
    assert any(line.startswith("hop: ") and texts[0] in line for line in first.why)


@pytest.mark.parametrize(
    ("texts", "question"),
    [
        # Two may be meant.
        (
            ["Ann moved to Lyon", "Ben moved to Lyon", "Ben is fifty"],
            "How old is the friend who moved to Lyon?",
        ),
        (["小周住在大连", "小吴住在大连", "小吴五十岁"], "那个住在大连的人多大了？"),
        # What somebody tells is not about them; and an event is nobody.
        (
            ["My aunt told me that Carl lives in Bari", "My aunt is fifty"],
            "How old is the man who lives in Bari?",
        ),
        (["跑步节的地点是大连", "跑步节有五十人"], "那个在大连的人多大了？"),
    ],
)
def test_who_may_be_meant_is_not_guessed(memory: Memory, texts: list[str], question: str) -> None:
    tell(memory, texts)
    hits = memory.search(question, "u", explain=True)
    assert not [line for hit in hits for line in hit.why if line.startswith("hop")]
