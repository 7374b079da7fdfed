"""Changes that are told before their day: what holds until then, and what from then on."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from kemem import Memory
from kemem.add.rules import Fact, extract_by_rules
from kemem.records.times import to_micros, to_rfc3339
from kemem.settings import Settings
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
def memory(either_settings: Settings, clock: FakeClock) -> Iterator[Memory]:
    """On both databases, with the embedder that comes with it."""
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
    memory: Memory, clock: FakeClock, talk: Talk
) -> None:
    home, new, _ = talk.places
    tell(memory, clock, talk.home, talk.announced)
    assert homes(memory, talk) == {home: "2026-07-01", new: None}
    assert first(memory, talk.question, talk) == home
    assert first(memory, talk.about_later, talk) == new
    card = str(memory.profile("u").text)
    assert home in card and new in card
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
def test_what_is_taken_back_never_came(memory: Memory, clock: FakeClock, talk: Talk) -> None:
    home, new, _ = talk.places
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
