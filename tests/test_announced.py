"""Changes that are told before their day: what holds until then, and what from then on."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from kemem import Memory
from kemem.add.rules import Fact, extract_by_rules
from kemem.records.times import to_micros, to_rfc3339
from kemem.settings import Settings, load
from kemem.testing import FakeClock
from tests.cases import each
from tests.test_rules import message

NOW = to_micros("2026-03-10T09:00:00Z")


@dataclass(frozen=True, slots=True)
class Talk:
    """Where somebody lives and is going to live, and what is said of that later."""

    home: str
    announced: str
    taken_back: str
    otherwise: str
    moved: str
    places: tuple[str, str, str]  # the home, what was announced, what is said instead
    question: str
    about_later: str


TALKS = {
    "zh": Talk(
        "我住在成都。",
        "我7月1号搬到厦门。",
        "搬去厦门的事黄了。",
        "我改成9月1号搬到昆明。",
        "我昨天搬到了昆明。",
        ("成都", "厦门", "昆明"),
        "我住在哪里？",
        "我要搬到哪里去？",
    ),
    "en": Talk(
        "I live in Berlin.",
        "From July I'll live in Potsdam.",
        "The move to Potsdam fell through.",
        "Change of plans: I'm moving to Bonn in September instead.",
        "I moved to Bonn yesterday.",
        ("Berlin", "Potsdam", "Bonn"),
        "Where do I live?",
        "Where will I be living?",
    ),
}
EACH = pytest.mark.parametrize("talk", TALKS.values(), ids=TALKS)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(NOW)


@pytest.fixture
def memory(tmp_path: Path, clock: FakeClock) -> Iterator[Memory]:
    """With the embedder that comes with it."""
    with Memory(settings=load(data_dir=tmp_path, llm="none"), clock=clock) as memory:
        yield memory


@pytest.fixture
def either(either_settings: Settings, clock: FakeClock) -> Iterator[Memory]:
    """By words alone, on both databases."""
    with Memory(settings=either_settings, clock=clock) as memory:
        yield memory


def tell(memory: Memory, clock: FakeClock, *texts: str) -> None:
    """Say something on each of some days, one after the other."""
    for text in texts:
        clock.advance(seconds=86_400)
        memory.add(text, "u")


def later(clock: FakeClock, day: str) -> None:
    clock.advance(seconds=(to_micros(f"{day}T00:00:01Z") - clock()) // 1_000_000)


def homes(memory: Memory, talk: Talk) -> dict[str, str | None]:
    """The places in notes that hold or are to come, with their ends."""
    found: dict[str, str | None] = {}
    for item in memory.get_all("u"):
        end = item.note.valid_until
        named = [it for it in talk.places if it in item.memory]
        found |= dict.fromkeys(named, to_rfc3339(end)[:10] if end else None)
    return found


def first(memory: Memory, question: str, talk: Talk) -> str:
    """The place that the first hit names."""
    hit = memory.search(question, "u")[0]
    (place,) = [it for it in talk.places if it in hit.memory]
    return place


@EACH
def test_what_is_announced_holds_from_its_day_on(
    either: Memory, clock: FakeClock, talk: Talk
) -> None:
    memory, (home, new, _) = either, talk.places
    tell(memory, clock, talk.home, talk.announced)
    assert homes(memory, talk) == {home: "2026-07-01", new: None}
    assert first(memory, talk.question, talk) == home
    assert first(memory, talk.about_later, talk) == new
    card = str(memory.profile("u").text)
    assert home in card and new in card
    assert [it.destination for it in memory.graph("u")] == [home]
    assert all(hit.ended is None for hit in memory.search(talk.question, "u", past=True))
    later(clock, "2026-07-01")
    assert homes(memory, talk) == {new: None}
    assert first(memory, talk.question, talk) == new
    card = str(memory.profile("u").text)
    assert new in card and home not in card
    edges = {it.destination: it for it in memory.graph("u") if it.relationship == "lives_in"}
    assert list(edges) == [new] and to_rfc3339(edges[new].valid_from)[:10] == "2026-07-01"
    assert home in str(memory.search(talk.question, "u", as_of="2026-06-01T00:00:00Z")[0])


@EACH
def test_a_history_that_is_added_late_knows_it_too(memory: Memory, talk: Talk) -> None:
    """A server that was not there on the day, or is rebuilt later."""
    new = talk.places[1]
    for text, day in ((talk.home, "2025-03-01"), (talk.announced, "2025-05-10")):
        memory.add(text, "u", timestamp=f"{day}T10:00:00Z")
    assert homes(memory, talk) == {new: None}
    assert first(memory, talk.question, talk) == new


@EACH
def test_what_is_taken_back_never_came(either: Memory, clock: FakeClock, talk: Talk) -> None:
    memory, (home, new, _) = either, talk.places
    tell(memory, clock, talk.home, talk.announced, talk.taken_back)
    (stays,) = [it for it in memory.get_all("u") if home in it.memory]
    assert stays.note.valid_until is None
    reasons = [it.reason or "" for it in memory.history(stays.id)]
    assert reasons[0].startswith("holds again: taken back was ")
    later(clock, "2026-07-02")
    hits = memory.search(talk.question, "u")
    places = [home in hit.memory for hit in hits if hit.ended is None]
    assert any(places)
    assert all(hit.ended is not None for hit in hits if hit.memory == talk.announced)
    assert [hit.memory for hit in hits if hit.ended is not None] == [
        hit.memory for hit in hits[-1:] if new in hit.memory
    ]


@EACH
def test_what_is_announced_otherwise_takes_its_place(
    memory: Memory, clock: FakeClock, talk: Talk
) -> None:
    home, _, other = talk.places
    tell(memory, clock, talk.home, talk.announced, talk.otherwise)
    assert homes(memory, talk) == {home: "2026-09-01", other: None}
    later(clock, "2026-08-01")
    assert first(memory, talk.question, talk) == home
    later(clock, "2026-09-01")
    assert first(memory, talk.question, talk) == other


OSLO, TIANJIN = "I live in Oslo.", "我住在天津。"
BERGEN, SHIJIAZHUANG = "I'm moving to Bergen on 1 May.", "我5月1号搬到石家庄。"
ENDS = {OSLO: ("Oslo", "Bergen"), TIANJIN: ("天津", "石家庄")}


def home_in_may(memory: Memory, clock: FakeClock, home: str, *told: str) -> str:
    """Where somebody lives after the day for which they announced a move."""
    tell(memory, clock, home, *told)
    later(clock, "2026-05-03")
    question = "我住在哪里？" if home == TIANJIN else "Where do I live?"
    (place,) = [it for it in ENDS[home] if it in memory.search(question, "u")[0].memory]
    return place


@pytest.mark.parametrize(
    ("home", "announced", "said"),
    [
        (OSLO, BERGEN, "The move fell through."),
        (OSLO, BERGEN, "We're staying in Oslo after all."),
        (OSLO, BERGEN, "I'm not moving to Bergen after all."),
        (OSLO, BERGEN, "The move is postponed to 1 July."),
        (OSLO, BERGEN, "I'm moving on 1 July instead."),
        (TIANJIN, SHIJIAZHUANG, "不搬了。"),
        (TIANJIN, SHIJIAZHUANG, "搬家的事黄了。"),
        (TIANJIN, SHIJIAZHUANG, "我决定继续住天津。"),
        (TIANJIN, SHIJIAZHUANG, "房东反悔了，搬不成了。"),
        (TIANJIN, SHIJIAZHUANG, "搬家推迟到7月1号。"),
    ],
)
def test_a_move_can_be_called_off_in_few_words(
    memory: Memory, clock: FakeClock, home: str, announced: str, said: str
) -> None:
    """Or put off, without naming where to."""
    assert home_in_may(memory, clock, home, announced, said) == ENDS[home][0]


@pytest.mark.parametrize(
    ("home", "announced", "said"),
    [
        (OSLO, BERGEN, "My brother's move to Bergen fell through."),
        (OSLO, BERGEN, "I'm not taking the sofa to Bergen after all."),
        (OSLO, BERGEN, "I cancelled the gym."),
        (OSLO, BERGEN, "Ben's move to Leeds was cancelled."),
        (OSLO, BERGEN, "The concert in Bergen got cancelled, what a shame."),
        (OSLO, BERGEN, "We're staying in a hotel in Oslo this weekend."),
        (OSLO, BERGEN, "The job at Telenor fell through, but the move is still on."),
        (TIANJIN, SHIJIAZHUANG, "我哥不搬石家庄了。"),
        (TIANJIN, SHIJIAZHUANG, "沙发不搬到石家庄了，卖掉。"),
        (TIANJIN, SHIJIAZHUANG, "健身房取消了。"),
        (TIANJIN, SHIJIAZHUANG, "大军搬家推迟到九月一号了。"),
        (TIANJIN, SHIJIAZHUANG, "搬家公司放鸽子了，取消了订单。"),
    ],
)
def test_what_else_is_off_calls_off_no_move(
    memory: Memory, clock: FakeClock, home: str, announced: str, said: str
) -> None:
    assert home_in_may(memory, clock, home, announced, said) == ENDS[home][1]


@pytest.mark.parametrize(
    ("told", "later_on", "day"),
    [
        ((OSLO, BERGEN, "The move is postponed to 1 July."), "Bergen", "2026-07-01"),
        ((TIANJIN, SHIJIAZHUANG, "搬家推迟到7月1号。"), "石家庄", "2026-07-01"),
    ],
)
def test_what_is_put_off_takes_effect_on_its_new_day(
    memory: Memory, clock: FakeClock, told: tuple[str, ...], later_on: str, day: str
) -> None:
    tell(memory, clock, *told)
    later(clock, day)
    question = "我住在哪里？" if told[0] == TIANJIN else "Where do I live?"
    assert later_on in memory.search(question, "u")[0].memory


@pytest.mark.parametrize(
    ("now", "told", "company"),
    [
        ("I work at Equinor.", "I got the job at Telenor! I start on 1 June.", "Telenor"),
        ("I work at Equinor.", "My first day at Telenor is 1 June.", "Telenor"),
        ("I work at Equinor.", "I accepted a job at Telenor, starting in June.", "Telenor"),
        ("我在联想上班。", "6月1号我就去万科上班了。", "万科"),
        ("我在联想上班。", "从6月1日起我就去万科上班了。", "万科"),
    ],
)
def test_a_job_that_one_has_got_begins_on_its_first_day(
    memory: Memory, clock: FakeClock, now: str, told: str, company: str
) -> None:
    question = "Where do I work?" if now.isascii() else "我在哪里上班？"
    tell(memory, clock, now, told)
    assert company not in memory.search(question, "u")[0].memory
    later(clock, "2026-06-02")
    assert company in memory.search(question, "u")[0].memory


@pytest.mark.parametrize(
    ("now", "told", "question", "values"),
    [
        (
            "I take 10 mg of ramipril.",
            "From 1 May I take 5 mg of ramipril only.",
            "How much ramipril do I take?",
            ("10 mg", "5 mg"),
        ),
        ("我房租每个月3200。", "房东说从五月起房租涨到3500。", "我房租多少？", ("3200", "3500")),
    ],
)
def test_what_is_paid_or_taken_now_is_first_until_it_changes(
    memory: Memory, clock: FakeClock, now: str, told: str, question: str, values: tuple[str, str]
) -> None:
    tell(memory, clock, now, told)
    assert values[0] in memory.search(question, "u")[0].memory
    later(clock, "2026-05-02")
    assert values[1] in memory.search(question, "u")[0].memory


def test_notice_ends_a_job_on_its_last_day(memory: Memory, clock: FakeClock) -> None:
    tell(memory, clock, "I work at Lidl.", "Handed in my notice today, last day is 30 April.")
    assert "User works at Lidl" in [it.memory for it in memory.get_all("u")]
    later(clock, "2026-05-01")
    assert "User works at Lidl" not in [it.memory for it in memory.get_all("u")]


@pytest.mark.parametrize(
    ("home", "wish"),
    [(OSLO, "I'm thinking of moving to Bergen in May."), (TIANJIN, "我想五月搬到石家庄。")],
)
def test_a_wish_is_no_better_an_answer(
    memory: Memory, clock: FakeClock, home: str, wish: str
) -> None:
    assert home_in_may(memory, clock, home, wish) == ENDS[home][0]


@EACH
def test_what_changes_before_the_day_holds_until_then(
    memory: Memory, clock: FakeClock, talk: Talk
) -> None:
    _, new, other = talk.places
    tell(memory, clock, talk.home, talk.announced, talk.moved)
    assert homes(memory, talk) == {other: "2026-07-01", new: None}
    assert first(memory, talk.question, talk) == other
    later(clock, "2026-07-01")
    assert homes(memory, talk) == {new: None}


@EACH
def test_without_the_announcement_all_is_as_before(
    memory: Memory, clock: FakeClock, talk: Talk
) -> None:
    home, new, _ = talk.places
    tell(memory, clock, talk.home, talk.announced)
    (plan,) = [it for it in memory.get_all("u") if new in it.memory]
    memory.delete(plan.id, user_id="u")
    assert homes(memory, talk) == {home: None}


def announced(text: str) -> Fact | None:
    """The change that a sentence of 20 January 2026 announces."""
    found = [it for it in extract_by_rules([message(text, 0)]).facts if it.topic and it.since]
    return found[0] if found else None


@each(
    ("text", "topic", "day"),
    [
        ("I'm moving to Leeds in July.", "user/lives_in", "2026-07-01"),
        ("We will move to Leeds on 3 May.", "user/lives_in", "2026-05-03"),
        ("My sister is moving to Oslo in September.", "user/sister/lives_in", "2026-09-01"),
        ("I start at Zalando on 3 August.", "user/works_at", "2026-08-03"),
        ("I'm joining Figma in May.", "user/works_at", "2026-05-01"),
        ("From September I'll be studying at Leiden University.", "user/studies_at", "2026-09-01"),
        ("From March the rent is 1,150 euros.", "user/amount/rent", "2026-03-01"),
        ("下个月我搬到成都。", "user/lives_in", "2026-02-01"),
        ("我们十月要搬到杭州去了。", "user/lives_in", "2026-10-01"),
        ("我8月1日入职腾讯。", "user/works_at", "2026-08-01"),
        ("我九月开始在字节跳动上班。", "user/works_at", "2026-09-01"),
        ("下个月我从SAP离职。", "user/works_at", "2026-02-01"),
        ("5月1号我就搬到石家庄了。", "user/lives_in", "2026-05-01"),
        ("从5月1号起我就住石家庄了。", "user/lives_in", "2026-05-01"),
        ("三月份开始我在小红书做运营。", "user/works_at", "2026-03-01"),
        ("从5月1号起房租涨到3300。", "user/amount/房租", "2026-05-01"),
        ("我四月底从联想离职。", "user/works_at", "2026-04-30"),
        ("Guess what, on 1 May I'm moving to Bergen!", "user/lives_in", "2026-05-01"),
        ("As of 1 May I'll be living in Bergen.", "user/lives_in", "2026-05-01"),
        ("Starting Monday I work at Telenor.", "user/works_at", "2026-01-26"),
        ("I'm moving to Bergen at the end of May.", "user/lives_in", "2026-05-31"),
    ],
)
def test_changes_are_recognised_before_their_day(text: str, topic: str, day: str) -> None:
    fact = announced(text)
    assert fact is not None and fact.since is not None
    assert (fact.memory_type, fact.topic, to_rfc3339(fact.since)[:10]) == ("plan", topic, day)


@each(
    "text",
    [
        "I might move to Leeds in July.",
        "We want to move to Leeds in July.",
        "I plan to move to Leeds in July.",
        "I'm in Leeds next week.",
        "I'm moving to Leeds.",
        "I'm flying to Leeds in July.",
        "I start a course in July.",
        "I'm moving in with my sister for two weeks on 1 May.",
        "我可能下个月搬到成都。",
        "我打算明年搬到昆明。",
        "我下周在北京。",
        "我下个月去成都玩。",
        "要是下个月搬到成都就好了。",
    ],
)
def test_wishes_and_journeys_announce_nothing(text: str) -> None:
    assert announced(text) is None


def test_a_place_is_named_without_its_verb() -> None:
    fact = announced("我们十月要搬到杭州去了。")
    assert fact is not None and [it.destination for it in fact.relations] == ["杭州"]
