"""The benchmark of answers: what it takes for right, whom it asks what, and that it resumes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.answers.__main__ import main, read_rows
from bench.answers.judge import abstained, contains, f1, judge, tokens
from bench.answers.prompt import LONGEST, Line, excerpt, prompt
from bench.answers.questions import (
    ACCEPTED,
    History,
    Message,
    Question,
    alternatives,
    read_lives,
    sample,
)
from bench.answers.report import Row, report
from kemem.testing.openai_server import OpenAIServer, running_openai_server, status
from tests.cases import each

MODEL = "scripted"
SYSTEMS = ("nothing", "whole", "bm25", "search", "recall", "chat")
KNOWN = Question("truth", "k", "Where do I live?", "2026-03-01", "change", ("Ghent",), ("Porto",))
UNKNOWN = Question("truth", "u", "我姓什么？", "2026-03-01", "unanswerable", ())
LIFE: dict[str, Any] = {
    "id": "life",
    "lang": "en",
    "category": "change",
    "messages": [
        {"role": "user", "content": text, "ts": f"2026-0{month}-01T10:00:00Z", "session_id": "s"}
        for month, text in enumerate(
            ("My kitchen in Porto is old.", "I moved to a new city, Ghent."), 1
        )
    ],
    "questions": [
        {"question": it, "now": "2026-03-01T10:00:00Z", "gold": gold, "stale": []}
        for it, gold in (("Which city do I live in?", ["Ghent"]), ("What is my name?", []))
    ],
}


@each(
    "text, words",
    [
        ("the 7th of Mar, 2023", ["7", "of", "march", "2023"]),
        ("2023-03-07", ["7", "march", "2023"]),
        ("Five of 5,850 and 16GB", ["5", "of", "5850", "and", "16", "gb"]),
        ("10月4号", ["10", "月", "4", "号"]),
    ],
)
def test_texts_are_compared_in_one_form(text: str, words: list[str]) -> None:
    assert tokens(text) == words


def test_f1_weighs_what_is_missing_and_what_is_too_much() -> None:
    assert f1("two cats", "two cats") == f1("厦门", "厦门") == 1
    assert f1("two cats", "cats") == pytest.approx(2 / 3)
    assert f1("厦门", "在厦门住") == pytest.approx(2 / 3)
    assert f1("two cats", "a dog") == f1("厦门", "北京") == 0


@each(
    "gold, answer, question, right",
    [
        ("5 hours", "It took about five hours.", "How long?", True),
        ("7 May 2023", "May 7, 2023", "When?", True),
        ("clarinet and violin", "violin", "What does she play?", False),
        ("The code was 'LIV'.", "LIV", "What was the code?", True),
        ("the bike", "the car", "The bike or the car?", False),
        ("no", "I know that", "Do I?", False),
        ("初六", "正月初六", "哪天？", True),
        ("西安", "安西", "哪里？", False),
    ],
)
def test_a_right_answer_has_all_of_the_gold(
    gold: str, answer: str, question: str, right: bool
) -> None:
    assert contains(gold, answer, question) is right


@each(
    "answer",
    [
        "I don't know.",
        "It is not mentioned.",
        "No information about that",
        "不知道",
        "没有提到。",
        "",
    ],
)
def test_whoever_says_that_it_is_unknown_abstains(answer: str) -> None:
    assert abstained(answer)
    assert not judge(KNOWN, answer).right and judge(UNKNOWN, answer).right


@each("answer", ["No, not any more.", "没有了，退了", "Ghent", "a note of thanks"])
def test_a_denial_is_an_answer(answer: str) -> None:
    assert not abstained(answer)
    assert not judge(UNKNOWN, answer).right


def test_an_answer_with_something_stale_is_wrong() -> None:
    assert judge(KNOWN, "In Ghent").right
    assert not judge(KNOWN, "In Porto or Ghent").right


@each(
    "text, answers",
    [
        ("2 days. 3 days (with today) is also acceptable.", ("2 days", "3 days")),
        ("Los Angeles (LA)", ("Los Angeles", "LA")),
        ("It grew (from one to two)", ("It grew",)),
        ("No; she adopts.", ("No; she adopts.", "No")),
        ("Main St.", ("Main St.",)),
    ],
)
def test_a_gold_text_may_name_several_answers(text: str, answers: tuple[str, ...]) -> None:
    assert alternatives(text) == answers


def history(sizes: dict[str, int], dataset: str = "s") -> History:
    """One with so many questions of each category."""
    questions = [
        Question(dataset, f"{name}{at}", "Where?", "", name, ("x",))
        for name, size in sizes.items()
        for at in range(size)
    ]
    return History(dataset, "h", (), tuple(questions))


@given(
    st.dictionaries(st.sampled_from("abc"), st.integers(1, 20), min_size=1),
    st.integers(1, 30),
    st.integers(1, 30),
)
def test_a_smaller_sample_is_part_of_a_larger_one(
    sizes: dict[str, int], one: int, two: int
) -> None:
    small, large = (
        {q.key for it in sample([history(sizes)], count, 1) for q in it.questions}
        for count in sorted((one, two))
    )
    assert small <= large and len(large) == min(max(one, two), sum(sizes.values()))


def test_no_set_changes_the_sample_of_another() -> None:
    one, two = history({"a": 20, "b": 30}, "one"), history({"a": 40}, "two")
    assert sample([one, two], 5, 0) == sample([one], 5, 0) + sample([two], 5, 0)


def test_a_sample_has_categories_as_often_as_the_set() -> None:
    (chosen,) = sample([history({"often": 80, "rarely": 20})], 10, 0)
    assert sum(it.category == "rarely" for it in chosen.questions) in (1, 2, 3)


def test_a_long_text_is_cut_to_where_the_question_points() -> None:
    text = "Nothing of note. " * 50 + "The Lager was cold. " + "Nothing of note. " * 50
    assert "Lager" in excerpt(text, "Which lager did I drink?")
    assert len(excerpt(text, "?")) <= LONGEST + 4
    assert excerpt("short", "?") == "short"


def test_every_system_gets_the_same_prompt() -> None:
    line = Line("2026-02-01T10:00:00Z", "user", "I moved\nto Ghent.")
    _, asked = prompt(KNOWN, [line])
    assert "[2026-02-01] user: I moved to Ghent.\n" in asked["content"]
    assert KNOWN.text in asked["content"]
    assert "2026-03-01" in prompt(UNKNOWN, [])[0]["content"]


def test_accepted_answers_can_be_read(tmp_path: Path) -> None:
    path, accepted = tmp_path / "truth.jsonl", tmp_path / "accepted.txt"
    path.write_text(json.dumps(LIFE))
    accepted.write_text("# other answers\nlife#0 Gent|Gand\n")
    (life,) = read_lives(path, accepted)
    assert [it.gold for it in life.questions] == [("Gent", "Gand"), ()]
    assert life.messages[0].name == "user"
    for line in ACCEPTED.read_text("utf-8").splitlines():
        key, _, answers = line.partition(" ")
        assert line.startswith("#") or ("#" in key and all(answers.split("|"))), line


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    """A model that answers one question, where it is shown the answer."""

    def reply(request: dict[str, Any]) -> str:
        shown = json.dumps(request["messages"])
        asks = "Which city" in shown and "Ghent" in shown
        return "Ghent" if asks else "I don't know"

    with running_openai_server(reply) as running:
        yield running


def run(tmp_path: Path, base_url: str, *more: str) -> Path:
    """The command on one life; returns the file of answers."""
    truth, path = tmp_path / "truth.jsonl", tmp_path / "answers.jsonl"
    truth.write_text(json.dumps(LIFE))
    options = ["--truth", str(truth), "--sets", "truth", "--answers", str(path), "--model", MODEL]
    main([*options, "--base-url", base_url, "--systems", ",".join(SYSTEMS), *more])
    return path


def test_all_systems_answer_within_the_same_bounds(
    tmp_path: Path, server: OpenAIServer, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = read_rows(run(tmp_path, server.base_url))
    city = {it.system: it.answer for it in rows if it.question == "life#0"}
    assert city == {"nothing": "I don't know"} | dict.fromkeys(SYSTEMS[1:], "Ghent")
    assert {(it["temperature"], it["max_tokens"]) for it in server.requests} == {(0, 64)}
    table = capsys.readouterr().out
    assert "| truth | nothing | 1 | 0.0 [0.0-0.0] |" in table
    assert "| truth | search | 1 | 100.0 [100.0-100.0] |" in table
    assert "| truth | recall | bm25 | 1 | +0.0 [+0.0 … +0.0] |" in table


def test_a_question_of_a_chat_is_not_remembered(tmp_path: Path, server: OpenAIServer) -> None:
    run(tmp_path, server.base_url, "--systems", "chat,search")
    assert not any(
        "Which city" in it.text
        for row in read_rows(tmp_path / "answers.jsonl")
        for it in row.evidence
    )


def test_a_run_that_was_stopped_goes_on(
    tmp_path: Path, server: OpenAIServer, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run(tmp_path, server.base_url)
    whole = path.read_text("utf-8").splitlines()
    path.write_text(
        "\n".join([*whole[:-2], whole[-2][:40]]) + "\n", "utf-8"
    )  # killed while writing
    before = len(server.requests)
    run(tmp_path, server.base_url, "--resume")
    assert len(server.requests) == before + 2
    assert {it.key for it in read_rows(path)} == {
        Row(**{**json.loads(it), "evidence": ()}).key for it in whole
    }
    capsys.readouterr()
    with pytest.raises(SystemExit):
        run(tmp_path, server.base_url)
    assert "--resume goes on with it" in capsys.readouterr().err
    run(tmp_path, "", "--report")
    assert len(server.requests) == before + 2


def test_a_model_that_fails_ends_a_run_and_leaves_no_answer(tmp_path: Path) -> None:
    with running_openai_server(lambda _: status(503)) as broken, pytest.raises(SystemExit):
        run(tmp_path, broken.base_url)
    assert read_rows(tmp_path / "answers.jsonl") == []


def test_a_history_that_does_not_fit_is_left_out(tmp_path: Path, server: OpenAIServer) -> None:
    path = run(tmp_path, server.base_url, "--systems", "nothing,whole", "--context", "70")
    assert {it.system for it in read_rows(path)} == {"nothing"}


def test_evidence_is_counted_without_a_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    life = {**LIFE, "questions": [{**LIFE["questions"][0], "question": "Where is my home?"}]}
    truth, path = tmp_path / "truth.jsonl", tmp_path / "evidence.jsonl"
    truth.write_text(json.dumps(life))
    options = ["--truth", str(truth), "--sets", "truth", "--answers", str(path), "--evidence"]
    main([*options, "--systems", "bm25,search"])
    table = capsys.readouterr().out
    assert "| truth | bm25 | 1 | 0.0 [0.0-0.0] | 0 |" in table
    assert "| truth | search | 1 | 100.0 [100.0-100.0] |" in table
    assert "| truth | search | bm25 | 1 | +100.0 [+100.0 … +100.0] |" in table
    with pytest.raises(SystemExit):
        main([*options, "--systems", "chat", "--resume"])
    assert "--systems must be of bm25, mem0, search, recall, not chat" in capsys.readouterr().err


def test_answers_are_compared_by_question() -> None:
    message = Message("m", "2026-01-01", "user", "", "s", "I moved to Ghent.")
    questions = tuple(Question("truth", str(at), "Where?", "", "c", ("Ghent",)) for at in range(4))
    rows = [
        Row(MODEL, system, "truth", it.key, it.text, answer, (), 10, 1, 1.0)
        for system, answer in (("search", "Ghent"), ("bm25", "Porto"))
        for it in questions[: 4 if system == "search" else 2]
    ]
    tables = "\n".join(report(rows, [History("truth", "h", (message,), questions)]))
    assert "| truth | search | bm25 | 2 | +100.0 [+100.0 … +100.0] |" in tables
