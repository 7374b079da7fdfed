"""What happens to personal data on its way into the store: kept, marked, masked or refused."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from kemem import InvalidArgument, Memory
from kemem.chat.items import ItemLog
from kemem.compat.keyed import KeyedNotes
from kemem.memory import AsyncMemory
from kemem.records.privacy import DATA_KINDS
from kemem.settings import load
from kemem.testing import FakeClock
from tests.proxied import Site, ask, running_site
from tests.server import wait_for

NOW = 1_767_225_600_000_000  # 2026-01-01
SAID = pytest.mark.parametrize(
    ("said", "value", "placeholder"),
    [
        ("我叫小明，我的密码是hunter2x。", "hunter2x", "[密码]"),
        ("I live in Berlin. My password is hunter2x.", "hunter2x", "[password]"),
    ],
    ids=["zh", "en"],
)
EVERYTHING = ("message", "user_info", "knowledge")


def opened(path: Path, action: str | None = None, **more: Any) -> Memory:
    chosen = {f"privacy_{kind}": action for kind in DATA_KINDS} if action else {}
    settings = load(data_dir=path, embedder="none", llm="none", **chosen, **more)
    return Memory(settings=settings, clock=FakeClock(NOW))


@SAID
@pytest.mark.parametrize("infer", [True, False])
def test_secrets_are_sensitive_by_default(
    tmp_path: Path, said: str, value: str, placeholder: str, infer: bool
) -> None:
    """They are kept verbatim, and seen by who was granted them; what else was said is plain."""
    with opened(tmp_path) as memory:
        memory.add([said, "我养了一只猫 I have a cat"], "u", infer=infer)
        memory.ingest("my card is 4111111111111111", "u")
        assert value in str(memory.get_all("u", kinds=EVERYTHING))
        plain, granted = memory.for_user("u"), memory.for_user("u", sensitive=True)
        for handle, is_seen in ((plain, False), (granted, True)):
            shown = f"{handle.get_all(kinds=EVERYTHING)} {handle.messages()} {handle.profile()}"
            shown += str(handle.search(value))
            assert (value in shown, "411111" in shown) == (is_seen, is_seen)
            assert "cat" in shown


def test_phone_numbers_and_addresses_are_kept_by_default(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        memory.add("我的电话是13812345678，邮箱是ann@example.org", "u")
        shown = str(memory.for_user("u").messages())
    assert "13812345678" in shown and "ann@example.org" in shown


@SAID
def test_what_is_masked_is_nowhere_in_the_store(
    tmp_path: Path, said: str, value: str, placeholder: str
) -> None:
    """Not in messages, notes, metadata, histories or jobs; the rest is stored as it was said."""
    with opened(tmp_path, "mask") as memory:
        memory.add(said, "u", metadata={"about": said})
        (note,) = memory.add(said, "u", infer=False).results
        memory.update(note.id, f"{said} 改", {"more": [said]}, user_id="u")
        memory.ingest({"role": "user", "content": said, "metadata": {"x": said}}, "u")
        memory.learn(said, summary=said)
        memory.add(said, "u", session_id="later", wait=False)
        shown = str(memory.get_all("u", kinds=EVERYTHING))
        assert placeholder in shown and said.split("密码")[0].split("My")[0] in shown
    assert not stored_in(tmp_path, value)


def stored_in(path: Path, value: str) -> list[str]:
    """The files below a folder that contain a text."""
    return [it.name for it in path.rglob("*") if it.is_file() and value.encode() in it.read_bytes()]


@SAID
def test_what_is_refused_writes_nothing(
    tmp_path: Path, said: str, value: str, placeholder: str
) -> None:
    """The whole call is refused; the error names the kind and the place, never the value."""
    with opened(tmp_path, "refuse") as memory:
        (note,) = memory.add("我不吃辣 no chilli", "u", infer=False).results
        calls: list[tuple[str, Callable[[], object]]] = [
            ("messages[1].content", lambda: memory.add(["hello", said], "u")),
            ("messages[1].content", lambda: memory.ingest(["hello", said], "u")),
            ("metadata", lambda: memory.add("hello", "u", metadata={"x": said})),
            ("messages[0].metadata", lambda: memory.ingest(with_metadata(said), "u")),
            ("content", lambda: memory.update(note.id, said, user_id="u")),
            ("metadata", lambda: memory.update(note.id, metadata={"x": said}, user_id="u")),
            ("content", lambda: memory.learn(said)),
            ("summary", lambda: memory.learn("ok", summary=said)),
        ]
        for field, call in calls:
            with pytest.raises(InvalidArgument) as error:
                call()
            assert error.value.message.startswith(f"{field} contains a password")
            assert value not in f"{error.value!r}{error.value.details}"
        assert memory.health().messages == 1 and memory.health().notes == 1


def with_metadata(said: str) -> dict[str, Any]:
    return {"role": "user", "content": "hello", "metadata": {"x": [said]}}


@SAID
def test_a_changed_note_becomes_sensitive_and_stays_so(
    tmp_path: Path, said: str, value: str, placeholder: str
) -> None:
    with opened(tmp_path) as memory:
        (note,) = memory.add("我不吃辣 no chilli", "u", infer=False).results
        assert memory.update(note.id, said, user_id="u").note.sensitive
        assert memory.update(note.id, "我不吃辣 no chilli", user_id="u").note.sensitive
        assert memory.learn(said).note.sensitive


def test_a_secret_that_the_limit_would_cut_is_masked_first(tmp_path: Path) -> None:
    with opened(tmp_path, "mask", max_content_bytes=30) as memory:
        memory.ingest("0123456789 card 4111111111111111 and more words", "u")
        (message,) = memory.messages("u").items
    assert message.content == "0123456789 card [card number] "


@pytest.mark.parametrize("action", ["mark", "mask"])
async def test_the_log_of_an_agent_gives_back_its_calls(tmp_path: Path, action: Any) -> None:
    """A model refuses a result without its call, so both come back; masked only if that is set."""
    call = {"type": "function_call", "call_id": "c", "arguments": '{"password": "hunter2x"}'}
    result = {"type": "function_call_output", "call_id": "c", "output": "OPENAI_KEY=abcd1234efgh56"}
    settings = load(data_dir=tmp_path, embedder="none", llm="none", privacy_password=action)
    async with AsyncMemory(settings=settings) as memory:
        handle = memory.for_user("u", session_id="s")
        log = ItemLog(handle)
        await log.add([call, result])
        shown = await log.newest()
        hidden = "[password]" if action == "mask" else "hunter2x"
        assert shown == [
            {**call, "arguments": call["arguments"].replace("hunter2x", hidden)},
            result,
        ]
        assert "abcd1234" not in str(await handle.messages())
        assert await log.pop() == result
        assert len(await log.newest()) == 1


async def test_keyed_notes_are_read_by_their_keys(tmp_path: Path) -> None:
    settings = load(data_dir=tmp_path, embedder="none", llm="none")
    async with AsyncMemory(settings=settings) as memory:
        notes = KeyedNotes(memory.for_user("u"), await memory.runtime.deps())
        name = notes.note_id("router")
        note = notes.note(name, "密码是hunter2x", {"value": "密码是hunter2x"}, None)
        await notes.write([note], stored={})
        assert (await notes.read([name]))[name].sensitive
        assert len(await memory.for_user("u").get_all()) == 0


# Over the wire


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Path]]:
    """A server that masks all kinds but ID numbers, which it refuses."""
    path = tmp_path_factory.mktemp("site") / "data"
    chosen = {f"privacy_{kind}": "mask" for kind in DATA_KINDS} | {"privacy_id_number": "refuse"}
    with running_site(path, embedder="none", **chosen) as running:
        yield running, path


CARDS = [f"card 4111 1111 1111 1111 said by {way}" for way in range(9)]


def test_every_way_in_masks(site: tuple[Site, Path]) -> None:
    """HTTP, mem0's routes, imports, JSON-RPC, MCP, chats and the proxy; traces as well."""
    (running, path), client = site, site[0].operator

    def post(address: str, body: object, **more: Any) -> httpx.Response:
        answer = client.post(address, json=body, **more)
        assert answer.status_code == 200, answer.text
        return answer

    post("/v1/memories", {"messages": CARDS[0], "user_id": "u"})
    post("/v1/users/u/messages", {"messages": [{"role": "user", "content": CARDS[1]}]})
    post("/v1/memories/", {"messages": [{"role": "user", "content": CARDS[2]}], "user_id": "u"})
    line = json.dumps({"role": "user", "content": CARDS[3], "user_id": "u"}).encode()
    file = {"Content-Type": "application/octet-stream"}
    started = client.post("/v1/import", params={"name": "a.jsonl"}, content=line, headers=file)
    done = f"/v1/import/{started.json()['id']}"
    wait_for(lambda: client.get(done).json()["state"] == "done")
    entry = {"content": CARDS[4], "summary": CARDS[4]}
    post("/rpc", {"jsonrpc": "2.0", "id": 1, "method": "memory_add", "params": entry})
    running.model.says("Reply 4111 1111 1111 1111.", "Reply 4111 1111 1111 1111.")
    post("/v1/chat", {"message": CARDS[5], "user_id": "u", "session_id": "s"})
    with running.application("u") as application:
        ask(application, False, CARDS[6])
    post("/v1/recall", {"query": CARDS[7], "user_id": "u"})
    texts = json.dumps(client.get("/v1/users/u/messages").json())
    assert texts.count("[card number]") >= 7
    wait_for(lambda: stored_in(path, "said by 7"))  # the trace of the recall
    assert stored_in(path, "4111 1111") == stored_in(path, "4111111111111111") == []


def test_every_way_in_refuses(site: tuple[Site, Path]) -> None:
    """With 400 and the kind; a chat before its model is asked."""
    running, secret = site[0], "身份证11010519491231002X"
    running.model.says()
    body = {"messages": [{"role": "user", "content": secret}]}
    for address, sent in (
        ("/v1/memories", {"messages": secret, "user_id": "v"}),
        ("/v1/users/v/messages", body),
        ("/v1/memories/", {**body, "user_id": "v"}),
        ("/v1/chat", {"message": secret, "user_id": "v", "session_id": "s"}),
        ("/v1/chat/completions", {**body, "model": "kemem", "user": "v"}),
    ):
        answer = running.operator.post(address, json=sent)
        assert answer.status_code == 400, (address, answer.text)
        assert "an ID number" in answer.text and "1949" not in answer.text
    entry = {"jsonrpc": "2.0", "id": 1, "method": "memory_add", "params": [secret, "x"]}
    assert "an ID number" in running.operator.post("/rpc", json=entry).text
    assert running.model.asked == []
    assert running.operator.get("/v1/users/v/messages").json()["items"] == []
