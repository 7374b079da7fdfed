"""LongMemEval_S: what counts as found, and that it runs as a user runs it."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench import longmemeval


def entry(name: str, category: str = "multi-session") -> dict[str, Any]:
    """A question whose answer is told in two sessions, one of which is there twice."""
    pet = [
        {"role": "user", "content": "I adopted a beagle.", "has_answer": True},
        {"role": "assistant", "content": "How lovely!"},
    ]
    cat = [{"role": "user", "content": "And a cat.", "has_answer": True}]
    noise = [{"role": "user", "content": "Shall we hike?"}, {"role": "assistant", "content": " "}]
    return {
        "question_id": name,
        "question_type": category,
        "question": "Which beagle did I adopt?",
        "question_date": "2023/05/30 (Tue) 23:40",
        "answer_session_ids": ["answer_1", "answer_2"],
        "haystack_dates": [f"2023/05/{20 + at} (Sat) 02:21" for at in range(4)],
        "haystack_session_ids": ["noise", "answer_1", "noise", "answer_2"],
        "haystack_sessions": [noise, pet, noise, cat],
    }


def test_turns_and_sessions_are_counted_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """BM25 finds one of two turns and of two sessions; what has no answer or is known is left."""
    entries = [entry("a"), entry("b_abs"), entry("known", "temporal-reasoning")]
    path, known = tmp_path / longmemeval.FILE, tmp_path / "known.jsonl"
    path.write_text(json.dumps(entries), "utf-8")
    known.write_text(json.dumps({"dataset": "d", "queries": [{"qid": "known"}]}), "utf-8")
    monkeypatch.setattr(longmemeval, "FOLDER", tmp_path)
    longmemeval.main(["--system", "bm25", "--without", str(known)])
    printed = capsys.readouterr().out
    half, none, right = "50.0, 50.0 … 50.0", "0.0, 0.0 … 0.0", "100.0, 100.0 … 100.0"
    row = f"| multi-session | 1 | {half} | {half} | {none} | {none} | {right} | "
    assert printed.count(row) == 2
    assert "temporal-reasoning" not in printed


def test_a_sample_is_part_of_a_greater_one() -> None:
    entries = [entry(str(at)) for at in range(20)]
    few, many = (longmemeval.chosen(entries, frozenset(), most) for most in (5, 9))
    assert many[:5] == few
    assert few == longmemeval.chosen(entries[::-1], frozenset(), 5)


def test_a_count_that_is_none_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        longmemeval.main(["--questions", "0"])
    assert "--questions must be 1 or more, not 0" in capsys.readouterr().err
