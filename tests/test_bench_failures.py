"""The page of failures: which questions fail, and why."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench import failures
from bench.failures import FAR, FEWER, NEARBY, NO_WORD, OUTRANKED, SEVERAL, Words, failure


def message(name: str, content: str, role: str = "user") -> dict[str, Any]:
    said = {"ts": "2026-01-01T10:00:00Z", "speaker": None, "session": name[0]}
    return {"message_id": name, "role": role, "content": content, **said}


@pytest.mark.parametrize(
    ("question", "contents", "reasons"),
    [
        ("Which beagle?", ["A beagle it is", "Biscuit"], {NO_WORD, NEARBY, FAR}),
        ("哪只金毛？", ["一只金毛", "豆豆"], {NO_WORD, NEARBY, FAR}),
        ("Which brown beagle?", ["A brown beagle", "beagle"], {FEWER, FAR}),
        ("Which beagle?", ["Biscuit", "beagle"], {OUTRANKED, FAR}),
    ],
)
def test_reasons_are_computed(question: str, contents: list[str], reasons: set[str]) -> None:
    messages = [message(f"s{at}", text) for at, text in enumerate(contents)]
    shared, by_id = Words(messages).shared(question), {it["message_id"]: it for it in messages}
    found = failure(question, [["s1"]], ["s0"], by_id, shared)
    assert found and {*found.reasons} == reasons
    both = failure(question, [["s0"], ["s1"]], ["s0"], by_id, shared)
    assert both and SEVERAL in both.reasons
    assert failure(question, [["s0", "s1"]], ["s0"], by_id, shared) is None


async def test_the_page_shows_what_was_wanted_and_what_stood_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only of the categories that are named; the counts are printed without any text."""
    messages = [message(f"s{at}", f"The beagle number {at}") for at in range(12)]
    messages.append(message("t0", "Lunch was fine", "assistant"))
    asked = {"until": None, "ts": "2026-02-01T00:00:00Z", "answerable": True}
    queries = [
        {**asked, "query": query, "category": category, "evidence_groups": [["t0"]]}
        for query, category in (("Which beagle?", "multi-hop"), ("Lunch?", "simple"))
    ]
    user = {"dataset": "small", "user": "small/ann", "messages": messages, "queries": queries}
    data, page = tmp_path / "data.jsonl", tmp_path / "page.md"
    data.write_text(json.dumps(user), "utf-8")
    await failures.main(["--data", str(data), "--page", str(page)])
    text = page.read_text("utf-8")
    assert "### Which beagle?" in text and "assistant: Lunch was fine" in text
    assert "- first: [2026-01-01] user: The beagle number" in text
    assert "Lunch?" not in text
    printed = capsys.readouterr().out
    assert "| small, multi-hop | 1 | 1 | 0 | 1 | 1 | 0 | 0 | 0 | " in printed
    assert "Lunch" not in printed
    with pytest.raises(SystemExit, match="has no question of the categories 多跳"):
        await failures.main(["--data", str(data), "--page", str(page), "--categories", "多跳"])
