"""Recall traces: written by the server for each recall, erased with their user, shown in full."""

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from kemem.errors import Unavailable
from kemem.journal import AsyncJournal
from kemem.memory import AsyncMemory
from kemem.recall import Account
from kemem.records import Line, Scope
from kemem.records.privacy import ContentPolicy
from kemem.serve.telemetry.journal import MAX_TRACES, TRACE, Traces, to_line
from kemem.settings import Settings, load
from kemem.testing import FakeClock, ScriptedLLM, calling
from tests.chats import BOTH, staged
from tests.recalls import hand_over_what_is_shown
from tests.server import LocalServer, local_server, note_of, wait_for

HOME = "/dashboard/traces"
NOON = 1_767_268_800_000_000  # 2026-01-01 12:00
DAY = 86_400_000_000
EVIL = "<img src=x onerror=alert(1)>\"'"
SAID = [
    ("zh", "用户不吃辣，火锅要清汤", "火锅要清汤吗？"),
    ("en", "User orders the mild hotpot without chilli", "Which hotpot does the user order?"),
]
NOTED = pytest.mark.parametrize(("user", "note", "question"), SAID, ids=["zh", "en"])


def quiet(directory: Path, **chosen: Any) -> Settings:
    return load(data_dir=directory, embedder="none", llm="none", **chosen)


class Away(AsyncJournal):
    """A journal that takes nothing."""

    async def note(self, lines: Sequence[Line]) -> None:
        raise Unavailable("the store is away")


class Forgetful(AsyncMemory):
    """A memory whose journal is away."""

    @property
    def journal(self) -> AsyncJournal:
        return Away(self._operator_deps)


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[AsyncMemory]:
    async with AsyncMemory(settings=quiet(tmp_path)) as opened:
        yield opened


async def traces_of(memory: AsyncMemory, traces: Traces) -> list[Line]:
    await traces.flush()
    return await memory.journal.lines(TRACE)


async def account(memory: AsyncMemory, user: str, note: str, question: str) -> Account:
    """A recall that found something, as it is told."""
    told: list[Account] = []
    await memory.add(note, user_id=user, infer=False)
    memory.on_recall = told.append
    await memory.recall(question, user)
    return told[0]


@NOTED
async def test_a_recall_leaves_a_trace_of_its_steps(
    memory: AsyncMemory, user: str, note: str, question: str
) -> None:
    """It names the memories and does not quote them, so that who erases one has erased it."""
    (added,) = (await memory.add(note, user_id=user, infer=False)).results
    traces = Traces(memory, "test", FakeClock(NOON))
    found = await memory.recall(question, user, session_id="s_1")
    (line,) = await traces_of(memory, traces)
    body = line.body
    assert (line.user_id, line.ts, body["question"]) == (user, NOON, question)
    assert (body["route"], body["way"], body["by"]) == ("test", "call", "rules")
    assert (body["session_id"], body["shown"], body["summary"]) == ("s_1", None, None)
    assert [key for key, _ in body["evidence"]] == [*found.memory_keys]
    assert added.id in found.memory_keys
    assert [it["tool"] for it in body["steps"]] == [it.tool for it in found.trace]
    assert [it["keys"] for it in body["steps"]] == [[*it.keys] for it in found.trace]
    assert body["seconds"] >= sum(it["seconds"] for it in body["steps"]) > 0
    assert note not in json.dumps(body, ensure_ascii=False)


@NOTED
async def test_the_words_of_a_model_are_kept(
    tmp_path: Path, user: str, note: str, question: str
) -> None:
    search = calling("search_memories", query=question, min_relevance_score=0.0)
    llm = ScriptedLLM([search, hand_over_what_is_shown])
    async with AsyncMemory(settings=quiet(tmp_path), llm=llm) as memory:
        await memory.add(note, user_id=user, infer=False)
        traces = Traces(memory)
        found = await memory.recall(question, user)
        (line,) = await traces_of(memory, traces)
    assert found.by == line.body["by"] == "llm"
    assert line.body["summary"] == found.search_summary
    assert line.body["steps"][0]["arguments"]["query"] == question


@BOTH
async def test_a_chat_leaves_a_trace_of_what_its_model_was_shown(
    tmp_path: Path, user: str, note: str, message: str, reply: str
) -> None:
    """Both of the recall before the reply and of the one that the model asks for."""
    async with staged(tmp_path) as stage:
        (added,) = (await stage.memory.add(note, user_id=user, infer=False)).results
        traces = Traces(stage.memory)
        stage.model.says(calling("recall_memory", query=message), reply)
        await stage.turn(message, user)
        asked, forced = await traces_of(stage.memory, traces)
    assert (forced.body["way"], asked.body["way"]) == ("forced", "asked")
    assert forced.body["question"] == message
    assert added.id in forced.body["shown"]
    assert forced.body["session_id"] == "s"
    assert {*forced.body["shown"]} <= {key for key, _ in forced.body["evidence"]}


@NOTED
async def test_who_is_erased_is_erased_from_the_traces(
    memory: AsyncMemory, user: str, note: str, question: str
) -> None:
    """Also where the trace was still being written when the erasure was asked for."""
    await memory.add(note, user_id=user, infer=False)
    traces = Traces(memory)
    await memory.recall(question, user)
    await memory.recall(question, "another")
    await memory.delete_all(user_id=user)
    assert [line.user_id for line in await traces_of(memory, traces)] == ["another"]


@NOTED
async def test_a_journal_that_is_away_fails_no_recall(
    tmp_path: Path, user: str, note: str, question: str
) -> None:
    async with Forgetful(settings=quiet(tmp_path)) as memory:
        await memory.add(note, user_id=user, infer=False)
        traces = Traces(memory)
        assert (await memory.recall(question, user)).evidence
        assert await traces_of(memory, traces) == []


async def test_old_traces_go_and_so_do_too_many(memory: AsyncMemory) -> None:
    times = [*range(NOON - 31 * DAY, NOON - 31 * DAY + 3), *range(NOON - MAX_TRACES - 5, NOON)]
    lines = [Line(TRACE, str(ts), ts, {}, ("用户", "user")[ts % 2]) for ts in times]
    await memory.journal.note(lines)
    await Traces(memory, clock=FakeClock(NOON)).flush()
    kept = await memory.journal.lines(TRACE, limit=MAX_TRACES + 10)
    assert [line.ts for line in kept] == [*range(NOON - 1, NOON - MAX_TRACES - 1, -1)]


@NOTED
async def test_no_trace_is_written_or_kept_where_that_is_set(
    tmp_path: Path, user: str, note: str, question: str
) -> None:
    async with AsyncMemory(settings=quiet(tmp_path, trace_days=0)) as memory:
        told = await account(memory, user, note, question)
        await memory.journal.note([to_line(told, NOON, "before", ContentPolicy(1000))])
        traces = Traces(memory, clock=FakeClock(NOON))
        await memory.recall(question, user)
        assert await traces_of(memory, traces) == []


@NOTED
async def test_each_trace_has_a_time_of_its_own(
    memory: AsyncMemory, user: str, note: str, question: str
) -> None:
    """Or a page could lose those that share the time of its last one."""
    told = await account(memory, user, note, question)
    traces = Traces(memory, clock=FakeClock(NOON))
    for _ in range(3):
        traces.take(replace(told, scope=Scope(user_id=user)))
    found = await traces_of(memory, traces)
    assert [line.ts for line in found] == [NOON + 2, NOON + 1, NOON]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    with local_server(tmp_path_factory.mktemp("traces") / "data", llm="none") as running:
        yield running


@pytest.fixture(scope="module")
def client(server: LocalServer) -> Iterator[httpx.Client]:
    with server.client() as connected:
        yield connected


def asked(client: httpx.Client, user: str, question: str) -> None:
    answer = client.post("/v1/recall", json={"user_id": user, "question": question})
    assert answer.status_code == 200, answer.text


def shown(client: httpx.Client, path: str = HOME, **query: Any) -> str:
    answer = client.get(f"{path}?{urlencode(query)}")
    assert answer.status_code == 200, answer.text
    return answer.text


def links(text: str) -> list[str]:
    """The addresses of traces on a page, in their order."""
    found = (part.partition('"')[0] for part in text.split(f'href="{HOME}/')[1:])
    return list(dict.fromkeys(f"{HOME}/{each}" for each in found))


def wait_for_traces(client: httpx.Client, user: str, count: int) -> list[str]:
    wait_for(lambda: len(links(shown(client, user_id=user))) == count)
    return links(shown(client, user_id=user))


@NOTED
def test_the_view_shows_a_recall_step_by_step(
    client: httpx.Client, user: str, note: str, question: str
) -> None:
    key = note_of(client, user, note)
    asked(client, user, question)
    (link,) = wait_for_traces(client, user, 1)
    words = (("en", "Recall traces", "Evidence"), ("zh", "回忆轨迹", "证据"))
    for language, heading, evidence in words:
        listed = shown(client, user_id=user, language=language)
        assert heading in listed and question in listed and "/v1/recall" in listed
        one = shown(client, link, language=language)
        assert evidence in one and "search_memories" in one and "<rect" in one
        assert note in one and f"/dashboard/memories/{key}?user_id={user}" in one
    assert client.delete(f"/v1/memories/{key}", params={"user_id": user}).is_success
    erased = shown(client, link, language="en")
    assert "erased since" in erased and note not in erased


@pytest.mark.parametrize("question", ["火锅要清汤吗？", "Which hotpot?"])
def test_mcp_is_traced_too(client: httpx.Client, question: str) -> None:
    user = f"mcp-{len(question)}"
    call = {"name": "recall_memories", "arguments": {"question": question}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    headers = {"Accept": "application/json, text/event-stream", "X-KeMem-User": user}
    assert client.post("/mcp", json=body, headers=headers).is_success
    wait_for_traces(client, user, 1)
    listed = shown(client, user_id=user)
    assert question in listed and "<code>/mcp</code>" in listed


@pytest.mark.parametrize("text", ["茶 tea"])
def test_markup_in_a_trace_is_text(client: httpx.Client, text: str) -> None:
    user = f"u{EVIL}"
    note_of(client, user, f"{text} {EVIL}")
    asked(client, user, f"{text} {EVIL}")
    (link,) = wait_for_traces(client, user, 1)
    for page in (shown(client, user_id=user), shown(client, link)):
        assert "<img src=x" not in page and "&lt;img src=x" in page


def test_pages_lose_nothing(client: httpx.Client) -> None:
    """Fifty a page; the next one goes on where it ended."""
    for number in range(53):
        asked(client, "pages", f"第 {number} 问 question {number}")
    wait_for(lambda: 'rel="next"' in shown(client, user_id="pages"))
    first = shown(client, user_id="pages")
    cursor = first.partition("cursor=")[2].partition('"')[0].partition("&")[0]
    found = links(first) + links(shown(client, user_id="pages", cursor=cursor))
    assert len(found) == len({*found}) == 53


@pytest.mark.parametrize("language", ["zh", "en"])
def test_what_is_wrong_or_not_there_is_a_page(client: httpx.Client, language: str) -> None:
    for path, status in (
        (f"{HOME}?cursor=x", 400),
        (f"{HOME}?cursor={'9' * 40}", 400),
        (f"{HOME}?user_id={'u' * 256}", 400),
        (f"{HOME}/{NOON}-00000000", 404),
        (f"{HOME}/不在 nowhere", 404),
        (f"{HOME}/{'9' * 40}-1", 404),
    ):
        answer = client.get(path, headers={"Accept-Language": language})
        assert answer.status_code == status, path
        assert answer.headers["content-type"].startswith("text/html")
