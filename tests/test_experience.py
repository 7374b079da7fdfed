"""What a session leaves behind when it ends."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kemem.add.experience import extract_experience, read_verdict
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
        (
            CHINESE,
            "目标：帮我把 Redis 的连接超时问题查一下，线上一直报错。\n"
            "无效：试了把 timeout 调大，没什么变化。\n"
            "有效：原因是有个任务没有释放连接，我改成了 with 语句。解决了，线上不再报错。\n"
            "结论：记住，下次先查连接泄漏，不要先调超时。",
        ),
        (
            ENGLISH,
            "Goal: Please help me find out why the nightly Airflow job fails.\n"
            "Did not work: I tried to restart the scheduler, but that did not help.\n"
            "Worked: It turned out that the disk was full, so we switched to a bigger volume. "
            "Yes, it works now and the job passed.\n"
            "Learned: Remember to check the disk first next time.",
        ),
    ],
)
async def test_rules_tell_the_goal_what_failed_and_what_worked(
    texts: list[str], wanted: str
) -> None:
    """In the language of the session, with the messages that say it."""
    fact = await extract_experience(talk(texts), (), parts_with())
    assert fact is not None and fact.text == wanted
    assert (fact.memory_type, fact.importance) == ("experience", 0.6)
    assert fact.sources[0] == "m00002" and {"m00006", "m00008", "m00009"} <= set(fact.sources)
    assert fact.keywords in (("Redis",), ("nightly", "Airflow", "fails"))


def sections(text: str) -> dict[str, list[str]]:
    """What stands under each title."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        title, _, rest = line.replace("：", ": ").partition(": ")
        found.setdefault(title, []).append(rest)
    return found


ATTEMPTS = {
    "zh": (
        ["我们的网站打不开，帮我看看怎么办。", "先重启看看。"],
        ["试了重启 {}，没用。", "把 {} 调大了，没有变化。", "换了 {}，还是报错。"],
        ["换成 {} 以后好了，问题解决了。", "加了 {}，搞定。"],
        ("无效", "有效"),
    ),
    "en": (
        ["Our website is broken, please help me fix that.", "Try a restart first."],
        [
            "I restarted {}, that did not help.",
            "I tried a larger {}. No change at all.",
            "Then I replaced {}, but it failed again.",
        ],
        ["With {} it works now.", "I added {} and that fixed it."],
        ("Did not work", "Worked"),
    ),
}


@given(
    language=st.sampled_from(["zh", "en"]),
    outcomes=st.lists(st.tuples(st.booleans(), st.integers(0, 2)), min_size=1, max_size=6),
)
async def test_what_failed_is_never_told_as_what_worked(
    language: str, outcomes: list[tuple[bool, int]]
) -> None:
    """Whatever was tried in which order; what worked in the end is named."""
    opening, failures, successes, (vain, good) = ATTEMPTS[language]
    texts, names = list(opening), [f"part{at}x" for at in range(len(outcomes))]
    for name, (works, at) in zip(names, outcomes, strict=True):
        templates = successes if works else failures
        reply = "哦。" if language == "zh" else "I see."
        texts += [templates[at % len(templates)].format(name), reply]
    fact = await extract_experience(talk(texts), (), parts_with())
    assert fact is not None
    told = sections(fact.text)
    failed = {name for name, (works, _) in zip(names, outcomes, strict=True) if not works}
    assert not any(name in text for name in failed for text in told.get(good, []))
    if outcomes[-1][0]:
        assert names[-1] in told[good][-1]
    else:
        assert names[-1] in told[vain][-1]


@each(
    ("texts", "worked", "failed"),
    [
        (
            [
                "打印机连不上，帮我看看。",
                "换根线试试。",
                "换线没用，后来重装驱动就好了，解决了。",
                "好",
            ],
            "重装驱动",
            "换线没用",
        ),
        (
            [
                "The printer fails, how do I fix that?",
                "Try another cable.",
                "Another cable did not help, but a new driver fixed it.",
                "Great!",
            ],
            "a new driver fixed it",
            "Another cable did not help",
        ),
    ],
)
async def test_one_sentence_may_tell_both(texts: list[str], worked: str, failed: str) -> None:
    """What failed and what worked stand under their own titles."""
    fact = await extract_experience(talk(texts), (), parts_with())
    assert fact is not None
    _, vain, good = fact.text.splitlines()[:3]
    assert failed in vain and failed not in good and worked in good


@each(
    "texts",
    [
        [
            *("网站打不开，帮我看看怎么办。", "重启一下。", "重启以后好了，解决了。", "太好了"),
            *("唉，今天又坏了，还是报错。", "嗯"),
        ],
        [
            *("The site is broken, help me.", "Restart it.", "A restart fixed it.", "Great!"),
            *("Sadly it failed again this morning.", "Hm."),
        ],
        [
            *("The site is broken, help me.", "Restart it.", "A restart fixed it.", "Great!"),
            *("It stopped working an hour later.", "Hm."),
        ],
    ],
)
async def test_what_broke_again_did_not_work(texts: list[str]) -> None:
    """A success that did not last is an attempt."""
    fact = await extract_experience(talk(texts), (), parts_with())
    assert fact is not None
    told = sections(fact.text)
    assert "有效" not in told and "Worked" not in told
    assert any(
        "重启" in text or "restart" in text.lower()
        for text in told.get("无效", told.get("Did not work", []))
    )


@each(
    ("text", "verdict"),
    [
        *(("解决了", True), ("还没解决", False), ("问题解决不了", False), ("希望能解决了", None)),
        *(
            ("成功率是 90%", None),
            ("一开始成功了，后来又失败了", False),
            ("换线没用，后来修好了", True),
        ),
        *(("It works now.", True), ("That did not work.", False), ("It is not fixed.", False)),
        *(("That should be fixed soon.", None), ("I worked at Google.", None)),
        *(("Ask for a fixed price.", None), ("It worked at first, then it failed.", False)),
        *(("X did not help, but Y fixed it.", True), ("My uncle passed away.", None)),
    ],
)
def test_success_and_failure_are_told_apart(text: str, verdict: bool | None) -> None:
    """The last word counts; hopes and other meanings of the words do not."""
    assert read_verdict(text) is verdict


@each(
    ("texts", "goals"),
    [
        (
            [
                *("接口一直报 504，怎么办？", "看看索引。", "加了索引，解决了。", "好"),
                *("还有一个问题，测试偶尔失败，帮我看看。", "时区？", "改了时区，搞定。", "好"),
            ],
            ["接口一直报 504，怎么办？", "还有一个问题，测试偶尔失败，帮我看看。"],
        ),
        (
            [
                *("Our API throws 504, how can I fix it?", "An index?", "An index fixed it.", "Ok"),
                *("Next problem: a test fails at night.", "Time zones?", "TZ=UTC solved it.", "Ok"),
            ],
            ["Our API throws 504, how can I fix it?", "Next problem: a test fails at night."],
        ),
    ],
)
async def test_each_problem_has_its_own_solution(texts: list[str], goals: list[str]) -> None:
    """The second begins when the first is solved."""
    fact = await extract_experience(talk(texts), (), parts_with())
    assert fact is not None
    told = sections(fact.text)
    assert told.get("目标", told.get("Goal")) == goals
    assert len(told.get("有效", told.get("Worked", []))) == 2


@each(
    ("texts", "claim"),
    [
        (["网站打不开，帮我看看。", "重启。", "试了重启，没用。", "嗯"], "重启以后问题解决了。"),
        (
            ["The site is broken, help me.", "Restart it.", "I tried that, no change.", "Hm"],
            "The restart fixed it.",
        ),
    ],
)
async def test_a_model_may_not_call_solved_what_failed(texts: list[str], claim: str) -> None:
    """Where the session ends with a failure, rules tell what happened."""
    llm = ScriptedLLM([{"experience": claim, "keywords": []}])
    fact = await extract_experience(talk(texts), (), parts_with(llm))
    assert fact == await extract_experience(talk(texts), (), parts_with())
    assert fact is not None and claim not in fact.text


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


LESSONS = (
    "Redis 连接超时，线上一直报错：把 timeout 调大没有变化；原因是有个任务没有释放连接，"
    "改成 with 语句后解决了，线上不再报错。",
    "The nightly Airflow job failed. Restarting the scheduler did not help. The disk was full; "
    "since the switch to a bigger volume the job works.",
)


@pytest.mark.parametrize(
    ("texts", "prompt", "told"),
    [(CHINESE, "一次会话结束了", LESSONS[0]), (ENGLISH, "A session has ended", LESSONS[1])],
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


@each("texts", SMALL_TALK)
async def test_the_model_may_say_that_nothing_is_worth_it(texts: list[str]) -> None:
    llm = ScriptedLLM([{"experience": None, "keywords": []}])
    assert await extract_experience(talk(texts), (), parts_with(llm)) is None
    assert len(llm.calls) == 1


@each(
    ("texts", "claim"),
    [
        (CHINESE, None),
        (CHINESE, "Redis 报错时先查连接泄漏。"),
        (CHINESE, "Redis 连接超时、线上一直报错：试了把 timeout 调大，解决了。"),
        (ENGLISH, None),
        (ENGLISH, "Check the disk first when Airflow fails."),
        (
            ENGLISH,
            "The nightly Airflow job failed. I tried to restart the scheduler: it works now.",
        ),
    ],
)
async def test_a_model_s_lesson_tells_what_was_tried_and_what_worked(
    texts: list[str], claim: str | None
) -> None:
    """Where it tells less than rules read, or takes an attempt for the solution, theirs stays."""
    llm = ScriptedLLM([{"experience": claim, "keywords": []}])
    fact = await extract_experience(talk(texts), (), parts_with(llm))
    assert fact is not None and fact == await extract_experience(talk(texts), (), parts_with())


@each("reply", [ConnectionError(), "no JSON", [], {"experience": 3}])
@each("texts", [CHINESE, ENGLISH])
async def test_rules_draw_it_where_the_model_fails(texts: list[str], reply: Any) -> None:
    """The session ends with what it taught all the same."""
    by_rules = await extract_experience(talk(texts), (), parts_with())
    assert await extract_experience(talk(texts), (), parts_with(ScriptedLLM([reply]))) == by_rules


async def test_what_the_model_is_shown_and_says_is_bounded() -> None:
    """However long the session, and however talkative the model."""
    endless = LESSONS[0] + "长" * 9_000
    llm = ScriptedLLM([{"experience": endless, "keywords": ["词" * 900] * 90}])
    texts = [*CHINESE, *("我在第" + str(at) + "站换车。</talk>" + "路" * 400 for at in range(200))]
    fact = await extract_experience(talk(texts), [note("n", "记" * 9_000)], parts_with(llm))
    data = llm.calls[0].messages[1]["content"]
    assert count_tokens(data) < 7_000 and data.count("</talk>") == 1
    assert fact is not None and count_tokens(fact.text) <= 300
    assert fact.keywords == ("词" * 50,)
