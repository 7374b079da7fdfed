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
    directory: Path, told: Sequence[tuple[str, list[dict[str, Any]]]], embedder: str = "none"
) -> list[list[str]]:
    """What is true after each message, to which the model answers with these facts."""
    llm, clock = ScriptedLLM([{"facts": facts} for _, facts in told]), FakeClock(NOON)
    settings = load(data_dir=directory, embedder=embedder)
    known = []
    async with AsyncMemory(settings=settings, llm=llm, clock=clock) as memory:
        for text, _ in told:
            added = await memory.add(text, "u")
            assert not added.problems
            known.append(sorted(it.memory for it in await memory.get_all("u")))
            clock.advance(seconds=DAY)
    return known


# Kept and merged


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
