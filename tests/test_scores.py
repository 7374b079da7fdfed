"""Scores of search mean the same for every question: about 0.5 parts what helps from what not."""

from collections.abc import Iterator
from typing import Any, get_args
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kemem import Memory
from kemem.records import Match
from kemem.search import fuse as fusion
from kemem.search.fuse import CURVE, IN_TIME, WORDS, SignalHits, Signals, fuse
from kemem.search.understand import Mode, understand
from kemem.testing import FakeClock
from tests.cases import each

NOW = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z
MODES: tuple[Mode, ...] = get_args(Mode)
CHINESE = ["用户不吃辣", "用户的数据库配置: PostgreSQL, 端口5432", "用户住在北京朝阳区"]
ENGLISH = [
    "User does not eat spicy food",
    "User's database configuration: PostgreSQL, port 5432",
    "User lives in Chaoyang, Beijing",
]
POLITE = ["OK, thanks!", "hello", "haha", "Sounds good", "好的，谢谢", "嗯嗯", "收到", "晚安"]


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    """Two users with three notes each, one whose talk is long, and a polite one."""
    with Memory(data_dir=tmp_path_factory.mktemp("scores"), clock=FakeClock(NOW)) as memory:
        for user, texts in (("zh", CHINESE), ("en", ENGLISH)):
            for text in texts:
                memory.add(text, user, infer=False)
        talk = [f"第{n}天：天气不错，路上看见了{n}只鸟 day {n}, saw some birds" for n in range(80)]
        memory.ingest([{"content": text} for text in (*talk, *CHINESE, *ENGLISH)], "talk")
        memory.ingest([{"content": text} for text in (*POLITE, *CHINESE, *ENGLISH)], "polite")
        yield memory


def scores(memory: Memory, asked: str, user: str, **more: Any) -> dict[str, float]:
    """What each text of a user scores."""
    kinds = ["message"] if user == "talk" else ["user_info"]
    return {hit.memory: hit.score for hit in memory.search(asked, user, kinds=kinds, **more)}


# What a score says


@each("text", [*CHINESE, *ENGLISH])
@each("mode", MODES)
def test_a_text_that_is_the_question_scores_nearly_1(memory: Memory, text: str, mode: Mode) -> None:
    """Among few texts and among many."""
    for user in ("zh" if text in CHINESE else "en", "talk"):
        assert 0.95 <= scores(memory, text, user, mode=mode)[text] <= 1


@each(
    "user, asked, best",
    [
        ("zh", "按照我之前的数据库配置来", CHINESE[1]),
        ("zh", "数据库端口是多少", CHINESE[1]),
        ("zh", "辣椒", CHINESE[0]),
        ("zh", "spicy food", CHINESE[0]),
        ("en", "Use my database configuration from before", ENGLISH[1]),
        ("en", "Where do I live?", ENGLISH[2]),
        ("en", "数据库配置", ENGLISH[1]),
    ],
)
def test_what_answers_a_question_scores_more_than_half(
    memory: Memory, user: str, asked: str, best: str
) -> None:
    """Though it may share no word with it; what does not answer it scores little."""
    found = scores(memory, asked, user)
    assert found.pop(best) >= 0.5
    assert all(score < 0.3 for score in found.values())


@each("polite", POLITE)
def test_politeness_asks_for_nothing(memory: Memory, polite: str) -> None:
    """Though other politeness means nearly the same; who looks for these very words finds them."""
    found = memory.search(polite, "polite", kinds=["message"])
    assert found and all(hit.score <= 0.25 for hit in found)
    first, *_ = memory.search(polite, "polite", kinds=["message"], mode="semantic")
    assert first.memory == polite and first.score >= 0.95


def test_what_matters_for_an_advice_comes_first(memory: Memory) -> None:
    """No memory says what to eat; one says what not."""
    asked = {"zh": ("晚饭吃什么好？", CHINESE[0]), "en": ("What should I eat tonight?", ENGLISH[0])}
    for user, (question, best) in asked.items():
        found = scores(memory, question, user)
        matters = found.pop(best)
        assert matters >= 0.5
        assert all(2 * score < matters for score in found.values())


@each(
    "user, asked",
    [
        ("zh", "上次说的那个方案"),
        ("zh", "我之前让你做的那个东西"),
        ("zh", "帮我写一首诗"),
        ("en", "the plan we discussed last time"),
        ("en", "that thing I asked you to do"),
        ("en", "Write me a poem"),
        ("talk", "会计师的发票编号 accountant's invoice"),
    ],
)
@each("mode", MODES)
def test_where_nothing_answers_all_scores_are_low(
    memory: Memory, user: str, asked: str, mode: Mode
) -> None:
    assert all(score < 0.3 for score in scores(memory, asked, user, mode=mode).values())


@pytest.mark.parametrize("user, asked", [("zh", "今天数据库"), ("en", "the database today")])
def test_a_time_phrase_makes_no_answer_of_what_is_none(
    memory: Memory, user: str, asked: str
) -> None:
    """All of it was said today."""
    found = scores(memory, asked, user)
    assert [score >= 0.3 for score in found.values()].count(True) == 1
    assert all(score > 0 for score in found.values())  # what has none is left out


@each("asked", ["北京的天气", "spicy birds"])
@each("mode", MODES)
def test_a_score_does_not_depend_on_the_limit(memory: Memory, asked: str, mode: Mode) -> None:
    few, many = (memory.search(asked, "talk", limit=n, mode=mode) for n in (3, 1000))
    assert [(hit.id, hit.score) for hit in few] == [(hit.id, hit.score) for hit in many[:3]]


# Laws of the ranking

VALUES = st.integers(0, 20).map(lambda n: n / 20)
PAIRS = st.dictionaries(st.integers(0, 9), st.tuples(VALUES, VALUES, st.booleans()), min_size=1)
QUESTIONS = st.sampled_from(
    ["火锅", "hotpot", "我想吃清汤火锅", "a clear broth with tofu", "今天火锅", "hotpot today"]
)


def gathered(rows: dict[int, tuple[float, float, bool]], mode: Mode) -> Signals:
    """What signals would find of rows with these scores, said today or the year before."""

    def matches(which: int) -> tuple[Match, ...]:
        found = [
            Match("a", "u", f"m_{n}", NOW - (not row[2]) * 365 * 86_400_000_000, float(row[which]))
            for n, row in rows.items()
            if row[which] or which == 1
        ]
        return tuple(sorted(found, key=lambda match: (-match.score, -match.ts, match.id)))

    words = () if mode == "semantic" else matches(0)
    return Signals(SignalHits(words, () if mode == "lexical" else matches(1)), depth=100)


@given(rows=PAIRS, asked=QUESTIONS, mode=st.sampled_from(MODES))
def test_scores_fall_along_the_ranking(
    rows: dict[int, tuple[float, float, bool]], asked: str, mode: Mode
) -> None:
    ranked = fuse(gathered(rows, mode), understand(asked, NOW))
    found = [match.score for match, _ in ranked]
    assert found == sorted(found, reverse=True)
    assert all(0 <= score <= 1 for score in found)


@given(rows=PAIRS, asked=QUESTIONS, mode=st.sampled_from(MODES))
def test_calibration_leaves_the_order_to_the_signals(
    rows: dict[int, tuple[float, float, bool]], asked: str, mode: Mode
) -> None:
    """Words, of which few say less, and meaning weighed; nearer to 1 for the time asked for."""
    found, question = gathered(rows, mode), understand(asked, NOW)
    by_words, by_meaning = found.whole.words, found.whole.vectors
    share = 1.0 if not by_meaning else WORDS if by_words else 0.0
    curve = CURVE if by_meaning else 1.0
    value = dict.fromkeys((match.id for match in (*by_words, *by_meaning)), 0.0)
    for weight, power, matches in ((share, curve, by_words), (1 - share, 1.0, by_meaning)):
        for match in matches:
            value[match.id] += weight * match.score**power
    if question.times:
        in_time = {f"m_{n}" for n, row in rows.items() if row[2]} & value.keys()
        value |= {name: value[name] + IN_TIME * (1 - value[name]) for name in in_time}
    order = [value[match.id] for match, _ in fuse(found, question)]
    assert order == pytest.approx(sorted((it for it in value.values() if it > 0), reverse=True))


@given(rows=PAIRS, asked=QUESTIONS, judged=st.integers(1, 6))
def test_what_is_judged_includes_the_nearest_in_meaning(
    rows: dict[int, tuple[float, float, bool]], asked: str, judged: int
) -> None:
    """They are among the first ones, where others make room; else the order stays as it is."""
    found, question = gathered(rows, "hybrid"), understand(asked, NOW)
    usual = [match.id for match, _ in fuse(found, question)]
    with patch.object(fusion, "NEAREST", 2):
        order = [match.id for match, _ in fuse(found, question, judged=judged)]
        few = [match.id for match, _ in fuse(found, question, judged, judged=judged)]
    assert sorted(order) == sorted(usual) and few == order[:judged]
    near = {match.id for match in found.whole.vectors[:2]} & {*usual}
    assert len(near & {*order[:judged]}) == min(len(near), judged)
    assert order == usual or not near <= {*usual[:judged]}
    for those in (near, {*usual} - near):
        assert [it for it in order if it in those] == [it for it in usual if it in those]


@given(rows=PAIRS, mode=st.sampled_from(MODES))
def test_a_longer_question_needs_a_smaller_share_of_itself(
    rows: dict[int, tuple[float, float, bool]], mode: Mode
) -> None:
    """The same values never score less; by meaning alone they score the same."""
    short, long = (
        {match.id: match.score for match, _ in fuse(gathered(rows, mode), it)}
        for it in (understand("火锅", NOW), understand("我想吃清汤火锅", NOW))
    )
    assert short.keys() == long.keys()
    assert all(long[name] >= short[name] for name in short)
    if mode == "semantic":
        assert long == short
