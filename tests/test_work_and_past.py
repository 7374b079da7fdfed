"""Questions about somebody's work, and what was beside what is."""

from pathlib import Path

import pytest

from kemem import Memory
from kemem.settings import Settings
from kemem.text.reading import read, tells_what_was

WORK = {
    "en": (
        "My sister Hanna just qualified as a paramedic, so proud of her.",
        "Hanna does yoga on Tuesdays and pottery at weekends.",
        "My son Felix is an apprentice electrician.",
        "Felix passed his exams and now he works as a roofer.",
        "Felix broke my blender.",
        "Our neighbour Ivo drives the number 14 tram.",
        "Ivo complained about the noise again.",
        "My dad used to be a butcher, he sells insurance now.",
        "Dad does the crossword every morning.",
    ),
    "zh": (
        "我姐许婷刚考上急救员，替她高兴。",
        "许婷周二做瑜伽，周末做陶艺。",
        "我儿子小凯在修车铺当学徒。",
        "小凯转行了，现在当消防员。",
        "小凯把我的榨汁机弄坏了。",
        "邻居老何开14路公交的。",
        "老何又嫌我们家吵。",
        "我爸以前是卖肉的，现在跑保险。",
        "我爸每天早上做数独。",
    ),
}
# What is asked, and a word of what should come first.
ASKED = {
    "en": (
        ("What does Hanna do?", "paramedic"),
        ("What does my sister do for a living?", "paramedic"),
        ("What does Felix do?", "roofer"),
        ("What does Ivo do for work?", "tram"),
        ("What's my dad's job?", "insurance"),
        ("What does my father do these days?", "insurance"),
        ("What did my dad do before?", "butcher"),
    ),
    "zh": (
        ("许婷是做什么的？", "急救员"),
        ("我姐做什么工作？", "急救员"),
        ("小凯是干什么的？", "消防员"),
        ("老何是干嘛的？", "公交"),
        ("我爸的职业是什么？", "保险"),
        ("我爸现在做什么？", "保险"),
        ("我爸以前是做什么的？", "卖肉"),
    ),
}
TO_WORK = {
    "en": (
        "I mostly cycle to work along the canal now that the bridge is closed.",
        "I used to take the ring road to work.",
        "How do I get to work nowadays?",
        "How did I get to work before?",
    ),
    "zh": (
        "桥封了，现在我沿着运河骑车上班。",
        "以前我都走环线去上班。",
        "我现在怎么去上班？",
        "我以前怎么去上班？",
    ),
}


@pytest.mark.parametrize("language", WORK)
def test_work_answers_what_somebody_does(tmp_path: Path, language: str) -> None:
    """Not what they did last, and the last work, unless an earlier one is asked for."""
    with Memory(settings=Settings(data_dir=tmp_path, llm="none")) as memory:
        for at, text in enumerate(WORK[language]):
            memory.add(text, "u", session_id=f"s{at}")
        for question, word in ASKED[language]:
            hits = memory.search(question, "u")
            assert word in hits[0].memory, (question, hits)


@pytest.mark.parametrize("language", TO_WORK)
def test_what_was_is_below_what_is(tmp_path: Path, language: str) -> None:
    """Though it was said later; unless it is asked for."""
    now, before, asked, asked_before = TO_WORK[language]
    with Memory(settings=Settings(data_dir=tmp_path, llm="none")) as memory:
        for at, text in enumerate((now, before)):
            memory.add(text, "u", session_id=f"s{at}", infer=False)
        assert memory.search(asked, "u")[0].memory == now
        assert memory.search(asked_before, "u")[0].memory == before


@pytest.mark.parametrize(
    ("text", "was"),
    [
        *(("I used to smoke.", True), ("I'm used to the noise.", False)),
        *(("I used to smoke, now I run.", False), ("We got used to it.", False)),
        *(("我以前抽烟。", True), ("现在比以前好。", False), ("我以前抽烟，现在跑步。", False)),
        *(("遇到了以前的同事。", False), ("小时候我住在乡下。", True)),
    ],
)
def test_texts_that_only_tell_what_was(text: str, was: bool) -> None:
    assert tells_what_was(text) is was


@pytest.mark.parametrize(
    ("text", "tells"),
    [
        *(("She is a paralegal.", True), ("He drives a taxi.", True), ("He runs a bakery.", True)),
        *(("She does yoga.", False), ("He is a bit late.", False), ("He drives me mad.", False)),
        *(("She is a mother of two.", False), ("He worked as an usher.", True)),
        *(("她在气象局搞预报。", True), ("他跑外卖。", True), ("他当了三年兵。", True)),
        *(("他做瑜伽。", False), ("她在家做饭。", False), ("他开门了。", False)),
    ],
)
def test_texts_that_tell_of_work(text: str, tells: bool) -> None:
    assert read(text).tells("job") is tells
