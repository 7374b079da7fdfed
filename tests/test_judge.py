"""What answers a question and is true now comes first, and a chance that can be trusted with it."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kemem import Memory
from kemem.ports.request import Context
from kemem.records import Message
from kemem.records.times import to_micros, to_rfc3339
from kemem.search.features import Candidate
from kemem.search.judge import Meant, judge
from kemem.settings import Settings
from kemem.text.reading import read_question

START = datetime(2025, 3, 3, 9, tzinfo=UTC)


class Talk:
    """A memory that is told one session a week, and asked afterwards."""

    def __init__(self, directory: Path) -> None:
        self.now = START
        settings = Settings(data_dir=directory, llm="none")
        self.memory = Memory(settings=settings, clock=lambda: to_micros(self.now))

    def tell(self, *texts: str, days: int = 7) -> None:
        """A session in which the user speaks first; an assistant's turn begins with a dash."""
        messages = [
            {
                "role": "assistant" if text.startswith("-") else "user",
                "content": text.removeprefix("-").strip(),
                "ts": to_rfc3339(to_micros(self.now + timedelta(minutes=at))),
            }
            for at, text in enumerate(texts)
        ]
        self.now += timedelta(minutes=len(texts))
        self.memory.add(messages, user_id="u", session_id=f"s{self.now:%m%d}")
        self.now += timedelta(days=days)

    def first(self, question: str) -> str:
        return self.memory.search(question, user_id="u")[0].memory

    def confidence(self, question: str) -> float:
        return self.memory.recall(question, user_id="u").confidence


@pytest.fixture
def talk(tmp_path: Path) -> Iterator[Talk]:
    talk = Talk(tmp_path)
    with talk.memory:
        yield talk


def test_what_changed_is_answered_with_what_holds_now(talk: Talk) -> None:
    talk.tell("I live in Berlin.", "-Nice! What do you like there?", "the lakes, mostly")
    talk.tell("can you fix this sentence", "-Which one?", "never mind")
    talk.tell("I moved to Munich.", "-How is it?")
    assert "Munich" in talk.first("Where do I live?")
    assert "Berlin" in talk.first("Where did I live before Munich?")


def test_what_changed_is_answered_with_what_holds_now_in_chinese(talk: Talk) -> None:
    talk.tell("我住在成都", "-天气怎么样？", "天天阴着")
    talk.tell("帮我改一下这句话", "-哪一句？", "算了")
    talk.tell("以后就在厦门落脚了，昨天搬的家")
    assert "厦门" in talk.first("我住在哪个城市？")
    assert "成都" in talk.first("我以前住在哪里？")


@pytest.mark.parametrize(
    ("told", "others", "question", "answer"),
    [
        (
            "I'm an editor at Halvorsen Press, mostly cookbooks.",
            (
                "The walk to work takes ten minutes from the new flat.",
                "My landlord works nights, he sleeps all day.",
                "I had to fix the coffee machine again, it never works.",
                "My cousin's company makes wooden toys.",
            ),
            "Which company do I work for?",
            "Halvorsen",
        ),
        (
            "我在远山出版社担任编辑，主要做菜谱。",
            (
                "新家离得近，走路上班十分钟就到。",
                "房东上夜班，白天都在睡觉。",
                "楼下新开了一家公司，天天放鞭炮。",
                "表弟的公司是做木头玩具的。",
            ),
            "我在哪家公司上班？",
            "远山",
        ),
    ],
    ids=["en", "zh"],
)
def test_a_note_of_the_topic_that_is_asked_for_is_among_the_first(
    talk: Talk, told: str, others: Sequence[str], question: str, answer: str
) -> None:
    """Whatever words others share with the question."""
    talk.tell(told)
    for other in others:
        talk.tell(other, "-I see.")
    hits = talk.memory.search(question, user_id="u", limit=2)
    assert any(answer in hit.memory for hit in hits)


def test_before_an_event_is_what_held_just_then(talk: Talk) -> None:
    """Neither what held at first, nor what came with the event or after it."""
    talk.tell("Our team meets on Thursdays at four.", "-Got it.")
    talk.tell("The team meeting is on Tuesdays at nine now.", "-Early birds.")
    talk.tell("Ines joined our team, she is from Porto.", "-Welcome to Ines!")
    talk.tell("We moved the team meeting to Wednesdays at eleven.")
    assert "Tuesdays" in talk.first("When was the team meeting before Ines joined?")
    assert "Wednesdays" in talk.first("When is the team meeting?")


def test_before_an_event_is_what_held_just_then_in_chinese(talk: Talk) -> None:
    talk.tell("我在宁波租了房子，住下来了", "-恭喜！")
    talk.tell("我搬到绍兴了，那边房子太吵", "-新家怎么样？", "清静")
    talk.tell("又搬家了，这回是嘉兴，就在南湖边上")
    assert "绍兴" in talk.first("搬到嘉兴之前我住哪儿？")
    assert "宁波" in talk.first("搬到绍兴之前我住哪儿？")


def test_what_is_only_supposed_answers_nothing(talk: Talk) -> None:
    talk.tell("Simone lives in Leeds.")
    talk.tell("If Simone ever moved to London I'd visit her.")
    talk.tell("阿蓉住在杭州。")
    talk.tell("要是阿蓉搬去北京，我就去看她。")
    assert talk.first("Where does Simone live?") == "Simone lives in Leeds"
    assert talk.first("阿蓉住在哪里？") == "阿蓉住在杭州"


def test_recall_hands_over_what_search_ranks_first(talk: Talk) -> None:
    talk.tell("I drive a Skoda.", "-Petrol or diesel?", "petrol")
    talk.tell("sold the Skoda, I drive a Leaf now")
    for question in ("What car do I drive?", "What did I drive before?"):
        evidence = talk.memory.recall(question, user_id="u").evidence
        assert evidence[0].content == talk.first(question)


def test_a_question_is_no_answer(talk: Talk) -> None:
    talk.tell("what do people usually do for a living in Iceland", "-Fishing and tourism.")
    talk.tell("i do bookkeeping for three breweries")
    assert "breweries" in talk.first("What do I do for a living?")


def test_a_question_is_no_answer_in_chinese(talk: Talk) -> None:
    talk.tell("皇帝最喜欢吃什么", "-什么都有。")
    talk.tell("糖醋排骨我最爱吃了，天天吃都行")
    assert "排骨" in talk.first("我最喜欢吃什么？")


def test_an_answer_is_found_by_the_question_before_it(talk: Talk) -> None:
    talk.tell("can you look for flights", "-Which airport would you leave from?", "Bristol")
    talk.tell("quiz me on capitals", "-Capital of Slovenia?", "Ljubljana, too easy")
    assert talk.first("Which airport do I fly from?") == "Bristol"


def test_an_answer_is_found_by_the_question_before_it_in_chinese(talk: Talk) -> None:
    talk.tell("帮我报名游泳班", "-孩子对什么过敏吗？", "尘螨")
    talk.tell("考我几个省会", "-黑龙江省会？", "哈尔滨，送分题")
    assert talk.first("我家孩子对什么过敏？") == "尘螨"


def test_a_time_in_the_question_is_a_range(talk: Talk) -> None:
    talk.tell("had dinner with Ines at the Georgian place")
    talk.tell("dinner with my cousin Rolf tonight")
    assert "Rolf" in talk.first("Who did I have dinner with last week?")
    assert "Ines" in talk.first("Who did I have dinner with two weeks ago?")


def test_a_time_in_the_question_is_a_range_in_chinese(talk: Talk) -> None:
    talk.tell("今晚跟大学室友涮羊肉")
    talk.tell("请丈母娘吃了顿粤菜", days=1)
    assert "丈母娘" in talk.first("昨天我跟谁吃的饭？")
    assert "羊肉" in talk.first("上周我跟谁吃的饭？")


def test_what_was_never_said_is_not_known(talk: Talk) -> None:
    talk.tell("my sister Greta is getting a puppy, a whippet", "-Elegant dogs.")
    talk.tell("cycled to the lake and back", "-How far?", "no idea, two hours")
    assert talk.confidence("What breed is my sister's puppy?") > 0.5
    assert talk.confidence("What is my blood type?") < 0.5


def test_what_was_never_said_is_not_known_in_chinese(talk: Talk) -> None:
    talk.tell("我妹要接一只柯基小狗回家", "-短腿可爱。")
    talk.tell("骑车去水库来回，腿都软了")
    assert talk.confidence("我妹的小狗是什么品种？") > 0.5
    assert talk.confidence("我的护照什么时候到期？") < 0.5


# Of what two facts are told, one after the other; and what is asked about the first.
TWO_FACTS = {
    "en": [
        ("My sister's bakery on Elm Road", " sells rye bread.", " opens at six."),
        (
            "The Tidewater Robotics Expo in Porto",
            " expects six thousand guests.",
            " lasts nine days.",
        ),
        ("The Saturday pottery course at Mill Lane", " costs ninety euros.", " begins at ten."),
    ],
    "zh": [
        ("我姐在榆树路的面包房", "卖黑麦面包。", "六点开门。"),
        ("海潮机器人展览会", "的规模是六千人。", "的时长是九天。"),
        ("磨坊街的周六陶艺课", "学费是九十块。", "十点开始。"),
    ],
}
ABOUT_THE_FIRST = {
    "en": [
        "What does my sister's bakery sell?",
        "How many guests does the Robotics Expo expect?",
        "What does the pottery course cost?",
    ],
    "zh": ["我姐的面包房卖什么？", "机器人展览会的规模是多少？", "陶艺课的学费是多少？"],
}
FILL = {
    "en": "Letter {} tells of rain and of the course of the Rhine.",
    "zh": "第{}封信讲下雨和课本。",
}


@pytest.mark.parametrize(("language", "others"), [("en", 0), ("zh", 0), ("en", 130), ("zh", 130)])
def test_another_fact_about_the_same_thing_replaces_nothing(
    talk: Talk, language: str, others: int
) -> None:
    """Mostly in a small memory; always in a large one, where it has more to go by."""
    told = TWO_FACTS[language]
    facts = [thing + fact for thing, fact, _ in told]
    fill = [FILL[language].format(number) for number in range(others)]
    for text in (*facts, *fill, *(thing + more for thing, _, more in told)):
        talk.memory.ingest([text], "u", session_id=text[:60])
        talk.now += timedelta(days=1)
    talk.memory.run_jobs()
    found = [*map(talk.first, ABOUT_THE_FIRST[language])]
    right = sum(it == fact for it, fact in zip(found, facts, strict=True))
    assert right >= (3 if others else 2), found


RECOMMENDED = {
    "en": [
        "Which cookbook did you recommend to me?",
        "-I'd go for 'Salt and Tide' by Ada Moreau.",
        "I signed up for a cooking class, on Fridays.",
        "My sister cooks at the Harbour Inn.",
    ],
    "zh": [
        "你上次推荐的菜谱书是哪本？",
        "-可以看《盐与潮》，作者是莫雅。",
        "我报了一个做菜的班，每周五上课。",
        "我姐在港口饭店做菜。",
    ],
}


@pytest.mark.parametrize("language", ["en", "zh"])
def test_what_the_assistant_said_answers_who_asks_for_it(talk: Talk, language: str) -> None:
    question, said, *told = RECOMMENDED[language]
    asked = {"en": "Can you suggest a cookbook?", "zh": "有什么菜谱书可以推荐？"}[language]
    talk.tell(asked, said)
    talk.tell(*told, days=3)
    assert talk.first(question) == said[1:]


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("Which plants did you list for a dark bathroom?", "Snake plant and pothos, I would say."),
        ("阴暗的浴室，你上次列了哪些植物？", "虎尾兰和绿萝都不错。"),
    ],
)
def test_what_the_assistant_said_comes_first_in_a_large_memory_too(
    question: str, text: str
) -> None:
    """Where both sides say the same."""
    said = [Message(role, "a", "u", "s", role, text, 1, 1) for role in ("user", "assistant")]
    candidates = [Candidate(message, 0.5) for message in said]
    asked = read_question(question, START)
    user, assistant = judge(asked, Meant(), candidates, 200).scores
    assert assistant > user


@pytest.mark.parametrize("question", ["How old is my cat?", "我的猫几岁了？"])
@pytest.mark.parametrize("speaker", [None, "Assistant"])
def test_what_somebody_asks_about_himself_he_has_told(question: str, speaker: str | None) -> None:
    """In a large memory too, where both sides say the same; "Assistant" is nobody's name."""
    text = "Fourteen is old for a cat. 猫十四岁算老了。"
    metadata = {"speaker": speaker} if speaker else {}
    said = [
        Message(role, "a", "u", "s", role, text, 1, 1, metadata=metadata)
        for role in ("assistant", "user")
    ]
    candidates = [Candidate(message, 0.5) for message in said]
    assistant, user = judge(read_question(question, START), Meant(), candidates, 200).scores
    assert user > assistant


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What did you tell me about yeast?", True),
        ("你教我怎么揉面的？", True),
        ("What was third in the list you provided?", True),
        ("In our last conversation, which flour was it?", True),
        ("What did I tell you in our last conversation?", False),
        ("上次聊天里提到的那种面粉叫什么？", True),
        ("上次聊天我说的是哪种面粉？", False),
        ("What was it you told me to bring?", True),
        ("What did you have me do for my knee?", True),
        ("Which of your tips was about salt?", True),
        ("Which flour did u recommend?", True),
        ("阳台上你让我种什么来着？", True),
        ("你给我爸妈安排的是哪条线路？", True),
        ("你当时怎么跟我解释发酵的？", True),
        ("阳台 plants 你 recommend 了啥", True),
        ("What did I tell you about yeast?", False),
        ("What did my sister tell you?", False),
        ("Can you recommend a cookbook?", False),
        ("你能推荐一家餐厅吗？", False),
        ("你知道我住哪吗？", False),
        ("推荐一本菜谱书给我", False),
        ("我跟你说过我住哪吗？", False),
    ],
)
def test_who_is_asked_about(question: str, expected: bool) -> None:
    """The assistant, or the user."""
    assert read_question(question, datetime(2026, 3, 1, tzinfo=UTC)).of_assistant is expected


@pytest.mark.parametrize(
    ("question", "text"),
    [
        ("你推荐在阳台种什么？", "阳台朝北的话，可以种薄荷。"),
        ("你说阳台该几天浇一次水？", "阳台上的花三天浇一次水就够。"),
    ],
)
def test_what_may_ask_for_advice_asks_for_what_the_assistant_has_said_if_it_has(
    question: str, text: str
) -> None:
    """It is Chinese that does not tell: its verbs have no tense."""
    asked = read_question(question, START)
    assert asked.perhaps and not asked.of_assistant
    for told, first in ((text, "assistant"), ("窗帘选米色的吧。", "user")):
        said = [
            Message("user", "a", "u", "s", "user", "阳台上我想种点东西，几天浇一次水？", 1, 1),
            Message("assistant", "a", "u", "s", "assistant", told, 1, 1),
        ]
        scores = judge(asked, Meant(), [Candidate(it, 0.5) for it in said], 200).scores
        assert said[scores.argmax()].role == first


TEXTS = st.lists(st.text(max_size=60), min_size=1, max_size=8)


@given(TEXTS, st.text(min_size=1, max_size=60), st.integers(0, 2**32))
def test_whatever_was_said_is_judged(texts: Sequence[str], question: str, seed: int) -> None:
    """Scores are chances, and the best one is that of an answer."""
    random = np.random.default_rng(seed)
    said = [
        Message(f"m{at}", "a", "u", f"s{at % 3}", ("user", "assistant")[at % 2], text, at, at)
        for at, text in enumerate(texts)
    ]
    units = [it / np.linalg.norm(it) for it in random.normal(size=(len(said) + 1, 512))]
    vectors = np.array(units, np.float32)
    asked = read_question(question, START)
    for vector in (vectors[-1], None):
        candidates = [
            Candidate(
                row,
                0.5,
                Context(
                    None if vector is None else vectors[at],
                    tuple(said[max(at - 2, 0) : at][::-1]),
                    None if vector is None or not at else vectors[at - 1],
                ),
            )
            for at, row in enumerate(said)
        ]
        judgement = judge(asked, Meant(vector, vector), candidates, among=len(texts))
        assert 0 <= judgement.chance <= 1
        assert judgement.scores.max() == pytest.approx(judgement.chance)
        assert (judgement.scores >= 0).all()


def test_recall_hands_over_what_search_ranks_first_and_is_as_sure(talk: Talk) -> None:
    """Whatever time a question names, and whatever else a recall looks for beside it."""
    talk.tell("We have a parrot called Rio.", "-How nice!", "Saw a long film about whales.")
    talk.tell("我周六看了一部讲鲸鱼的电影。", "-好看吗？", "还行，有点长。", "晚上吃的饺子。")
    talk.tell("We have a gecko now.", "-And the parrot?", "Went to live with my aunt.", days=2)
    for question in (
        *("What pet did we have before the gecko?", "What did I watch in March?"),
        *("What did I watch last weekend?", "What is my aunt's name?", "What did we do last time?"),
        *("前天晚上我吃的什么？", "上周末我看了什么？", "我以前养的是什么？", "我姑姑叫什么？"),
    ):
        hits = talk.memory.search(question, user_id="u", limit=10)
        recalled = talk.memory.recall(question, user_id="u")
        assert recalled.confidence == hits[0].score, question
        assert [it.memory_key for it in recalled.evidence][:1] == [hits[0].id], question
        scores = [it.score for it in recalled.evidence]
        assert scores == sorted(scores, reverse=True), question
        said = [name for it in recalled.evidence for name in it.message_ids]
        assert len(said) == len({*said}), question


@pytest.mark.parametrize("question", ["What was done before?", "那个呢？"])
def test_a_question_that_says_nothing_of_its_topic_is_hardly_answered(
    talk: Talk, question: str
) -> None:
    talk.tell("I keep a ginger cat.", "The meeting moved to Thursday.", "我养了一只猫。")
    assert talk.confidence(question) <= 0.25


@pytest.mark.parametrize(
    ("both", "later", "asked", "answer"),
    [
        (
            "Ben works at SAP and Kim works at Bosch.",
            "Ben left SAP.",
            "Where does Kim work?",
            "Bosch",
        ),
        ("小本在思爱普上班，小金在博世上班。", "小本离职了。", "小金在哪儿上班？", "博世"),
    ],
)
def test_news_of_one_part_is_no_answer_about_the_other(
    talk: Talk, both: str, later: str, asked: str, answer: str
) -> None:
    talk.tell(both)
    talk.tell(later)
    assert answer in talk.first(asked)
