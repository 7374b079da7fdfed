"""Who asks for advice is helped by their tastes and limits, though no word is shared."""

from pathlib import Path

import pytest

from kemem import Memory
from kemem.search.understand import understand
from kemem.settings import Settings
from kemem.text.advice import asked_advice

TOLD = {
    "en": (
        "I'm lactose intolerant.",
        "My brother Tom is allergic to shellfish.",
        "I love Ethiopian food.",
        "I can't stand war films.",
        "My brother Tom is mad about chess.",
        "I work as a welder.",
        "The boiler was repaired on Monday.",
        "My favourite singer is Björk.",
        "I drive an old Volvo.",
    ),
    "zh": (
        "我对海鲜过敏。",
        "我哥哥乳糖不耐受。",
        "我特别爱吃云南菜。",
        "我受不了战争片。",
        "我哥哥迷上了围棋。",
        "我是电焊工。",
        "锅炉周一修好了。",
        "我最喜欢的歌手是朴树。",
        "我开一辆旧沃尔沃。",
    ),
}
# What is asked, which of the above it takes account of, and what it leaves out.
ASKED = {
    "en": (
        ("Can you suggest a dessert?", (0, 2), (1, 3, 5, 6)),
        ("Where should we eat on Friday?", (0, 2), (1, 3, 6)),
        ("Recommend something to watch tonight", (3,), (0, 2, 6)),
        ("What should I get my brother for his birthday?", (4,), (0, 2, 3)),
    ),
    "zh": (
        ("聚餐去哪家馆子好？", (0, 2), (1, 3, 5, 6)),
        ("给我推荐几道菜", (0, 2), (1, 3, 6)),
        ("今晚有什么电影推荐？", (3,), (0, 2, 6)),
        ("送哥哥什么礼物合适？", (4,), (0, 2, 3)),
    ),
}


@pytest.mark.parametrize("language", TOLD)
def test_tastes_and_limits_come_first(tmp_path: Path, language: str) -> None:
    """Those of whoever the advice is for."""
    told = TOLD[language]
    with Memory(settings=Settings(data_dir=tmp_path, llm="none")) as memory:
        notes = [memory.add(text, "u", session_id=f"s{at}") for at, text in enumerate(told)]
        source = {it.message_ids[0]: at for at, it in enumerate(notes)}
        for question, wanted, others in ASKED[language]:
            hits = memory.search(question, "u")
            found = [source[(*hit.sources, hit.id)[0]] for hit in hits]
            assert {*wanted} <= {*found[: len(wanted) + 1]}, (question, hits)
            likely = sum(hit.score >= 0.4 for hit in hits)
            assert not {*others} & {*found[:likely]}, (question, hits)
            recalled = [it.content for it in memory.recall(question, "u").evidence]
            assert hits[0].memory in recalled


@pytest.mark.parametrize(
    "text",
    [
        *("Which hotel did Anna recommend?", "What did the doctor advise me?", "What do I do?"),
        *("What should I bring on Friday?", "When should I take my pills?", "I recommend tea."),
        *("朋友推荐的咖啡馆叫什么？", "医生建议我做什么？", "我推荐过哪本书？", "我该几点吃药？"),
    ],
)
def test_a_question_about_what_was_said_is_none_for_advice(text: str) -> None:
    assert asked_advice(text) is None


@pytest.mark.parametrize(
    ("text", "about", "asking"),
    [
        ("I worry about getting around Tokyo. Any helpful tips or advice?", "tokyo", "tip"),
        ("Could you recommend a museum in Oslo?", "oslo", "recommend"),
        ("下个月在东京坐车，有点发愁。你有什么好的建议吗？", "坐车", "建议"),
        ("My phone is so slow. What do you think, should I upgrade?", "phone", "think"),
        ("Which game should I play next?", "game", "next"),
        ("推荐一家无锡的旅馆", "无锡", "推荐"),
        ("求推荐个蓝牙耳机", "耳机", "推荐"),
        ("书荒了，求安利", "书荒", "安利"),
        ("电脑卡死了，你说我要不要换一台？", "电脑", "要不要"),
    ],
)
def test_nothing_is_looked_for_by_the_words_of_a_request(
    text: str, about: str, asking: str
) -> None:
    """But by what it is about; and what somebody asked before counts like what they told."""
    parsed = understand(text, 0)
    looked_for = {"".join(unit.tokens) for part in parsed.texts for unit in part.query.units}
    assert about in looked_for and asking not in looked_for
    if len(text) <= 60:  # nor by its vector, which the words of a long request do not sway
        assert not any(asking in part.text.lower() for part in parsed.texts)
    assert parsed.query.conversation and not parsed.query.conversation.answers


@pytest.mark.parametrize("text", ["Any tips?", "有什么建议？"])
def test_a_request_of_nothing_else_is_searched_as_it_is(text: str) -> None:
    assert understand(text, 0).query.units


@pytest.mark.parametrize("text", ["这家店有什么推荐菜？", "那家馆子的推荐菜是啥"])
def test_what_a_place_recommends_is_a_fact(text: str) -> None:
    assert asked_advice(text) is None
