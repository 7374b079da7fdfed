"""Names in Chinese and English text, and the tagger below them."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kemem.facts.names import names
from kemem.facts.tagger import words

PERSON, PLACE, ORGANISATION, WORK = "person", "place", "organisation", "work"


def found(text: str) -> list[tuple[str, str]]:
    return [(it.text, it.kind) for it in names(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("我哥赵立冬在那边当兵", [("赵立冬", PERSON)]),
        ("my brother Emeka lives in Houston", [("Emeka", PERSON), ("Houston", PLACE)]),
        ("移居赫尔辛基一年", [("赫尔辛基", PLACE)]),
        ("Flying to Reykjavik on Monday", [("Reykjavik", PLACE)]),
        ("毕业于清华大学物理系", [("清华大学", ORGANISATION)]),
        ("I work for the University of Coimbra", [("University of Coimbra", ORGANISATION)]),
        ("在看一本叫做《活着》的书", [("活着", WORK)]),
        ("I loved the novel Solaris", [("Solaris", WORK)]),
        ("我女儿叫小米粒，养了只猫叫年糕", [("小米粒", PERSON), ("年糕", PERSON)]),
        ("Our cat Biscuit is three", [("Biscuit", PERSON)]),
        ("同科室的小汤和王老师都来了", [("小汤", PERSON), ("王老师", PERSON)]),
        ("Mrs Okafor and Dr. Patel agree", [("Mrs Okafor", PERSON), ("Dr. Patel", PERSON)]),
        ("老家山东菏泽，在烟台海关上班", [("山东菏泽", PLACE), ("烟台海关", ORGANISATION)]),
        (
            "Born in Port Elizabeth, now at Nokia",
            [("Port Elizabeth", PLACE), ("Nokia", ORGANISATION)],
        ),
        ("她是温州人", [("温州", PLACE)]),
        ("She comes from Cuenca", [("Cuenca", PLACE)]),
    ],
)
def test_a_name_has_its_borders_and_its_kind(text: str, expected: list[tuple[str, str]]) -> None:
    """By the tagger, or by capitals and context."""
    assert found(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("我在Google上班，住在 Berlin", [("Google", ORGANISATION), ("Berlin", PLACE)]),
        ("老板是Vincent", [("Vincent", PERSON)]),
        ("My teacher is 王芳, from 成都", [("王芳", PERSON), ("成都", PLACE)]),
    ],
)
def test_two_languages_mix(text: str, expected: list[tuple[str, str]]) -> None:
    """A Latin name among Chinese words is judged by those, and the other way round."""
    assert found(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "今天天气真好，适合出去走走",
        "Lovely weather today. Perfect for a walk!",
        "最后要感谢老师",
        "Translate this into French by Monday, please",
        "周二四都有课",
        "i live in leeds",  # nothing tells that it is a name
    ],
)
def test_what_is_no_name_is_left_out(text: str) -> None:
    """Weekdays, languages, words that open a sentence, thanks to no teacher in particular."""
    assert found(text) == []


@pytest.mark.parametrize(
    ("text", "opening"),
    [
        ("Klara, my wife, is a midwife", "Klara"),
        ("Vincent是我同事", "Vincent"),
        ("Dinner was late", ""),
    ],
)
def test_a_word_that_opens_a_sentence_needs_a_reason(text: str, opening: str) -> None:
    """There the capital tells nothing."""
    assert "".join(it.text for it in names(text)) == opening


def test_traditional_characters_are_read_as_simplified_ones() -> None:
    """The tagger was trained on simplified text; the name stays as it was written."""
    assert found("我妹妹陳怡君住在臺灣") == [("陳怡君", PERSON), ("臺灣", PLACE)]


def test_words_cover_the_text_but_for_blanks() -> None:
    """Each character belongs to one word, in order."""
    text = "我 住在北京，\n喜欢喝kopi！" * 40
    tagged = words(text)
    assert "".join(it.text for it in tagged) == "".join(text.split())
    assert all(text[it.start : it.end] == it.text for it in tagged)
    assert {(it.text, it.tag) for it in tagged} >= {("北京", "LOC"), ("我", "r"), ("喜欢", "v")}


@given(
    st.lists(
        st.sampled_from(
            [
                *"我叫王在北京《》人老小 \n.,。，'’-&",
                "Dr. ",
                "Anna",
                "of ",
                "AI",
                "İ",
                "\ue001",
                "\ud800",
                "in ",
            ]
        )
    )
)
@settings(max_examples=200, deadline=None)
def test_names_are_ordered_pieces_of_any_text(parts: list[str]) -> None:
    """Whatever is written, nothing is raised, and names do not overlap."""
    text = "".join(parts)
    end = 0
    for name in names(text):
        assert end <= name.start < name.end
        assert text[name.start : name.end] == name.text
        end = name.end


@given(st.text())
@settings(max_examples=100, deadline=None)
def test_any_characters_are_taken(text: str) -> None:
    """Emoji, control characters, other scripts."""
    assert all(text[it.start : it.end] == it.text for it in names(text))


def test_threads_find_the_same() -> None:
    """The model is read once and never changed."""
    texts = ["我哥赵立冬住在绵阳", "my wife Klara works at Nokia", "在看《活着》"] * 8
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(names, texts)) == [names(it) for it in texts]


def test_the_package_of_the_weights_is_not_imported() -> None:
    """Only its files are read: importing it builds a dictionary."""
    names("我住在北京")
    assert "jieba" not in sys.modules
