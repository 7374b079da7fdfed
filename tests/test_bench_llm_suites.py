"""The suites of `bench.llm` that are not part of the product: recall and summaries."""

import json
from pathlib import Path
from typing import Any

from bench.llm import recall, summaries
from bench.sessions import sessions
from kemem.ports import LLM
from kemem.serve.bench import JudgedModel
from kemem.settings import load
from kemem.testing import ScriptedLLM
from tests.recalls import handing

LIFE = {
    "id": "x",
    "lang": "en",
    "category": "change",
    "messages": [
        {"role": role, "content": text, "ts": f"2026-01-0{day}T10:00:00Z", "session_id": f"s{day}"}
        for day, role, text in (
            (1, "user", "I live in Porto, close to the river."),
            (1, "assistant", "That sounds lovely."),
            (2, "user", "My sister Ines plays the cello in an orchestra."),
            (2, "assistant", "How nice!"),
        )
    ],
    "questions": [
        {
            "question": "Where do I live?",
            "now": "2026-01-05T10:00:00Z",
            "answerable": True,
            "gold": ["Porto"],
            "stale": [],
        },
        {
            "question": "What is the name of my dentist?",
            "now": "2026-01-05T10:00:00Z",
            "answerable": False,
            "gold": [],
            "stale": [],
        },
    ],
}


def judged(llm: LLM, folder: Path) -> JudgedModel:
    return JudgedModel(llm, load(llm="none"), folder / "transcript.jsonl")


async def rows(llm: LLM, folder: Path, seconds: float = 60.0) -> list[Any]:
    lives = folder / "lives.jsonl"
    lives.write_text(json.dumps(LIFE) + "\n", "utf-8")
    return await recall.suite(lives, None, seconds)(judged(llm, folder), 10)


async def test_a_recall_is_measured_by_rules_and_with_the_model(tmp_path: Path) -> None:
    """The unanswerable question has no part in R@5; what was asked is kept."""
    llm = ScriptedLLM([handing([1]), handing()], repeat=True)
    by_rules, by_model = await rows(llm, tmp_path)
    assert (by_rules["recall"], by_model["recall"]) == ("rules", "model")
    for row in (by_rules, by_model):
        assert (row["set"], row["questions"], row["R@5"], row["first"]) == (
            *("truth en", 2),
            *("100 %", "100 %"),
        )
    assert (by_rules["calls"], by_rules["rules took over"]) == ("0.0", "-")
    assert (by_model["calls"], by_model["rules took over"], by_model["time lost"]) == (
        "1.0",
        0,
        "-",
    )
    lines = (tmp_path / "transcript.jsonl").read_text("utf-8").splitlines()
    assert sum("question" in json.loads(line) for line in lines) == 4


async def test_the_time_that_a_failing_model_costs_is_counted(tmp_path: Path) -> None:
    llm = ScriptedLLM([ConnectionError()], repeat=True)
    _, by_model = await rows(llm, tmp_path)
    assert (by_model["rules took over"], by_model["R@5"]) == (2, "100 %")
    assert by_model["time lost"] == "0 %"


def test_each_lesson_is_told_in_its_session() -> None:
    """All parts of it, so that an experience can name them."""
    texts = {it.name: " ".join(text for _, text in it.turns) for it in sessions()}
    for name, lessons in summaries.LESSONS.items():
        for lesson in lessons:
            for words in (lesson.problem, lesson.failed, lesson.worked):
                assert any(word.casefold() in texts[name].casefold() for word in words), words


async def test_a_useless_model_leaves_summaries_and_lessons_as_they_are(tmp_path: Path) -> None:
    """It summarises nothing, and calls an attempt that failed the solution."""

    def answer(messages: Any) -> dict[str, Any]:
        claim = "Our payments-api throws 502 errors. I raised max_connections and that fixed it."
        return {"summary": "They talked.", "experience": claim, "keywords": []}

    llm = ScriptedLLM([answer], repeat=True)
    session = next(it for it in sessions() if it.name == "en_02")
    with_model, without = summaries.Tally(), summaries.Tally()
    await summaries.summarise(session, llm, with_model)
    await summaries.summarise(session, None, without)
    assert llm.calls and with_model == without
    assert (without.lessons, without.problems, without.worked, without.wrong) == (2, 2, 2, 0)
    row = summaries.row("x", "en", 1, without)
    assert (
        row["facts in 2000"] == f"100 % of {without.facts}" and row["newest topic"] == "1/1 1/1 1/1"
    )
