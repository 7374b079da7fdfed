"""Lives, as the training of the judge reads them: from the plain format and from the truth set."""

import json
import random
from datetime import datetime
from pathlib import Path

import pytest

from bench.lives import Life, in_haystack, read_lives, read_truth

MOVED = """
## en move
@ 2026-01-05 09:00
u[A]: I live in Berlin.
a: Nice!
@ 2026-03-05 18:30
u[B>A]: I moved to Munich.
u[C]: My sister Mia has a dog.

? 2026-04-01 10:00 | Where do I live? | B | stale A
? 2026-04-01 10:00 | Where did I live before? | A/C | stale A,B
? 2026-04-01 10:00 | Where do I live and who has a dog? | B+C
? 2026-04-01 10:00 | What is my blood type? | -

## zh pets
@ 2026-01-05 09:00
u[A]: 我养了一只猫
? 2026-01-06 08:00 | 我养了什么？ | A
"""


def lives_of(directory: Path, text: str) -> list[Life]:
    (directory / "some.txt").write_text(text, "utf-8")
    return read_lives(directory)


def test_a_life_has_its_messages_with_their_times(tmp_path: Path) -> None:
    """In the time zone of its language, two minutes apart, in their sessions."""
    english, chinese = lives_of(tmp_path, MOVED)
    assert (english.language, english.category) == ("en", "move")
    assert [it.role for it in english.messages] == ["user", "assistant", "user", "user"]
    assert [it.session for it in english.messages] == ["s1", "s1", "s2", "s2"]
    assert english.messages[1].at == datetime.fromisoformat("2026-01-05T09:02:00+00:00")
    assert chinese.messages[0].at == datetime.fromisoformat("2026-01-05T09:00:00+08:00")
    assert chinese.messages[0].content == "我养了一只猫" and chinese.questions[0].gold == {0}


def test_a_life_says_what_ended_and_what_answers(tmp_path: Path) -> None:
    """Either of two messages, or both; what answers is not stale; what was never said has none."""
    life, _ = lives_of(tmp_path, MOVED)
    assert life.endings == [(2, 0)]
    now, before, both, never = life.questions
    assert (now.hops, now.stale) == ((frozenset({2}),), frozenset({0}))
    assert (before.hops, before.stale) == ((frozenset({0, 3}),), frozenset({2}))
    assert both.hops == (frozenset({2}), frozenset({3})) and both.gold == {2, 3}
    assert never.hops == () and never.gold == frozenset()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("u: hello", "some.txt:1: no life has begun"),
        ("## en move\nhello", "some.txt:2: not a line of a life: 'hello'"),
        ("## fr move", "some.txt:1: no life has begun"),
    ],
)
def test_a_line_that_is_none_is_named(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        lives_of(tmp_path, text)


def test_the_lives_of_this_project_can_be_read() -> None:
    """In both languages; every question has its answer before it is asked."""
    lives = read_lives()
    assert {life.language for life in lives} == {"en", "zh"}
    assert len({life.name for life in lives}) == len(lives)
    for life in lives:
        assert life.messages, life.name
        for question in life.questions:
            assert not question.gold & question.stale, (life.name, question.text)
            told = [life.messages[place].at for place in question.gold]
            assert all(at <= question.now for at in told), (life.name, question.text)


def test_a_haystack_tells_nothing_that_is_asked_for(tmp_path: Path) -> None:
    """Sessions of other lives in the same language, none of which answers or ends anything."""
    hay = "\n## en hay\n@ 2026-02-01 09:00\nu[A]: I like tea.\n@ 2026-02-02 09:00\nu: Lovely day.\n"
    hay += "? 2026-04-01 10:00 | What do I like? | A\n"
    lives = lives_of(tmp_path, MOVED + hay)
    whole = in_haystack(lives[0], lives, 9, random.Random(1))
    assert [it.content for it in whole.messages[len(lives[0].messages) :]] == ["Lovely day."]
    assert whole.messages[: len(lives[0].messages)] == lives[0].messages
    assert whole.questions == lives[0].questions


def test_the_truth_set_names_answers_by_their_texts(tmp_path: Path) -> None:
    """Whatever the case; a question with hops needs a message of each."""
    messages = [
        {"role": "user", "content": text, "ts": "2026-01-05T09:00:00+00:00", "session_id": "s"}
        for text in ("I live in BERLIN", "I moved to Munich", "Mia has a dog")
    ]
    question = {"question": "Where?", "now": "2026-04-01T00:00:00+00:00"}
    asked = [
        {**question, "gold": ["munich"], "stale": ["berlin"]},
        {**question, "gold": [], "gold_all": [["munich"], ["dog"]], "stale": []},
        {**question, "gold": [], "stale": []},
    ]
    life = {"id": "1", "lang": "en", "category": "c", "messages": messages, "questions": asked}
    (tmp_path / "truth.jsonl").write_text(json.dumps(life) + "\n", "utf-8")
    (read,) = read_truth(tmp_path / "truth.jsonl")
    one, two, none = read.questions
    assert (one.hops, one.stale) == ((frozenset({1}),), frozenset({0}))
    assert two.hops == (frozenset({1}), frozenset({2})) and none.hops == ()
