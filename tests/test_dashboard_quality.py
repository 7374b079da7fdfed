"""Quality: runs of benchmarks that are kept and compared, and votes on hits that add up."""

import json
import re
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench.recall import Found, runs
from kemem.errors import InvalidArgument
from kemem.memory import AsyncMemory
from kemem.serve.telemetry.journal import (
    VOTE,
    Vote,
    latest,
    metrics_of,
    opinions,
    parse_runs,
    read_runs,
    read_votes,
    save_runs,
    save_vote,
)
from kemem.settings import load
from tests.command import kemem
from tests.server import Server, local_server, running_server

HOME = "/dashboard/quality"
NOON = 1_767_268_800_000_000  # 2026-01-01 12:00
DAY = 86_400_000_000
EVIL = "<img src=x onerror=alert(1)>\"'"
SETS = pytest.mark.parametrize(("language", "name"), [("zh", "对话集"), ("en", "locomo")])
QUESTIONS = pytest.mark.parametrize("query", ["火锅口味", "hotpot taste"])


def run(value: float, day: int = 1, **more: Any) -> dict[str, Any]:
    """A run as a file has it."""
    return {
        "at": f"2026-01-{day:02}T12:00:00Z",
        "name": "search",
        "set": "locomo",
        "language": "en",
        "n": 120,
        "metrics": {"recall@5": value / 2, "recall@10": value},
        "version": "0.1.0",
        **more,
    }


def vote(query: str, said: str, rank: int = 1, **more: Any) -> Vote:
    settings = {"mode": "hybrid", "limit": 10, "rerank": True}
    given = {"memory_id": f"n_{rank}", "rank": rank, "score": 0.5, "user_id": "u", **more}
    return Vote.model_validate({"settings": settings, "query": query, "vote": said, **given})


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[AsyncMemory]:
    settings = load(data_dir=tmp_path, embedder="none", llm="none")
    async with AsyncMemory(settings=settings) as opened:
        yield opened


@SETS
async def test_a_run_is_compared_with_the_one_before(
    memory: AsyncMemory, language: str, name: str
) -> None:
    """Each set, language and category by itself; the same file again adds nothing."""
    of = {"set": name, "language": language}
    told = [run(0.5, 1, **of), run(0.75, 2, **of), run(0.25, 3, **of, category="时间 temporal")]
    for _ in range(2):
        await save_runs(memory, parse_runs(json.dumps(told)))
    kept = await read_runs(memory)
    assert [it.metrics["recall@10"] for it in kept] == [0.25, 0.75, 0.5]
    assert metrics_of(kept) == ["recall@10", "recall@5"]
    whole, temporal = latest(kept, "recall@10")
    assert (whole[0].set, whole[0].metrics["recall@10"], whole[1]) == (name, 0.75, 0.25)
    assert (temporal[0].category, temporal[1]) == ("时间 temporal", None)


@SETS
def test_what_the_benchmark_saves_can_be_kept(language: str, name: str) -> None:
    found = [
        Found(name, (0.0, 1.0), (1.0, 1.0), 0.1, 0.2, language, "时间 temporal"),
        Found(name, (1.0, 1.0), (1.0, 1.0), 0.3, 0.2, language),
    ]
    told = parse_runs(json.dumps([*runs(found, "2026-01-01T12:00:00Z")]))
    whole = {it.name: it for it in told if it.category == "all"}
    assert whole["search"].metrics == {"recall@5": 0.5, "recall@10": 1.0, "seconds": 0.2}
    assert (whole["recall"].metrics["recall@5"], whole["recall"].n) == (1.0, 2)
    assert {it.n for it in told if it.category == "时间 temporal"} == {1}


@pytest.mark.parametrize(
    "wrong",
    [
        {"at": "昨天 yesterday"},
        {"language": "fr"},
        {"n": 0},
        {"metrics": {}},
        {"metrics": {"recall@10": float("inf")}},
        {"未知": 1},
    ],
)
def test_a_run_that_is_wrong_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        parse_runs(json.dumps([run(0.5) | wrong]))


@QUESTIONS
async def test_votes_add_up_by_rank_settings_and_question(memory: AsyncMemory, query: str) -> None:
    """Who votes again on the same hit has changed their mind."""
    words = {"mode": "lexical", "limit": 5}
    cast = [
        (NOON - DAY, vote(query, "up")),
        (NOON, vote(query, "down")),
        (NOON, vote(query, "down", rank=2)),
        (NOON - DAY, vote(query, "up", rank=2, settings=words)),
        (NOON - DAY, vote("茶 tea", "up")),
    ]
    for at, each in cast:
        await save_vote(memory, each, at)
    votes = await read_votes(memory)

    def counted(subject: Callable[[int, Vote], Any]) -> dict[Any, tuple[int, int]]:
        return {it.subject: (it.up, it.down) for it in opinions(votes, subject)}

    assert counted(lambda *_: "all") == {"all": (2, 2)}
    assert counted(lambda ts, _: ts) == {NOON: (0, 2), NOON - DAY: (2, 0)}
    assert counted(lambda _, it: it.rank) == {1: (1, 1), 2: (1, 1)}
    by_settings = {it.subject: it.share for it in opinions(votes, lambda _, it: it.settings_text)}
    assert by_settings == {"hybrid, rerank=True": pytest.approx(1 / 3), "lexical": 1.0}
    assert counted(lambda _, it: (it.query, it.mode))[query, "hybrid"] == (0, 2)


@QUESTIONS
async def test_votes_go_with_their_user(memory: AsyncMemory, query: str) -> None:
    await memory.add("我喜欢茶 tea", user_id="u", infer=False)
    await save_vote(memory, vote(query, "up"), NOON)
    await save_vote(memory, vote(query, "up", user_id="v"), NOON)
    await memory.delete_all(user_id="u")
    assert [line.user_id for line in await memory.journal.lines(VOTE)] == ["v"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("quality")
    with running_server(home / "data", llm="none") as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client() as connected:
        yield connected


def form_token(client: httpx.Client) -> str:
    """The token of a page, whose cookie the client keeps."""
    found = re.search(r'"X-Form-Token": "([^"]+)"', client.get(HOME).text)
    assert found
    return found[1]


def voted(client: httpx.Client, **fields: Any) -> httpx.Response:
    whole = {"query": "茶 tea", "user_id": "u", "memory_id": "n_1", "rank": "1", "vote": "down"}
    given = {**whole, "score": "0.5", "settings": '{"mode": "hybrid"}', **fields}
    return client.post(f"{HOME}/votes", data=given, headers={"X-Form-Token": form_token(client)})


@pytest.mark.parametrize(
    ("language", "heading", "empty"),
    [("en", "Votes on hits", "No benchmark"), ("zh", "对检索结果的评价", "还没有保存过评测")],
)
def test_an_empty_view_says_what_to_do(
    tmp_path: Path, language: str, heading: str, empty: str
) -> None:
    with local_server(tmp_path) as server, server.client() as client:
        text = client.get(HOME, params={"language": language}).text
    assert heading in text and empty in text and "kemem admin quality runs.json" in text


@QUESTIONS
def test_a_vote_is_counted_and_leads_back(client: httpx.Client, query: str) -> None:
    answer = voted(client, query=f"{query} {EVIL}")
    assert answer.status_code == 303
    assert answer.headers["location"].startswith("/dashboard/playground?query=")
    for language in ("en", "zh"):
        text = client.get(HOME, params={"language": language}).text
        assert f"{query} &lt;img src=x" in text and "<img src=x" not in text


@pytest.mark.parametrize(
    ("language", "query", "noted"),
    [("zh", "火锅口味", "已记为切题"), ("en", "hotpot taste", "Noted as a good hit")],
)
def test_htmx_gets_a_line_instead(
    client: httpx.Client, language: str, query: str, noted: str
) -> None:
    headers = {"X-Form-Token": form_token(client), "HX-Request": "true"}
    given = {"query": query, "memory_id": "n_1", "rank": "1", "vote": "up"}
    there = f"{HOME}/votes?language={language}"
    answer = client.post(there, data=given, headers=headers)
    assert answer.status_code == 200, answer.text
    assert "<html" not in answer.text and noted in answer.text


@pytest.mark.parametrize(
    "wrong",
    [
        {"vote": "也许 maybe"},
        {"rank": "0"},
        {"rank": "x"},
        {"score": "nan"},
        {"query": " "},
        {"settings": "[1]"},
        {"settings": "{"},
        {"user_id": "u" * 256},
    ],
)
def test_a_vote_that_is_wrong_is_refused(client: httpx.Client, wrong: dict[str, str]) -> None:
    answer = voted(client, **wrong)
    assert answer.status_code == 400, answer.text
    assert answer.headers["content-type"].startswith("text/html")


@QUESTIONS
def test_a_vote_without_the_token_of_a_page_is_refused(client: httpx.Client, query: str) -> None:
    form_token(client)
    given = {"query": query, "memory_id": "n_1", "rank": "1", "vote": "up"}
    assert client.post(f"{HOME}/votes", data=given).status_code == 403


def test_what_the_command_keeps_is_shown_in_both_languages(
    server: Server, client: httpx.Client
) -> None:
    """By a server that runs already."""
    home = server.log.parent
    names = {"zh": "对话集", "en": "locomo"}
    told = [run(0.5, 1, set=EVIL)]
    for language, name in names.items():
        told += [run(0.25 * day, day, set=name, language=language) for day in (2, 3)]
    (home / "runs.json").write_text(json.dumps(told))
    ran = kemem(home, "admin", "quality", "runs.json")
    assert (ran.returncode, ran.stdout) == (0, "5 kept\n"), ran.stderr
    for language, heading in (("zh", "检索评测"), ("en", "Benchmarks")):
        text = client.get(HOME, params={"language": language}).text
        assert heading in text and "+0.250" in text and "<img src=x" not in text
        assert all(name in text for name in names.values())
    assert client.get(HOME, params={"metric": "recall@5"}).status_code == 200
    assert client.get(HOME, params={"metric": "不存在"}).status_code == 400


@pytest.mark.parametrize(
    ("language", "labels"),
    [
        ("en", ["First hit right", "Current before stale", "Says when it does not know"]),
        ("zh", ["首条即正确", "现状排在过时之前", "不知道时会说不知道"]),
    ],
)
def test_what_is_true_now_is_shown_beside_the_evidence(
    server: Server, client: httpx.Client, language: str, labels: list[str]
) -> None:
    """Choosing a metric of one kind leaves the other kind at its usual one."""
    home = server.log.parent
    values = {"first_hit": 0.5, "current_before_stale": 0.625, "says_unknown": 0.375}
    told = [run(0.75, 4)]
    for code in ("zh", "en"):
        more = {"set": "truth-small", "language": code, "category": "back_and_forth"}
        told += [run(0.5, 4, set="truth-small", language=code, metrics=values)]
        told += [run(0.5, 4, **more, metrics=values)]
    (home / "truth.json").write_text(json.dumps(told))
    assert kemem(home, "admin", "quality", "truth.json").returncode == 0
    text = client.get(HOME, params={"language": language}).text
    assert all(f">{label}</a>" in text for label in labels)
    assert "recall@10</h2>" in text and f"{labels[0]}</h2>" in text
    assert "back and forth" in text and "<strong>0.500</strong>" in text
    text = client.get(HOME, params={"language": language, "metric": "says_unknown"}).text
    assert "recall@10</h2>" in text and f"{labels[2]}</h2>" in text
    text = client.get(HOME, params={"language": language, "metric": "recall@5"}).text
    assert "recall@5</h2>" in text and f"{labels[0]}</h2>" in text
