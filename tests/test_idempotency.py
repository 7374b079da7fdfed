"""Idempotency-Key: a write that is sent again is answered as before, by whichever server."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kemem.memory import AsyncMemory
from kemem.ports.lines import ANSWER
from kemem.records import Line, Micros
from kemem.serve.http.auth import is_write
from kemem.serve.http.idempotency import HEADER, KEPT, REPLAYED, Claim, Claims
from kemem.settings import Settings, load
from kemem.testing.openai_server import running_openai_server
from tests.cases import each
from tests.fixtures import EXAMPLES
from tests.routes import APP, KEY, MEM0, ROUTES, SECRET, keyed, token
from tests.server import LocalServer, Server, local_server, refusal, running_server

HOUR: Micros = 3_600_000_000
IN_PROGRESS = (409, "CONFLICT")
REUSED = (422, "INVALID_ARGUMENT")


class Clock:
    """The time of a server, which a test puts forward."""

    now: Micros = 1_767_225_600_000_000

    def __call__(self) -> Micros:
        return self.now


CLOCK = Clock()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """An app whose time the tests decide."""
    data = tmp_path_factory.mktemp("idempotency") / "data"
    given: dict[str, Any] = {"api_key": KEY, "jwt_secret": SECRET}
    with local_server(data, {"clock": CLOCK}, **given) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: LocalServer) -> Iterator[httpx.Client]:
    with keyed(server) as connected:
        yield connected


def add(client: httpx.Client, user: str, key: str, words: str = "我喜欢茶 tea") -> httpx.Response:
    """A note of a user, with an idempotency key."""
    body = {"messages": words, "user_id": user, "infer": False}
    return client.post("/v1/memories", json=body, headers={HEADER: key})


def count(client: httpx.Client, user: str) -> int:
    """How many messages and notes a user has."""
    asked: dict[str, Any] = {"user_id": user, "kinds": ["message", "user_info"]}
    return len(client.get("/v1/memories", params=asked).json()["results"])


@pytest.mark.parametrize("words", ["我对花生过敏", "I am allergic to peanuts"])
def test_the_same_request_again_gets_the_first_answer(
    client: httpx.Client, user: str, words: str
) -> None:
    """Byte by byte, with a header that says so; nothing is stored twice."""
    first = add(client, user, f"{user} 1", words)
    stored = count(client, user)
    again = add(client, user, f"{user} 1", words)
    assert first.status_code == again.status_code == 200
    assert again.content == first.content and words in again.text
    assert REPLAYED not in first.headers and again.headers[REPLAYED] == "true"
    assert again.headers["content-type"] == first.headers["content-type"]
    assert count(client, user) == stored
    assert add(client, user, f"{user} 2", words).headers.get(REPLAYED) is None


def test_without_a_key_every_request_runs(client: httpx.Client, user: str) -> None:
    """The header is a choice."""
    body = {"messages": "tea", "user_id": user, "infer": False}
    answers = [client.post("/v1/memories", json=body) for _ in range(2)]
    assert not any(REPLAYED in it.headers for it in answers)
    assert count(client, user) == 4  # each time a message and a note


def test_the_key_with_another_request_is_refused(client: httpx.Client, user: str) -> None:
    """Another body, path, query, method or user in a header; nothing is done."""
    path, body = "/v1/memories/", {"messages": [{"role": "user", "content": "茶 tea"}]}
    headers = {HEADER: user, "X-KeMem-User": user}
    assert client.post(path, json=body, headers=headers).status_code == 200
    stored = count(client, user)
    others: list[tuple[str, str, dict[str, Any]]] = [
        ("POST", path, {"json": {**body, "infer": False}}),
        ("POST", path + "?a=1", {"json": body}),
        ("POST", "/memories", {"json": body}),
        ("PUT", "/v1/batch/", {"json": {"memories": []}}),
        ("DELETE", f"/v1/memories?user_id={user}", {}),
        ("POST", path, {"json": body, "headers": {**headers, "X-KeMem-User": "another"}}),
    ]
    for method, url, sent in others:
        answer = client.request(method, url, **{"headers": headers, **sent})
        assert answer.status_code == 422 and HEADER in answer.text, (method, url)
        assert answer.json()["error"]["code"] == "INVALID_ARGUMENT"
    assert count(client, user) == stored and count(client, "another") == 0


def test_a_key_belongs_to_its_credential(
    server: LocalServer, client: httpx.Client, user: str
) -> None:
    """The same key of another caller is another key."""
    first = add(client, user, user).json()
    other = token(user, exp=int(time.time()) + 60)
    with server.client(other) as bound:
        theirs = add(bound, user, user)
        assert REPLAYED not in theirs.headers and theirs.json() != first
        assert add(bound, user, user).content == theirs.content
    with server.client(token("somebody else")) as stranger:
        refused = add(stranger, user, user)
        assert refused.status_code == 404 and "茶" not in refused.text


@each("key", ["", " ", "k" * 256])
def test_a_key_that_is_none_is_refused(client: httpx.Client, user: str, key: str) -> None:
    """The answer names the header; nothing is stored."""
    answer = add(client, user, key)
    assert refusal(answer) == (400, "INVALID_ARGUMENT")
    assert answer.json()["error"]["details"]["field"] == HEADER
    assert count(client, user) == 0


def test_a_key_of_255_characters_works(client: httpx.Client, user: str) -> None:
    key = (user + "k" * 255)[:255]
    assert add(client, user, key).content == add(client, user, key).content


def test_errors_are_not_kept(client: httpx.Client, user: str) -> None:
    """What was refused changed nothing: with the same key it is tried again."""
    wrong = client.patch(
        f"/v1/memories/n_unknown?user_id={user}", json={"content": "茶"}, headers={HEADER: user}
    )
    assert wrong.status_code == 404
    assert add(client, user, user, " ").status_code == 400
    assert add(client, user, user).status_code == 200


def test_mem0s_routes_take_keys(client: httpx.Client, user: str) -> None:
    """Adding, changing and deleting; the answer of a change goes with the user it tells of."""
    body = {"messages": [{"role": "user", "content": "我喜欢茶"}], "user_id": user, "infer": False}
    headers = {HEADER: f"{user} add"}
    added = client.post("/v1/memories/", json=body, headers=headers)
    assert client.post("/v1/memories/", json=body, headers=headers).content == added.content
    path = f"/v1/memories/{added.json()['results'][0]['id']}/"
    change: dict[str, Any] = {"json": {"text": "我喜欢咖啡"}, "headers": {HEADER: f"{user} put"}}
    changed = client.put(path, **change)
    assert changed.status_code == 200 and client.put(path, **change).content == changed.content
    for _ in range(2):
        gone = client.delete(path, headers={HEADER: f"{user} delete"})
        assert gone.status_code == 200, gone.text
    kept = client.get(f"/v1/users/{user}/inventory").json()["journal"]
    assert kept[ANSWER] == 2  # of the added and changed; that of the deletion names nobody
    client.delete(f"/v1/users/{user}")
    assert client.get(f"/v1/users/{user}/inventory").json()["journal"] == {}


def test_erasing_a_user_erases_the_answers(
    server: LocalServer, client: httpx.Client, user: str
) -> None:
    """Afterwards the same key runs again; the receipt itself is repeated."""
    add(client, user, user, "我住在杭州 Hangzhou")
    receipts = [client.delete(f"/v1/users/{user}", headers={HEADER: f"{user}!"}) for _ in range(2)]
    assert receipts[0].json()["erased"][ANSWER] == 1
    assert receipts[1].content == receipts[0].content
    again = add(client, user, user, "我住在杭州 Hangzhou")
    assert REPLAYED not in again.headers


def test_erasing_an_agent_erases_the_answers_about_what_it_shares(
    client: httpx.Client, user: str
) -> None:
    """Which belong to no user."""
    body = {"messages": "门店九点开门 open at nine", "agent_id": user, "infer": False}
    headers = {HEADER: f"{user} shared"}
    first = client.post("/v1/memories", json=body, headers=headers)
    assert first.status_code == 200, first.text
    assert client.delete("/v1/memories", params={"agent_id": user}).is_success
    again = client.post("/v1/memories", json=body, headers=headers)
    assert REPLAYED not in again.headers and again.json() != first.json()


def test_an_answer_is_kept_for_a_day(server: LocalServer, client: httpx.Client, user: str) -> None:
    """Then the key is free, and the server sweeps what is left."""
    first = add(client, user, user)
    CLOCK.now += KEPT - HOUR
    assert add(client, user, user).content == first.content
    CLOCK.now += HOUR
    assert REPLAYED not in add(client, user, user).headers


async def test_old_answers_are_swept(either_settings: Settings) -> None:
    """They are user data: nothing of them stays in the store."""
    clock = Clock()
    async with AsyncMemory(settings=either_settings, clock=clock) as memory:
        claims = Claims(memory)
        for age in (KEPT + HOUR, HOUR):
            body = {"fingerprint": "f", "status": 200, "body": f"茶 {age}"}
            await memory.journal.note([Line(ANSWER, str(age), clock.now - age, body, "u")])
        await claims.flush()
        assert [it.id for it in await memory.journal.lines(ANSWER)] == [str(HOUR)]
        clock.now += KEPT
        await claims.flush()
        assert await memory.journal.lines(ANSWER) == []


async def test_one_of_many_claims_wins(either_settings: Settings) -> None:
    """Of requests at the same moment in two processes one runs; a dead one's claim ends."""
    clock = Clock()
    async with (
        AsyncMemory(settings=either_settings, clock=clock) as memory,
        AsyncMemory(settings=either_settings, clock=clock) as other,
    ):
        both = [Claims(memory), Claims(other)]
        for _ in range(5):
            taken = await asyncio.gather(
                *(it.take("k", "f") for it in both * 4), return_exceptions=True
            )
            (claim,) = [it for it in taken if isinstance(it, Claim)]
            refused = [str(it) for it in taken if it is not claim]
            assert len(refused) == 7 and all("in progress" in it for it in refused)
            await claim.release()
        dead = await both[0].take("k", "f")
        clock.now += 61_000_000
        living = await both[1].take("k", "other request")
        assert isinstance(dead, Claim) and isinstance(living, Claim)
        await dead.release()  # it was not dead: what another has taken over stays
        with pytest.raises(Exception, match="another request"):
            await both[0].take("k", "f")
        await living.release()


async def test_a_claim_is_renewed_while_the_request_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request that takes longer than the claim of a dead server lasts is not done twice."""
    monkeypatch.setattr("kemem.serve.http.idempotency._RENEWAL", 0.01)
    clock = Clock()
    given = load(data_dir=tmp_path, embedder="none", llm="none")
    async with AsyncMemory(settings=given, clock=clock) as memory:
        claims = Claims(memory)
        claim = await claims.take("k", "f")
        assert isinstance(claim, Claim)
        clock.now += 50_000_000
        (line,) = await memory.journal.lines(ANSWER)
        while (await memory.journal.lines(ANSWER)) == [line]:
            await asyncio.sleep(0.01)
        clock.now += 50_000_000
        with pytest.raises(Exception, match="in progress"):
            await claims.take("k", "f")
        await claim.release()
        assert await memory.journal.lines(ANSWER) == []


def test_the_text_of_an_api_key_is_not_kept(client: httpx.Client, user: str) -> None:
    """A second request makes no second key, and learns why it gets no text."""
    body, headers = {"name": user, "role": "service"}, {HEADER: user}
    made = client.post("/v1/keys", json=body, headers=headers)
    again = client.post("/v1/keys", json=body, headers=headers)
    assert made.status_code == 200 and refusal(again) == (409, "CONFLICT")
    assert again.headers[REPLAYED] == "true" and "shown once" in again.text
    assert [it["name"] for it in client.get("/v1/keys").json()["items"]].count(user) == 1


def test_a_large_answer_is_not_kept(
    client: httpx.Client, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request is not done twice all the same."""
    monkeypatch.setattr("kemem.serve.http.idempotency._LARGEST", 100)
    assert add(client, user, user).status_code == 200
    stored = count(client, user)
    assert refusal(add(client, user, user)) == (409, "CONFLICT")
    assert count(client, user) == stored


def test_an_upload_is_taken_once(client: httpx.Client, user: str) -> None:
    """The file counts by its length: it is not held in memory."""
    asked: dict[str, Any] = {"params": {"name": "t.jsonl", "user_id": user}}
    asked["headers"] = {HEADER: user, "Content-Type": "application/octet-stream"}
    first = client.post("/v1/import", content=b'{"content": "hi"}', **asked)
    again = client.post("/v1/import", content=b'{"content": "hi"}', **asked)
    assert first.status_code == 200 and again.content == first.content
    longer = client.post("/v1/import", content=b'{"content": "hello"}', **asked)
    assert refusal(longer) == REUSED


def test_reads_ignore_the_header(client: httpx.Client, user: str) -> None:
    """A search with a key sees what was added since."""
    body = {"query": "茶 tea", "user_id": user}
    assert client.post("/v1/memories/search", json=body, headers={HEADER: user}).is_success
    add(client, user, f"{user} add")
    answer = client.post("/v1/memories/search", json=body, headers={HEADER: user})
    assert answer.json()["results"] and REPLAYED not in answer.headers


def test_a_stream_takes_no_key(tmp_path: Path, user: str) -> None:
    """It says so before anything is stored; a whole reply is kept, and the model asked once."""
    with running_openai_server([{"content": "你好 hello"}] * 4) as model:
        given = {"llm_base_url": model.base_url, "llm_api_key": "any", "llm_model": "m"}
        with local_server(tmp_path / "data", **given) as running, running.client() as client:
            body = {"user_id": user, "session_id": "s", "message": "hi"}
            events = {HEADER: "k", "Accept": "text/event-stream"}
            refused = client.post("/v1/chat", json=body, headers=events)
            assert refusal(refused) == (400, "INVALID_ARGUMENT")
            assert count(client, user) == 0
            first = client.post("/v1/chat", json=body, headers={HEADER: "k"})
            again = client.post("/v1/chat", json=body, headers={HEADER: "k"})
            assert first.status_code == 200, first.text
            assert again.content == first.content
            assert count(client, user) == 2


@settings(max_examples=EXAMPLES)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["茶", "tea"])), max_size=8))
def test_a_key_means_one_request(
    client: httpx.Client, tmp_path_factory: pytest.TempPathFactory, sent: list[tuple[str, str]]
) -> None:
    """Whatever is sent in whatever order: the first of each key runs, the same is repeated, and
    anything else is refused."""
    user = tmp_path_factory.mktemp("u").name
    first: dict[str, tuple[str, bytes]] = {}
    for key, words in sent:
        answer = add(client, user, f"{user} {key}", words)
        before = first.setdefault(key, (words, answer.content))
        if before[0] != words:
            assert refusal(answer) == REUSED
        else:
            assert answer.content == before[1]
    messages = client.get(f"/v1/users/{user}/messages").json()["items"]
    stored = Counter(it["content"] for it in messages)
    assert stored == Counter(words for words, _ in first.values())


def test_every_write_describes_the_header() -> None:
    """And no read does."""
    described = APP.openapi()["paths"]
    for method, path in ROUTES:
        if path in MEM0 or method.lower() not in described.get(path, {}):
            continue
        parameters = described[path][method.lower()].get("parameters", [])
        has_header = any(it["name"] == HEADER and it["in"] == "header" for it in parameters)
        assert has_header == is_write(method, path), (method, path)


# Real processes


@pytest.fixture(params=["sqlite", "postgresql"])
def pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    """Two server processes on one store."""
    given = {"llm": "none"}
    if request.param == "postgresql":
        given["database_url"] = request.getfixturevalue("store_database")
    with ExitStack() as stack:
        first = stack.enter_context(running_server(tmp_path / "data", **given))
        second = stack.enter_context(running_server(tmp_path / "data", **given))
        yield first, second


def test_two_servers_do_concurrent_duplicates_once(pair: tuple[Server, Server]) -> None:
    """Each of many requests is done once; the others are told to wait, or get its answer."""
    with ExitStack() as stack:
        clients = [stack.enter_context(server.client()) for server in pair]
        for number in range(5):
            with ThreadPoolExecutor(8) as pool:
                user = f"u{number}"
                sent = [pool.submit(add, clients[i % 2], user, user) for i in range(8)]
                answers = [it.result() for it in sent]
            done = [it for it in answers if it.status_code == 200]
            refused = [it for it in answers if it.status_code != 200]
            assert len({it.content for it in done}) == 1
            assert sum(REPLAYED not in it.headers for it in done) == 1
            assert all(refusal(it) == IN_PROGRESS for it in refused)
            assert all(it.headers["retry-after"] == "1" for it in refused)
            items = clients[0].get(f"/v1/users/{user}/messages").json()["items"]
            assert len(items) == 1
            assert add(clients[1], user, user).content == done[0].content
    for server in pair:  # no text and no key in the log
        logged = server.log.read_text("utf-8")
        assert "茶" not in logged and "u0" not in logged


def test_an_answer_survives_kill_9(tmp_path: Path) -> None:
    """Once it was sent it is in the store; another process repeats it."""
    with running_server(tmp_path / "data", llm="none") as server, server.client() as client:
        first = add(client, "u", "k")
        server.process.kill()
        server.process.wait()
    with running_server(tmp_path / "data", llm="none") as server, server.client() as client:
        again = add(client, "u", "k")
        assert again.content == first.content and again.headers[REPLAYED] == "true"
        assert json.loads(again.content)["results"]
