"""Marks of the word index: who speaks and who asks, and that no text can forge them."""

from hypothesis import given
from hypothesis import strategies as st

from kemem.text.query import ASKING, asks, index_text, length, parse, spoken_by
from kemem.text.segment import search_text
from kemem_conformance.suite import noted, said
from tests.cases import each

QUESTIONS = [
    "你去过罗马吗？",
    "你去过罗马吗",
    "在哪里呢…",
    "他说：“真的吗？”",
    "Have you been to Rome?",
    "(Really?)",
    'She said "why?"',
    "Did you see it? [photo: a cat on a sofa]",
    "x" * 10_000 + "?",
]
STATEMENTS = [
    "",
    "我去过罗马。",
    "吗啡是一种药",
    "I have been to Rome.",
    "Why? Because I can.",
    "see ?q=1 of the address",
    "[photo: a cat on a sofa]",
]


@each("text", QUESTIONS)
def test_a_text_that_ends_as_a_question_asks(text: str) -> None:
    assert asks(text)
    assert ASKING.tokens[0] in index_text(said("m", text)).split(" ")


@each("text", STATEMENTS)
def test_any_other_text_does_not(text: str) -> None:
    assert not asks(text)
    assert ASKING.tokens[0] not in index_text(said("m", text)).split(" ")


@each(
    ("speaker", "marks"),
    [("小明", ["小", "明"]), ("Ann Lee", ["ann", "lee"]), ("", []), (7, []), ("！", [])],
)
def test_a_speaker_is_marked_word_by_word(speaker: object, marks: list[str]) -> None:
    """Behind the words, of which the name is one, too; marks do not make a text longer."""
    text = index_text(said("m", "火锅 hotpots", metadata={"speaker": speaker}))
    assert [it for it in text.split(" ") if it.startswith(spoken_by(""))] == [
        spoken_by(it) for it in marks
    ]
    assert length(text) == len(marks) + len(["火", "锅", "hotpot"])


def test_notes_have_no_marks() -> None:
    assert index_text(noted("n", "去吗？ really?")) == search_text("去吗？ really?")


@given(text=st.text() | st.text(alphabet="\ue000\ue001小明 ann?吗"))
def test_nobody_can_write_a_mark(text: str) -> None:
    """Neither in a message nor in a query."""
    marks = (spoken_by(""), *ASKING.tokens)
    assert not any(mark in search_text(text) for mark in marks)
    typed = [token for phrase in parse(text).phrases for token in phrase.tokens]
    assert not any(mark in token for token in typed for mark in marks)
