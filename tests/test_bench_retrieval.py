"""The retrieval benchmark: what it counts, and that it runs as a user runs it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bench import leave_one_out, retrieval
from bench.ablation import Switch, switched
from bench.retrieval import Answer, compared, reliability, runs, session_score
from bench.retrievers import Ask, Query
from bench.scoring import JUDGED, score
from kemem.search import fuse
from kemem.serve.telemetry.journal import parse_runs
from kemem.text import conversation, rank

MESSAGES = {
    "zh": ["你妹妹养了什么宠物？", "一只金毛，叫豆豆", "周末去爬山吧", "好，山上见"],
    "en": [
        "What pet does your sister have?",
        "A beagle, Biscuit",
        "Shall we hike?",
        "See you there",
    ],
}
QUESTIONS = {"zh": "妹妹的宠物叫什么？", "en": "What is my sister's pet called?"}


def user(language: str) -> dict[str, Any]:
    """One conversation, a question about it, and one that nothing answers."""
    asked = {"until": None, "ts": "2026-02-01T00:00:00Z", "category": "pets"}
    return {
        "dataset": f"small-{language}",
        "user": f"small-{language}/ann",
        "messages": [
            {
                "message_id": f"m{at}",
                "ts": f"2026-01-01T10:0{at}:00Z",
                "role": ("user", "assistant")[at % 2],
                "speaker": None,
                "session": f"s{at // 2}",
                "content": text,
            }
            for at, text in enumerate(MESSAGES[language])
        ],
        "queries": [
            {
                **asked,
                "qid": "q0",
                "query": QUESTIONS[language],
                "evidence_groups": [["m1"]],
                "answerable": True,
            },
            {
                **asked,
                "qid": "q1",
                "query": {"zh": "汽车多少钱？", "en": "The price of a car?"}[language],
                "evidence_groups": [],
                "answerable": False,
            },
        ],
    }


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data.jsonl"
    lines = [json.dumps(user(language), ensure_ascii=False) for language in ("zh", "en")]
    path.write_text("\n".join(lines), "utf-8")
    return path


def test_each_group_of_evidence_counts_once() -> None:
    groups = [["a", "b"], ["c"], ["d"], ["e"]]
    found = score(groups, ["x", "b", "a", *"123456", "c", "d"])
    assert found["recall@1"] == 0
    assert found["recall@5"] == 1 / 4
    assert found["recall@10"] == 2 / 4
    assert found["recall@20"] == 3 / 4
    assert (found["hit@1"], found["hit@5"], found["mrr"]) == (0, 1, 1 / 2)
    assert score(groups, list("acde"))["ndcg@10"] == pytest.approx(1)
    assert 0 < found["ndcg@10"] < 0.5


def test_sessions_are_ranked_by_their_best_hits() -> None:
    hits = [("a", 0.9), ("b", 0.8), ("c", 0.7)]
    places = {"a": "one", "b": "two", "c": "two", "d": "three"}
    assert session_score([["b"], ["d"]], hits, places) == {"sessions@10": 0.5, "session@5": 1.0}
    assert session_score([["d"]], hits, places) == {"sessions@10": 0.0, "session@5": 0.0}


def answer(recall: float, *scores: tuple[float, bool], question: str = "q") -> Answer:
    metrics = dict.fromkeys((*JUDGED, *retrieval.OTHERS, *retrieval.SESSIONS), recall)
    return Answer("set", "en", "c", question, metrics if scores else {}, 0.1, scores)


def test_the_reliability_table_counts_what_a_threshold_keeps() -> None:
    unanswered = Answer("set", "en", "c", "q", {}, 0.1, [(0.7, False), (0.2, False)])
    lines = [*reliability([answer(1, (0.95, True), (0.55, False), (0.4, True)), unanswered])]
    assert "| 0.9 – 1.0 | 1 | 100 % |" in lines
    assert "| 0.5 – 0.6 | 1 | 0 % |" in lines
    assert "| en | 50.0 % of 2 | 50.0 % of 2 | 0.0 % of 1 |" in lines


def test_two_runs_are_compared_question_by_question() -> None:
    before = [answer(0, (1, True), question="q"), answer(1, (1, True), question="other")]
    *_, recall, first, _ = compared([answer(1, (1, True), question="q")], before)
    assert recall == "| set | 1 | recall@10 | 0.0 | 100.0 | +100.0 | +100.0 … +100.0 |"
    assert first == "| set | 1 | hit@1 | 0.0 | 100.0 | +100.0 | +100.0 … +100.0 |"


@pytest.mark.parametrize("system", ["kemem", "bm25"])
async def test_it_runs_and_keeps_what_it_found(
    system: str, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Through the public API; its figures are what `kemem admin quality` takes."""
    kept, figures = data.with_name("kept.json"), data.with_name("figures.json")
    files = ["--save", str(kept), "--quality", str(figures)]
    await retrieval.main(["--data", str(data), "--system", system, *files])
    printed = capsys.readouterr().out
    assert "| small-zh | 1 |" in printed
    cells = printed.partition("| small-en | pets | 1 | ")[-1].splitlines()[0].split(" | ")
    assert [it.count("…") for it in cells] == [1, 1, 1]  # each metric with its interval
    answers = json.loads(kept.read_text("utf-8"))
    assert [bool(it["metrics"]) for it in answers] == [True, False] * 2
    assert all(it["scores"] for it in answers if it["metrics"])
    if system == "kemem":  # the reply shares no word with the question
        assert all(it["metrics"]["hit@5"] for it in answers if it["metrics"])
    assert {run.name for run in parse_runs(figures.read_text("utf-8"))} == {system}
    await retrieval.main(["--data", str(data), "--system", system, "--against", str(kept)])
    assert "| small-en | 1 | " in capsys.readouterr().out.rpartition("difference")[-1]


async def test_questions_can_be_asked_in_another_language(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = ["--datasets", "small-en", "--questions", "small-zh"]
    await retrieval.main(["--data", str(data), "--save", str(data.with_name("kept.json")), *chosen])
    assert "| small-en | 1 |" in capsys.readouterr().out
    first, *_ = json.loads(data.with_name("kept.json").read_text("utf-8"))
    assert (first["language"], first["metrics"]["hit@10"]) == ("zh", 1.0)


def test_figures_are_those_of_questions_with_an_answer() -> None:
    found = runs([answer(1, (1, True)), answer(0)], "kemem")
    assert {(it["category"], it["n"]) for it in found} == {("all", 1), ("c", 1)}
    assert len({it["at"] for it in found}) == 1


@pytest.mark.parametrize("wrong", [["--datasets", "small-zh,对话集"], ["--questions", "lokomo"]])
async def test_a_set_that_is_not_there_is_refused_with_those_that_are(
    wrong: list[str], data: Path
) -> None:
    """Before anything is stored: a long run must not end in an empty table."""
    named = wrong[1].rpartition(",")[-1]
    with pytest.raises(SystemExit, match=rf"has the sets small-en, small-zh, not {named}"):
        await retrieval.main(["--data", str(data), *wrong])


async def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"--data must be a file, not .*没有\.jsonl"):
        await retrieval.main(["--data", str(tmp_path / "没有.jsonl")])


async def test_a_set_is_asked_with_what_the_others_chose(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Words alone serve the one set, meaning alone the other: each is left with the wrong one."""

    async def metrics_of(
        query: Query, groups: Sequence[Sequence[str]], ask: Ask, switches: Sequence[Switch]
    ) -> dict[str, float]:
        assert groups == [["m1"]]
        wanted = {QUESTIONS["zh"]: "words", QUESTIONS["en"]: "meaning"}[query["query"]]
        values = [value for *_, value in switches]
        return dict.fromkeys(JUDGED, 100.0 * (values == [wanted]))

    text = data.read_text("utf-8").replace("small-en", "large-en")
    data.write_text(text, "utf-8")
    switches = {name: ((rank, "K1", name),) for name in ("words", "meaning")}
    monkeypatch.setattr(leave_one_out, "NUMBERS", {"weight": {**switches, "shipped": ()}})
    monkeypatch.setattr(leave_one_out, "metrics_of", metrics_of)
    await retrieval.main(["--data", str(data), "--leave-one-out", "5"])
    printed = capsys.readouterr().out
    assert printed.count("| 1 | 0.0, 0.0 … 0.0 | ") == 2
    assert (
        "| weight | words | +0.0 / +0.0 / +0.0 | +100.0* / +100.0* / +100.0* | large-en |"
        in printed
    )
    assert (
        "| weight | meaning | +100.0* / +100.0* / +100.0* | +0.0 / +0.0 / +0.0 | small-zh |"
        in printed
    )


async def test_two_languages_of_a_set_are_left_out_together(data: Path) -> None:
    with pytest.raises(SystemExit, match="takes two or more, not small-zh, small-en"):
        await retrieval.main(["--data", str(data), "--leave-one-out"])


def test_sampled_questions_are_spread_over_users() -> None:
    many = user("en") | {"queries": [{**user("en")["queries"][0], "qid": f"q{at}"} for at in "123"]}
    chosen = leave_one_out.sampled([many | {"user": "ann"}, user("en") | {"user": "bob"}], 3)
    assert {it["user"]: len(some) for it, some in chosen} == {"ann": 2, "bob": 1}


async def test_sets_of_another_file_help_to_choose(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They are a family of their own, asked by several processes, and not reported."""
    helpers = tmp_path / "helpers.jsonl"
    helpers.write_text(json.dumps(user("en") | {"dataset": "other-en"}), "utf-8")
    given = ["--data", str(data), "--datasets", "small-zh", "--leave-one-out", "1"]
    await retrieval.main([*given, "--helpers", str(helpers), "--processes", "2"])
    tables = capsys.readouterr().out.split("\n\n")
    assert "| small-zh | 1 | 100.0" in tables[0] and "other-en" not in tables[0]
    assert "| other-en | small-zh | chosen without |" in tables[2]


def test_every_value_can_be_set_while_a_question_is_asked() -> None:
    """A number that is renamed or gone is noticed here, not by a run of minutes."""
    before = vars(rank).copy(), vars(conversation).copy(), vars(fuse).copy()
    for values in leave_one_out.NUMBERS.values():
        assert leave_one_out.SHIPPED in values
        for switches in values.values():
            with switched(switches):
                pass
    assert (vars(rank), vars(conversation), vars(fuse)) == before
