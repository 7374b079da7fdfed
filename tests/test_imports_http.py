"""Imports over HTTP and in the dashboard: an upload becomes a job that can be followed."""

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kemem import AsyncMemory
from kemem.errors import KeMemError, NotFound, PermissionDenied
from kemem.imports import service
from kemem.imports.formats import format_of
from kemem.imports.items import Item
from kemem.imports.recipe import Portion, Target
from kemem.records.batch import Batch
from kemem.settings import Settings
from tests import exports
from tests.pages import browsing, text_of, token_of
from tests.routes import KEY, SECRET, token
from tests.server import Server, running_server, wait_for

FILE = {"Content-Type": "application/octet-stream"}
TALK = [("user", "我不吃辣"), ("assistant", "记住了。"), ("user", "I live in Berlin")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A real process with a key and tokens."""
    folder = tmp_path_factory.mktemp("data")
    options = {"api_key": KEY, "jwt_secret": SECRET, "max_upload_bytes": "3000000"}
    with running_server(folder, **options) as running:
        yield running


def client_of(server: Server, credential: str) -> httpx.Client:
    client = server.client()
    client.headers = httpx.Headers([(b"authorization", b"Bearer " + credential.encode())])
    return client


def upload(client: httpx.Client, name: str, content: object, **query: Any) -> httpx.Response:
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    return client.post("/v1/import", params={"name": name, **query}, content=raw, headers=FILE)


def finished(client: httpx.Client, started: httpx.Response, **query: str) -> dict[str, Any]:
    """The state of an import once it has ended."""
    assert started.status_code == 200, started.text
    address = f"/v1/import/{started.json()['id']}"
    found: dict[str, Any] = {}

    def is_over() -> bool:
        found.update(client.get(address, params=query).json())
        return bool(found["state"] != "running")

    wait_for(is_over)
    return found


def test_an_upload_is_imported_by_a_job_and_a_second_one_stores_nothing(server: Server) -> None:
    """More than an ordinary body may have; progress ends with everything read."""
    talks = [exports.chatgpt(f"c{n}", [*TALK, ("assistant", "x" * 9000)]) for n in range(130)]
    with client_of(server, KEY) as client:
        first = finished(client, upload(client, "conversations.json", talks, user_id="ann"))
        assert (first["state"], first["stored"]["inserted"]) == ("done", 520)
        assert first["read"] == first["size"] > 1_048_576
        again = finished(client, upload(client, "conversations.json", talks, user_id="ann"))
        assert (again["stored"]["inserted"], again["stored"]["ignored"]) == (0, 520)
        listed = client.get("/v1/import").json()["items"]
        assert {first["id"], again["id"]} <= {it["id"] for it in listed}
        asked = {"user_id": "ann", "query_text": "辣"}
        hits = client.post("/v1/messages/lexical_search", json={**asked, "page_size": 1}).json()
        assert hits["items"][0]["content"] == "我不吃辣"
        assert client.get("/v1/jobs").json()["items"] == []


def test_what_is_wrong_with_a_file_is_told_by_its_import(server: Server) -> None:
    """The file's own name and the place, no path of the server."""
    with client_of(server, KEY) as client:
        raw = b'{"content": "hi"}\n{"content": "\xe4\xbd\xa0", "role": "teacher"}'
        ended = finished(client, upload(client, "../talk.jsonl", raw, user_id="bob"))
        assert ended["state"] == "failed"
        rule = "role must be one of user, assistant, system, tool, not 'teacher'"
        assert ended["error"] == f"talk.jsonl:2: {rule}"
        unknown = finished(client, upload(client, "a.md", b"# only a title", user_id="bob"))
        assert (unknown["state"], unknown["stored"]["inserted"]) == ("done", 0)
        refused = upload(client, "a.zip", b"PK no zip", user_id="bob")
        assert refused.status_code == 400
        assert refused.json()["error"]["message"].startswith("a.zip: expected a zip archive")


def test_a_token_imports_for_its_own_user_only(server: Server) -> None:
    with client_of(server, token("alice")) as client:
        talk = [exports.chatgpt("a1", TALK)]
        own = finished(client, upload(client, "c.json", talk, user_id="alice"), user_id="alice")
        assert own["stored"]["inserted"] == 3
        other = [{"user_id": "bob", "content": "hi"}]
        ended = finished(client, upload(client, "t.json", other, user_id="alice"), user_id="alice")
        assert ended["error"] == "t.json:1: item 1: user_id must be 'alice', not 'bob'"
        document = upload(client, "a.md", "# 食物".encode() + b"\nx", user_id="alice")
        assert finished(client, document, user_id="alice")["stored"]["notes"] == 1
        assert upload(client, "c.json", talk, user_id="bob").status_code == 404
        for named in ({}, {"user_id": "alice"}):
            listed = client.get("/v1/import", params=named).json()["items"]
            assert {it["user_id"] for it in listed} == {"alice"}


@pytest.mark.parametrize("kind", ["", "text/plain", "multipart/form-data; boundary=x"])
def test_what_a_foreign_page_could_send_is_refused(server: Server, kind: str) -> None:
    with client_of(server, KEY) as client:
        headers = {"Content-Type": kind} if kind else {}
        refused = client.post("/v1/import?name=a.json", content=b"[]", headers=headers)
        assert refused.status_code == 400
        assert "application/octet-stream" in refused.json()["error"]["message"]


def test_an_upload_that_is_too_large_leaves_nothing(server: Server) -> None:
    with client_of(server, KEY) as client:
        before = len(client.get("/v1/import").json()["items"])
        refused = upload(client, "a.json", b" " * 3_000_001)
        assert refused.status_code == 413
        assert len(client.get("/v1/import").json()["items"]) == before


async def chunks(*parts: bytes) -> Any:
    for part in parts:
        yield part


async def test_an_import_goes_on_where_it_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each step of the job keeps its place; another process does the rest."""
    monkeypatch.setattr(service, "_STEP", 0.0)
    lines = "\n".join(json.dumps({"content": f"消息 message {n}"}) for n in range(500))
    settings = Settings(data_dir=tmp_path, embedder="none", llm="none")
    async with AsyncMemory(settings=settings) as memory:
        state = await memory.imports.upload("t.jsonl", chunks(lines.encode()), Target("u"))
        (job,) = await memory.jobs()
        await memory.imports.run_job(job)
        half = await memory.imports.state(state.id)
        assert (half.state, half.stored.inserted) == ("running", 200)
        assert 0 < half.read <= half.size
    async with AsyncMemory(settings=settings) as memory:
        await memory.run_jobs()
        done = await memory.imports.state(state.id)
        assert (done.state, done.stored.inserted, done.stored.ignored) == ("done", 500, 0)
        assert not list((tmp_path / "imports").iterdir())


async def test_a_step_of_an_import_tells_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it runs, so that a bar moves."""
    monkeypatch.setattr(service, "_TELL", 0.0)
    lines = "\n".join(json.dumps({"content": f"消息 message {n}"}) for n in range(1_000))
    settings = Settings(data_dir=tmp_path, embedder="none", llm="none")
    async with AsyncMemory(settings=settings) as memory:
        store = (await memory.runtime.deps()).store
        apply, read = type(store).apply, list[int]()

        async def watch(self: Any, batch: Batch) -> Any:
            read.extend(it.body["read"] for it in batch.journal if it.kind == service.KIND)
            return await apply(self, batch)

        state = await memory.imports.upload("t.jsonl", chunks(lines.encode()), Target("u"))
        (job,) = await memory.jobs()
        monkeypatch.setattr(type(store), "apply", watch)
        await memory.imports.run_job(job)
        assert read == sorted(read) and len(set(read)) == 5 and read[-1] == state.size


RENAMED: dict[str, tuple[Any, str]] = {
    "ChatGPT": (exports.chatgpt("c1", TALK), "title"),
    "Claude": (exports.claude(), "name"),
    "Telegram": (exports.TELEGRAM, "name"),
}


@pytest.mark.parametrize("format", RENAMED)
async def test_a_conversation_that_was_renamed_is_known(tmp_path: Path, format: str) -> None:
    """A later export of it adds what is new; a message with other words is still refused."""
    first, title = RENAMED[format]
    later = {**first, title: "改过 renamed"}
    more = {"role": "user", "content": "新的 new", "message_id": "m_new"}
    async with AsyncMemory(settings=Settings(data_dir=tmp_path, embedder="none")) as memory:
        running = await memory.imports.begin(Target("u"), "folder")
        for export in (first, later):
            found = [it for it in format_of("c", export).read(export, "c") if isinstance(it, Item)]
            await running.store(Portion("u", tuple(found)))
        count = running.done.inserted
        assert running.done.ignored == count > 1
        await running.store(Portion("u", (*found, Item("c", format, more))))
        assert running.done.inserted == count + 1
        changed = Item("c: message 9", format, {**more, "content": "改了 changed"})
        with pytest.raises(KeMemError, match="c: message 9: another message has this message_id"):
            await running.store(Portion("u", (*found, changed)))


async def test_an_import_is_the_same_on_every_database(
    either_settings: Settings, tmp_path: Path
) -> None:
    """Messages, memories and documents; a second import stores nothing."""
    files = {
        "c.json": json.dumps([exports.chatgpt("c1", TALK)]),
        "mem0.json": json.dumps(exports.MEM0),
        "guide.md": "# 食物\n不吃辣\n# B\nBerlin",
    }
    settings = either_settings.model_copy(update={"data_dir": tmp_path})
    async with AsyncMemory(settings=settings) as memory:
        for inserted, ignored in ((8, 0), (0, 8)):
            states = [
                await memory.imports.upload(name, chunks(text.encode()), Target("u", infer=True))
                for name, text in files.items()
            ]
            await memory.run_jobs()
            done = [await memory.imports.state(state.id) for state in states]
            assert {it.state for it in done} == {"done"}
            assert sum(it.stored.inserted for it in done) == inserted
            assert sum(it.stored.ignored for it in done) == ignored
        notes = {item.memory for item in await memory.get_all("u")}
        assert {"用户不吃辣", "User lives in Berlin"} <= notes
        assert {it.memory for it in await memory.get_all("ann")} == {"不吃辣", "Lives in Berlin"}
        assert len(await memory.get_all(agent_id="default", kinds=["knowledge"])) == 2
        assert {job.kind for job in await memory.jobs()} == {"forget"}  # of what expires
        assert not list((tmp_path / "imports").iterdir())


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("../../etc/旅行.json", "旅行.json"),
        ("C:\\chats\\a.csv", "a.csv"),
        ("..", "upload"),
        ("", "upload"),
        ("a\0b\n.md", "a_b_.md"),
        ("\U0001f600" * 500 + ".zip", "\U0001f600" * 56 + ".zip"),
    ],
)
async def test_an_upload_keeps_its_name_and_stays_in_its_folder(
    tmp_path: Path, name: str, kept: str
) -> None:
    async with AsyncMemory(settings=Settings(data_dir=tmp_path, embedder="none")) as memory:
        path = memory.imports.upload_path("j_1", name)
        assert path == tmp_path / "imports" / "j_1" / kept
        path.parent.mkdir(parents=True)
        path.write_bytes(b"")


async def test_an_upload_of_somebody_who_was_erased_goes(tmp_path: Path) -> None:
    """The file, too; others that wait for their job, or are on their way, stay."""
    async with AsyncMemory(settings=Settings(data_dir=tmp_path, embedder="none")) as memory:
        await memory.imports.sweep()
        raw = '{"content": "秘密 secret"}'.encode()
        for user in ("ann", "bob"):
            await memory.imports.upload("t.jsonl", chunks(raw), Target(user))
        for path in (tmp_path / "imports").glob("*/*"):
            os.utime(path, (0, 0))
        coming = memory.imports.upload_path("j_coming", "t.jsonl")
        coming.parent.mkdir()
        coming.write_bytes(raw)
        await memory.delete_all("ann")
        (job,) = await memory.jobs()
        await memory.imports.sweep()
        left = {it.name for it in (tmp_path / "imports").iterdir()}
        assert left == {job.job_id, "j_coming"}
        assert job.scope.user_id == "bob"


async def test_an_upload_that_breaks_off_leaves_no_file(tmp_path: Path) -> None:
    async def broken() -> Any:
        yield b"[1,"
        raise asyncio.CancelledError

    async with AsyncMemory(settings=Settings(data_dir=tmp_path, embedder="none")) as memory:
        with pytest.raises(asyncio.CancelledError):
            await memory.imports.upload("a.json", broken(), Target("u"))
        assert not list((tmp_path / "imports").iterdir())
        assert await memory.imports.states() == []
        with pytest.raises(NotFound, match="no import 'j_x'"):
            await memory.imports.state("j_x")
        with pytest.raises(PermissionDenied):
            await memory.for_user("u").imports.states()


@pytest.mark.parametrize(
    ("language", "words"),
    [("zh", ("导入", "完成", "已存储")), ("en", ("Import", "done", "Stored"))],
)
async def test_the_dashboard_imports_a_file(
    tmp_path: Path, language: str, words: tuple[str, ...]
) -> None:
    async with browsing(tmp_path) as (browser, app):
        shown = await browser.get("/dashboard/imports", params={"language": language})
        fields = {"form_token": token_of(shown), "user_id": "ann"}
        file = {"file": ("c.json", json.dumps([exports.chatgpt("c1", TALK)]))}
        sent = await browser.post("/dashboard/imports", data=fields, files=file)
        assert sent.status_code == 303, sent.text
        await app.state.memory.run_jobs()
        page = text_of(await browser.get("/dashboard/imports"))
        assert all(word in page for word in ("c.json", *words))
        found = await app.state.memory.messages("ann")
        assert len(found.items) == 3
        none = await browser.post("/dashboard/imports", data=fields)
        assert none.status_code == 400
