"""The benchmark of what is true now: what it counts, and that it runs as a user runs it."""

import json
from collections.abc import AsyncGenerator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench import truth, truth_systems
from bench.environment import WorkerFailed
from bench.truth import Answer, auc, compared, interval, judge, report, runs, share
from bench.truth_systems import HALF_LIFE, Bm25, Life, Message, Question, Reply, words
from kemem.serve.telemetry.journal import parse_runs
from tests.cases import each

NOW = datetime(2026, 3, 1, tzinfo=UTC)
TEXTS = st.lists(st.sampled_from(["old", "new", "old and new", "weather", "other"]), max_size=5)
CONFIDENCES = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])
ONE = Question("?", NOW, (("new",),), ("old",))
TWO = Question("?", NOW, (("new",), ("other",)), ("old",))
NONE = Question("?", NOW, (), ())


def judged(question: Question, hits: Sequence[str]) -> dict[str, bool]:
    """The columns where hits and evidence are the same."""
    return judge(question, Reply(hits, hits, 0.5))


def answer(
    right: bool, life: str = "a", *, confidence: float = 0.5, answerable: bool = True, **more: Any
) -> Answer:
    column = "first_hit" if answerable else "says_unknown"
    marks, of = {column: right}, {"system": "kemem", "language": "en", "category": "c"} | more
    question = of.pop("question", "q")
    now = "2026-03-01T00:00:00+00:00"
    return Answer(
        **of,
        life=life,
        question=question,
        now=now,
        answerable=answerable,
        confidence=confidence,
        marks=marks,
    )


ANSWERS = st.lists(
    st.builds(
        lambda right, life, confidence, answerable: answer(
            right, life, confidence=confidence, answerable=answerable
        ),
        st.booleans(),
        st.sampled_from("abc"),
        CONFIDENCES,
        st.booleans(),
    ),
    max_size=8,
)


@each(
    ("hits", "right"),
    [
        (["new"], {"first_hit", "within_three", "current_before_stale"}),
        (["x", "x", "NEW", "old"], {"within_three", "current_before_stale"}),
        (["x", "x", "x", "new", "old"], {"current_before_stale"}),
        (["old", "new"], {"within_three"}),
        (["old and new", "new"], {"within_three"}),
        (["x", "old"], set()),
        ([], set()),
    ],
)
def test_a_hit_is_right_when_it_has_the_answer_and_nothing_outdated(
    hits: list[str], right: set[str]
) -> None:
    marks = judged(ONE, hits)
    columns = ("first_hit", "within_three", "current_before_stale")
    assert {it for it in columns if marks[it]} == right


@each(
    ("hits", "right"),
    [
        (["other", "x", "new"], {"first_hit", "within_three", "current_before_stale"}),
        (["new", "x", "x", "other"], {"first_hit", "current_before_stale"}),
        (["new", "old", "other"], {"first_hit", "within_three"}),
        (["new", "x"], {"first_hit"}),
    ],
)
def test_two_hops_need_both_but_the_first_hit_may_be_either(
    hits: list[str], right: set[str]
) -> None:
    marks = judged(TWO, hits)
    columns = ("first_hit", "within_three", "current_before_stale")
    assert {it for it in columns if marks[it]} == right


@each("confidence", [0.0, 0.49, 0.5, 1.0])
def test_a_confidence_of_a_half_claims_to_know(confidence: float) -> None:
    """Only where the system's confidence means something."""
    reply = Reply([], [], confidence)
    assert judge(ONE, reply)["confident"] == (confidence >= 0.5)
    assert judge(NONE, reply) == {"says_unknown": confidence < 0.5}
    assert "confident" not in judge(ONE, reply, calibrated=False)
    assert judge(NONE, reply, calibrated=False) == {}


@given(TEXTS, TEXTS)
def test_columns_imply_each_other(hits: list[str], more: list[str]) -> None:
    marks, longer = judged(ONE, hits), judged(ONE, [*hits, *more])
    assert marks["within_three"] or not marks["first_hit"]
    assert marks["current_before_stale"] or not marks["first_hit"]
    assert marks["recall_any"] or not marks["current_before_stale"]
    assert longer["recall_any"] or not marks["recall_any"]
    if hits:
        assert longer["first_hit"] == marks["first_hit"]


@given(TEXTS)
def test_hits_that_are_outdated_never_help(hits: list[str]) -> None:
    for question in (ONE, TWO):
        marks, without = (
            judged(question, hits),
            judged(question, [it for it in hits if it != "old"]),
        )
        assert all(without[column] or not right for column, right in marks.items())
        assert judged(question, [it.upper() for it in hits]) == marks


@given(ANSWERS)
def test_the_auc_is_one_half_of_chance_and_turns_with_the_confidence(rows: list[Answer]) -> None:
    value = auc(rows)
    if value is None:
        assert len({it.answerable for it in rows}) < 2
        return
    turned = [answer(True, confidence=1 - it.confidence, answerable=it.answerable) for it in rows]
    scaled = [answer(True, confidence=it.confidence / 3, answerable=it.answerable) for it in rows]
    level = [answer(True, answerable=it.answerable) for it in rows]
    assert auc(turned) == pytest.approx(1 - value)
    assert auc(scaled) == pytest.approx(value)
    assert auc(level) == 0.5


@given(ANSWERS)
def test_an_interval_lies_between_the_worst_and_the_best_life(rows: list[Answer]) -> None:
    lives = truth.by_life(rows)
    shares = [it for it in (truth.FIGURES["first_hit"](life) for life in lives) if it is not None]
    low, high = interval(lives, truth.FIGURES["first_hit"], 50) if lives else (0.0, 0.0)
    assert min(shares, default=0.0) <= low <= high <= max(shares, default=0.0)
    assert sorted(it for life in lives for it in map(id, life)) == sorted(map(id, rows))


def test_a_share_counts_only_where_the_column_applies() -> None:
    rows = [answer(True), answer(False), answer(False, answerable=False)]
    assert (share("first_hit", rows), share("says_unknown", rows)) == (0.5, 0.0)
    assert share("current_before_stale", rows) is None


def life(*texts: str, days: int = 0) -> Life:
    """One session; a message every so many days, the last one at `NOW`."""
    at = [NOW - timedelta(days=days * before) for before in reversed(range(len(texts)))]
    messages = [Message("user", text, when, "s1") for text, when in zip(texts, at, strict=True)]
    return Life("x", "en", "change", (*messages,), ())


async def hits_of(half_life: timedelta | None, told: Life, question: str) -> Sequence[str]:
    reply = await Bm25(told, half_life).ask(question, NOW)
    assert reply.evidence == reply.hits[:5] and 0 <= reply.confidence <= 1
    return reply.hits


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("I don't drink Kopi", ["i", "don't", "drink", "kopi"]),
        ("喝kopi咖啡馆", ["kopi", "喝", "咖啡", "啡馆"]),
    ],
)
def test_words_are_latin_words_and_pairs_of_characters(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@pytest.mark.parametrize(
    ("texts", "question"),
    [
        (["I live in Porto, in Porto", "I live in Ghent", "nice weather"], "live in porto"),
        (["我住在波尔图，波尔图", "我住在根特", "天气真好"], "住在波尔图"),
    ],
)
async def test_recency_outweighs_words_as_messages_age(texts: list[str], question: str) -> None:
    """What shares no word is no hit; of messages of one time BM25 decides alone."""
    first, second, _ = texts
    for days, best in ((0, first), (365, second)):
        told = life(*texts, days=days)
        assert await hits_of(None, told, question) == [first, second]
        assert (await hits_of(HALF_LIFE, told, question))[0] == best


async def test_equal_scores_go_to_the_newer_message() -> None:
    told = life("tea one", "tea two", "tea new", days=1)
    assert await hits_of(None, told, "tea") == ["tea new", "tea two", "tea one"]


def test_two_runs_are_compared_question_by_question() -> None:
    before = [answer(False), answer(True, question="dropped")]
    (text,) = compared([answer(True), answer(False, question="fresh")], before)
    row = text.splitlines()[-1]
    assert row == "| en | kemem | first hit | 0.000 | 1.000 | +1.000 | +1.000 … +1.000 |"


def test_the_report_has_a_row_for_each_system_and_category() -> None:
    rows = [answer(True), answer(False, "b"), answer(True, answerable=False, confidence=0.25)]
    summary, _, categories, *_ = report([*rows, answer(True, system="bm25", language="zh")])
    assert "| en | kemem | 1/2 50% [0-100] | – |" in summary
    assert "| 1/1 100% [100-100] | 1.000 [1.000-1.000] |" in summary
    assert "| zh | bm25 | 1/1 100% [100-100] |" in summary
    assert "| c | 1/2 50% [0-100] |" in categories


MESSAGES = {
    "en": [
        ("2026-01-05T09:00:00Z", "I just moved to Porto."),
        ("2026-01-05T09:01:00Z", "Our cat is called Biscuit."),
        ("2026-02-20T09:00:00Z", "I have left Porto and live in Ghent now."),
    ],
    "zh": [
        ("2026-01-05T09:00:00+08:00", "我刚搬到大连。"),
        ("2026-01-05T09:01:00+08:00", "我们家的猫叫豆豆。"),
        ("2026-02-20T09:00:00+08:00", "我离开那边了，现在住在苏州。"),
    ],
}
QUESTIONS = {
    "en": [
        ("Which city do I live in now?", ["Ghent"], ["moved to Porto"]),
        ("What is our cat called?", ["Biscuit"], []),
        ("What is the number of my passport?", [], []),
    ],
    "zh": [
        ("我现在住在哪个城市？", ["苏州"], ["搬到大连"]),
        ("我家的猫叫什么？", ["豆豆"], []),
        ("我的护照号码是多少？", [], []),
    ],
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two lives, one in each language, whose second session makes the first untrue."""
    lives = [
        {
            "id": f"small-{language}",
            "lang": language,
            "category": "change",
            "messages": [
                {"role": "user", "content": text, "ts": ts, "session_id": ts[:10]}
                for ts, text in MESSAGES[language]
            ],
            "questions": [
                {
                    "question": text,
                    "now": "2026-03-01T09:00:00Z",
                    "answerable": bool(gold),
                    "gold": gold,
                    "stale": stale,
                    "kind": "residence",
                }
                for text, gold, stale in QUESTIONS[language]
            ],
        }
        for language in ("en", "zh")
    ]
    path = tmp_path / "small.jsonl"
    path.write_text("\n".join(json.dumps(it, ensure_ascii=False) for it in lives), "utf-8")
    return path


async def test_it_runs_and_keeps_what_it_measured(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Through the public API; its figures are what `kemem admin quality` takes."""
    kept, figures = data.with_name("kept.json"), data.with_name("figures.json")
    chosen = ["--data", str(data), "--system", "kemem,words,bm25,newest"]
    await truth.main([*chosen, "--save", str(kept), "--quality", str(figures), "--fails"])
    printed = capsys.readouterr().out
    assert "| en | kemem |" in printed and "| zh | newest |" in printed
    answers = [Answer(**it) for it in json.loads(kept.read_text("utf-8"))]
    assert len(answers) == 2 * 3 * 4
    assert {it.answerable for it in answers if "passport" in it.question} == {False}
    cats = [
        it
        for it in answers
        if it.system == "kemem" and ("猫" in it.question or "cat" in it.question)
    ]
    assert len(cats) == 2 and all(it.marks["first_hit"] for it in cats)
    told = parse_runs(figures.read_text("utf-8"))
    assert {(it.set, it.language) for it in told} == {("truth-small", "zh"), ("truth-small", "en")}
    whole = next(it for it in told if (it.name, it.category) == ("kemem", "all"))
    assert whole.metrics.keys() == truth.TITLES.keys() and whole.n == 3
    assert "says_unknown" not in next(it for it in told if it.name == "bm25").metrics
    await truth.main(["--data", str(data), "--system", "bm25", "--against", str(kept)])
    assert "| zh | bm25 | first hit |" in capsys.readouterr().out.rpartition("difference")[-1]


def test_what_is_wrong_is_printed_with_what_was_expected() -> None:
    reply = Reply(["old"], [], 0.7)
    line = truth.failure(answer(False), ONE, reply)
    assert line and "expected new, confidence 0.70" in line and "['old']" in line
    line = truth.failure(answer(False, answerable=False), NONE, reply)
    assert line and "expected nothing" in line
    assert truth.failure(answer(True), ONE, reply) is None


async def test_a_system_that_cannot_be_installed_is_named(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are measured all the same."""

    async def absent(lives: Sequence[Life]) -> AsyncGenerator[Any, None]:
        raise WorkerFailed("no such package")
        yield

    monkeypatch.setitem(truth_systems.SYSTEMS, "chroma", absent)
    with pytest.raises(SystemExit):
        await truth.main(["--data", str(data), "--system", "bm25,chroma"])
    printed = capsys.readouterr().out
    assert "| en | bm25 |" in printed and "Not measured: chroma (no such package)" in printed


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [(["--system", "kemem,无"], "not 无"), (["--data", "没有.jsonl"], "must be a file, not 没有")],
)
async def test_a_wrong_option_is_refused_before_any_work(
    wrong: list[str], reason: str, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        await truth.main(["--data", str(data), *wrong])
    assert reason in capsys.readouterr().err


def test_figures_are_kept_by_language_and_category() -> None:
    rows = [answer(True), answer(True, language="zh"), answer(False, answerable=False)]
    kept = {(it["language"], it["category"]): it for it in runs(rows, "truth-small")}
    assert kept.keys() == {("en", "all"), ("en", "c"), ("zh", "all"), ("zh", "c")}
    assert kept["en", "all"]["metrics"] == {
        "first_hit": 1,
        "says_unknown": 0,
        "confidence_auc": 0.5,
    }
    assert kept["zh", "c"]["metrics"] == {"first_hit": 1} and kept["en", "all"]["n"] == 2
