"""The suite of `kemem admin bench` that asks a model in chats what earlier sessions told it."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from kemem.errors import Unavailable
from kemem.serve.bench import Verdict, judge
from kemem.settings import Settings
from kemem.testing import running_openai_server
from kemem.testing.openai_server import Answer, status


def judged(folder: Path, answer: Any, cases: int, **settings: Any) -> tuple[Verdict, list[Any]]:
    """What the suite says of a model, and the transcript."""
    with running_openai_server(answer) as server:
        named = Settings(llm_base_url=server.base_url, llm_model="m", embedder="none", **settings)
        verdict = asyncio.run(judge(named, "chat", cases, folder))
    lines = (folder / "chat.jsonl").read_text("utf-8").splitlines()
    return verdict, [json.loads(line) for line in lines]


def everything(request: dict[str, Any]) -> Answer:
    """Answers with all that it was shown: right wherever the evidence has reached it."""
    shown = "\n".join(str(it["content"]) for it in request["messages"])
    return re.sub(r'[{}"\[\]<>]', " ", shown)  # the guard would hide it as it came


@pytest.mark.parametrize("way", ["call", "note"])
def test_the_evidence_reaches_the_model_by_every_way(tmp_path: Path, way: str) -> None:
    """Each question by another one; prompts, answers and the verdict on them are kept."""
    verdict, lines = judged(tmp_path, everything, 4, chat_recall=way)
    assert {it["chat"] for it in verdict.rows} == {"JSON", "events", "group", "proxy"}
    assert [it["right"] for it in verdict.rows] == ["100 % of 1"] * 8
    assert all(int(it["prompt tokens"]) > 50 for it in verdict.rows)
    prompts = [it for it in lines if "prompt" in it]
    answers = [it for it in lines if "is_right" in it]
    assert len(prompts) == len(answers) == 8 and "8 calls" in verdict.cost
    assert {bool(it["tools"]) for it in prompts} == {way == "call"}


def test_an_answer_without_the_word_is_wrong(tmp_path: Path) -> None:
    verdict, _ = judged(tmp_path, lambda request: "I don't know. 我不知道。", 4, chat_recall="note")
    assert [it["right"] for it in verdict.rows] == ["0 % of 1"] * 8


def test_a_model_that_answers_nothing_is_not_judged(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="m answered no question"):
        judged(tmp_path, lambda request: status(500, "broken"), 4, chat_recall="note")
