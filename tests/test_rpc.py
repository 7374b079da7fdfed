"""The memory tools between processes, and knowledge as the rest of the memory sees it."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from kemem import AsyncMemory, Memory
from kemem.errors import Exhausted, InvalidArgument, PermissionDenied
from kemem.records import Matrix
from kemem.serve.rpc.jsonrpc import respond
from kemem.serve.rpc.methods import MemoryTools
from kemem.settings import Settings
from kemem.testing import FakeClock, HashingEmbedder
from tests.command import kemem
from tests.server import INVALID, Server, refusal
from tests.tools import DOCKER, FASTAPI, piped

NOW = 1_767_225_600_000_000  # 2026-01-01
STATUS = b'{"jsonrpc": "2.0", "method": "memory_get_status", "id": %d}'
ENTRIES = pytest.mark.parametrize(
    ("entry", "query"),
    [(DOCKER, "容器引擎"), (FASTAPI, "modern framework")],
    ids=["zh", "en"],
)


def call(method: str, params: object, **more: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "method": method, "params": params, **more}


# Over a pipe


def test_a_pipe_carries_json_only_whatever_comes(tmp_path: Path) -> None:
    """Each line has its answer in order; a long one, a broken one and a half one break nothing."""
    long = b'{"jsonrpc": "2.0", "method": "' + b"x" * (1 << 20) + b'"}'
    fits = b'{"jsonrpc": "2.0", "method": "' + b"x" * (1_048_576 - 47) + b'", "id": 2}'
    told = json.dumps([call("memory_add", DOCKER), call("没有", [])]).encode()
    lines = [STATUS % 1, b"", b"  ", long, told, b"not json", b"\xff", fits, b"[" * 100_000]
    with piped(tmp_path) as process:
        assert process.stdin and process.stdout
        process.stdin.write(b"\n".join(lines) + b"\r\n" + (STATUS % 9)[:20])
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(6)]
        process.stdin.write((STATUS % 9)[20:])  # the rest of a request, and no end of the line
        process.stdin.close()
        process.stdin = None
        answers.append(json.loads(process.stdout.readline()))
    codes = [answer.get("error", {}).get("code") for answer in answers]
    assert codes == [None, -32600, -32700, -32700, -32601, -32700, None]
    assert [answer["id"] for answer in answers] == [1, None, None, None, 2, None, 9]


def test_a_pipe_keeps_its_log_apart_and_ends_with_its_input(tmp_path: Path) -> None:
    """Even the loudest log, which says nothing of what was stored; half a request is none."""
    asked = [call("memory_add", DOCKER, id=1), call("memory_query", ["容器"], id=2)]
    typed = json.dumps(asked) + '\n{"jsonrpc": "2.0", "me'
    ran = kemem(tmp_path, "rpc", typed=typed, KEMEM_LOG_LEVEL="debug")
    (added, found), half = map(json.loads, ran.stdout.splitlines())
    assert found["result"]["results"][0]["id"] == added["result"]["id"]
    assert (half["error"]["code"], ran.returncode) == (-32700, 0)
    assert "容器" not in ran.stderr


def test_each_agent_has_its_own_knowledge(tmp_path: Path) -> None:
    """By the flag or by the setting; `kemem admin dump` shows what there is."""
    asked = call("memory_add", {**DOCKER, "tags": None}, id=1)
    ran = kemem(tmp_path, "rpc", "--agent", "厨师", typed=json.dumps(asked))
    kb_id = json.loads(ran.stdout)["result"]["id"]
    own = kemem(tmp_path, "admin", "dump", "--level", "kb", KEMEM_RPC_AGENT="厨师").stdout
    assert json.loads(own) == {"status": "ok", "data": {kb_id: {**DOCKER, "tags": []}}}
    other = json.loads(kemem(tmp_path, "admin", "dump", "--agent", "coder").stdout)
    assert other == {"status": "ok", "data": {"kb": {}, "workspace": {}}}


# Over HTTP


@ENTRIES
def test_knowledge_is_found_by_every_way_of_asking(
    server: Server, client: httpx.Client, entry: dict[str, Any], query: str
) -> None:
    """What memory_add stores, the search of the HTTP API finds for any user of the agent."""
    kb_id = client.post("/rpc", json=call("memory_add", entry, id=1)).json()["result"]["id"]
    for whose in ({"agent_id": "default"}, {"user_id": "李明"}, {"user_id": "ann"}):
        answer = client.post("/v1/memories/search", json={"query": query, **whose}).json()
        found = {item["id"]: item for item in answer["results"]}[kb_id]
        assert found["memory"] == entry["content"] and found["keywords"] == entry["tags"]
    other = client.post("/v1/memories/search", json={"query": query, "agent_id": "other"})
    assert other.json()["results"] == []
    assert query not in server.log.read_text("utf-8")


def test_notifications_are_answered_with_nothing(client: httpx.Client) -> None:
    told = call("memory_add", {"content": "悄悄 quietly", "summary": "悄悄 quiet"})
    for silent in (told, call("没有 nothing", {}), [told, call("memory_add", {})]):
        answer = client.post("/rpc", json=silent)
        assert (answer.status_code, answer.content) == (204, b"")
    for word in ("悄悄", "quietly"):
        asked = call("memory_query", [word], id=word)
        assert len(client.post("/rpc", json=asked).json()["result"]["results"]) == 1


def test_http_takes_json_only(client: httpx.Client) -> None:
    """A form that a web page could send is refused, and a body that is too large."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        answer = client.post("/rpc", content=STATUS % 1, headers={"content-type": kind})
        assert refusal(answer) == INVALID
    large = client.post("/rpc", json={"x": "大" * 1_100_000})
    assert refusal(large) == (413, "RESOURCE_EXHAUSTED")
    for body in (b"", b"{", b"\xff\xfe{"):
        answer = client.post("/rpc", content=body, headers={"content-type": "application/json"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (200, -32700)
    assert client.get("/rpc").status_code == 405


async def test_a_memory_that_cannot_be_opened_says_so(tmp_path: Path) -> None:
    """The status is an answer; what needs the store is unavailable, and no path is told."""
    blocked = tmp_path / "数据 data"
    blocked.write_text("a file, where a directory is needed")
    async with AsyncMemory(settings=Settings(data_dir=blocked, embedder="none")) as memory:
        methods = MemoryTools(memory, "default").methods
        status = json.loads(await respond(STATUS % 1, methods) or b"")
        assert status["result"] == {
            "status": "error",
            "kb_status": "unloaded",
            "workspace_status": "unknown",
        }
        for method, params in (("memory_add", DOCKER), ("memory_backup", {})):
            raw = json.dumps(call(method, params, id=1)).encode()
            error = json.loads(await respond(raw, methods) or b"")["error"]
            assert error["code"] == -32050 and "data" not in error["message"]


# In Python


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(data_dir=tmp_path, embedder=HashingEmbedder(), clock=FakeClock(NOW)) as opened:
        yield opened


@ENTRIES
def test_an_entry_is_a_note_that_all_users_share(
    memory: Memory, entry: dict[str, Any], query: str
) -> None:
    """Found by its content, summary and tags; in its history; gone when it is deleted."""
    learned = memory.learn(**entry)
    note = learned.note
    assert (note.kind, note.user_id, note.agent_id, note.session_id) == (
        *("knowledge", "", "default"),
        None,
    )
    assert (note.content, note.summary, list(note.keywords)) == tuple(entry.values())
    for words in (query, entry["summary"], entry["tags"][0]):
        assert memory.search(words, agent_id="default")[0].id == learned.id
        assert memory.search(words, user_id="u")[0].id == learned.id
    assert memory.search(query, agent_id="default", mode="semantic")[0].id == learned.id
    assert [line.event for line in memory.history(learned.id)] == ["add"]
    assert (memory.health().vectors, memory.jobs()) == (1, [])
    memory.delete(learned.id)
    assert len(memory.search(query, agent_id="default")) == 0


@ENTRIES
def test_the_same_entry_is_kept_once(memory: Memory, entry: dict[str, Any], query: str) -> None:
    """One that differs in anything is another; the one that is kept has one line of history."""
    first = memory.learn(**entry)
    assert memory.learn(**entry) == first
    others = [{**entry, "summary": None}, {**entry, "tags": []}, {**entry, "agent_id": "其他"}]
    ids = {memory.learn(**other).id for other in others}
    assert len(ids - {first.id}) == 3
    assert len(memory.history(first.id)) == 1
    assert memory.health().notes == memory.health().vectors == 4


class AbsentModel:
    """An embedder that cannot be reached."""

    name = "absent"
    width = 3

    async def embed(self, texts: Sequence[str], *, purpose: str) -> Matrix:
        raise ConnectionError("the model is away")


@ENTRIES
def test_an_entry_waits_for_its_vector(tmp_path: Path, entry: dict[str, Any], query: str) -> None:
    """While the model is away it is found by words, and a job remembers."""
    with Memory(data_dir=tmp_path, embedder=AbsentModel()) as memory:
        learned = memory.learn(**entry)
        assert memory.search(query, agent_id="default")[0].id == learned.id
        (job,) = memory.jobs()
        assert (job.kind, job.ids) == ("embed", (learned.id,))
    with Memory(data_dir=tmp_path, embedder=HashingEmbedder()) as memory:
        memory.run_jobs()
        assert (memory.health().vectors, memory.jobs()) == (1, [])


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"content": " "}, InvalidArgument),
        ({"content": None}, InvalidArgument),
        ({"content": "界" * 34_134}, Exhausted),
        ({"summary": ""}, InvalidArgument),
        ({"summary": "a\0b"}, InvalidArgument),
        ({"summary": "长" * 1001}, Exhausted),
        ({"tags": "docker"}, InvalidArgument),
        ({"tags": ["a", " "]}, InvalidArgument),
        ({"tags": ["\ud800"]}, InvalidArgument),
        ({"tags": ["x" * 65]}, Exhausted),
        ({"tags": [str(n) for n in range(21)]}, Exhausted),
        ({"agent_id": ""}, InvalidArgument),
    ],
    ids=range(12),
)
def test_what_is_no_entry_is_refused(
    memory: Memory, wrong: dict[str, Any], error: type[Exception]
) -> None:
    """And nothing is kept; what just fits is."""
    with pytest.raises(error, match=next(iter(wrong))):
        memory.learn(**{**DOCKER, **wrong})
    assert memory.health().notes == 0
    tags = ["长" * 64, *map(str, range(19))]
    memory.learn("界" * 34_133, summary="长" * 1000, tags=tags)


def test_a_user_cannot_change_what_all_share(memory: Memory) -> None:
    for user in ("李明", "ann"):
        with pytest.raises(PermissionDenied):
            memory.for_user(user).learn("假 forged")
