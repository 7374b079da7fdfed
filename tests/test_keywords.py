"""Keywords without a model: what a question names, does and is about, and when."""

from hypothesis import given
from hypothesis import strategies as st

from kemem.facts.keywords import Keyword, expanded, keywords
from kemem.text.segment import search_text
from tests.cases import each

KINDS = ("entity", "action", "concept", "time")
WORTHLESS = {"东西", "那个", "什么", "thing", "that", "what", "say", "tell", "one", "我", "you"}


def by_kind(found: list[Keyword]) -> dict[str, set[str]]:
    """The texts of keywords by their kind."""
    return {kind: {word.text for word in found if word.kind == kind} for kind in KINDS}


def listed(texts: str) -> set[str]:
    """The items of a list in words.  "New York, 李明" -> {"New York", "李明"}"""
    return set(texts.split(", ")) if texts else set()


@each(
    ("question", "entities", "others", "time"),
    [
        ("按照我之前的数据库配置来", "", "数据库, 配置", "之前"),
        (
            "use the database configuration I gave you before",
            "",
            "database, configuration",
            "before",
        ),
        ("上次说的那个方案", "", "方案", "上次"),
        ("the plan from last time", "", "plan", "last time"),
        (
            "我上周三在北京和李明讨论的 Kubernetes 部署方案",
            "北京, 李明, Kubernetes",
            "方案, 部署",
            "上周三",
        ),
        (
            "What did Alice say about the Kubernetes deployment in Berlin last Tuesday?",
            "Alice, Kubernetes, Berlin",
            "deployment",
            "last Tuesday",
        ),
        ("王芳的生日是什么时候", "王芳", "生日", ""),
        ("When is Priya's birthday?", "Priya", "birthday", ""),
        ("服务器的端口5432改成多少了？", "端口5432", "服务器, 改成", ""),
        ("Did we move the server from port 5432?", "port 5432", "server, move", ""),
        ("把 docker-compose.yml 升级到 v2.3.1", "docker-compose.yml, v2.3.1", "升级", ""),
        ("upgrade docker-compose.yml to v2.3.1", "docker-compose.yml, v2.3.1", "upgrade", ""),
        ("邮件发给 user@x.com 了吗", "user@x.com", "邮件", ""),
        ("was the email sent to user@x.com", "user@x.com", "email", ""),
        ("谁推荐我看《三体》的？", "三体", "推荐, 看", ""),
        ('Who recommended "The Three-Body Problem"?', "The Three-Body Problem", "recommended", ""),
        ("我最近花500元买的咖啡机是什么牌子", "500元", "咖啡机, 买, 牌子", "最近"),
        (
            "which coffee machine did I buy for $500 recently",
            "$500",
            "coffee, machine, buy",
            "recently",
        ),
        ("张教授在北京大学教什么课", "张教授, 北京大学", "", ""),
        (
            "what does Dr. Smith teach at Stanford University",
            "Dr. Smith, Stanford University",
            "teach",
            "",
        ),
        ("我对花生过敏吗", "", "花生, 过敏", ""),
        ("Am I allergic to peanuts?", "", "allergic, peanuts", ""),
        ("用 redis 还是 PostgreSQL 做缓存", "redis, PostgreSQL", "缓存", ""),
        ("do I cache with redis or PostgreSQL", "PostgreSQL", "cache, redis", ""),
        ("我在纽约订的酒店地址", "纽约", "酒店, 地址", ""),
        ("the address of the hotel I booked in New York", "New York", "hotel, address, booked", ""),
        ("上个月和陈晨一起去爬的那座山", "陈晨", "", "上个月"),
        ("the mountain I climbed with Chen last month", "Chen", "mountain, climbed", "last month"),
        ("我的猫叫什么名字", "", "猫, 名字", ""),
        ("what is the name of my cat", "", "name, cat", ""),
        ("昨天测试的 parse_config 为什么报错", "parse_config", "测试, 报错", "昨天"),
        (
            "why did parse_config fail in yesterday's test",
            "parse_config",
            "fail, test",
            "yesterday",
        ),
        ("彼特·克劳斯的邮箱", "彼特·克劳斯", "邮箱", ""),
        ("the US budget of the API team", "US, API", "budget, team", ""),
    ],
)
def test_a_question_yields_what_it_is_about(
    question: str, entities: str, others: str, time: str
) -> None:
    """Names as entities, times as times, the rest as actions or concepts."""
    found = by_kind(keywords(question, limit=10))
    assert found["entity"] == listed(entities)
    assert listed(others) <= found["action"] | found["concept"]
    assert found["time"] == listed(time)
    assert not WORTHLESS & set().union(*found.values())


@each(
    ("question", "kind", "words"),
    [
        ("部署并测试数据库", "action", {"部署", "测试"}),
        ("deploy and test the database", "action", {"deploy", "test"}),
        ("数据库的部署", "concept", {"数据库"}),
        ("the test of the deployment", "concept", {"test", "deployment"}),
        ("喝热巧克力", "action", {"喝"}),
        ("drinking hot chocolate", "action", {"drinking"}),
    ],
)
def test_what_is_done_and_what_it_is_done_to_are_told_apart(
    question: str, kind: str, words: set[str]
) -> None:
    """A verb is an action; in English it is none where an article or an ending makes it a noun."""
    assert by_kind(keywords(question))[kind] == words


@each(
    ("question", "times"),
    [
        ("我之前让你做的那个东西", {"之前"}),
        ("what did I tell you about that thing before", {"before"}),
        ("你还记得吗？", set()),
        ("what did I tell you about that thing", set()),
        ("就是那个，你知道的", set()),
        ("that one please", set()),
        ("？？？", set()),
        ("", set()),
    ],
)
def test_a_question_without_content_has_at_most_times(question: str, times: set[str]) -> None:
    """And then it is searched for as it is."""
    found = keywords(question)
    assert by_kind(found) == {"entity": set(), "action": set(), "concept": set(), "time": times}
    assert expanded(question, found) == question


def test_names_come_before_themes_themes_before_deeds_and_times_last() -> None:
    """The rarer, the more telling; of equals the first."""
    zh = keywords("昨天在上海测试数据库", limit=9)
    en = keywords("did Bob deploy the database yesterday", limit=9)
    assert [word.text for word in zh] == ["上海", "数据库", "测试", "昨天"]
    assert [word.text for word in en] == ["Bob", "database", "deploy", "yesterday"]
    assert [word.text for word in keywords("苹果、香蕉、葡萄", limit=2)] == ["苹果", "香蕉"]
    assert [word.text for word in keywords("apples, pears, grapes", limit=2)] == ["apples", "pears"]


@each(
    ("question", "context", "more"),
    [
        ("部署方案和预算", "预算还没有定", "预算"),
        ("the timeline and the budget", "The budget is open.", "budget"),
    ],
)
def test_a_word_of_the_context_weighs_more(question: str, context: str, more: str) -> None:
    """What was just spoken of is rather meant."""
    alone = {word.text: word.weight for word in keywords(question)}
    within = {word.text: word.weight for word in keywords(question, context=context)}
    assert within[more] > alone[more]
    assert {text: weight for text, weight in within.items() if text != more} == {
        text: weight for text, weight in alone.items() if text != more
    }


@each(
    ("question", "context", "lent"),
    [
        (
            "那个方案",
            "聊聊天气吧\n用户：Redis 集群要迁移\n助手：好的\n我让李明负责",
            {"Redis", "集群", "李明"},
        ),
        ("那个呢？", "我想养一只金毛", {"金毛"}),
        (
            "that one",
            "Nice weather.\nuser: Let us migrate Redis.\nassistant: ok\nBob, go!",
            {"Redis", "Bob"},
        ),
        ("and that plan?", "We compared vendors in Oslo.", {"vendors", "Oslo"}),
    ],
)
def test_a_question_that_only_points_borrows_from_the_last_lines(
    question: str, context: str, lent: set[str]
) -> None:
    """At no more than half the weight; who spoke and what was said long before do not count."""
    found = {word.text: word.weight for word in keywords(question, context=context, limit=10)}
    assert lent <= found.keys()
    assert all(found[text] <= 0.5 for text in lent)
    assert not {"天气", "聊聊天气", "weather", "用户", "user", "助手", "assistant"} & found.keys()


@each(
    ("question", "context"),
    [
        ("李明的密码是什么", "我们在讨论火锅"),
        ("What is Bob's password?", "We talked about hotpot."),
    ],
)
def test_a_question_with_content_borrows_nothing(question: str, context: str) -> None:
    """The context then only weighs."""
    assert keywords(question, context=context) == keywords(question)


@each(
    ("question", "found", "wanted"),
    [
        ("按照我之前的数据库配置来", [], "数据库 配置"),
        ("use the database configuration I gave you before", [], "database configuration"),
        ("那个方案", [Keyword("Redis", 0.4, "entity"), Keyword("昨天", 0.3, "time")], "方案 Redis"),
        (
            "that plan",
            [Keyword("Redis", 0.4, "entity"), Keyword("plans", 0.3, "concept")],
            "plan Redis",
        ),
        (
            "部署 Kafka",
            [Keyword("kafka", 0.9, "entity"), Keyword("集群", 0.5, "concept")],
            "部署 Kafka 集群",
        ),
    ],
)
def test_an_expanded_question_has_its_own_words_first(
    question: str, found: list[Keyword], wanted: str
) -> None:
    """Then what it lacks, each word once and no times."""
    assert expanded(question, found) == wanted


@each(
    ("question", "once"),
    [
        ("Docker 和 docker 还有 ＤＯＣＫＥＲ", ["Docker"]),
        ("deployments, Deployment, DEPLOYMENT", ["deployments"]),
        ("北京大学，也就是北京的大学", ["北京大学"]),
        ("Stanford University, or just Stanford", ["Stanford University"]),
    ],
)
def test_a_word_comes_once_and_not_again_as_a_part(question: str, once: list[str]) -> None:
    """Whatever its case, width and form."""
    found = keywords(question)
    assert [
        word.text for word in found if search_text(once[0]).split()[0] in search_text(word.text)
    ] == once


PIECES = (
    *(
        "数据库",
        "配置",
        "李明",
        "北京",
        "部署",
        "昨天",
        "上次",
        "那个",
        "的",
        "我",
        "喝咖啡",
        "端口5432",
    ),
    *(
        "database",
        "Alice",
        "deploy",
        "the",
        "last Tuesday",
        "that",
        "New York",
        "v2.3.1",
        "user@x.com",
    ),
    *(
        "《三体》",
        '"a b"',
        "`",
        "，",
        "。",
        "\n",
        " ",
        "·",
        "500元",
        "$5",
        "\0",
        "\ud800",
        "👩\u200d👧",
        "ｶﾞ",
    ),
)
TALK = st.lists(st.sampled_from(PIECES), max_size=12).map("".join) | st.text(max_size=40)


@given(question=TALK, context=TALK, limit=st.integers(0, 8))
def test_any_text_yields_few_different_words_in_order(
    question: str, context: str, limit: int
) -> None:
    """Verbatim, weighed between 0 and 1, and the same each time; fewer are the first of more."""
    found = keywords(question, context=context, limit=limit)
    assert len(found) <= limit
    assert found == keywords(question, context=context, limit=limit)
    assert found == keywords(question, context=context, limit=99)[:limit]
    assert all(0 < word.weight <= 1 and word.kind in KINDS for word in found)
    assert [word.weight for word in found] == sorted((w.weight for w in found), reverse=True)
    assert all(word.text in question or word.text in context for word in found)
    assert len({search_text(word.text) for word in found} - {""}) == len(found)


@given(question=TALK, context=TALK)
def test_an_expanded_question_holds_every_keyword(question: str, context: str) -> None:
    """None is lost on the way to search but the times."""
    found = keywords(question, context=context, limit=99)
    wanted = f" {search_text(expanded(question, found))} "
    assert all(f" {search_text(word.text)} " in wanted for word in found if word.kind != "time")


@each("unit", ["部署", "-", "a.", "1,", "a@", "王", "昨天", "Ab ", '"a', "w1 x2 "])
def test_a_long_text_is_read_from_its_beginning(unit: str) -> None:
    """A paste of 100 KB costs what its first 2,000 characters cost."""
    text = unit * (102_400 // len(unit))
    found = keywords(text, context=text)
    assert found == keywords(text[:2_000], context=text[-2_000:])
    assert expanded(text, found) == expanded(text[:2_000], found)
    assert all(len(word.text) <= 80 for word in found)
