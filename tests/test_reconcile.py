"""What is known already is not remembered twice, and nothing that is new is taken for known."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count, permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kemem import AsyncMemory, Note
from kemem.add.decide import Decision, reconcile
from kemem.add.extract import new_note
from kemem.add.parse import Task
from kemem.add.reconcile import marks
from kemem.add.rules import Fact
from kemem.records import Scope
from kemem.settings import load
from kemem.testing import FakeClock, HashingEmbedder, ScriptedLLM
from kemem.text.segment import as_printed, fingerprint
from tests.cases import each

NOW = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
HOUR = 3_600_000_000
ME = Scope("a", "u", "s")
TASK = Task("user_info")
COUNT = count()

# Fingerprints: statements are the same, or they are not

STATEMENTS = (
    "用户的血压是{}",
    "用户每天吃{}片维生素",
    "User takes {} pills a day",
    "User's flat is number {}",
    "{} 是用户的幸运数字",
    "{} kg is the weight of the cat",
)
NUMBERS = st.one_of(
    st.integers(-999, 99_999).map(str),
    st.integers(1, 9_999).map(lambda n: f"{n / 100:.2f}"),
    st.tuples(st.integers(0, 23), st.integers(0, 59)).map(lambda it: f"{it[0]}:{it[1]:02}"),
    st.tuples(st.integers(60, 200), st.integers(40, 120)).map(lambda it: f"{it[0]}/{it[1]}"),
)


@given(template=st.sampled_from(STATEMENTS), one=NUMBERS, other=NUMBERS)
def test_another_number_is_another_statement(template: str, one: str, other: str) -> None:
    assume(one != other)
    assert fingerprint(template.format(one)) != fingerprint(template.format(other))


@given(
    template=st.sampled_from(["用户{}去看牙医", "User sees the dentist on {}", "{} 体检", "{}"]),
    one=st.dates(),
    other=st.dates(),
    form=st.sampled_from(["%Y-%m-%d", "%Y/%m/%d", "%Y年%m月%d日"]),
)
def test_another_date_is_another_statement(template: str, one: Any, other: Any, form: str) -> None:
    assume(one != other)
    texts = [template.format(day.strftime(form)) for day in (one, other)]
    assert fingerprint(texts[0]) != fingerprint(texts[1])


@each(
    "one, other",
    [
        ("用户吃辣", "用户不吃辣"),
        ("用户有过敏", "用户没有过敏"),
        ("User eats meat", "User doesn't eat meat"),
        ("User does eat meat", "User does not eat meat"),
        ("User can swim", "User can't swim"),
        ("User likes tea", "User never likes tea"),
        ("User cant swim", "User can't swim at all"),
    ],
)
def test_a_negation_is_another_statement(one: str, other: str) -> None:
    assert fingerprint(one) != fingerprint(other)


NAMES = st.sampled_from(
    [
        *("李明", "李鸣", "王都", "王挺", "王", "成都", "京都", "京", "也门", "张三", "张三丰"),
        *("Ann", "Anna", "Anne", "Jo", "Joe", "C", "C++", "C#", "F#", "R", "The Who"),
    ]
)


@given(template=st.sampled_from(["用户的朋友叫{}", "User knows {}", "{}"]), one=NAMES, other=NAMES)
def test_another_name_is_another_statement(template: str, one: str, other: str) -> None:
    assume(one != other)
    assert fingerprint(template.format(one)) != fingerprint(template.format(other))


@each(
    "one, other",
    [
        ("用户的房租是 $500", "用户的房租是 €500"),
        ("User pays £9 a month", "User pays $9 a month"),
        ("体重 >80", "体重 <80"),
        ("User takes vitamin A", "User takes vitamin"),
        ("User has hepatitis A", "User has hepatitis"),
        ("室温 5 度", "室温 -5 度"),
        ("室温 5 度", "室温-5 度"),
        ("It is 5 outside", "It is −5 outside"),
        ("Dose: .5 mg", "Dose: 5 mg"),
        ("3.5公斤的猫", "2.5公斤的猫"),
        ("8.30 meeting", "9.30 meeting"),
        ("用户的评价: 👍", "用户的评价: 👎"),
        ("用户了解他", "用户解他"),
    ],
)
def test_a_sign_that_changes_what_is_said_makes_another_statement(one: str, other: str) -> None:
    assert fingerprint(one) != fingerprint(other)


WORDS = st.sampled_from(
    ["mother", "Tuesday", "green", "dog", "Berlin", "母亲", "周二", "绿茶", "昨天"]
)


@given(words=st.lists(WORDS, min_size=1, max_size=6), more=WORDS, at=st.integers(0, 6))
def test_a_word_more_is_another_statement(words: list[str], more: str, at: int) -> None:
    longer = [*words[:at], more, *words[at:]]
    assert fingerprint(" ".join(words)) != fingerprint(" ".join(longer))
    assert fingerprint("".join(words)) != fingerprint("".join(longer))


@given(
    text=st.sampled_from(["用户不吃辣", "User doesn't eat spicy food", "用户的猫叫Mimi", "3 只猫"]),
    bullet=st.sampled_from(["", "- ", "* ", "• ", "12. ", "3) ", "  - "]),
    end=st.sampled_from(["", "。", ".", "!", "！", " ...", "；"]),
    date=st.sampled_from(["", " (2026-01-26)", "（2026-01-26）"]),
    upper=st.booleans(),
)
def test_bullets_ends_dates_and_case_do_not_matter(
    text: str, bullet: str, end: str, date: str, upper: bool
) -> None:
    """As memories are printed, numbered and quoted."""
    told = f"{bullet}{text.upper() if upper else text}{end}{date}"
    assert fingerprint(text) in set(as_printed(told))


@each(
    "one, other",
    [
        ("用户很喜欢猫", "用户喜欢猫"),
        ("用户也喜欢猫呢", "用户喜欢猫"),
        ("User really likes the cat", "User likes cat"),
        ("User likes tea, too", "User likes tea"),
        ("用户 喜欢：猫", "用户 喜欢 猫"),
        ("Ｕser likes ｔea", "user likes tea"),
        ("User doesn’t like tea", "User doesn't like tea"),
    ],
)
def test_fillers_and_width_do_not_matter(one: str, other: str) -> None:
    assert fingerprint(one) == fingerprint(other)


@given(text=st.text(max_size=30))
def test_every_text_has_a_fingerprint(text: str) -> None:
    """Also one of signs alone, which says something by itself."""
    assert len(fingerprint(text)) == 32
    assert fingerprint(text) == fingerprint(text)


@given(one=st.text("-*$👎👍", max_size=5), other=st.text("-*$👎👍", max_size=5))
def test_signs_alone_are_told_apart(one: str, other: str) -> None:
    assert (fingerprint(one) == fingerprint(other)) == (one == other)


# Decisions


def fact(text: str, *sources: str, **more: Any) -> Fact:
    """A fact of a message of its own, unless the messages are named."""
    return Fact(text, sources or (f"m{next(COUNT)}",), **more)


def known(text: str, since: int = NOW, **more: Any) -> Note:
    return new_note(fact(text, **more), TASK, ME, since, since)


def decide(facts: Sequence[Fact], notes: Sequence[Note], at: int = NOW) -> list[Decision]:
    names = {name for it in facts for name in it.sources}
    return reconcile(facts, notes, dict.fromkeys(names, at), TASK, ME, at)


@each("text, again", [("用户不吃辣", "用户也不吃辣。"), ("User likes tea", "User likes the tea!")])
def test_a_known_fact_gains_a_source(text: str, again: str) -> None:
    note = known(text)
    (decision,) = decide([fact(again, "again", importance=0.9)], [note], NOW + HOUR)
    assert decision.known and not decision.ended and decision.note is not None
    assert (decision.note.note_id, decision.note.content) == (note.note_id, text)
    assert decision.note.sources == (*note.sources, "again")
    assert decision.note.importance == 0.9


def test_facts_of_one_call_know_each_other() -> None:
    """Twice the same is one note; a later address of the same message replaces the first."""
    first, again, moved = decide(
        [
            fact("住在北京", topic="user/lives_in"),
            fact("住在北京。", topic="user/lives_in"),
            fact("lives in Rome", topic="user/lives_in"),
        ],
        [],
    )
    assert first.note and again.note and moved.note
    assert again.known and again.note.note_id == first.note.note_id
    assert [it.note_id for it in moved.ended] == [first.note.note_id]
    assert moved.note.supersedes == first.note.note_id


def test_marks_are_what_rivals_are_looked_up_by() -> None:
    facts = [fact("住在北京", topic="user/lives_in"), fact("likes tea")]
    assert marks(facts) == {fingerprint("住在北京"), fingerprint("likes tea"), "user/lives_in"}


@each("how", ["topic", "replaces"])
def test_a_note_that_is_replaced_keeps_the_time_in_which_it_was_true(how: str) -> None:
    old = known("住在北京", topic="user/lives_in")
    more: dict[str, Any] = {"topic": "user/lives_in"} if how == "topic" else {"replaces": (old.id,)}
    (decision,) = decide([fact("lives in Rome", **more)], [old], NOW + HOUR)
    (ended,) = decision.ended
    assert (ended.valid_from, ended.valid_until) == (NOW, NOW + HOUR)
    assert ended.content == "住在北京" and decision.note is not None
    assert (decision.note.valid_from, decision.note.valid_until) == (NOW + HOUR, None)


def test_what_is_over_ends_without_a_new_note() -> None:
    old = known("喜欢茶")
    (decision,) = decide([fact("", replaces=(old.id,))], [old], NOW + HOUR)
    assert decision.note is None and decision.ended[0].valid_until == NOW + HOUR


def test_a_note_that_ended_is_no_reason_to_ignore_its_return() -> None:
    """北京, then Rome, then 北京 again: three notes."""
    home = {"topic": "user/lives_in"}
    notes: dict[str, Note] = {}
    for number, text in enumerate(("住在北京", "lives in Rome", "住在北京")):
        (decision,) = decide([fact(text, **home)], list(notes.values()), NOW + number * HOUR)
        assert decision.note and not decision.known
        notes |= {it.note_id: it for it in (*decision.ended, decision.note)}
    assert [it.valid_until for it in notes.values()] == [NOW + HOUR, NOW + 2 * HOUR, None]


PLACES = ("住在北京", "住在上海", "lives in Rome", "lives in Oslo")


@each("order", list(permutations(range(3))))
def test_facts_in_any_order_give_one_history(order: Sequence[int]) -> None:
    """At each time exactly what had been said last before it is true."""
    notes: dict[str, Note] = {}
    for number in order:
        told = fact(PLACES[number], f"m{number}", topic="user/lives_in")
        said = {f"m{number}": NOW + number * HOUR}
        (decision,) = reconcile([told], list(notes.values()), said, TASK, ME, NOW + 9 * HOUR)
        assert decision.note is not None
        notes |= {it.note_id: it for it in (*decision.ended, decision.note)}
    for number in range(3):
        at = NOW + number * HOUR + 1
        true = [it.content for it in notes.values() if it.valid_from <= at and not it.ended(at)]
        assert true == [PLACES[number]]


@given(order=st.permutations(range(5)), again=st.integers(0, 4))
def test_to_draw_again_from_known_messages_changes_nothing(order: list[int], again: int) -> None:
    """Also from a message whose fact is no longer true."""
    said = {f"m{n}": NOW + n * HOUR for n in range(5)}
    told = [fact(f"住在第{n}区", f"m{n}", topic="user/lives_in") for n in range(5)]
    notes: dict[str, Note] = {}
    for number in sorted(order):
        (decision,) = reconcile([told[number]], list(notes.values()), said, TASK, ME, NOW)
        assert decision.note
        notes |= {it.note_id: it for it in (*decision.ended, decision.note)}
    later = NOW + 9 * HOUR
    (decision,) = reconcile([told[again]], list(notes.values()), said, TASK, ME, later)
    assert decision.known and decision.note == notes[decision.note.note_id if decision.note else ""]


# Through a memory


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW)


@pytest.fixture
async def memory(tmp_path: Path, clock: FakeClock) -> AsyncIterator[AsyncMemory]:
    """A memory by words and rules."""
    settings = load(data_dir=tmp_path, embedder="none", llm="none")
    async with AsyncMemory(settings=settings, clock=clock) as opened:
        yield opened


def at(**since: float) -> datetime:
    return datetime.fromtimestamp(NOW / 1e6, UTC) + timedelta(**since)


async def true(memory: AsyncMemory, when: datetime | None = None) -> list[str]:
    return [it.memory for it in await memory.get_all("u", as_of=when)]


MOVES = pytest.mark.parametrize(
    "before, after, old, new, asked",
    [
        ("我住在北京", "我搬到上海了", "用户住在北京", "用户住在上海", "北京 上海"),
        (
            "I live in Rome",
            "I moved to Oslo",
            "User lives in Rome",
            "User lives in Oslo",
            "Rome Oslo",
        ),
    ],
)


@MOVES
async def test_what_was_true_can_be_asked_as_of_a_time(
    memory: AsyncMemory, clock: FakeClock, before: str, after: str, old: str, new: str, asked: str
) -> None:
    """By listing, by searching and in the graph; the history tells what happened."""
    (first,) = (await memory.add(before, "u")).results
    clock.advance(seconds=3600)
    (second,) = (await memory.add(after, "u")).results
    assert (second.event, second.previous) == ("UPDATE", old)
    clock.advance(seconds=3600)
    for when, text in ((at(minutes=30), [old]), (at(minutes=90), [new]), (None, [new])):
        assert await true(memory, when) == text
        hits = await memory.search(asked, "u", as_of=when, kinds=["user_info"])
        assert [hit.memory for hit in hits] == text
        (relation,) = await memory.graph("u", as_of=when)
        assert relation.destination in text[0]
    assert await true(memory, at(minutes=-1)) == []
    ended, added = await memory.history(first.id)
    assert (added.event, added.after) == ("add", old)
    assert (ended.event, ended.before, ended.after) == ("update", old, None)
    assert second.id in (ended.reason or "")
    shown = (await memory.get(first.id)).to_dict()
    assert shown["valid_until"].startswith("2026-01-01T01:00")
    assert (await memory.get(second.id)).note.supersedes == first.id


@MOVES
async def test_what_is_told_late_was_true_until_what_is_known_began(
    memory: AsyncMemory, before: str, after: str, old: str, new: str, asked: str
) -> None:
    await memory.add(after, "u", timestamp=at(hours=2))
    (told,) = (await memory.add(before, "u", timestamp=at(hours=1))).results
    assert told.event == "ADD"
    note = (await memory.get(told.id)).note
    assert (note.valid_from, note.valid_until) == (NOW + HOUR, NOW + 2 * HOUR)
    assert await true(memory, at(hours=1.5)) == [old]
    assert await true(memory, at(hours=2.5)) == [new]


@MOVES
async def test_a_conversation_that_is_added_again_changes_nothing(
    memory: AsyncMemory, before: str, after: str, old: str, new: str, asked: str
) -> None:
    """What has ended was true when it was said: it is known, and what replaced it still holds."""
    states = []
    for _ in range(3):
        for text, hours in ((before, 1), (after, 2)):
            added = await memory.add(text, "u", timestamp=at(hours=hours))
        states.append([await true(memory, at(hours=it)) for it in (1.5, 2.5)])
    assert states == [[[old], [new]]] * 3
    assert [it.event for it in added.results] == ["NONE"]
    notes = await memory.notes("u")
    assert [(it.content, len(it.sources)) for it in notes] == [(new, 3), (old, 3)]


async def test_what_is_told_late_ends_what_was_true_before_it(memory: AsyncMemory) -> None:
    """北京 in 2020, 广州 in 2024; later we hear of 上海 in 2022."""
    for text, year in (("我住在北京", 2020), ("我搬到广州了", 2024), ("我搬到上海了", 2022)):
        await memory.add(text, "u", timestamp=f"{year}-01-01T00:00:00Z")
    then = [await true(memory, datetime(year, 1, 1, tzinfo=UTC)) for year in (2021, 2023, 2025)]
    assert then == [["用户住在北京"], ["用户住在上海"], ["用户住在广州"]]


@pytest.mark.parametrize(
    "said",
    ["我下周要去成都出差", "I'm going to Boston next week", "I'm going to the dentist tomorrow"],
)
async def test_the_same_plan_a_month_later_is_another_one(
    memory: AsyncMemory, clock: FakeClock, said: str
) -> None:
    """ "Next week" is not what it was: both are remembered, each with its date."""
    (first,) = (await memory.add(said, "u")).results
    clock.advance(seconds=30 * 86_400)
    (second,) = (await memory.add(said, "u")).results
    assert (first.event, second.event) == ("ADD", "ADD")
    assert (await memory.get(first.id)).note.ts != (await memory.get(second.id)).note.ts


@pytest.mark.parametrize("said", ["我不吃辣", "I love tea"])
async def test_what_expired_is_remembered_anew(
    memory: AsyncMemory, clock: FakeClock, said: str
) -> None:
    """A note that is over cannot stand for what is said now."""
    await memory.add(said, "u", expires_at=at(hours=1))
    clock.advance(seconds=7200)
    await memory.add(said, "u")
    assert len(await memory.get_all("u")) == 1
    await memory.run_jobs()
    assert len(await memory.get_all("u")) == 1


@pytest.mark.parametrize("said", ["我不吃辣", "I love tea"])
async def test_what_is_said_again_without_an_end_has_none(
    memory: AsyncMemory, clock: FakeClock, said: str
) -> None:
    """Told for an hour, then for good: it stays."""
    await memory.add(said, "u", expires_at=at(hours=1))
    await memory.add(said, "u")
    clock.advance(seconds=7200)
    await memory.run_jobs()
    assert len(await memory.get_all("u")) == 1


@MOVES
async def test_extract_again_adds_nothing(
    memory: AsyncMemory, clock: FakeClock, before: str, after: str, old: str, new: str, asked: str
) -> None:
    """What is known already stays as it is, also what is no longer true."""
    for text in (before, after):
        await memory.add(text, "u")
        clock.advance(seconds=3600)
    for _ in range(2):
        again = await memory.extract("u")
        assert {it.event for it in again.results} <= {"NONE"}
    assert (await memory.health()).notes == 2
    assert await true(memory, at(minutes=30)) == [old]


# Many at once


@pytest.mark.parametrize("said", ["我不吃辣", "I can't eat spicy food"])
@pytest.mark.parametrize("model", ["rules", "llm", "llm, in other words"])
async def test_a_fact_that_is_told_twenty_times_at_once_is_one_note(
    tmp_path: Path, said: str, model: str
) -> None:
    """With sources for all of them."""

    def answer(_: object) -> object:
        counted.append(1)
        end = "." * len(counted) if "other" in model else ""
        return {"facts": [{"text": f"fact {said}{end}"}]}

    counted: list[int] = []
    llm = None if model == "rules" else ScriptedLLM([answer], repeat=True)
    settings = load(data_dir=tmp_path, embedder="none", llm="none")
    async with AsyncMemory(settings=settings, llm=llm, embedder=HashingEmbedder()) as memory:
        added = await asyncio.gather(
            *(memory.add(said, "u", session_id=f"s{n % 3}") for n in range(20))
        )
        events = sorted(it.event for each in added for it in each.results)
        assert events == ["ADD", *["NONE"] * 19]
        (note,) = await memory.get_all("u")
        assert sorted(note.sources) == sorted(each.message_ids[0] for each in added)


async def test_two_memories_of_one_directory_make_one_note(tmp_path: Path) -> None:
    """As two processes would: the store settles what their turns cannot."""
    settings = load(data_dir=tmp_path, embedder="none", llm="none")
    async with AsyncMemory(settings=settings) as one, AsyncMemory(settings=settings) as other:
        await one.health()
        await asyncio.gather(*(it.add("我不吃辣", "u") for it in (one, other) * 6))
        assert [it.memory for it in await one.get_all("u")] == ["用户不吃辣"]


# What was recalled is not said again


@pytest.mark.parametrize(
    "said, asked, around",
    [
        ("我不吃辣", "不吃辣", "关于用户的记忆: \n{}\n推荐一家火锅店"),
        ("I love tea", "tea", "Known memories:\n{}\nWhat should I drink?"),
    ],
)
@pytest.mark.parametrize("whole", [True, False])
@pytest.mark.parametrize("infer", [True, False])
async def test_recalled_text_is_not_remembered_again(
    tmp_path: Path, said: str, asked: str, around: str, whole: bool, infer: bool
) -> None:
    """Alone or inside a message, with notes and messages in it; the model does not even see it."""
    llm = ScriptedLLM([{"facts": []}, {"facts": []}])
    settings = load(data_dir=tmp_path, embedder="none")
    async with AsyncMemory(settings=settings, llm=llm, clock=FakeClock(NOW)) as memory:
        (note,) = (await memory.add(said, "u", infer=infer)).results
        before = len(llm.calls)
        for kinds in (["user_info"], ["message"], None):
            recalled = str(await memory.search(asked, "u", kinds=kinds))
            assert asked in recalled
            told = recalled if whole else around.format(recalled)
            llm.replies = [*[{"facts": []}] * 9]
            await memory.add({"role": "user", "content": told}, "u")
        asks = [call.messages[-1]["content"] for call in llm.calls[before:]]
        drawn_from = [ask.partition("<conversation>")[2] for ask in asks]
        assert said not in "\n".join(drawn_from)
        assert len(llm.calls) - before == (0 if whole else 3)
        assert [it.id for it in await memory.get_all("u")] == [note.id]


async def test_what_is_true_again_is_no_quotation(tmp_path: Path, clock: FakeClock) -> None:
    """The words of a note that has ended are said anew, and count."""
    texts = ("I live in Rome", "I live in Oslo", "I live in Rome")
    answers = [{"facts": [{"text": text, "replaces": [1]}]} for text in texts]
    settings = load(data_dir=tmp_path, embedder="none")
    async with AsyncMemory(settings=settings, llm=ScriptedLLM(answers), clock=clock) as memory:
        for text in texts:
            await memory.add(text, "u")
            clock.advance(seconds=60)
        assert await true(memory) == ["User lives in Rome"]


# Told to be over


@pytest.mark.parametrize(
    "said, old, told",
    [
        ("我开一辆斯柯达。", "用户开一辆斯柯达", "对了，那辆斯柯达卖了"),
        ("I drive a Skoda.", "User drives a Skoda", "By the way, sold the Skoda"),
    ],
)
async def test_a_model_can_end_a_memory(
    tmp_path: Path, clock: FakeClock, said: str, old: str, told: str
) -> None:
    """{"text": "", "replaces": [1]}: the note is over, and its history says so."""
    answers: list[Any] = [{"facts": [{"text": old}]}, {"facts": [{"text": "", "replaces": [1]}]}]
    settings = load(data_dir=tmp_path, embedder="none")
    async with AsyncMemory(settings=settings, llm=ScriptedLLM(answers), clock=clock) as memory:
        (first,) = (await memory.add(said, "u")).results
        clock.advance(seconds=60)
        ended = await memory.add(told, "u")
        assert not ended.pending and old not in await true(memory)
        assert await true(memory, at(seconds=30)) == [old]
        over, by_model, *_ = await memory.history(first.id)
        assert over.reason == f"told to be over by {ended.message_ids[0]}"
        assert by_model.reason == "ended by the model scripted"
