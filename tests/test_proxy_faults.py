"""The proxy when requests are wrong, models fail, and applications hang up."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import (
    APIError,
    APIStatusError,
    BadRequestError,
    InternalServerError,
    RateLimitError,
)

from kemem.chat.proxy import Proxy
from kemem.errors import Unavailable
from kemem.memory import AsyncMemory
from kemem.ports import Deps
from kemem.ports.request import SearchResponse
from kemem.records import Message
from kemem.records.batch import Applied, Batch
from kemem.serve.http.app import create_app
from kemem.settings import load
from kemem.testing import FakeClock, Streamed, calling
from kemem.testing.openai_server import EMPTY, GARBAGE, NO_CHOICES, RESET, Answer, Fault, status
from kemem.testing.openai_server import MODEL as UPSTREAM_MODEL
from kemem_conformance.ram import RamStore
from tests.cases import each
from tests.proxied import (
    CHINESE,
    ENGLISH,
    KEY,
    MODEL_KEY,
    RECALL,
    Site,
    Tongue,
    ask,
    recalled,
    running_site,
)
from tests.scripted import scripted_api
from tests.server import INVALID, PATIENCE, refusal, wait_for

ONE = pytest.mark.parametrize("tongue", [CHINESE], ids=["zh"])
PATH = "/v1/chat/completions"
WRONG_KEY = "check KEMEM_LLM_API_KEY"
LARGE = b'{"messages": [{"role": "user", "content": "hi"}], "user": "u", "seed": 1e999}'
NOON = 1_769_428_800_000_000
REF = {"properties": {"q": {"$ref": "elsewhere"}}}
CHUNK = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A server that takes small bodies only, and the model that it asks."""
    data_dir = tmp_path_factory.mktemp("proxy_faults") / "data"
    with running_site(data_dir, max_body_bytes="20000") as running:
        yield running


def user_says(text: object) -> dict[str, Any]:
    return {"role": "user", "content": text}


def tool(**schema: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": "f", "parameters": schema}}


def sent_events(*events: dict[str, Any]) -> Fault:
    """A stream as it stands."""
    return Fault(b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events))


def delta(text: str) -> dict[str, Any]:
    choice = {"index": 0, "delta": {"content": text}, "finish_reason": None}
    return {**CHUNK, "choices": [choice]}


# Requests that are wrong


@each(
    "wrong",
    [
        {},
        {"messages": []},
        {"messages": None},
        {"messages": "你好"},
        {"messages": ["hello"]},
        {"messages": [{"content": "没有角色 no role"}]},
        {"messages": [{"role": 7, "content": "hi"}]},
        {"messages": [user_says(7)]},
        {"messages": [user_says(["图 picture"])]},
        {"messages": [{"role": "assistant", "tool_calls": "好"}]},
        {"messages": [{"role": "assistant", "tool_calls": [{"function": "f"}]}]},
        {"messages": [{"role": "assistant", "tool_calls": [{"type": "function"}]}]},
        {"messages": [user_says("好")], "model": 1},
        {"messages": [user_says("好")], "user": ["u"]},
        {"messages": [user_says("好")], "user": ""},
        {"messages": [user_says("hi")], "stream": "yes"},
        {"messages": [user_says("hi")], "stream_options": True},
        {"messages": [user_says("hi")], "tools": {}},
        {"messages": [user_says("hi")], "tools": [{"type": "function"}]},
        {"messages": [user_says("hi")], "tools": [{"function": {"name": None}}]},
        {"messages": [user_says("hi")], "tools": [{"function": {"name": "f", "parameters": ""}}]},
        {"messages": [user_says("hi")], "tools": [tool(**{"$ref": "http://127.0.0.1:1/x"})]},
        {"messages": [user_says("好")], "tools": [tool(**{"$id": "http://a", "anyOf": [REF]})]},
        {"messages": [user_says("hi")], "n": 2},
    ],
)
def test_a_wrong_request_is_refused(site: Site, wrong: dict[str, Any]) -> None:
    """Before the model is asked and anything is stored."""
    user = site.new_user()
    site.model.says("好 ok")
    for more in ({}, {"stream": True}):
        body = {"user": user, **more, **wrong}
        assert refusal(site.operator.post(PATH, json=body)) == INVALID
    assert (site.model.asked, site.stored(user)) == ([], [])


def test_what_is_no_json_object_is_refused(site: Site) -> None:
    """As on every route, and so are parameters in the URL and bodies that are too large."""
    client, kind = site.operator, {"Content-Type": "application/json"}
    for content in (b"", b"{", b"[]", b'{"messages": NaN}', b"\xff", LARGE, b'"\\ud800"'):
        assert refusal(client.post(PATH, content=content, headers=kind)) == INVALID
    assert refusal(client.post(PATH, content=b"{}")) == INVALID
    body = {"messages": [user_says("你好 hello")], "user": "u"}
    assert refusal(client.post(PATH, json=body, params={"user_id": "u"})) == INVALID
    large = {**body, "messages": [user_says("大" * 10_000)]}
    assert refusal(client.post(PATH, json=large)) == (413, "RESOURCE_EXHAUSTED")
    with site.server.client() as stranger:
        assert refusal(stranger.post(PATH, json=body)) == (401, "UNAUTHENTICATED")


@ONE
def test_an_operator_has_to_name_one_user(site: Site, tongue: Tongue) -> None:
    """The refusal says how; ids of other shapes are none."""
    site.model.says(tongue.reply)
    with site.application(None) as client:
        with pytest.raises(BadRequestError, match=r"X-KeMem-User.*token.*field user"):
            ask(client, False, tongue.asked)
        with pytest.raises(BadRequestError, match="is 'a' and the field user 'b'"):
            ask(client, True, tongue.asked, user="b", extra_headers={"X-KeMem-User": "a"})
        for name in ("User", "Session", "Agent"):
            for value in ("", "%ff", "a%00b", "x" * 256):
                given = {"X-KeMem-User": "u", f"X-KeMem-{name}": value}
                with pytest.raises(BadRequestError):
                    ask(client, False, tongue.asked, extra_headers=given)
    assert site.model.asked == []


@ONE
async def test_without_a_model_there_is_a_clear_refusal(tmp_path: Path, tongue: Tongue) -> None:
    """And nothing is stored."""
    settings = load(data_dir=tmp_path, embedder="none", llm="none")
    async with AsyncMemory(settings=settings) as memory:
        transport = httpx.ASGITransport(create_app(memory))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for stream in (False, True):
                body = {"messages": [user_says(tongue.asked)], "user": "u", "stream": stream}
                answer = await client.post(PATH, json=body)
                assert refusal(answer) == (501, "UNAVAILABLE")
                assert "KEMEM_LLM_BASE_URL" in answer.json()["error"]["message"]
        assert (await memory.messages("u")).items == ()


def test_models_are_those_of_the_server_behind(site: Site) -> None:
    """As the official client lists them; "kemem" is the one that the settings name."""
    with site.application(None) as client:
        listed = [it.id for it in client.models.list()]
    assert listed == ["kemem", UPSTREAM_MODEL]


async def test_a_missing_model_or_key_is_named_by_its_setting(tmp_path: Path) -> None:
    """Where models are listed, and where they are asked; no key is told."""
    async with AsyncMemory(settings=load(data_dir=tmp_path, embedder="none", llm="none")) as memory:
        transport = httpx.ASGITransport(create_app(memory))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            turn = {"user_id": "u", "session_id": "s", "message": "茶 tea"}
            for answer in (
                await client.get("/v1/models"),
                await client.post("/v1/chat", json=turn),
            ):
                assert refusal(answer) == (501, "UNAVAILABLE")
                assert "KEMEM_LLM_API_KEY" in answer.json()["error"]["message"]
            near = {"user_id": "u", "query": "茶 tea"}
            answer = await client.post("/v1/messages/semantic_search", json=near)
            assert refusal(answer) == (501, "UNAVAILABLE")
            assert "KEMEM_EMBEDDER" in answer.json()["error"]["message"]


# Models that fail


@each(
    ("tongue", "stream", "fault", "expected", "told"),
    [
        (CHINESE, True, status(400, "太长 too long"), BadRequestError, "太长 too long"),
        (ENGLISH, False, status(404, "no such model"), BadRequestError, "no such model"),
        (ENGLISH, True, status(422, f"not {MODEL_KEY}"), BadRequestError, "refuses the request"),
        (CHINESE, False, status(401, f"wrong: {MODEL_KEY}"), InternalServerError, WRONG_KEY),
        (ENGLISH, True, status(403, "密 secret"), InternalServerError, WRONG_KEY),
        (CHINESE, False, status(429, "密 secret"), RateLimitError, "429"),
        (ENGLISH, True, status(500, "密 secret"), InternalServerError, "temporarily unavailable"),
        (CHINESE, True, RESET, InternalServerError, "temporarily unavailable"),
        (ENGLISH, False, GARBAGE, InternalServerError, "temporarily unavailable"),
        (CHINESE, True, GARBAGE, InternalServerError, "temporarily unavailable"),
        (CHINESE, False, EMPTY, InternalServerError, "temporarily unavailable"),
        (ENGLISH, False, NO_CHOICES, InternalServerError, "temporarily unavailable"),
    ],
)
def test_what_a_model_refuses_is_told_by_its_kind(
    site: Site,
    tongue: Tongue,
    stream: bool,
    fault: Fault,
    expected: type[APIStatusError],
    told: str,
) -> None:
    """No key, no address, no words of a server that fails; what the user said is kept."""
    user = site.new_user()
    site.model.says(fault, fault)  # the server's own client asks twice where that may help
    with site.application(user) as client:
        with pytest.raises(expected) as raised:
            ask(client, stream, tongue.asked)
        assert told in raised.value.message
        for secret in (MODEL_KEY, site.upstream.base_url, "secret", "Traceback"):
            assert secret not in raised.value.response.text
        assert refusal(raised.value.response)  # type: ignore[arg-type]
        assert site.stored(user) == [("user", tongue.asked)]
        site.model.says(tongue.reply)
        assert ask(client, stream, tongue.asked).text == tongue.reply
    assert site.stored(user) == [("user", tongue.asked), ("assistant", tongue.reply)]


@ONE
def test_a_failure_after_a_recall_is_no_answer(site: Site, tongue: Tongue) -> None:
    """In a stream, too, as long as the application has got nothing."""
    for stream in (False, True):
        site.model.says(calling(RECALL, query=tongue.words), status(400, tongue.preamble))
        with (
            site.application(site.new_user()) as client,
            pytest.raises(BadRequestError, match=tongue.preamble),
        ):
            ask(client, stream, tongue.asked)


@ONE
@pytest.mark.parametrize("how", ["reset", "quietly", "told", "in the second round"])
def test_a_stream_that_breaks_is_an_error_and_a_partial_reply(
    site: Site, tongue: Tongue, how: str
) -> None:
    """The application keeps what it has got, the log marks it."""
    user = site.new_user()
    answers: dict[str, list[Answer]] = {
        "reset": [Streamed(tongue.reply, piece=3, breaks_after=1)],
        "quietly": [Streamed(tongue.reply, piece=3, breaks_after=1, quietly=True)],
        "told": [sent_events(delta(tongue.reply[:3]), {"error": {"message": MODEL_KEY}})],
        "in the second round": [
            Streamed(tongue.reply[:3], calls=(calling(RECALL, query=tongue.words),)),
            status(400),
        ],
    }
    site.model.says(*answers[how])
    got = ""
    with site.application(user) as client, pytest.raises(APIError) as raised:
        messages: list[Any] = [user_says(tongue.asked)]
        for chunk in client.chat.completions.create(model="kemem", messages=messages, stream=True):
            assert chunk.choices[0].finish_reason is None
            got += chunk.choices[0].delta.content or ""
    assert not isinstance(raised.value, APIStatusError) and MODEL_KEY not in str(raised.value)
    assert raised.value.code in ("UNAVAILABLE", "INVALID_ARGUMENT")
    assert got == tongue.reply[:3]
    said, partial = site.messages(user)
    assert (said["content"], said["metadata"]) == (tongue.asked, {})
    assert (partial["content"], partial["metadata"]) == (got, {"partial": True})


# Applications that hang up


@ONE
def test_who_hangs_up_stops_the_model(site: Site, tongue: Tongue) -> None:
    """What was shown until then is stored as partial; other requests are served."""
    user = site.new_user()
    site.upstream.hung_up.clear()
    site.model.says(Streamed(tongue.reply, piece=3, pause=3600), tongue.reply)
    with site.application(user) as client:
        messages: list[Any] = [user_says(tongue.asked)]
        stream = client.chat.completions.create(model="kemem", messages=messages, stream=True)
        assert next(stream).choices[0].delta.content == tongue.reply[:3]
        stream.close()
        assert site.upstream.hung_up.wait(PATIENCE)
        wait_for(lambda: len(site.messages(user)) == 2)
        assert site.messages(user)[1]["metadata"] == {"partial": True}
        assert ask(client, False, tongue.asked).text == tongue.reply
    assert site.stored(user)[1:] == [
        ("assistant", tongue.reply[:3]),
        ("assistant", tongue.reply),
    ]


@ONE
async def test_who_hangs_up_before_the_first_word_stops_the_model(
    site: Site, tongue: Tongue
) -> None:
    """There is no reply then."""
    user = site.new_user()
    site.upstream.hung_up.clear()
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def silent(request: dict[str, Any]) -> Answer:
        loop.call_soon_threadsafe(asked.set)
        return Fault(delay=3600)

    site.model.says(silent)
    async with site.async_application(user) as client:
        messages: list[Any] = [user_says(tongue.asked)]
        waiting = asyncio.create_task(
            client.chat.completions.create(model="kemem", messages=messages, stream=True)
        )
        await asyncio.wait_for(asked.wait(), PATIENCE)
        waiting.cancel()
        assert await asyncio.to_thread(site.upstream.hung_up.wait, PATIENCE)
    assert site.stored(user) == [("user", tongue.asked)]


# What is stored when


@ONE
def test_what_the_user_says_is_stored_before_the_model_is_asked(site: Site, tongue: Tongue) -> None:
    """Whatever becomes of the answer."""
    user = site.new_user()
    seen: list[Any] = []

    def looking(request: dict[str, Any]) -> Answer:
        seen.append(site.stored(user))
        return tongue.reply

    site.model.says(looking)
    with site.application(user) as client:
        ask(client, False, tongue.asked)
    assert seen == [[("user", tongue.asked)]]


@ONE
async def test_users_who_talk_at_once_are_kept_apart(site: Site, tongue: Tongue) -> None:
    """Each reply comes from a prompt with the user's own memories."""
    users = [site.new_user(f"{tongue.note} {number}") for number in range(4)]

    def echo(request: dict[str, Any]) -> Answer:
        return Streamed(recalled(request)[0][0][-1], pause=0.001)

    site.model.says(*[echo] * 8)

    async def talk(user: str) -> str:
        messages: list[Any] = [user_says(tongue.asked)]
        async with site.async_application(user) as client:
            stream = await client.chat.completions.create(
                model="kemem", messages=messages, stream=True
            )
            return "".join([it.choices[0].delta.content or "" async for it in stream])

    assert await asyncio.gather(*map(talk, users)) == ["0", "1", "2", "3"]
    assert [site.stored(it)[1] for it in users] == [("assistant", str(n)) for n in range(4)]


@ONE
def test_neither_words_nor_keys_are_logged(site: Site, tongue: Tongue) -> None:
    """Of what is said and of what fails."""
    site.model.says(tongue.reply, status(401, tongue.preamble))
    with site.application(site.new_user()) as client:
        ask(client, True, tongue.asked)
        with pytest.raises(InternalServerError):
            ask(client, False, tongue.asked)
    log = site.server.log.read_text("utf-8")
    for secret in (tongue.asked, tongue.reply, tongue.preamble, MODEL_KEY, KEY, "Traceback"):
        assert secret not in log


# Without HTTP


class Unreadable(RamStore):
    """A store that can be written to, and not be searched."""

    async def search(self, *asked: Any, **more: Any) -> SearchResponse:
        raise Unavailable("the index is away")


class Full(RamStore):
    """A store that takes what a user says, and no reply."""

    async def apply(self, batch: Batch) -> Applied:
        if any(isinstance(it, Message) and it.role == "assistant" for it in batch.put):
            raise Unavailable("no room is left")
        return await super().apply(batch)


def memory_over(store: RamStore, **settings: Any) -> AsyncMemory:
    """A memory whose parts are open already."""
    memory = AsyncMemory(settings=load(embedder="none", llm="none", chat_recall="call", **settings))
    memory.runtime._deps = Deps(store, None, FakeClock(NOON))
    return memory


@ONE
@pytest.mark.parametrize("store", [Unreadable, Full])
async def test_an_answer_comes_though_the_store_fails(
    tongue: Tongue, store: type[RamStore]
) -> None:
    """Without a recall, and without a reply in the log."""
    memory, body = memory_over(store()), {"messages": [user_says(tongue.asked)]}
    upstream = scripted_api([tongue.reply] * 2)
    async with upstream.async_client() as client:
        proxy = Proxy(memory, client=client, model="m")
        answer = await proxy.complete(body, memory.for_user("u"), "s")
        chunks = [it async for it in proxy.chunks(body, memory.for_user("u"), "s")]
        await proxy.close()
    assert answer["choices"][0]["message"]["content"] == tongue.reply
    assert "".join(it["choices"][0]["delta"].get("content", "") for it in chunks) == tongue.reply
    stored = [it.role for it in (await memory.messages("u")).items]
    if store is Full:
        assert stored == ["user"]
    else:
        assert stored == ["assistant", "user"]
        assert [it["role"] for it in upstream.requests[0]["messages"]] == ["system", "user"]


@ONE
async def test_without_recalls_of_its_own_the_model_needs_no_tools(tongue: Tongue) -> None:
    """A limit of 0 serves models that know none: what is remembered stands in the instructions."""
    memory = memory_over(RamStore(), chat_recall_limit=0)
    await memory.add(tongue.note, user_id="u", infer=False)
    upstream = scripted_api([tongue.reply], refuses={"tools"})
    async with upstream.async_client() as client:
        proxy = Proxy(memory, client=client, model="m")
        body = {"messages": [user_says(tongue.asked)]}
        await proxy.complete(body, memory.for_user("u"), "s")
        await proxy.close()
    instructions, said = upstream.requests[0]["messages"]
    assert tongue.note in instructions["content"] and RECALL not in instructions["content"]
    assert said == user_says(tongue.asked)
