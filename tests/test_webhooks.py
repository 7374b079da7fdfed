"""Webhooks: every change is told, signed, until the receiver has it; and nothing else waits."""

import asyncio
import ipaddress
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import event, text
from sqlalchemy.engine import Engine

from kemem import admin
from kemem.add.embed import MAX_ATTEMPTS, reschedule
from kemem.errors import InvalidArgument, NotFound, Unavailable
from kemem.memory import AsyncMemory
from kemem.records import Micros, Scope
from kemem.records.batch import Batch, Job
from kemem.records.webhooks import EVENTS, new_secret, sign
from kemem.settings import Settings, load
from kemem.store.spaces import Transaction
from kemem.webhooks import deliveries, sending
from kemem.webhooks.endpoints import AsyncWebhooks
from kemem.webhooks.sending import is_refused
from tests.cases import each
from tests.command import kemem
from tests.pages import EVIL, browsing, send, text_of
from tests.receiver import Received, Receiver, receiving
from tests.server import LocalServer, free_port, local_server, refusal, running_server, wait_for
from tests.test_docs import ROOT, blocks

HOUR: Micros = 3_600_000_000
PAGE = (ROOT / "docs" / "webhooks.md").read_text("utf-8")
SAID = [("我住在罗马", "罗马"), ("I live in Rome", "Rome")]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver that answers 200 until told otherwise."""
    with receiving() as running:
        yield running


class Opened:
    """A memory with its webhooks, and a clock that tests set forward."""

    def __init__(self, settings: Settings) -> None:
        self.ahead: Micros = 0
        self.memory = AsyncMemory(settings=settings, clock=self.now)
        self.webhooks = AsyncWebhooks(self.memory.runtime.deps)

    def now(self) -> Micros:
        return time.time_ns() // 1000 + self.ahead

    async def jobs(self) -> list[Job]:
        return [it for it in await self.memory.jobs() if it.kind == "webhook"]

    async def add(self, words: str, user_id: str = "u", **given: Any) -> str:
        """The id of a new note that says these words."""
        added = await self.memory.add(words, user_id=user_id, infer=False, **given)
        return added.results[0].id


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Opened]:
    """A memory that is closed in the end."""
    own = Opened(settings)
    async with own.memory:
        yield own


@pytest.fixture
def sqlite(tmp_path: Path) -> Settings:
    """Settings of an empty embedded store."""
    return load(data_dir=tmp_path / "data", embedder="none", llm="none")


def verifies(received: Received, secret: str, at: float | None = None) -> bool:
    """What the program of the documentation says of a request, when it comes or at a time."""
    (program,) = [it.code for it in blocks(PAGE) if it.language == "python"]
    names: dict[str, Any] = {}
    exec(program, names)
    sent = float(received.headers["webhook-timestamp"])
    names["time"] = SimpleNamespace(time=lambda: sent if at is None else at)
    return bool(names["verify"](received.headers, received.body, secret))


# Signatures


def test_the_signature_is_that_of_the_standard() -> None:
    """The example that libraries of Standard Webhooks test themselves with."""
    secret, body = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", b'{"test": 2432232314}'
    signature = sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@given(st.binary(max_size=200), st.integers(0, 1 << 40), st.binary(min_size=1, max_size=5))
def test_a_signature_verifies_what_was_signed_and_nothing_else(
    body: bytes, seconds: int, more: bytes
) -> None:
    """Another body, id, time or secret fails, and so does an old time."""
    secret = new_secret()
    headers = {"webhook-id": "evt_1", "webhook-timestamp": str(seconds)}
    headers["webhook-signature"] = sign(secret, "evt_1", seconds, body)
    signed = Received(headers, body)
    assert verifies(signed, secret) and not verifies(signed, new_secret())
    assert not verifies(Received(headers, body + more), secret)
    assert not verifies(Received({**headers, "webhook-id": "evt_2"}, body), secret)
    assert not verifies(Received({**headers, "webhook-timestamp": str(seconds + 1)}, body), secret)
    assert not verifies(signed, secret, at=seconds + 301)


# Deliveries


async def test_a_delivery_is_repeated_until_it_succeeds(
    either_settings: Settings, receiver: Receiver
) -> None:
    """With the same id and body, each attempt signed; pauses grow."""
    receiver.statuses = [500, 500]
    async with opened(either_settings) as own:
        webhook = await own.webhooks.create(receiver.url)
        note_id = await own.add("我不吃辣 no spicy food", session_id="s")
        for attempt in (1, 2):
            assert await own.memory.run_jobs() == 1
            (job,) = await own.jobs()
            pause = job.due - own.now()
            assert (job.attempts, job.error) == (attempt, "answered 500")
            assert 0.8e6 * deliveries.PAUSES[attempt - 1] < pause
            assert pause <= 1.1e6 * deliveries.PAUSES[attempt - 1]
            assert await own.memory.run_jobs() == 0
            own.ahead += pause
        assert await own.memory.run_jobs() == 1 and await own.jobs() == []
        (listed,) = await own.webhooks.list()
    assert len(receiver.requests) == 3 and len({it.body for it in receiver.requests}) == 1
    assert all(verifies(it, webhook.secret) for it in receiver.requests)
    told = receiver.requests[-1].event
    owner = {"agent_id": "default", "user_id": "u", "session_id": "s"}
    assert told["data"] == {"id": note_id, **owner} and told["type"] == "memory.added"
    assert {it.headers["webhook-id"] for it in receiver.requests} == {told["id"]}
    last = listed.last_delivery
    assert last and (last.attempt, last.status, last.error) == (3, 200, None)


async def test_a_receiver_that_was_away_gets_what_it_missed(sqlite: Settings) -> None:
    """In whatever order."""
    port = free_port()
    async with opened(sqlite) as own:
        await own.webhooks.create(f"http://127.0.0.1:{port}/")
        ids = {await own.add(f"note {number} 条") for number in range(12)}
        assert await own.memory.run_jobs() == 1  # after a failure the others wait
        assert len(await own.jobs()) == 12
        with receiving(port) as receiver:
            own.ahead += HOUR
            assert await own.memory.run_jobs() == 12
    assert {it.event["data"]["id"] for it in receiver.requests} == ids


def test_a_server_that_is_killed_delivers_after_its_restart(tmp_path: Path) -> None:
    """What was acknowledged before the kill is told, once the receiver is there."""
    port, data = free_port(), tmp_path / "data"
    with running_server(data) as server, server.client() as client:
        made = client.post("/v1/webhooks", json={"url": f"http://127.0.0.1:{port}/"}).json()
        body = {"user_id": "u", "messages": "我喜欢茶 tea", "infer": False}
        (added,) = client.post("/v1/memories", json=body).json()["results"]
        wait_for(lambda: client.get("/v1/jobs").json()["items"][0]["error"])  # nobody is there yet
        server.process.kill()
        server.process.wait()
    with receiving(port) as receiver, running_server(data):
        wait_for(lambda: receiver.requests)
    (request,) = receiver.requests
    assert request.event["data"]["id"] == added["id"] and verifies(request, made["secret"])


async def test_what_is_given_up_is_a_failed_job_and_no_event(
    sqlite: Settings, receiver: Receiver
) -> None:
    """It can be tried again."""
    receiver.statuses = [503] * deliveries.MAX_ATTEMPTS
    async with opened(sqlite) as own:
        await own.webhooks.create(receiver.url)
        await own.add("tea 茶")
        for _ in range(deliveries.MAX_ATTEMPTS):
            assert await own.memory.run_jobs() == 1
            own.ahead += 24 * HOUR
        (job,) = await own.jobs()
        assert (job.state, job.attempts) == ("failed", deliveries.MAX_ATTEMPTS)
        assert await own.memory.run_jobs() == 0
        await own.memory.retry_job(job.job_id)
        assert await own.memory.run_jobs() == 1 and await own.jobs() == []


async def test_a_receiver_that_hangs_delays_nothing_else(
    sqlite: Settings, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither other endpoints nor other jobs; after a while it counts as failed."""
    monkeypatch.setattr(deliveries, "_POLL", 0.02)
    with receiving() as slow:
        slow.answers.clear()
        async with opened(sqlite) as own:
            hanging = await own.webhooks.create(slow.url)
            await own.webhooks.create(receiver.url)
            await own.add("first 一")
            await own.memory.run_jobs(debounce=True)
            await until(lambda: slow.requests and receiver.requests)
            await own.add("second 二")
            mirror = Job("j_1", "condense", Scope("a", "u", "s"), own.now(), details={"budget": 9})
            await (await own.memory.runtime.deps()).store.apply(Batch(jobs=(mirror,)))
            assert await own.memory.run_jobs(debounce=True) == 1
            await until(lambda: len(receiver.requests) == 2)
            assert len(slow.requests) == 1
            monkeypatch.setattr(sending, "TIMEOUT", 0.05)
            assert (await own.webhooks.test(hanging.webhook_id)).error == (
                "did not answer within 0.05 s"
            )


async def until(check: Callable[[], object]) -> None:
    """Let other tasks work until something holds."""
    async with asyncio.timeout(20):
        while not check():
            await asyncio.sleep(0.01)


async def test_deleting_an_endpoint_stops_its_deliveries(
    either_settings: Settings, receiver: Receiver
) -> None:
    """Others keep theirs."""
    async with opened(either_settings) as own:
        gone = await own.webhooks.create(receiver.url)
        kept = await own.webhooks.create(receiver.url)
        await own.add("tea 茶")
        assert len(await own.jobs()) == 2
        assert (await own.webhooks.delete(gone.webhook_id)).url == receiver.url
        (job,) = await own.jobs()
        assert job.job_id.startswith(kept.webhook_id)
        assert await own.memory.run_jobs() == 1
        with pytest.raises(NotFound, match="no webhook"):
            await own.webhooks.delete(gone.webhook_id)


async def test_no_delivery_outlives_an_endpoint_that_is_deleted_meanwhile(
    either_settings: Settings,
) -> None:
    """Whoever writes at that moment has told it, and the delivery is gone, or tells it nothing."""
    async with opened(either_settings) as own, opened(either_settings) as other:
        for _ in range(3):
            webhook = await own.webhooks.create("http://127.0.0.1:9/")
            writes = [it.add(f"note {n}", f"u{n}") for n in range(8) for it in (own, other)]
            await asyncio.gather(*writes, other.webhooks.delete(webhook.webhook_id))
            assert await own.jobs() == []


# Events


@pytest.mark.parametrize(("said", "place"), SAID)
async def test_every_change_of_a_note_is_told(
    either_settings: Settings, receiver: Receiver, said: str, place: str
) -> None:
    """Added, updated, ended by another, deleted; ids only where no text is asked for."""
    async with opened(either_settings) as own:
        await own.webhooks.create(receiver.url, include_text=True)
        added = await own.memory.add(said, user_id="u", session_id="s")
        assert await own.memory.run_jobs() == 1
        (note_id,) = [it.id for it in added.results]
        data = receiver.requests[0].event["data"]
        assert data == (await own.memory.get(note_id)).to_dict() and place in data["memory"]
        await own.memory.update(note_id, metadata={"标签": "tag"})
        await own.memory.run_jobs()
        assert receiver.requests[1].event["data"]["metadata"] == {"标签": "tag"}
        await own.memory.delete(note_id)
        await own.memory.run_jobs()
        gone = receiver.requests[2].event
        owner = {"agent_id": "default", "user_id": "u", "session_id": "s"}
        assert gone["data"] == {"id": note_id, **owner}
    types = [it.event["type"] for it in receiver.requests]
    assert types == ["memory.added", "memory.updated", "memory.deleted"]


async def test_a_note_that_another_replaces_is_updated(
    sqlite: Settings, receiver: Receiver
) -> None:
    """Its end is a change."""
    async with opened(sqlite) as own:
        await own.webhooks.create(receiver.url, include_text=True)
        await own.memory.add("I live in Rome.", user_id="u")
        await own.memory.run_jobs()
        own.ahead += HOUR
        await own.memory.add("I moved to Oslo.", user_id="u")
        await own.memory.run_jobs()
        (updated,) = [it.event for it in receiver.requests if it.event["type"] == "memory.updated"]
    assert "Rome" in updated["data"]["memory"] and updated["data"]["valid_until"]
    assert receiver.types == ["memory.added", "memory.added", "memory.updated"]


async def test_sensitive_text_is_never_sent(sqlite: Settings, receiver: Receiver) -> None:
    """Nor that of a note which is sensitive, or gone, when its event is sent."""
    async with opened(sqlite) as own:
        await own.webhooks.create(receiver.url, include_text=True)
        await own.add("血型 secret", sensitive=True)
        note_id = await own.add("plain 明文")
        await own.memory.update(note_id, "my password is hunter2hunter2")
        await own.memory.delete(await own.add("erased 已删"))
        await own.memory.run_jobs()
    bodies = b"".join(it.body for it in receiver.requests).decode()
    assert len(receiver.requests) == 5
    assert not [it for it in ("血型", "明文", "hunter2", "erased", 'memory":') if it in bodies]


async def test_an_erased_user_leaves_no_text_to_deliver(
    either_settings: Settings, receiver: Receiver
) -> None:
    """Receivers hear what to delete; afterwards the store knows nothing of the user."""
    async with opened(either_settings) as own:
        await own.webhooks.create(receiver.url, include_text=True)
        note_id = await own.add("李明的秘密 secret of Li", "李明")
        store: Any = (await own.memory.runtime.deps()).store
        held = await store._read(lambda it: str(it.execute(text("SELECT * FROM job")).all()))
        assert note_id in held and "secret" not in held and "秘密" not in held
        receipt = await own.memory.privacy.erase("李明")
        assert receipt.remaining == {"jobs": 2}
        assert await own.memory.run_jobs() == 2
        left = await own.memory.privacy.inventory("李明")
        assert (left.jobs, left.journal) == (0, {})
    assert receiver.types == ["memory.added", "memory.deleted"]
    assert {it.event["data"]["id"] for it in receiver.requests} == {note_id}
    assert b"secret" not in b"".join(it.body for it in receiver.requests)


async def test_ended_sessions_and_failed_jobs_are_told(
    sqlite: Settings, receiver: Receiver
) -> None:
    """A job when it is given up, not before."""
    async with opened(sqlite) as own:
        await own.webhooks.create(receiver.url, ["job.failed", "session.ended"])
        await own.memory.add("tea 茶", user_id="u", session_id="s")
        await own.memory.end_session("s", "u")
        store = (await own.memory.runtime.deps()).store
        job = Job("j_1", "mirror", Scope("a", "u"), own.now() + HOUR, attempts=MAX_ATTEMPTS - 1)
        await store.apply(Batch(jobs=(job,)))
        for attempts in (MAX_ATTEMPTS - 1, MAX_ATTEMPTS):
            tried = replace(job, attempts=attempts)
            await store.apply(reschedule(tried, Unavailable("away 不在"), own.now()))
        assert await own.memory.run_jobs() == 2
        assert (await own.webhooks.deliveries())[0].type in EVENTS
    by_type = {it.event["type"]: it.event["data"] for it in receiver.requests}
    ids = {"agent_id": "default", "user_id": "u", "session_id": "s"}
    assert by_type["session.ended"] == ids
    failed = by_type["job.failed"]
    assert (failed["id"], failed["state"], failed["error"]) == ("j_1", "failed", "away 不在")


async def test_an_endpoint_hears_what_it_asked_for(sqlite: Settings) -> None:
    """Of its user and agent, and of its events."""
    async with opened(sqlite) as own:
        kept = [
            await own.webhooks.create("http://127.0.0.1:9/", user_id="李明"),
            await own.webhooks.create("http://127.0.0.1:9/", agent_id="a"),
            await own.webhooks.create("http://127.0.0.1:9/", ["memory.deleted"]),
        ]
        note_id = await own.add("tea 茶", "李明", agent_id="a")
        await own.add("tea 茶", "others", agent_id="b")
        told = [it.job_id.partition(".")[0] for it in await own.jobs()]
        assert sorted(told) == sorted(it.webhook_id for it in kept[:2])
        await own.memory.delete(note_id)
        assert len(await own.jobs()) == 5


async def test_what_is_not_written_is_not_told(either_settings: Settings) -> None:
    """A batch that is refused leaves no delivery, and a message alone is no event."""
    async with opened(either_settings) as own:
        await own.webhooks.create("http://127.0.0.1:9/")
        await own.memory.ingest("tea 茶", "u")
        store = (await own.memory.runtime.deps()).store
        missing = Job("j_gone", "mirror", Scope("a", "u"), own.now())
        note_id = await own.add("coffee 咖啡")
        (note,) = await own.memory.notes("u", ids=[note_id])
        changed = replace(note, metadata={"k": 1})
        applied = await store.apply(Batch(notes=(changed,), only_if=(missing,)))
        assert applied.refused == "job" and len(await own.jobs()) == 1


async def test_a_store_without_endpoints_is_asked_nothing_more(
    either_settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every write sends as many statements as if there were no webhooks."""
    sent: list[str] = []

    def count(*given: Any) -> None:
        sent.append(given[2])

    async def statements(own: Opened, user: str) -> list[int]:
        counts = []
        for words in ("one 一", "two 二"):
            sent.clear()
            note_id = await own.add(words, user, session_id="s")
            counts.append(len(sent))
        for change in (
            own.memory.update(note_id, "three 三"),
            own.memory.end_session("s", user),
            own.memory.delete(note_id),
            own.memory.delete_all(user),
        ):
            sent.clear()
            await change
            counts.append(len(sent))
        return counts

    async with opened(either_settings) as own:
        await own.memory.jobs()
        event.listen(Engine, "before_cursor_execute", count)
        try:
            own_counts = await statements(own, "u")
            monkeypatch.setattr(Transaction, "has_webhooks", lambda self: False)
            assert own_counts == await statements(own, "v")
        finally:
            event.remove(Engine, "before_cursor_execute", count)


# Where deliveries go


@each("url", ["http://2852039166/latest", "http://169.254.43518/", "http://100.100.25800/"])
async def test_nothing_is_sent_to_link_local_addresses(sqlite: Settings, url: str) -> None:
    """Whatever name they have; the result says so, and does not repeat the address."""
    async with opened(sqlite) as own:
        webhook = await own.webhooks.create(url)
        result = await own.webhooks.test(webhook.webhook_id)
        assert result.error and "link-local" in result.error and "169" not in result.error


async def test_a_name_that_changes_its_address_is_refused_when_connected(
    sqlite: Settings, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is sent."""

    async def trusting(url: str) -> None:
        """As if the name had another address a moment ago."""

    monkeypatch.setattr(sending, "_check_host", trusting)
    monkeypatch.setattr(sending, "is_refused", lambda address: address == "127.0.0.1")
    async with opened(sqlite) as own:
        webhook = await own.webhooks.create(receiver.url)
        result = await own.webhooks.test(webhook.webhook_id)
    assert result.error and "link-local" in result.error and receiver.requests == []


@given(st.ip_addresses())
def test_private_networks_are_allowed(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    """Only link-local ones are not, in either form."""
    assert is_refused(str(address)) == address.is_link_local
    if isinstance(address, ipaddress.IPv4Address):
        assert is_refused(f"::ffff:{address}") == address.is_link_local
    assert is_refused("fd00:ec2::254") and not is_refused("10.1.2.3")


async def test_redirects_are_not_followed(sqlite: Settings, receiver: Receiver) -> None:
    """They are failures."""
    receiver.statuses = [302]
    async with opened(sqlite) as own:
        webhook = await own.webhooks.create(receiver.url)
        result = await own.webhooks.test(webhook.webhook_id)
    assert result.error == "answered 302; redirects are not followed"


@each("host", ["a..b", "a" * 70, "no-such-host.invalid", "钩子.invalid", "127.0.0.1:1"])
async def test_a_host_that_is_not_there_is_a_failed_delivery(sqlite: Settings, host: str) -> None:
    """Whatever keeps it from being found; the result does not repeat the address."""
    async with opened(sqlite) as own:
        webhook = await own.webhooks.create(f"http://{host}/secret")
        result = await own.webhooks.test(webhook.webhook_id)
        assert result.status is None and result.error
        assert result.error.startswith("cannot be reached: ") and "secret" not in result.error
        await own.webhooks.delete(webhook.webhook_id)


# Copies of a store


async def test_backups_hold_no_webhooks_and_a_restore_leaves_them(
    sqlite: Settings, tmp_path: Path
) -> None:
    """Nor what waits to be delivered."""
    async with opened(sqlite) as own:
        webhook = await own.webhooks.create("http://127.0.0.1:9/")
        note_id = await own.add("tea 茶")
        backup = await own.memory.backup(tmp_path / "backup.json")
        written = backup.path.read_text("utf-8")
        assert note_id in written and webhook.webhook_id not in written
        assert webhook.secret not in written
        await own.memory.restore(backup.path)
        assert await own.webhooks.list() == [webhook] and len(await own.jobs()) == 1


async def test_a_move_takes_webhooks_along(sqlite: Settings, store_database: str) -> None:
    """With their secrets and deliveries."""
    async with opened(sqlite) as own:
        webhook = await own.webhooks.create("http://127.0.0.1:9/", user_id="u")
        await own.add("tea 茶")
        jobs = await own.jobs()
    place = str(sqlite.data_dir)
    await asyncio.to_thread(admin.move, place, store_database, lambda done: None, lambda: None)
    async with opened(load(database_url=store_database, embedder="none", llm="none")) as moved:
        (other,) = await moved.webhooks.list()
        assert other == webhook and other.secret == webhook.secret
        assert await moved.jobs() == jobs


# Interfaces


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """An app of this module's own."""
    with local_server(tmp_path_factory.mktemp("webhooks") / "data") as server:
        yield server


def test_webhooks_over_http(server: LocalServer, receiver: Receiver) -> None:
    """Made, listed without the secret, tested, told, deleted; the server delivers by itself."""
    with server.client() as client:
        once = {"Idempotency-Key": "hook"}
        answer = client.post("/v1/webhooks", json={"url": receiver.url}, headers=once)
        assert answer.status_code == 200, answer.text
        again = client.post("/v1/webhooks", json={"url": receiver.url}, headers=once)
        assert refusal(again) == (409, "CONFLICT")  # its answer held a secret
        made = answer.json()
        secret = made.pop("secret")
        assert secret.startswith("whsec_") and made["events"] == [*EVENTS]
        listed = client.get("/v1/webhooks")
        assert listed.json() == {"items": [made]} and secret not in listed.text
        address = f"/v1/webhooks/{made['id']}"
        tested = client.post(f"{address}/test").json()
        assert (tested["type"], tested["status"], tested["error"]) == ("webhook.test", 200, None)
        added = {"user_id": "u", "messages": "我喜欢茶 tea", "infer": False}
        assert client.post("/v1/memories", json=added).is_success
        wait_for(lambda: len(receiver.requests) == 2)
        assert all(verifies(it, secret) for it in receiver.requests)
        assert client.delete(address).json()["id"] == made["id"]
        assert refusal(client.delete(address))[1] == "NOT_FOUND"
        assert refusal(client.post(f"{address}/test"))[1] == "NOT_FOUND"


@each(
    ("field", "wrong"),
    [
        ("url", {}),
        *(
            ("url", {"url": it})
            for it in (
                *("", "example.com/hook", "ftp://example.com", "http://", "http:///x", 7),
                *("http://a b/", "http://a\nb/", "http://[::1", "http://a:99999/", "http://a:0/"),
                *("https://user:secret@example.com/", "http://a/" + "长" * 2000),
                *("http://169.254.169.254/x", "https://[fe80::1]:8443/", "http://100.100.100.200"),
                *("http://[::ffff:169.254.169.254]/", "http://[fe80::1%25eth0]/"),
            )
        ),
        ("events", {"events": []}),
        ("events", {"events": ["memory.read"]}),
        ("events", {"events": "memory.added"}),
        ("user_id", {"user_id": ""}),
        ("agent_id", {"agent_id": " a"}),
        ("include_text", {"include_text": "yes"}),
    ],
)
def test_a_webhook_that_makes_no_sense_is_refused(
    server: LocalServer, field: str, wrong: dict[str, Any]
) -> None:
    """The answer names the field, repeats no password, and nothing is stored."""
    with server.client() as client:
        body = wrong if field == "url" else {"url": "http://127.0.0.1:9/", **wrong}
        headers = {"Content-Type": "application/json"}
        answer = client.post("/v1/webhooks", content=json.dumps(body), headers=headers)
        assert refusal(answer) == (400, "INVALID_ARGUMENT")
        assert answer.json()["error"]["details"]["field"].partition("[")[0] == field
        assert "secret" not in answer.text and client.get("/v1/webhooks").json() == {"items": []}


async def test_the_library_names_what_is_wrong(sqlite: Settings) -> None:
    """With what would be right."""
    async with opened(sqlite) as own:
        with pytest.raises(InvalidArgument, match=r"memory\.added.*not 'memory\.read'"):
            await own.webhooks.create("http://127.0.0.1:9/", ["memory.read"])
        with pytest.raises(InvalidArgument, match=r"https://example\.com/hook, not 'mailto:x'"):
            await own.webhooks.create("mailto:x")
        with pytest.raises(InvalidArgument, match=r"link-local.*: 'http://169\.254\.169\.254/x'"):
            await own.webhooks.create("http://169.254.169.254/x")


@pytest.mark.parametrize(
    ("language", "texts"),
    [
        ("en", ["nothing delivered yet", "all events", "delivered 2", "is deleted", "no webhook"]),
        ("zh", ["尚未投递", "全部事件", "已送达", "已删除", "还没有"]),
    ],
)
def test_webhooks_by_command(
    tmp_path: Path, receiver: Receiver, language: str, texts: list[str]
) -> None:
    """Made, listed, tested and deleted, in the language of the terminal."""

    def run(*arguments: str, code: int = 0) -> str:
        ran = kemem(tmp_path, "webhooks", *arguments, KEMEM_LANGUAGE=language)
        assert ran.returncode == code, ran.stderr
        return ran.stdout + ran.stderr

    made = run("create", receiver.url)
    assert made.startswith("whsec_") and texts[0] in made and texts[1] in made
    (item,) = json.loads(run("list", "--json"))["items"]
    assert item["url"] == receiver.url and "secret" not in item
    assert texts[2] in run("test", item["id"])
    receiver.statuses = [500]
    assert "answered 500" in run("test", item["id"], code=1)
    assert texts[3] in run("delete", item["id"])
    run("delete", item["id"], code=3)
    assert texts[4] in run("list")
    chosen = run("create", receiver.url, "--events", "memory.added, job.failed", "--json")
    assert json.loads(chosen)["events"] == ["memory.added", "job.failed"]
    assert "memory.read" in run("create", receiver.url, "--events", "memory.read", code=2)


@pytest.mark.parametrize(
    ("language", "texts"),
    [
        ("en", ["There are no webhooks yet", "Copy it now", "answered 200", "delivered", "failed"]),
        ("zh", ["还没有 Webhook", "请立即复制", "返回 200", "已送达", "失败"]),
    ],
)
async def test_webhooks_on_the_dashboard(
    tmp_path: Path, receiver: Receiver, language: str, texts: list[str]
) -> None:
    """Made with a secret that is shown once, tested, deleted; results are listed."""
    path = "/dashboard/webhooks"
    async with browsing(tmp_path) as (browser, app):
        browser.params = httpx.QueryParams(language=language)
        assert texts[0] in text_of(await browser.get(path))
        events = ["memory.added", "job.failed"]
        made = await send(browser, path, url=receiver.url, events=events, user_id=EVIL)
        (webhook,) = await app.state.webhooks.list()
        shown = text_of(made)
        assert texts[1] in shown and webhook.secret in shown and webhook.events == (*events,)
        assert EVIL not in made.text
        own = f"{path}/{webhook.webhook_id}"
        assert (await send(browser, f"{own}/test")).status_code == 303
        answer = await browser.get(path)
        page = text_of(answer)
        assert texts[2] in page and texts[3] in page and webhook.secret not in page
        assert '<p class="flash"' in answer.text and '<p class="problem"' not in answer.text
        receiver.statuses = [500]
        assert (await send(browser, f"{own}/test")).status_code == 303
        answer = await browser.get(path)
        page = text_of(answer)
        assert texts[4] in page and {"zh": "返回 500", "en": "answered 500"}[language] in page
        assert '<p class="problem"' in answer.text and '<p class="flash"' not in answer.text
        assert (await send(browser, f"{own}/delete")).status_code == 303
        assert texts[0] in text_of(await browser.get(path))
        refused = await send(browser, path, url=receiver.url)
        assert "events" in text_of(refused, 400)
