"""The bench that judges a model: its cases are sound, and it counts what it says it counts."""

from contextlib import suppress
from datetime import date
from pathlib import Path

import pytest

from kemem.errors import Unavailable
from kemem.serve.bench import JudgedModel, Row, judge
from kemem.serve.bench.cases import Case, Gold, read_cases
from kemem.serve.bench.facts import choose, extract
from kemem.settings import load
from kemem.testing import running_openai_server
from kemem.testing.openai_server import MODEL, status


def test_every_case_can_be_judged() -> None:
    """Each says when it is, what is said, and names only memories that are known."""
    cases = read_cases()
    assert {it.language for it in cases} == {"en", "zh"}
    for case in cases:
        assert case.now > date(2020, 1, 1) and case.messages, case.name
        assert case.ended <= case.known.keys(), case.name
        assert case.gold or case.kind not in ("fact", "several", "update", "plan"), case.name


def test_a_choice_has_all_kinds() -> None:
    chosen = choose(read_cases(), 10)
    assert len(chosen) == 20
    assert all(
        len({it.kind for it in chosen if it.language == code}) == 10 for code in ("en", "zh")
    )


async def test_what_is_found_dated_ended_and_made_up_is_counted() -> None:
    case = Case("x", "en", "update", date(2026, 3, 12), {"m1": "User lives in Berlin"})
    case.messages = [("user", "I moved to Porto. I have a dentist appointment next Friday.")]
    case.gold = [Gold((("porto",),)), Gold((("dentist",),), date(2026, 3, 20))]
    case.wrong, case.ended = [Gold((("appointment",),))], {"m1"}
    tally = await extract(case, None)
    assert (tally.found, tally.gold, tally.right, tally.made) == (2, 2, 2, 2)
    assert (tally.dates_right, tally.ended, tally.ended_wrongly, tally.forbidden) == (1, 1, 0, 1)
    case.ended = set()
    assert (await extract(case, None)).ended_wrongly == 1
    case.gold, case.harmless = [Gold((("porto",),))], []
    assert (await extract(case, None)).right == 1
    case.harmless = [Gold((("dentist",),))]  # true, but nobody needs it
    tally = await extract(case, None)
    assert (tally.found, tally.gold, tally.right, tally.made) == (1, 1, 2, 2)


async def test_a_model_that_never_answers_is_not_judged(tmp_path: Path) -> None:
    async def suite(model: JudgedModel, cases: int) -> list[Row]:
        with suppress(Exception):
            await model.reply([{"role": "user", "content": "Hello"}])
        return [{"cases": cases}]

    suites, folder = {"hello": suite}, tmp_path / "new"
    with running_openai_server(["Hello!", status(500)]) as server:
        settings = load(llm_base_url=server.base_url, llm_model=MODEL)
        verdict = await judge(settings, "hello", 7, folder, suites)
        with pytest.raises(Unavailable, match="answered no question"):
            await judge(settings, "hello", 7, tmp_path, suites)
    assert verdict.rows == [{"cases": 7}] and "| 7 |" in str(verdict)
    assert "Hello!" in (folder / "hello.jsonl").read_text("utf-8")
