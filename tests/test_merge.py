"""What a model says beside what KeMem reads: nothing is lost, told twice or ended unchecked."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kemem import AsyncMemory, Memory
from kemem.errors import InvalidArgument, NotFound
from kemem.records.times import to_micros
from kemem.settings import load
from kemem.testing import FakeClock, ScriptedLLM
from tests.cases import each
from tests.server import local_server

NOON = to_micros("2026-01-26T12:00:00Z")
DAY = 86_400.0


def claim(text: str, kind: str = "general", date: str = "", *replaces: int) -> dict[str, Any]:
    return {"text": text, "type": kind, "date": date, "replaces": [*replaces]}


async def live(
    directory: Path,
    told: Sequence[tuple[str, list[dict[str, Any]]]],
    embedder: str = "none",
    *,
    apart: bool = False,
) -> list[list[str]]:
    """What is true after each message, to which the model answers with these facts.

    They are one session, or `apart` in sessions of their own.
    """
    llm, clock = ScriptedLLM([{"facts": facts} for _, facts in told]), FakeClock(NOON)
    settings = load(data_dir=directory, embedder=embedder)
    known = []
    async with AsyncMemory(settings=settings, llm=llm, clock=clock) as memory:
        for number, (text, _) in enumerate(told):
            added = await memory.add(text, "u", session_id=f"s{number if apart else 0}")
            assert not added.problems
            known.append(sorted(it.memory for it in await memory.get_all("u")))
            clock.advance(seconds=DAY)
    return known


# Kept and merged


@pytest.mark.parametrize(
    ("said", "claimed"),
    [
        ("Tell me a joke about my cat", "User asks for a joke about a cat."),
        ("给我的猫讲个笑话", "用户询问关于猫的笑话。"),
        ("The van comes on Monday. Do I have to defrost it?", "Do I have to defrost it?"),
        ("周一搬家的车来。要不要除霜？", "要不要除霜？"),
        ('Continue my story: "I was born on a whaling ship in 1890"', "User was born on a ship."),
        ("帮我续写：“我出生在一条捕鲸船上，那是1890年”", "用户出生在捕鲸船上。"),
        ("I have never been on a plane", "Check-in means that airlines register passengers."),
        ("我没坐过飞机", "值机是帮助乘客办理登机手续的过程。"),
    ],
)
async def test_a_model_adds_nothing_that_the_user_did_not_say(
    tmp_path: Path, said: str, claimed: str
) -> None:
    """Not what the talk was about, not a question, not a quotation, not what it knows itself."""
    (by_rules,) = await live(tmp_path / "rules", [(said, [])])
    assert [by_rules] == await live(tmp_path / "model", [(said, [claim(claimed)])])


@pytest.mark.parametrize(
    ("known", "said", "claimed"),
    [
        ("I live in Kiel.", "My parents moved to Trier.", "User moved to Trier with their parents"),
        ("我住在无锡。", "我妹妹搬到苏州了。", "用户搬到苏州了"),
        ("I don't smoke.", "My colleague started smoking again.", "User started smoking again"),
        ("我不抽烟。", "我同事又开始抽烟了。", "用户又开始抽烟了"),
        ("I take insulin every morning.", "I stopped taking the pills.", "User stopped insulin"),
        ("I own a Volvo.", "I sold the boat.", "User sold the Volvo"),
        ("我养了一只猫叫豆包。", "馒头送给朋友了。", "用户把豆包送给朋友了"),
        ("我周一去看牙。", "理发取消了。", "看牙取消了"),
    ],
)
@pytest.mark.parametrize("embedder", ["none", "local"])
async def test_a_model_cannot_end_what_nobody_spoke_of(
    tmp_path: Path, known: str, said: str, claimed: str, embedder: str
) -> None:
    """What changed for somebody else, or with something else, is no change of the user's."""
    told = [(known, []), (said, [claim(claimed, "general", "", 1, 2)])]
    before, after = await live(tmp_path, told, embedder)
    assert {*before} <= {*after} and claimed not in after


@pytest.mark.parametrize(
    ("known", "said", "claimed"),
    [
        ("I'm vegan.", "I was vegan for years, now I eat meat again.", "User eats meat again"),
        ("我对花生过敏。", "我小时候对花生过敏，现在好了。", "用户对花生不过敏了"),
    ],
)
async def test_what_somebody_with_a_name_says_ends_nothing_of_the_users(
    tmp_path: Path, known: str, said: str, claimed: str
) -> None:
    """In a talk of several people."""
    llm = ScriptedLLM([{"facts": []}, {"facts": [claim(claimed, "general", "", 1)]}])
    settings = load(data_dir=tmp_path, embedder="local")
    async with AsyncMemory(settings=settings, llm=llm, clock=FakeClock(NOON)) as memory:
        await memory.add(known, "u")
        (before,) = await memory.get_all("u")
        await memory.add([{"role": "user", "name": "Gus", "content": said}], "u")
        assert before.id in [it.id for it in await memory.get_all("u")]


@pytest.mark.parametrize(
    ("said", "claimed"),
    [
        (
            '"Male, 35, no savings left, go home?" somebody asked, lucky me I work in a mill',
            "User works in a mill.",
        ),
        ("网上看到：“男，35，存款见底，该不该回老家？” 看得我心慌，还好我在水厂", "用户在水厂。"),
    ],
)
async def test_what_stands_beside_a_quotation_was_said(
    tmp_path: Path, said: str, claimed: str
) -> None:
    """Also in the same sentence, which rules do not read."""
    (known,) = await live(tmp_path, [(said, [claim(claimed)])])
    assert claimed in known


@pytest.mark.parametrize(
    ("asked", "offered", "said", "claimed"),
    [
        ("An opening for my essay", '"My home is in Perth"', "No, write again", "My home is Perth"),
        ("给作文写个开头", "“我的家乡在山西”", "不对，重写", "我的家乡在山西。"),
    ],
)
async def test_what_an_assistant_writes_in_the_first_person_is_not_the_users(
    tmp_path: Path, asked: str, offered: str, said: str, claimed: str
) -> None:
    """Whatever a model takes it for."""
    llm = ScriptedLLM([{"facts": [claim(claimed)]}])
    talk = [("user", asked), ("assistant", offered), ("user", said)]
    settings = load(data_dir=tmp_path, embedder="none")
    async with AsyncMemory(settings=settings, llm=llm, clock=FakeClock(NOON)) as memory:
        await memory.add([{"role": role, "content": text} for role, text in talk], "u")
        assert claimed not in [it.memory for it in await memory.get_all("u")]


@pytest.mark.parametrize(
    "said", ["我住在上海，对花生过敏。", "I live in Munich. I'm allergic to peanuts."]
)
@pytest.mark.parametrize("embedder", ["none", "local"])
async def test_a_model_that_finds_nothing_takes_nothing_away(
    tmp_path: Path, said: str, embedder: str
) -> None:
    """Never fewer facts than without a model."""
    settings = load(data_dir=tmp_path / "rules", embedder=embedder, llm="none")
    async with AsyncMemory(settings=settings, clock=FakeClock(NOON)) as memory:
        await memory.add(said, "u")
        alone = sorted(it.memory for it in await memory.get_all("u"))
    assert len(alone) == 2
    assert await live(tmp_path / "llm", [(said, [])], embedder) == [alone]


@each(
    ("said", "told"),
    [
        ("I live in Munich.", "The user lives in Munich."),
        ("I live in Munich.", "User resides in Munich"),
        ("I work at SAP.", "User is employed by SAP"),
        ("I have a dog called Rex.", "User's dog is called Rex"),
        ("I live in Munich and I work at SAP.", "User lives in Munich and works at SAP."),
        ("我住在上海。", "用户定居在上海"),
        ("我住在上海，在腾讯工作。", "用户住在上海，在腾讯工作。"),
    ],
)
async def test_the_same_fact_in_other_words_is_kept_once(
    tmp_path_factory: pytest.TempPathFactory, said: str, told: str
) -> None:
    """In the words of KeMem's own reading."""
    directory = tmp_path_factory.mktemp("data")
    (without,) = await live(directory / "a", [(said, [])], "local")
    assert await live(directory / "b", [(said, [claim(told)])], "local") == [without]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("I live in Munich. Rex, yes, a poodle", "Rex is a poodle"),
        ("我住在上海。雷克斯嘛，贵宾犬", "雷克斯是贵宾犬"),
    ],
)
async def test_what_only_the_model_finds_is_added(tmp_path: Path, said: str, told: str) -> None:
    (known,) = await live(tmp_path, [(said, [claim(told)])])
    assert told in known and len(known) == 2


@each(
    ("said", "told"),
    [
        ("What should I cook tonight?", "User lives in Paris"),
        ("Is Paris nicer than Berlin now?", "User lives in Paris now"),
        ("Haha, great, thanks!", "User likes football"),
        ("今晚吃什么好？", "用户住在巴黎"),
        ("哈哈，太好了，谢谢！", "用户喜欢足球"),
    ],
)
async def test_questions_and_small_talk_give_no_facts(
    tmp_path_factory: pytest.TempPathFactory, said: str, told: str
) -> None:
    assert await live(tmp_path_factory.mktemp("data"), [(said, [claim(told)])]) == [[]]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Can you find a gift for my wife Anna?", "User's wife is Anna"),
        ("给我的妻子安娜买什么礼物好？", "用户的妻子叫安娜"),
    ],
)
async def test_what_a_question_takes_for_granted_is_a_fact(
    tmp_path: Path, said: str, told: str
) -> None:
    (known,) = await live(tmp_path, [(said, [claim(told, "relationship")])])
    assert told in known


async def test_whoever_says_what_is_worth_extracting_gets_nothing_else(tmp_path: Path) -> None:
    """Advice for the model counts for what rules read, too."""
    llm = ScriptedLLM([{"facts": [claim("User loves ramen")]}])
    async with AsyncMemory(settings=load(data_dir=tmp_path, embedder="none"), llm=llm) as memory:
        await memory.add("I live in Munich. I love ramen.", "u", prompt="Only food.")
        assert [it.memory for it in await memory.get_all("u")] == ["User loves ramen"]


@pytest.mark.parametrize(
    ("said", "told"), [("我住在上海。", "用户住在上海"), ("I live in Rome.", "User lives in Rome")]
)
async def test_the_same_statement_with_another_date_is_not_added_twice(
    tmp_path: Path, said: str, told: str
) -> None:
    """Models write a date where none was said."""
    told_twice = [claim(told, "residence", f"2026-01-{day}", 1) for day in (26, 27)]
    known = await live(tmp_path, [(said, told_twice[:1]), (f"OK. {said}", told_twice[1:])])
    assert known == [[told], [told]]


# Ended only where the conversation shows it

HOME = {"en": ("I live in Berlin.", "User lives in Berlin"), "zh": ("我住在上海。", "用户住在上海")}
HARMLESS = {
    "en": [
        ("What should I cook tonight?", claim("User cooks tonight", "plan", "tonight", 1)),
        ("Is Paris nicer than Berlin now?", claim("User lives in Paris", "residence", "", 1)),
        ("Haha, great, thanks!", claim("", "general", "", 1)),
        ("I'm in Paris this week.", claim("User lives in Paris", "residence", "", 1)),
        ("My sister moved to Paris.", claim("User's sister lives in Paris", "residence", "", 1)),
        ("I bought a bike last week.", claim("User bought a bike", "possession", "last week", 1)),
        ("Maybe I'll move to Paris some day.", claim("User lives in Paris", "residence", "", 1)),
    ],
    "zh": [
        ("今晚吃什么好？", claim("用户想知道今晚吃什么", "plan", "今晚", 1)),
        ("北京现在比上海好吗？", claim("用户住在北京", "residence", "", 1)),
        ("哈哈，太好了，谢谢！", claim("", "general", "", 1)),
        ("我这周在北京。", claim("用户住在北京", "residence", "", 1)),
        ("我妹妹搬到北京了。", claim("用户的妹妹住在北京", "residence", "", 1)),
        ("我上周买了自行车。", claim("用户买了自行车", "possession", "上周", 1)),
    ],
}


@pytest.mark.parametrize("language", HOME)
@pytest.mark.parametrize("embedder", ["none", "local"])
async def test_a_model_ends_no_note_that_still_holds(
    tmp_path: Path, language: str, embedder: str
) -> None:
    """By a question, by small talk, by what is said of others or of something else."""
    first, note = HOME[language]
    for number, (said, told) in enumerate(HARMLESS[language]):
        directory = tmp_path / f"{number}"
        known = await live(directory, [(first, []), (said, [told])], embedder)
        assert note in known[-1], said


UNSAID: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "en": (
        "I study chemistry in Ghent. I rent a room from Mrs De Smet.",
        [
            ("The heating is out again, brr.", "User rents a room from Mrs De Smet in Ghent"),
            ("The room is cold again, brr.", "User rents a cold room from Mrs De Smet"),
            ("I don't like football.", "User likes football"),
            ("Where did you get a brother from? I'm an only child.", "User has a brother"),
            ("Wine or beer with fish?", "User drinks wine with fish"),
        ],
    ),
    "zh": (
        "我在根特学化学。我租德斯梅太太的房子。",
        [
            ("暖气又坏了，真冷。", "用户在根特租了德斯梅太太的房子"),
            ("我不喜欢足球。", "用户喜欢足球"),
            ("你怎么说我有弟弟？我是独生女。", "用户有一个弟弟"),
            ("吃鱼配白酒还是啤酒？", "用户吃鱼喝白酒"),
        ],
    ),
}


@pytest.mark.parametrize("language", UNSAID)
async def test_a_fact_that_was_not_said_is_left_out(tmp_path: Path, language: str) -> None:
    """One that a memory says in other words, that was denied, or that was only asked about."""
    first, cases = UNSAID[language]
    for number, (said, told) in enumerate(cases):
        turns = [(first, []), (said, [claim(told)])]
        known = await live(tmp_path / f"{number}", turns, apart=True)
        assert told not in known[-1], said


SAID = {
    "en": [
        ("I gave up smoking.", "User does not smoke"),
        ("I never learned to drive.", "User is unable to drive"),
        ("Anyway, my tabby Biscuit threw up again, should I worry?", "User has a tabby Biscuit"),
        ("The room is cold again, so a heater, 40 euros.", "User bought a heater for 40 euros"),
    ],
    "zh": [
        ("烟嘛，戒了。", "用户不抽烟"),
        ("我家橘猫饼干又吐了，要紧吗？", "用户有一只橘猫叫饼干"),
        ("房间又冷，只好买个暖风机，三百块。", "用户花三百块买了暖风机"),
    ],
}


@pytest.mark.parametrize("language", SAID)
async def test_a_fact_that_was_said_is_kept(tmp_path: Path, language: str) -> None:
    """In other words, as what a question is about, beside memories of the same things."""
    for number, (said, told) in enumerate(SAID[language]):
        first, _ = UNSAID[language]
        known = await live(tmp_path / f"{number}", [(first, []), (said, [claim(told)])])
        words = known[-1]
        assert told in words or len(words) > len(known[0]), said


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        ("I'm an AI, and I like crosswords!", "Assistant likes crosswords"),
        ("A two-bed flat costs 1,500 pounds a month.", "A two-bed flat costs 1,500 pounds"),
        ("我是人工智能，喜欢猜谜。", "助手喜欢猜谜"),
    ],
)
async def test_what_an_assistant_is_or_explains_is_no_memory(
    tmp_path: Path, reply: str, told: str
) -> None:
    llm = ScriptedLLM([{"facts": [claim(told)]}])
    async with AsyncMemory(settings=load(data_dir=tmp_path, embedder="none"), llm=llm) as memory:
        asked = "Tell me something?" if reply.isascii() else "说点什么？"
        turn = [{"role": "user", "content": asked}, {"role": "assistant", "content": reply}]
        assert (await memory.add(turn, "u")).results == ()


@pytest.mark.parametrize(
    ("turn", "told"),
    [
        (("Fish?", "I booked a table for 8.", "ok"), "Assistant booked a table for 8"),
        (("Ferns?", "Does your balcony face north?", "yep, north"), "User's balcony faces north"),
        (("能吃吗", "您是周五去长春吧？", "对，周五去长春"), "用户去长春"),
    ],
)
async def test_what_a_user_confirms_is_kept(
    tmp_path: Path, turn: tuple[str, ...], told: str
) -> None:
    llm = ScriptedLLM([{"facts": [claim(told)]}])
    roles = ("user", "assistant", "user")
    messages = [{"role": it, "content": text} for it, text in zip(roles, turn, strict=True)]
    async with AsyncMemory(settings=load(data_dir=tmp_path, embedder="none"), llm=llm) as memory:
        results = (await memory.add(messages, "u")).results
    assert told in [it.memory for it in results]


ENDED = {
    "en": (
        "I drive a Skoda.",
        "User drives a Skoda",
        "By the way, sold the Skoda",
        "Sold the Skoda",
    ),
    "zh": ("我开一辆斯柯达。", "用户开一辆斯柯达", "对了，那辆斯柯达卖了", "用户的斯柯达卖了"),
}


@pytest.fixture(params=ENDED)
def sold(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """A memory in which a note was ended, as a model said; and the note's text."""
    first, note, second, told = ENDED[request.param]
    llm = ScriptedLLM([{"facts": []}, {"facts": [claim(told, "possession", "", 1)]}])
    clock = FakeClock(NOON)
    with Memory(settings=load(data_dir=tmp_path, embedder="none"), llm=llm, clock=clock) as memory:
        memory.add(first, "u")
        clock.advance(seconds=DAY)
        memory.add(second, "u")
        clock.advance(seconds=DAY)
        yield memory, note


def test_what_a_model_ended_is_listed_and_undone(sold: tuple[Memory, str]) -> None:
    memory, note = sold
    assert note not in [it.memory for it in memory.get_all("u")]
    (line,) = memory.ended("u")
    assert (line.before, line.reason) == (note, "ended by the model scripted")
    assert memory.ended("u", model="another") == [] == memory.ended("v")
    again = memory.reopen(line.note_id, user_id="u")
    assert (again.memory, again.note.valid_until) == (note, None)
    assert note in [it.memory for it in memory.get_all("u")]
    assert memory.history(line.note_id)[0].reason == "holds again: undone"
    assert memory.reopen(line.note_id) == again, "which holds already"
    assert all(it.superseded_by is None for it in memory.search(note, "u"))


def test_only_an_own_note_can_be_reopened(sold: tuple[Memory, str]) -> None:
    memory, _ = sold
    (line,) = memory.ended("u")
    with pytest.raises(NotFound):
        memory.reopen(line.note_id, user_id="v")
    (message, *_) = memory.messages("u").items
    with pytest.raises(InvalidArgument, match="messages do not end"):
        memory.reopen(message.message_id, user_id="u")


def test_it_is_listed_and_undone_over_http(tmp_path: Path) -> None:
    first, note, second, told = ENDED["en"]
    llm = ScriptedLLM([{"facts": []}, {"facts": [claim(told, "possession", "", 1)]}])
    ids = {"user_id": "u"}
    with local_server(tmp_path, {"llm": llm}) as server, server.client() as client:
        for text in (first, second):
            client.post("/v1/memories", json={"messages": text, **ids}).raise_for_status()
        (line,) = client.get("/v1/memories/ended", params=ids).json()["items"]
        assert (line["before"], line["reason"]) == (note, "ended by the model scripted")
        path = f"/v1/memories/{line['memory_id']}/reopen"
        assert client.post(path).status_code == 400, "whose it is must be said"
        assert client.post(path, params={"user_id": "v"}).status_code == 404
        assert client.post(path, params=ids).json()["memory"] == note
        assert note in client.get("/v1/memories", params=ids).text
        assert client.get("/v1/memories/ended", params={**ids, "model": "x"}).json()["items"] == []


@pytest.mark.parametrize("language", HOME)
async def test_what_nothing_shows_is_only_proposed(tmp_path: Path, language: str) -> None:
    """The history of the new note names the old one, and who says so."""
    first, _ = HOME[language]
    said, told = HARMLESS[language][5]
    llm, clock = ScriptedLLM([{"facts": []}, {"facts": [told]}]), FakeClock(NOON)
    settings = load(data_dir=tmp_path, embedder="none")
    async with AsyncMemory(settings=settings, llm=llm, clock=clock) as memory:
        (old,) = (await memory.add(first, "u")).results
        clock.advance(seconds=DAY)
        added = await memory.add(said, "u")
        reasons = [(await memory.history(it.id))[0].reason for it in added.results]
        assert f"may replace {old.id}, by the model scripted" in reasons
        assert await memory.ended("u") == []
