"""Idempotency keys: a write that is sent again with the same key is answered, not done again."""

import asyncio
import json
from contextlib import suppress
from hashlib import sha256
from secrets import token_hex
from typing import Any, NamedTuple

import structlog
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kemem.errors import Conflict, InvalidArgument, KeMemError, NotConfigured
from kemem.memory import AsyncMemory
from kemem.ports.lines import ANSWER, LineStore
from kemem.records import Line, Micros
from kemem.serve.http.audit import described
from kemem.serve.http.auth import is_page, is_write
from kemem.serve.http.import_routes import PATH as UPLOAD
from kemem.serve.http.responses import error_response

HEADER = "Idempotency-Key"
REPLAYED = "Idempotent-Replayed"
MAX_KEY = 255  # characters
KEPT: Micros = 24 * 3_600_000_000
_LEASE: Micros = 60_000_000  # how long the claim of a server that died is believed
_RENEWAL = 20.0  # seconds
_SWEEP: Micros = 60_000_000
_LARGEST = 1 << 20  # bytes of an answer that is kept
_ONCE = "this request was done already; its answer held a secret, which is shown once"

log = structlog.get_logger("kemem")


class KeyReused(InvalidArgument):
    """The key came with another request before."""

    status = 422


class IdempotencyMiddleware:
    """Runs a write with a key once; sits within what authenticates requests."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        key = _key(scope)
        if key is None:
            await self._app(scope, receive, send)
            return
        body = b"" if scope["path"] == UPLOAD else await _read(receive)
        caller = scope["state"]["caller"].name or ""
        claims: Claims = scope["app"].state.claims
        claim = await claims.take(_digest(caller, key), _fingerprint(scope, body))
        if isinstance(claim, Claim):
            scope["state"]["claim"] = claim
            passed = receive if scope["path"] == UPLOAD else _again(body, receive)
            await self._run(claim, scope, passed, send)
            return
        if scope["path"] == UPLOAD:
            await _read(receive, keep=False)  # a client that still sends reads no answer
        scope["state"]["is_audited"] = True  # as the first request was
        stored = Response(claim.body, claim.status, media_type="application/json")
        stored.headers[REPLAYED] = "true"
        await stored(scope, receive, send)

    async def _run(self, claim: "Claim", scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request run; a success is kept before it is sent, an error is not kept."""
        held: list[Message] = []

        async def hold(message: Message) -> None:
            held.append(message)

        try:
            await self._app(scope, receive, hold)
        except Exception:
            await claim.release()
            raise
        finally:
            claim.ended.set()  # also if it is cancelled: the claim then ends by itself
        if held and held[0]["status"] < 300:
            body, state = b"".join(it.get("body", b"") for it in held), scope["state"]
            await claim.finish(_answer(held[0]["status"], body, state), _user(body, state))
        else:
            await claim.release()
        for message in held:
            await send(message)


class Answer(NamedTuple):
    """What a request was answered with."""

    status: int
    body: str


class Claim:
    """The right to do a request: nobody else does it while this process lives and works on it."""

    def __init__(self, store: LineStore, memory: AsyncMemory, line: Line) -> None:
        self._store, self._memory, self._line = store, memory, line
        self.ended = asyncio.Event()
        self._renewing = asyncio.create_task(self._renew())

    async def finish(self, answer: Answer, user_id: str) -> None:
        """Keep the answer, in the place of the claim."""
        kept = {"fingerprint": self._line.body["fingerprint"], **answer._asdict()}
        await self._end(Line(ANSWER, self._line.id, self._line.ts, kept, user_id))

    async def release(self) -> None:
        """Let a later request run."""
        await self._end(None)

    async def _end(self, line: Line | None) -> None:
        self.ended.set()
        await self._renewing
        await self._exchange(line)

    async def _renew(self) -> None:
        while not self.ended.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self.ended.wait(), _RENEWAL)
            if not self.ended.is_set():
                now = (await self._memory.runtime.deps()).clock()
                body = {**self._line.body, "until": now + _LEASE}
                await self._exchange(Line(ANSWER, self._line.id, self._line.ts, body))

    async def _exchange(self, line: Line | None) -> None:
        try:
            stored = await self._store.exchange(self._line, line)
            if line is not None and stored is None:  # it was erased meanwhile, with an agent
                stored = await self._store.exchange(None, line)
        except KeMemError as error:  # the claim ends by itself
            log.warning("an idempotency key was not written", kind=type(error).__name__)
            return
        self._line = line if line is not None and stored == line else self._line


class Claims:
    """The idempotency keys of a store, which all of its servers share."""

    def __init__(self, memory: AsyncMemory) -> None:
        self._memory = memory
        self._swept: Micros | None = None

    async def take(self, name: str, fingerprint: str) -> Claim | Answer:
        """The right to do a request, or the answer that it got before."""
        deps = await self._memory.runtime.deps()
        store, now = deps.store, deps.clock()
        if not isinstance(store, LineStore):
            raise NotConfigured(f"this store keeps no answers: send no {HEADER}")
        body = {"fingerprint": fingerprint, "owner": token_hex(8), "until": now + _LEASE}
        line = Line(ANSWER, name, now, body)
        stored = await store.exchange(None, line)
        if stored is not None and _is_over(stored, now):
            stored = await store.exchange(stored, line)
        if stored == line:
            return Claim(store, self._memory, line)
        if stored is not None and stored.body["fingerprint"] != fingerprint:
            reason = f"this {HEADER} came with another request before: send a new one"
            raise KeyReused(reason, field=HEADER)
        if stored is None or "status" not in stored.body:
            reason = f"a request with this {HEADER} is in progress: try again in a second"
            raise Conflict(reason, retry_after=1)
        return Answer(stored.body["status"], stored.body["body"])

    async def flush(self) -> None:
        """Erase what is older than a day, once a minute."""
        now = (await self._memory.runtime.deps()).clock()
        if self._swept is None or now - self._swept >= _SWEEP:
            await self._memory.journal.trim(ANSWER, before=now - KEPT)
            self._swept = now


def _is_over(line: Line, now: Micros) -> bool:
    """Whether an answer is too old, or the server that claimed a request is gone."""
    return line.ts <= now - KEPT or line.body.get("until", now + 1) <= now


def _key(scope: Scope) -> str | None:
    """The idempotency key of a request, if it is a write of the API."""
    if scope["type"] != "http" or is_page(scope["path"]):
        return None
    key = Headers(scope=scope).get(HEADER)
    if key is None or not is_write(scope["method"], scope["path"]):
        return None
    if not key.strip() or len(key) > MAX_KEY:
        reason = f"{HEADER} must have 1-{MAX_KEY} characters, not {len(key.strip())}"
        raise InvalidArgument(reason, field=HEADER)
    return key


def _fingerprint(scope: Scope, body: bytes) -> str:
    """What two requests must have in common to be the same; a file counts by its length."""
    headers = Headers(scope=scope)
    own = sorted((name, value) for name, value in headers.items() if name.startswith("x-kemem-"))
    length = headers.get("content-length", "") if scope["path"] == UPLOAD else ""
    query = scope["query_string"].decode("latin-1")
    parts = [scope["method"], scope["path"], query, own, length, sha256(body).hexdigest()]
    return _digest(*parts)


def _digest(*parts: object) -> str:
    return sha256(json.dumps(parts).encode()).hexdigest()


async def _read(receive: Receive, *, keep: bool = True) -> bytes:
    """The body of a request, or nothing of it once it has come."""
    chunks = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect()
        chunks += [message.get("body", b"")] if keep else []
        if not message.get("more_body"):
            return b"".join(chunks)


def _again(body: bytes, receive: Receive) -> Receive:
    """Hands out a body that was read, then what comes after it."""
    waiting: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Message:
        return waiting.pop() if waiting else await receive()

    return receive_again


def _answer(status: int, body: bytes, state: dict[str, Any]) -> Answer:
    """What a later request with the same key is answered."""
    refused = _ONCE if state.get("shown_once") else None
    if len(body) > _LARGEST:
        refused = f"this request was done already; its answer of {len(body)} bytes was not kept"
    if refused is None:
        return Answer(status, body.decode())
    answer = error_response(Conflict(refused))
    return Answer(answer.status_code, bytes(answer.body).decode())


def _user(body: bytes, state: dict[str, Any]) -> str:
    """The user that an answer is about: as the request says, or else the answer."""
    users = [state.get("user_id"), *described(json.loads(body), "user_id")]
    return str(next(filter(None, users), ""))
