"""Search in conversations: an answer is found by what was said around it."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kemem import Memory
from kemem.testing import FakeClock

NOW = int(datetime(2026, 1, 30, 12, tzinfo=UTC).timestamp()) * 1_000_000
SIDES = ("user", "assistant")
FILL = {
    "zh": ["今天上班很累", "多休息", "邻居家的猫又来了", "真可爱", "周末想去爬山", "注意安全"],
    "en": ["Work was tiring", "Get some rest", "The cat came", "How cute", "I may hike", "Be safe"],
}
TALK = {
    "zh": ["你妹妹养了什么宠物？", "一只金毛，叫豆豆", "它几岁了", "三岁"],
    "en": ["What pet does your sister have?", "A beagle called Biscuit", "How old?", "Three"],
}
ASKED = {"zh": "妹妹的宠物", "en": "my sister's pet"}
EACH = pytest.mark.parametrize("language", ["zh", "en"])


def told(texts: list[str], session: str, day: int = 1, **more: Any) -> list[dict[str, Any]]:
    """User and assistant in turn, a minute apart."""
    return [
        {
            "message_id": f"{session}-{at}",
            "content": text,
            "role": SIDES[at % 2],
            "session_id": session,
            "ts": f"2026-01-{day:02}T10:{at:02}:00Z",
            **more,
        }
        for at, text in enumerate(texts)
    ]


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(data_dir=tmp_path, clock=FakeClock(NOW)) as memory:
        yield memory


@EACH
def test_a_reply_is_found_by_its_question(memory: Memory, language: str) -> None:
    """It shares no word with what is asked; by words it comes right after its question."""
    memory.ingest(told(FILL[language], "fill"), "u")
    memory.ingest(told(TALK[language], "talk", day=2), "u")
    hits = memory.search(ASKED[language], "u", limit=2, explain=True)
    assert [hit.id for hit in hits] == ["talk-0", "talk-1"]
    assert hits[1].why[0].startswith("lexical#2 ")
    assert (hits[1].why[-1], hits[1].snippets) == ("terms: around it", ())
    assert "talk-1" not in [it.id for it in memory.lexical_search(ASKED[language], "u").items]


@EACH
def test_what_one_person_says_to_herself_lends_nothing(memory: Memory, language: str) -> None:
    """A diary is no conversation: its entries stand for themselves."""
    memory.ingest(told(TALK[language], "diary", role="user"), "u")
    hits = memory.search(ASKED[language], "u", explain=True)
    assert [hit.id for hit in hits if "lexical" in hit.why[0]] == ["diary-0"]


@EACH
def test_nothing_is_learnt_of_sensitive_words_around(memory: Memory, language: str) -> None:
    """A handle without a grant finds the reply by its meaning at most."""
    first, *others = told(TALK[language], "talk")
    memory.ingest([*others, *told(FILL[language], "fill", day=2)], "u")
    memory.add([first], "u", sensitive=True, infer=False)
    bare, granted = (
        {hit.id: hit.why for hit in handle.search(ASKED[language], explain=True)}
        for handle in (memory.for_user("u"), memory.for_user("u", sensitive=True))
    )
    assert granted["talk-1"][0].startswith("lexical")
    assert bare and not any(line.startswith("lexical") for why in bare.values() for line in why)


@EACH
def test_small_talk_does_not_drown_a_question(memory: Memory, language: str) -> None:
    """What is asked at the end is looked for, and not the talk before it."""
    facts = {
        "zh": ["我的护照放在书房的抽屉里", "今天天气真好，想出去走走", "最近的电影都不好看"],
        "en": [
            "My passport is in the study",
            "Lovely weather, let us walk",
            "Films are dull now",
        ],
    }[language]
    memory.ingest([{"message_id": f"m{at}", "content": text} for at, text in enumerate(facts)], "u")
    asked = {
        "zh": "今天天气真好，最近的电影真不好看，想出去走走。护照在哪里？",
        "en": "Lovely weather for a walk, and films are dull now. Where is my passport?",
    }[language]
    hits = memory.search(asked, "u", limit=3, explain=True)
    assert hits[0].id == "m0" and any(line.startswith("lexical#1 ") for line in hits[0].why)


@EACH
def test_who_is_named_is_heard_first(memory: Memory, language: str) -> None:
    names = {"zh": ("小明", "小红"), "en": ("Ann", "Bob")}[language]
    text = {"zh": "我喜欢爬山", "en": "I like hiking"}[language]
    for name in names:
        memory.ingest([{"message_id": name, "content": text, "metadata": {"speaker": name}}], "u")
    ask = {"zh": "{}喜欢什么", "en": "What does {} like?"}[language]
    for name in names:
        assert memory.search(ask.format(name), "u", limit=1)[0].id == name


@EACH
def test_a_date_without_a_year_is_the_latest_of_which_something_was_said(
    memory: Memory, language: str
) -> None:
    """An imported conversation may lie years back; what counts from now does not move."""
    text = {"zh": "午饭吃了面条", "en": "Noodles for lunch"}[language]
    for month in (3, 5, 6):
        said = {"message_id": f"m{month}", "content": text, "ts": f"2023-{month:02}-04T12:00:00Z"}
        memory.ingest([said], "u")
    dated = {"zh": "5月4日午饭吃了什么", "en": "What was for lunch on May 4?"}[language]
    best = memory.search(dated, "u", limit=1, explain=True)[0]
    assert best.id == "m5"
    assert any(line.startswith("time: ") for line in best.why)
    counted = {"zh": "去年五月午饭吃了什么", "en": "What was for lunch last May?"}[language]
    hits = memory.search(counted, "u", explain=True)
    assert not any(line.startswith("time: ") for hit in hits for line in hit.why)


@EACH
def test_yesterday_is_the_day_before_the_time_that_is_asked_for(
    memory: Memory, language: str
) -> None:
    """With `as_of`, a question is asked as it would have been asked then."""
    text = {"zh": "午饭吃了面条", "en": "Noodles for lunch"}[language]
    asked = {"zh": "昨天午饭吃了什么", "en": "What was for lunch yesterday?"}[language]
    for day in (10, 20, 29):
        memory.ingest(told([text], f"d{day}", day=day), "u")
    assert memory.search(asked, "u", limit=1)[0].id == "d29-0"
    assert memory.search(asked, "u", limit=1, as_of="2026-01-21T12:00:00Z")[0].id == "d20-0"


@pytest.mark.parametrize(
    ("before", "said", "asked", "rest"),
    [
        (
            "Tom works for the ambulance service.",
            "Tom quit the ambulance service. He's retraining as a physiotherapist.",
            "What does Tom do?",
            "physiotherapist",
        ),
        ("周强在消防队工作。", "周强辞职了。他在开店。", "周强从消防队辞职了吗？", "开店"),
    ],
)
def test_a_note_of_one_sentence_does_not_hide_the_others(
    tmp_path: Path, before: str, said: str, asked: str, rest: str
) -> None:
    with Memory(data_dir=tmp_path) as memory:
        for text in (before, said, "I like tea and I live in Rome."):
            memory.add(text, user_id="u")
        assert any(rest in hit.memory for hit in memory.search(asked, user_id="u"))


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("Hi! I live in Rome. Thanks!", "Where do I live?"),
        ("你好！我住在北京。谢谢！", "我住在哪里？"),
    ],
)
def test_a_greeting_beside_a_note_is_not_shown(tmp_path: Path, said: str, asked: str) -> None:
    with Memory(data_dir=tmp_path) as memory:
        memory.add(said, user_id="u")
        assert said not in {hit.memory for hit in memory.search(asked, user_id="u")}
