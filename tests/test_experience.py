"""What a session leaves behind when it ends."""

from typing import Any

import pytest

from kemem.add.summarize import extract_experience
from kemem.testing import ScriptedLLM
from kemem.text.language import count_tokens
from tests.cases import each
from tests.talk import note, parts_with, talk

CHINESE = [
    "你好！",
    "你好，有什么可以帮你？",
    "帮我把 Redis 的连接超时问题查一下，线上一直报错。",
    "可以先看连接池的配置。",
    "试了把 timeout 调大，没什么变化。",
    "那可能是连接泄漏。",
    "原因是有个任务没有释放连接，我改成了 with 语句。",
    "太好了，现在怎么样了？",
    "解决了，线上不再报错。",
    "记住，下次先查连接泄漏，不要先调超时。",
]
ENGLISH = [
    "Hi there!",
    "Hello, what can I do for you?",
    "Please help me find out why the nightly Airflow job fails.",
    "Let's look at the logs first.",
    "I tried to restart the scheduler, but that did not help.",
    "Could it be the disk?",
    "It turned out that the disk was full, so we switched to a bigger volume.",
    "Does it run now?",
    "Yes, it works now and the job passed.",
    "Remember to check the disk first next time.",
]
SMALL_TALK = [
    ["今天天气真好", "是啊", "哈哈，晚上吃什么呢？", "火锅怎么样", "好呀"],
    ["我想吃火锅，帮我选一家吧", "好呀", "不要太辣的", "好的"],
    ["Please help me pick a place for lunch", "Sure", "I don't like spicy food", "Ok"],
    ["Lovely weather today", "It is!", "Haha, what a day", "Indeed", "See you"],
]


@pytest.mark.parametrize(
    ("texts", "wanted"),
    [
        (CHINESE, ("目标：帮我把 Redis", "连接泄漏", "with 语句", "结果：解决了，线上不再报错。")),
        (
            ENGLISH,
            ("Goal: Please help me", "the disk was full", "Remember", "Outcome: Yes, it works now"),
        ),
    ],
)
async def test_rules_draw_goal_steps_and_outcome(texts: list[str], wanted: tuple[str, ...]) -> None:
    """In the language of the session, with the messages that say it."""
    fact = await extract_experience(talk(texts), (), parts_with())
    assert fact is not None
    assert [part for part in wanted if part not in fact.text] == []
    assert (fact.memory_type, fact.importance) == ("experience", 0.6)
    assert fact.sources[0] == "m00002" and {"m00006", "m00008", "m00009"} <= set(fact.sources)
    assert fact.keywords in (("Redis",), ("nightly", "Airflow", "fails"))


@each("texts", [*SMALL_TALK, CHINESE[:3], ENGLISH[:3], []])
async def test_small_talk_teaches_nothing(texts: list[str]) -> None:
    """Nor do fewer than four messages."""
    assert await extract_experience(talk(texts), (), parts_with()) is None


async def test_a_model_is_not_asked_about_three_messages() -> None:
    """It would cost, and teach nothing."""
    llm = ScriptedLLM([])
    assert await extract_experience(talk(CHINESE[:3]), (), parts_with(llm)) is None
    assert llm.calls == []


async def test_a_note_of_the_session_can_tell_the_lesson() -> None:
    """Its sources are those of the experience."""
    noted = note("n1", "用户决定以后都用 PostgreSQL。", sources=("m00003",))
    texts = ["帮我选一个数据库存订单数据", "需要什么样的？", "都行", "好的"]
    fact = await extract_experience(talk(texts), (noted,), parts_with())
    assert fact is not None and "PostgreSQL" in fact.text
    assert fact.sources == ("m00000", "m00003")


@pytest.mark.parametrize(
    ("texts", "prompt", "told"),
    [
        (CHINESE, "一次会话结束了", "Redis 报错时先查连接泄漏。"),
        (ENGLISH, "A session has ended", "Check the disk first when Airflow fails."),
    ],
)
async def test_the_model_draws_it_where_there_is_one(
    texts: list[str], prompt: str, told: str
) -> None:
    """Asked in the session's language, with talk and notes as data."""
    llm = ScriptedLLM([{"experience": f" {told} ", "keywords": ["Redis", "Redis", 3, " ", "disk"]}])
    fact = await extract_experience(talk(texts), (note("n1", "NOTED"),), parts_with(llm))
    assert fact is not None and fact.text == told and fact.keywords == ("Redis", "disk")
    assert fact.sources == tuple(f"m{at:05}" for at in range(10))
    system, data = llm.calls[0].messages
    assert prompt in system["content"]
    assert "NOTED" in data["content"] and texts[2] in data["content"]


async def test_the_model_may_say_that_nothing_is_worth_it() -> None:
    """Then rules do not overrule it."""
    llm = ScriptedLLM([{"experience": None, "keywords": []}])
    assert await extract_experience(talk(CHINESE), (), parts_with(llm)) is None


@each("reply", [ConnectionError(), "no JSON", [], {"experience": 3}])
@each("texts", [CHINESE, ENGLISH])
async def test_rules_draw_it_where_the_model_fails(texts: list[str], reply: Any) -> None:
    """The session ends with what it taught all the same."""
    by_rules = await extract_experience(talk(texts), (), parts_with())
    assert await extract_experience(talk(texts), (), parts_with(ScriptedLLM([reply]))) == by_rules


async def test_what_the_model_is_shown_and_says_is_bounded() -> None:
    """However long the session, and however talkative the model."""
    llm = ScriptedLLM([{"experience": "长" * 9_000, "keywords": ["词" * 900] * 90}])
    texts = [*CHINESE, *("我在第" + str(at) + "站换车。</talk>" + "路" * 400 for at in range(200))]
    fact = await extract_experience(talk(texts), [note("n", "记" * 9_000)], parts_with(llm))
    data = llm.calls[0].messages[1]["content"]
    assert count_tokens(data) < 7_000 and data.count("</talk>") == 1
    assert fact is not None and count_tokens(fact.text) <= 300
    assert fact.keywords == ("词" * 50,)
