"""Votes on hits: they count for questions like the one they were given for, and hide nothing."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kemem import InvalidArgument, Memory, NotFound
from kemem.records import Note
from kemem.records.feedback import Feedback
from kemem.results import Hit
from kemem.search.feedback import reorder, weigh
from kemem.settings import Settings, load
from kemem.testing import FakeClock, HashingEmbedder
from tests.command import kemem
from tests.server import LocalServer, local_server

NOW = 1_767_225_600_000_000  # 2026-01-01
DAY = 86_400_000_000
TALK = pytest.mark.parametrize(
    ("notes", "query", "like", "other"),
    [
        (
            ["我喜欢喝乌龙茶", "我每天早上喝豆浆", "公司茶水间在三楼", "我的杯子是蓝色的"],
            "我喜欢喝什么茶",
            "我最喜欢喝什么茶",
            "我的杯子是什么颜色",
        ),
        (
            [
                "I drink oolong tea",
                "My tea mug is blue",
                "The tea room is upstairs",
                "I have a dog",
            ],
            "which tea do I drink",
            "which tea do I drink most",
            "what colour is my mug",
        ),
    ],
    ids=["zh", "en"],
)


@pytest.fixture
def memory(either_settings: Settings) -> Iterator[Memory]:
    clock = FakeClock(NOW)
    with Memory(settings=either_settings, embedder=HashingEmbedder(), clock=clock) as it:
        yield it


def ids(memory: Memory, query: str, user: str = "u", **more: Any) -> list[str]:
    return [hit.id for hit in memory.search(query, user, kinds=["user_info"], **more)]


@TALK
def test_a_hit_voted_down_sinks_and_one_voted_up_rises(
    memory: Memory, notes: list[str], query: str, like: str, other: str
) -> None:
    """For questions like this one of this user; `why` says so; other questions are as before."""
    for user in ("u", "v"):
        memory.add(notes, user, infer=False)
    before, elsewhere, of_v = (ids(memory, *it) for it in ((query,), (other,), (query, "v")))
    first, *_, last = before
    memory.feedback(first, "down", query, "u")
    memory.feedback(last, "up", query, "u")
    for asked in (query, like):
        after = ids(memory, asked)
        assert {*after} == {*before} and after.index(last) < after.index(first)
    why = {hit.id: hit.why for hit in memory.search(query, "u", explain=True)}
    assert "feedback: down 1.00" in why[first] and "feedback: up 1.00" in why[last]
    assert ids(memory, other) == elsewhere and ids(memory, query, "v") == of_v
    assert all(not hit.why for hit in memory.search(query, "u"))
    memory.feedback(first, "up", query, "u")
    memory.feedback(last, "down", query, "u")
    assert ids(memory, query)[0] == first, "the last vote counts"


@TALK
def test_a_vote_never_hides(
    memory: Memory, notes: list[str], query: str, like: str, other: str
) -> None:
    """Neither behind a limit nor below a threshold."""
    memory.add(notes, "u", infer=False)
    hits = memory.search(query, "u", kinds=["user_info"])
    first = hits[0]
    memory.feedback(first.id, "down", query, "u")
    assert first.id in ids(memory, query, limit=2)
    assert first.id in ids(memory, query, threshold=first.score)


@TALK
def test_votes_are_erased_with_their_user_and_are_in_backups(
    memory: Memory, notes: list[str], query: str, like: str, other: str
) -> None:
    memory.add(notes, "u", infer=False)
    first, *_ = ids(memory, query)
    memory.feedback(first, "down", query, "u")
    made = memory.backup()
    assert memory.privacy.inventory("u").journal == {"feedback": 1}
    assert memory.privacy.erase("u").erased["feedback"] == 1
    assert memory.privacy.inventory("u").journal == {}
    memory.restore(made.path)
    assert ids(memory, query)[0] != first


def test_a_vote_needs_a_memory_of_the_user(memory: Memory) -> None:
    (note,) = memory.add("我住在北京 I live in Beijing", "u", infer=False).results
    with pytest.raises(NotFound):
        memory.feedback(note.id, "up", "where", "v")
    with pytest.raises(NotFound):
        memory.for_user("v").feedback(note.id, "up", "where")
    wrong: Any = "sideways"
    with pytest.raises(InvalidArgument, match="vote must be up or down, not 'sideways'"):
        memory.feedback(note.id, wrong, "where", "u")
    with pytest.raises(InvalidArgument, match="query must be a text that is not blank"):
        memory.feedback(note.id, "up", " ", "u")
    assert memory.for_user("u").feedback(note.id, "up", "where").user_id == "u"


def test_a_question_is_stored_as_the_policy_allows(tmp_path: Path) -> None:
    settings = load(data_dir=tmp_path, embedder="none", llm="none", privacy_password="mask")
    with Memory(settings=settings) as memory:
        (note,) = memory.add("我住在北京", "u", infer=False).results
        given = memory.feedback(
            note.id, "up", "is my password hunter2? my password is hunter2", "u"
        )
    assert given.query.endswith("my password is [password]")


# Laws


def vote(memory_id: str, said: str, age: int = 0, query: str = "tea 茶") -> Feedback:
    chosen: Any = said
    return Feedback(memory_id, "u", chosen, query, NOW - age * DAY)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["up", "down"])), max_size=20))
def test_votes_are_bounded_however_many_there_are(cast: list[tuple[str, str]]) -> None:
    weights = weigh([vote(*it) for it in cast], "tea 茶", None, None, NOW)
    assert all(-1 <= it <= 1 for it in weights.values())


def test_a_vote_fades() -> None:
    """By half in 90 days; what comes from the future counts as of now."""
    for age, expected in ((0, 1.0), (90, 0.5), (360, 0.0625), (-5, 1.0)):
        weights = weigh([vote("a", "up", age)], "tea 茶", None, None, NOW)
        assert weights["a"] == pytest.approx(expected)
    assert weigh([vote("a", "up")], "dogs 狗", None, None, NOW) == {}


def hit(name: str, score: float) -> Hit:
    times = dict.fromkeys(("ts", "created", "updated", "valid_from"), NOW)
    note = Note(name, "a", "u", None, "user_info", name, name, **times)  # type: ignore[arg-type]
    return Hit(note, score)


@given(
    st.lists(st.floats(0.01, 1), max_size=12),
    st.dictionaries(st.integers(0, 11).map(str), st.floats(-1, 1), max_size=6),
    st.integers(1, 12),
)
def test_no_vote_drops_a_hit_that_it_was_given_against(
    scores: list[float], weights: dict[str, float], most: int
) -> None:
    """The size of the answer stays, scores stay in 0-1, and who was voted down stays in it."""
    hits = [hit(str(at), score) for at, score in enumerate(sorted(scores, reverse=True))]
    after = reorder(hits, weights, most)
    assert len(after) == min(most, len(hits)) and len({it.id for it in after}) == len(after)
    assert all(0 <= it.score <= 1 for it in after)
    kept = {it.id for it in after}
    assert all(it.id in kept for it in hits[:most] if weights.get(it.id, 0) < 0)


# The faces


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    with local_server(tmp_path_factory.mktemp("data")) as it:
        yield it


def test_votes_over_http(client: httpx.Client) -> None:
    added = client.post(
        "/v1/memories", json={"messages": "我住在北京", "user_id": "u", "infer": False}
    )
    name = added.json()["results"][0]["id"]
    body = {"memory_id": name, "vote": "down", "query": "我住在哪里", "user_id": "u"}
    given = client.post("/v1/feedback", json=body)
    assert given.status_code == 200 and given.json()["vote"] == "down"
    asked = {"query": "我住在哪里", "user_id": "u", "explain": True}
    (found, *_) = client.post("/v1/memories/search", json=asked).json()["results"]
    assert "feedback: down 1.00" in found["why"]
    for wrong, status in (({"user_id": "v"}, 404), ({"vote": "x"}, 400), ({"query": " "}, 400)):
        assert client.post("/v1/feedback", json={**body, **wrong}).status_code == status


def test_votes_on_the_command_line(tmp_path: Path) -> None:
    with Memory(settings=load(data_dir=tmp_path / "data", embedder="none", llm="none")) as memory:
        (note,) = memory.add("I live in Berlin", "u", infer=False).results
    given = kemem(tmp_path, "feedback", note.id, "up", "--query", "where", "--user", "u")
    assert given.returncode == 0 and note.id in given.stdout
