"""Which day a statement means: plans lie ahead, habits have none, and "since" tells a beginning."""

from pathlib import Path

import pytest

from kemem import AsyncMemory
from kemem.add.rules import extract_by_rules
from kemem.facts.sentences import dated
from kemem.records import Message
from kemem.records.times import to_micros, to_rfc3339
from kemem.settings import Settings
from tests.cases import each

NOW = to_micros("2026-11-11T09:00:00Z")  # a Wednesday


@each(
    ("text", "day"),
    [
        ("We finally picked dates for Crete: oct 5-9", "2027-10-05 – 2027-10-09"),
        ("克里特的日期定下来了，10月5日到9日", "2027-10-05 至 2027-10-09"),
        ("The offsite got moved, april 17 now instead", "2027-04-17"),
        ("The exam got postponed until march 3", "2027-03-03"),
        ("User pushed the review to friday", "2026-11-13"),
        ("答辩推到28号了", "2026-11-28"),
        ("会议改到下周五", "2026-11-20"),
        ("体检延到3月了", "2027-03"),
        ("手术推迟了，改在3号", "2026-12-03"),
        ("User got a job in Porto, moving there in january", "2027-01"),
        ("User got into Bologna, starts in september", "2027-09"),
        ("用户拿到了里昂的offer，一月搬过去", "2027-01"),
        ("User and others decided to go to Spain in july", "2027-07"),
        ("用户跟他约了3号见面", "2026-12-03"),
        ("Monday's appointment got pushed to Thursday next week", "2026-11-19"),
        ("The concert is next month on the 9th", "2026-12-09"),
        ("音乐会在下个月9号", "2026-12-09"),
        ("周一的会改到周六了", "2026-11-14"),
        ("From March User will be on leave", "2027-03"),
        ("User starts in the lab on 3 March", "2027-03-03"),
        ("In three days User starts as a trainee", "2026-11-14"),
        ("孩子三月可以上小学了", "2027-03"),
        ("用户下个月能拿到驾照了", "2026-12"),
        ("科目三约到二十八号上午了", "2026-11-28"),
        ("手术给用户排在12月2号了", "2026-12-02"),
        ("婚宴订到了一月九号", "2027-01-09"),
        ("用户抢到了12月20号演唱会的票", "2026-12-20"),
        ("User got an appointment on the 28th", "2026-11-28"),
        ("User made an appointment with the vet for the 24th", "2026-11-24"),
        ("User managed to get tickets for the concert on December 12", "2026-12-12"),
        ("The hearing was rescheduled to the 27th", "2026-11-27"),
    ],
)
def test_what_is_planned_booked_or_put_off_lies_ahead(text: str, day: str) -> None:
    """Whatever else the sentence tells of the past."""
    found = dated(text, NOW)
    assert found is not None and (found.tense, found.written) == (1, day)


@each(
    ("text", "day"),
    [
        ("User moved to Berlin in May", "2026-05"),
        ("User picked up Ana on Friday", "2026-11-06"),
        ("User was in Crete oct 5-9", "2026-10-05 – 2026-10-09"),
        ("User's mum came for christmas", "2025-12-24 – 2025-12-26"),
        ("用户10月5号去了克里特", "2026-10-05"),
        ("用户5月2号办了婚礼", "2026-05-02"),
        ("用户三月搬过来了", "2026-03"),
        ("User and Tom split up on Friday", "2026-11-06"),
        ("User tore a ligament on Sunday", "2026-11-08"),
        ("万圣节开始吃全素", "2026-10-31"),
        ("国庆开始学车了", "2026-10-01 至 2026-10-07"),
        ("用户28号看了牙医", "2026-10-28"),
        ("用户是11月1号入职的", "2026-11-01"),
        ("用户上次体检是十月三十号做的", "2026-10-30"),
        ("用户6号请假没去上班", "2026-11-06"),
        ("User's interview on the 10th went well", "2026-11-10"),
        ("User missed the appointment on the 9th", "2026-11-09"),
    ],
)
def test_what_is_told_of_the_past_stays_there(text: str, day: str) -> None:
    found = dated(text, NOW)
    assert found is not None and (found.tense, found.written) == (-1, day)


@each(
    "text",
    [
        "User has yoga every Monday",
        "User has piano lessons weekly on Tuesday",
        "User teaches Tuesday nights",
        "User works Monday to Friday",
        "用户每周一上瑜伽课",
        "用户周一三五去健身房",
        "用户周一到周五上班",
        "用户逢周一值班",
    ],
)
def test_what_recurs_has_no_single_date(text: str) -> None:
    assert dated(text, NOW) is None


@each(
    ("text", "note"),
    [
        ("科目三约到11月28号上午了", "科目三约到11月28号上午了（2026-11-28）"),
        ("牙医约到28号上午了", "牙医约到28号上午了（2026-11-28）"),
        ("The party was on the 28th", "The party was on the 28th (2026-10-28)"),
        ("The party was moved to the 28th", "The party was moved to the 28th (2026-11-28)"),
        ("The party is on the 28th", "The party is on the 28th (2026-11-28)"),
        ("My exam has been moved to the 2nd", "User's exam has been moved to the 2nd (2026-12-02)"),
        (
            "I had to put the talk off to March 9, the hall leaks",
            "User had to put the talk off to March 9, the hall leaks (2027-03-09)",
        ),
        (
            "I had to move the exam to January 8",
            "User had to move the exam to January 8 (2027-01-08)",
        ),
        ("我跳槽了，十二月起去博物馆做讲解", "用户跳槽了，十二月起去博物馆做讲解（2026-12）"),
        ("考试改到2号了", "考试改到2号了（2026-12-02）"),
        (
            "The wedding got postponed to March",
            "The wedding got postponed to March (2027-03)",
        ),
        ("婚礼推迟到三月了", "婚礼推迟到三月了（2027-03）"),
        ("My desk was moved to the 2nd floor", "User's desk was moved to the 2nd floor"),
    ],
)
def test_a_note_tells_the_day_that_was_meant(text: str, note: str) -> None:
    message = Message("m", "a", "u", "s", "user", text, NOW, NOW)
    (fact,) = extract_by_rules([message]).facts
    assert fact.text == note


@pytest.mark.parametrize(
    ("said", "since"),
    [
        ("I'm allergic to peanuts since May", "2026-05-01"),
        ("I've lived in Oslo since 2019", "2019-01-01"),
        ("I've worked at Fiat since last March", "2026-03-01"),
        ("I've been vegetarian since May", "2026-05-01"),
        ("I'm working at a bakery as of this month", "2026-11-01"),
        ("我这个月起在顺丰公司上班", "2026-11-01"),
        ("我从去年三月起吃素", "2025-03-01"),
        ("我从2020年开始在腾讯工作", "2020-01-01"),
        ("我从五月起不喝咖啡了", "2026-05-01"),
    ],
)
async def test_a_note_holds_since_when_its_text_says(tmp_path: Path, said: str, since: str) -> None:
    """And not only since it was said."""
    settings = Settings(data_dir=tmp_path, llm="none", embedder="none")
    async with AsyncMemory(settings=settings, clock=lambda: NOW) as memory:
        await memory.add(said, user_id="u")
        (note,) = await memory.get_all(user_id="u")
    assert to_rfc3339(note.note.valid_from)[:10] == since
    assert note.note.memory_type not in ("event", "plan")


@pytest.mark.parametrize(
    ("before", "after", "places"),
    [
        ("I live in Berlin", "I've lived in Munich since June", ("Berlin", "Munich")),
        ("我住在成都", "我从六月起住在厦门", ("成都", "厦门")),
    ],
)
async def test_what_it_ended_lasted_until_then(
    tmp_path: Path, before: str, after: str, places: tuple[str, str]
) -> None:
    """What was said last counts, even where it tells of a time before what was said first."""
    settings = Settings(data_dir=tmp_path, llm="none", embedder="none")
    async with AsyncMemory(settings=settings, clock=lambda: NOW) as memory:
        await memory.add(before, user_id="u", timestamp="2026-01-05T09:00:00Z")
        await memory.add(before, user_id="late", timestamp="2026-10-05T09:00:00Z")
        for user in ("u", "late"):
            await memory.add(after, user_id=user, timestamp="2026-11-05T09:00:00Z")
            (now,) = await memory.get_all(user_id=user)
            assert places[1] in now.memory
        for month, place in (("03", places[0]), ("07", places[1])):
            (then,) = await memory.get_all(user_id="u", as_of=f"2026-{month}-01T00:00:00Z")
            assert place in then.memory


@each(
    ("said", "memory_type"),
    [
        ("我妹今年在台大念法律系大三", "education"),
        ("I study at MIT this year", "education"),
        ("我2015年在台大读书", "event"),
        ("I studied at MIT in 2015", "event"),
        ("我这周在上海", "event"),
    ],
)
def test_what_is_so_this_year_holds_and_what_was_so_in_another_does_not(
    said: str, memory_type: str
) -> None:
    message = Message("m", "a", "u", "s", "user", said, NOW, NOW)
    (fact,) = extract_by_rules([message]).facts
    assert (fact.memory_type, fact.topic is None) == (memory_type, memory_type == "event")


@pytest.mark.parametrize(
    ("said", "note"),
    [
        ("I can't stand coffee, tea only", "User can't stand coffee, tea only"),
        ("我不喝咖啡、只喝茶", "用户不喝咖啡、只喝茶"),
    ],
)
async def test_a_contrast_is_no_list(tmp_path: Path, said: str, note: str) -> None:
    settings = Settings(data_dir=tmp_path, llm="none", embedder="none")
    async with AsyncMemory(settings=settings) as memory:
        await memory.add(said, user_id="u")
        assert [it.memory for it in await memory.get_all(user_id="u")] == [note]


@each(
    ("text", "note"),
    [
        ("我周三和周六有课。", "用户周三和周六有课"),
        ("我下周三和周六有课。", "用户下周三和周六有课（2026-11-18）"),
        ("I have class on Wednesday and Saturday.", "User has class on Wednesday and Saturday"),
        ("I have class on Wednesdays.", "User has class on Wednesdays"),
    ],
)
def test_several_days_of_the_week_are_a_habit(text: str, note: str) -> None:
    message = Message("m", "a", "u", "s", "user", text, NOW, NOW)
    assert [fact.text for fact in extract_by_rules([message]).facts] == [note]
