"""What search makes of a question before it looks for anything."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kemem.records.times import to_datetime
from kemem.search.understand import MAX_PARTS, Mode, understand
from kemem.text.query import spoken_by
from tests.cases import each

NOW = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z


@each(
    ("text", "parts"),
    [
        ("今天天气真好。上次那家餐厅叫什么？", ["上次那家餐厅叫什么？"]),
        ("Lovely weather. What was that restaurant called?", ["What was that restaurant called?"]),
        ("住哪？吃什么？", ["住哪？", "吃什么？"]),
        ("Where does she live? What does she eat?", ["Where does she live?", "What does she eat?"]),
        ("上次那家餐厅叫什么？", []),
        ("What was that restaurant called?", []),
        ("我住在北京。我不吃辣。", []),
        ("I live in Rome. I eat no meat.", []),
    ],
)
def test_sentences_that_ask_are_looked_for_by_themselves(text: str, parts: list[str]) -> None:
    """Only among others: a question that is one sentence is whole already."""
    asked = understand(text, NOW)
    assert [part.text for part in asked.parts] == parts
    assert asked.whole.text == text


@each(
    ("text", "since"),
    [
        ("十二月初有什么安排？", "2026-12-01"),
        ("十二月初去了哪里？", "2025-12-01"),
        ("What plans do I have in early December?", "2026-12-01"),
        ("Where did I go in early December?", "2025-12-01"),
        ("Am I travelling in May?", "2026-05-01"),
        ("Was I travelling in May?", "2025-05-01"),
    ],
)
def test_a_date_in_a_question_about_plans_lies_ahead(text: str, since: str) -> None:
    """Others ask about the past."""
    (time,) = understand(text, NOW).times
    assert to_datetime(time.since).date().isoformat() == since


def test_a_question_has_few_parts() -> None:
    assert len(understand("谁？" * 50 + "who? " * 50, NOW).parts) == MAX_PARTS


@each("mode", get_args(Mode))
def test_only_hybrid_search_puts_a_question_to_the_talk(mode: Mode) -> None:
    """Words alone must be held; a query that demands is taken at its word."""
    for text in ("要去露营。应该带什么？", "We go camping. What should I bring?"):
        asked = understand(text, NOW, mode)
        assert (asked.query.conversation is not None) == bool(asked.parts) == (mode == "hybrid")
    for text in ("火锅 AND 清汤", "hotpot NOT tea", '"不吃辣" AND 火锅'):
        assert understand(text, NOW, mode).query.conversation is None


@each(
    ("text", "said"),
    [
        ("小明：去哪？\n小红: 去罗马。", "去哪？\n去罗马。"),
        ("小明：我好难过。\n小红：我该怎么办？", "我好难过。\n我该怎么办？"),
        ("Ann: Where to?\nBob: Rome!", "Where to?\nRome!"),
    ],
)
def test_a_transcript_is_read_without_its_labels(text: str, said: str) -> None:
    """They are no names that the question asks about; its part is what was said last."""
    asked = understand(text, NOW)
    assert asked.whole.text == said
    assert [it.text for it in asked.parts] == [said.splitlines()[-1]]
    assert asked.query.conversation is not None
    assert (asked.query.conversation.length, asked.query.conversation.speakers) == (0.0, ())


@each(
    ("text", "question"),
    [
        ("小明：今天雨真大。\n小红：别淋着。\n小明：我妈住在哪里？", "我妈住在哪里？"),
        ("Ann: What a storm.\nBob: Stay dry!\nAnn: Who is my boss?", "Who is my boss?"),
    ],
)
def test_a_transcript_that_ends_with_a_question_asks_it(text: str, question: str) -> None:
    """What was said before is small talk, unless advice or help is wanted."""
    asked = understand(text, NOW)
    assert asked == understand(question, NOW) and asked.question is not None


@each(
    "text",
    [
        "记住：火锅",
        "Remember: hotpot",
        "比分是3:2\n好",
        "10:30 开会\n12:00 午饭",
        "10:30 standup\n12:00 lunch",
        "https://a.example/火锅\nhttps://b.example/tea",
        "小明：\n小红：",
        "Ann:\nBob:",
    ],
)
def test_not_every_colon_makes_a_transcript(text: str) -> None:
    """Two speakers do, who say something."""
    assert understand(text, NOW).whole.text == text


def test_a_question_names_speakers_by_any_of_its_words() -> None:
    """Not by one letter or character, which is in too many names."""
    zh, en = (
        understand(it, NOW).query.conversation for it in ("小明说了什么", "What did Ann say in a?")
    )
    assert zh is not None and en is not None
    assert (spoken_by("小"), spoken_by("明")) in [voice.tokens for voice in zh.speakers]
    assert (spoken_by("ann"),) in [voice.tokens for voice in en.speakers]
    assert all(len(voice.tokens) > 1 for voice in zh.speakers)


@each(
    ("text", "terms"),
    [
        ("What did I work on yesterday evening?", {"work", "yesterday"}),
        ("昨天晚上游泳？", {"昨", "昨 天", "天", "游", "游 泳", "泳"}),
        ("Where did Priya travel in early October?", {"priya", "travel", "octob"}),
        ("6月中旬 游泳？", {"6", "月", "游", "游 泳", "泳"}),
        ("Which evening class do I take?", {"evening", "class", "take"}),
        ("晚班 游泳？", {"晚", "晚 班", "班", "游", "游 泳", "泳"}),
    ],
)
def test_the_part_of_a_day_or_month_is_not_searched(text: str, terms: set[str]) -> None:
    """It finds other evenings; a word that names no time stays."""
    assert {" ".join(unit.tokens) for unit in understand(text, NOW).query.units} == terms


@each(
    ("text", "terms"),
    [
        ("What did I eat yesterday evening? Who was there?", {"eat", "yesterday"}),
        ("昨天晚上 游泳？谁在？", {"昨", "昨 天", "天", "游", "游 泳", "泳"}),
    ],
)
def test_nor_in_one_of_two_sentences_that_ask(text: str, terms: set[str]) -> None:
    part, _ = understand(text, NOW).parts
    assert {" ".join(unit.tokens) for unit in part.query.units} == terms


@given(words=st.integers(0, 60))
def test_length_grows_from_a_few_words_to_many_alike_in_both_languages(words: int) -> None:
    """A Chinese word counts as one and a half characters, and a little."""
    wanted = min(max((words - 10) / 20, 0), 1)
    for text in ("word " * words or "!", "汉" * round(words * 1.6) or "！"):
        talked = understand(text, NOW).query.conversation
        assert talked is not None
        assert talked.length == pytest.approx(wanted, abs=0.02)


@each(
    ("text", "phrases"),
    [
        ("昨天下雨了。上周三吃了什么？", ["上周三"]),
        ("It rained yesterday. What did I eat last Wednesday?", ["last Wednesday"]),
        ("昨天下雨了", ["昨天"]),
        ("It rained yesterday", ["yesterday"]),
    ],
)
def test_the_time_is_that_of_what_is_asked(text: str, phrases: list[str]) -> None:
    assert [it.phrase for it in understand(text, NOW).times] == phrases
