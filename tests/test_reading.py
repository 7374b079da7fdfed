"""Signs of form: what questions ask for, what texts show."""

import re
from datetime import UTC, datetime
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kemem.text.lexicon import load
from kemem.text.reading import (
    ANSWERS,
    DETAILS,
    asking_share,
    content,
    named_people,
    people_of,
    read,
    read_question,
    terms_of,
)

NOW = datetime(2025, 6, 20, 12, tzinfo=UTC)


def test_what_a_question_asks_for() -> None:
    for text, answers in (
        ("Who is my boss?", {"who"}),
        ("我的上司是谁", {"who"}),
        ("Where do I live?", {"where"}),
        ("我住在哪里", {"where"}),
        ("When is the wedding?", {"when"}),
        ("婚礼是哪天", {"when"}),
        ("How much is the rent?", {"how_much"}),
        ("房租多少", {"how_much"}),
        ("What is my cat called?", {"what_name"}),
        ("猫叫什么", {"what_name"}),
        ("Is the trip still on?", {"whether"}),
        ("还去旅行吗？", {"whether"}),
        ("Which tea do I like?", set()),
    ):
        assert read_question(text, NOW).answers >= answers, text


def test_the_topic_of_notes_that_a_question_asks_for() -> None:
    """Only what holds of the speaker now has one."""
    for text, topics in (
        ("Where do I work these days?", {"user/works_at"}),
        ("Which company do I work for?", {"user/works_at"}),
        ("我现在在哪家公司上班？", {"user/works_at"}),
        ("What city do I live in now?", {"user/lives_in"}),
        ("我现在住在哪个城市", {"user/lives_in"}),
        ("What car do we have?", {"user/drives"}),
        ("Which grade is my son in?", {"user/son/studies_at"}),
        ("我女儿上几年级", {"user/daughter/studies_at"}),
        ("我上大几来着", {"user/studies_at"}),
        ("我开的是什么车", {"user/drives"}),
        ("How much do we want to spend?", {"user/amount/budget", "user/amount/预算"}),
        ("打算花多少钱", {"user/amount/budget", "user/amount/预算"}),
        ("Where did I work last year?", set()),
        ("我以前在哪儿上班", set()),
        ("Where does my sister work?", set()),
        ("我妈在哪儿上班", set()),
        ("我同桌在哪儿上班", set()),
    ):
        assert read_question(text, NOW).topics == topics, text


def test_now_is_no_place() -> None:
    for text, is_place in (("现在已经好了", False), ("正在看书呢", False), ("在杭州看书", True)):
        assert ("place" in read(text)) == is_place, text


def test_the_past_the_present_and_what_came_before() -> None:
    for text, past, present, before in (
        ("Where did I live before Halifax?", True, False, {"halifax"}),
        ("来杭州之前我住在哪里？", True, False, {"杭州"}),
        ("搬到嘉兴之前我住哪儿？", True, False, {"嘉兴"}),
        ("换药之前我吃的是哪种", True, False, set()),  # whichever: no new one is named
        ("Which city did I use to live in?", True, False, set()),
        ("我以前住哪个城市", True, False, set()),
        ("Where do I live now?", False, True, set()),
        ("我现在住哪儿", False, True, set()),
        ("Where do I live?", False, False, set()),
    ):
        question = read_question(text, NOW)
        assert (question.past, question.present) == (past, present), text
        assert question.before == before, text


def test_now_is_no_range_of_time() -> None:
    for text, timed in (
        ("Where do I work these days?", False),
        ("我现在在哪儿上班？", False),
        ("What did I do in the last few days?", True),
        ("我这几天干了什么？", True),
    ):
        assert bool(read_question(text, NOW).times) == timed, text


def test_the_topic_has_no_times_and_no_events() -> None:
    for text, topic in (
        ("What did I eat the day before yesterday?", "What did I eat ?"),
        ("前天晚上我吃的什么？", "我吃的什么？"),
        ("What did I drive before the van?", "What did I drive ?"),
        ("现在我用什么编辑器", "我用什么编辑器"),
        ("yesterday?", "yesterday?"),  # nothing else is left
    ):
        assert read_question(text, NOW).topic == topic


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        *(
            ("我去过成都几次？", "成都"),
            ("京都的旅馆叫什么？", "京都"),
            ("我的被子是什么颜色？", "被子"),
        ),
        *(("公司年会在哪办？", "年会"), ("哪家酒吧好？", "酒吧"), ("房贷哪天还款？", "还款")),
        *(("我下次约会是几号？", "约会"), ("茶几多少钱？", "茶几"), ("我学吉他多久了？", "吉他")),
    ],
)
def test_a_word_with_a_function_character_is_content(text: str, whole: str) -> None:
    """成都 is a city, though 都 alone says nothing."""
    assert whole in content(text) and whole in terms_of(text)


def test_words_with_a_function_character_are_looked_for_where_they_begin() -> None:
    """What is looked for first are the characters with which such words begin, all of them."""
    line = load("kemem.text", "reading.rules").lines["whole"]
    beginnings, words = line.text.removeprefix("(?=[").split("])", 1)
    runs = re.findall("[\u3400-\u9fff]+", words)
    parts = {*runs, *"".join(runs)}
    found = re.finditer(words, "。".join(map("".join, product(parts, repeat=2))))
    assert {match[0][0] for match in found} == {*beginnings}


@pytest.mark.parametrize(
    ("text", "other"),
    [
        *(("北京都有什么？", "京都"), ("我明年会去哪？", "年会"), ("我把手机放哪了？", "把手")),
        *(("手机会不会坏？", "机会"), ("有机会去吗？", "有机"), ("今天才知道？", "天才")),
    ],
)
def test_characters_that_only_meet_are_no_word(text: str, other: str) -> None:
    assert other not in content(text) and other not in terms_of(text)


def test_question_words_and_pronouns_are_no_content() -> None:
    for text in ("Where do I live now?", "what is it that you do", "我现在是在哪里呢"):
        assert not {"where", "what", "you", "now", "哪里", "现在", "我"} & {*content(text)}
    for text in (
        "What did we talk about?",
        "我们聊了什么话题",
        "我跟你说过什么",
    ):  # nor is the talk itself
        assert not content(text), text
    assert "无" in content("无聊")
    assert content("Where do I live?") == ["live"] == content("Where did I use to live?")
    assert {"公司", "上班"} <= {*content("我在哪家公司上班？")}


@pytest.mark.parametrize(
    ("question", "detail", "words"),
    [
        ("What does my husband do for a living?", "job", {"husband", "job"}),
        ("How does Pip make a living?", "job", {"pip", "job"}),
        ("我老公靠什么吃饭？", "job", {"老公", "工作"}),
        ("我爸是干啥的？", "job", {"爸", "工作"}),
        ("What is my brother up to these days?", None, {"brother"}),
        ("What does my flat look like?", None, {"flat"}),
        ("阿树是怎么样的？", None, {"阿树"}),
    ],
)
def test_idioms_only_say_what_is_asked_for(
    question: str, detail: str | None, words: set[str]
) -> None:
    """A mouse that is live is no living."""
    asked = read_question(question, NOW)
    assert asked.details == ({detail} if detail else set())
    longest = {word for word in asked.words if len(word) > 1 or words & {word}}
    assert longest == words
    assert not {"live", "吃", "饭"} & {*content(asked.terms)}


def test_who_is_meant_by_whatever_word() -> None:
    assert people_of("my mum called") == people_of("我妈来电话了") == {"mother"}
    assert people_of("then I saw Mia") == {"@mia"}
    assert named_people("my sister Mia is here") == {"mia": "sister"}
    assert named_people("我妈李芳退休了")["李芳"] == "mother"


def test_letters_that_equal_others_only_without_regard_to_case_name_nobody() -> None:
    """The long s of old prints: a search that met it failed."""
    assert read("my ſon and my ſıster").people == frozenset()


def test_signs_are_found_in_either_case() -> None:
    """Texts are searched in lower case, so no pattern may need a capital letter."""
    for text, sign in (
        ("I HAVE MOVED", "changes"),
        ("It COST 30K", "number"),
        ("打车花了3K", "number"),
    ):
        assert sign in read(text)


def test_questions_without_a_question_mark() -> None:
    for text in (
        "what's the queen's favourite meal",
        "皇帝最喜欢吃什么",
        "is it far",
        "这个要多少钱",
    ):
        assert asking_share(text) == 1
    for text in ("I moved to Munich", "我搬到上海了", "the keys are at home"):
        assert asking_share(text) == 0
    assert 0 < asking_share("It rained. Did you know?") < 1


def test_what_texts_show() -> None:
    for text, sign in (
        ("we finally moved", "changes"),
        ("换成氨氯地平了", "changes"),
        ("the trip is cancelled", "ends"),
        ("机票退了", "ends"),
        ("it costs 840", "number"),
        ("租金1800一个月", "number"),
        ("dentist on friday", "time"),
        ("周五看牙", "time"),
    ):
        assert sign in read(text), text
    assert "where" in read("we flew to Oslo").answers
    assert "how_much" not in read("no idea").answers


@given(st.text(max_size=200))
def test_any_text_is_read(text: str) -> None:
    reading, question = read(text), read_question(text, NOW)
    assert 0 <= reading.asks <= 1
    assert reading.answers <= {*ANSWERS}
    assert all(reading.tells(it) in (True, False) for it in DETAILS)
    assert question.topic or not text.strip(" ,，")
    assert {*question.words} == {*content(question.topic)}


def test_the_day_that_a_note_tells_is_no_amount_and_no_place() -> None:
    assert "how_much" not in read("The class moved to Thursday (2026-01-22)").answers
    assert "how_much" in read("The class is 40 euros (2026-01-22)").answers
    assert read("课改到周四了（2026-01-22）").answers == {"when"}
    assert read("课改到文化馆了（2026-01-22）").answers == {"when", "where"}
