"""Chats over HTTP: whole replies or events, leaks, faults, who may talk, clients that hang up."""

import json
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from kemem import Memory
from kemem.chat import (
    DoneEvent,
    ErrorEvent,
    Event,
    RecallEvent,
    TextEvent,
    ToolCallEvent,
    ToolResultEvent,
)
from kemem.memory import AsyncMemory
from kemem.serve.http.app import create_app
from kemem.serve.http.chat_routes import (
    ChatReply,
    MemberReply,
    RecalledMemory,
    UsedTool,
    event_item,
)
from kemem.settings import Settings, load
from kemem.testing import calling
from kemem.testing.openai_server import OpenAIServer, Streamed, running_openai_server
from tests.cases import each
from tests.chats import BOTH, ONE, Model, leaked
from tests.routes import KEY, SECRET, keyed, token
from tests.server import (
    INVALID,
    MISSING,
    Server,
    note_of,
    post,
    read,
    refusal,
    running_server,
    said,
    wait_for,
)
from tests.test_http import metrics
from tests.test_http_recall import EVENTS, FORBIDDEN, events

CHAT = "/v1/chat"
GROUP = "/v1/groups/{}/turns"
CONFLICT = (409, "CONFLICT")
FAILED = (503, "UNAVAILABLE")
MEMBERS = [{"id": "lin", "name": "林"}, {"id": "amy", "instructions": "说话简短 be brief"}]
BOTH_FORMS = pytest.mark.parametrize("headers", [{}, EVENTS], ids=["json", "events"])


@pytest.fixture(scope="module")
def model() -> Model:
    """What the server asks."""
    return Model()


@pytest.fixture(scope="module")
def there(model: Model) -> Iterator[OpenAIServer]:
    """Where the model is; it draws no facts, so that every request but these is a chat."""
    with running_openai_server(model, formatted={"facts": [], "entities": []}) as running:
        yield running


@pytest.fixture(scope="module")
def server(there: OpenAIServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a model and both credentials."""
    data_dir = tmp_path_factory.mktemp("chat") / "data"
    given = {"llm_base_url": there.base_url, "llm_api_key": "any", "chat_recall": "call"}
    with running_server(data_dir, api_key=KEY, jwt_secret=SECRET, **given) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[httpx.Client]:
    """An operator of the server."""
    with keyed(server) as connected:
        yield connected


def turn(user: str, message: str, /, **more: Any) -> dict[str, Any]:
    """The body of a turn that is right."""
    return {"user_id": user, "session_id": "s", "message": message, **more}


def group_turn(user: str, message: str, /, **more: Any) -> dict[str, Any]:
    """The body of a turn of a group that is right."""
    return {"user_id": user, "message": message, "members": MEMBERS, **more}


def replied(client: httpx.Client, path: str, body: dict[str, Any]) -> Any:
    """The answer to a turn that must succeed."""
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def happened(client: httpx.Client, path: str, body: dict[str, Any]) -> list[Any]:
    """The events of a turn, of which each is named as its type."""
    with client.stream("POST", path, json=body, headers=EVENTS) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        assert answer.headers["cache-control"] == "no-store"
        told = list(events(answer.iter_lines()))
    assert [name for name, _ in told] == [it["type"] for _, it in told]
    return [it for _, it in told]


def talk(client: httpx.Client, user: str, **asked: Any) -> list[tuple[str, str]]:
    """What was said, in its order."""
    items = read(client, user, **asked)["items"]
    return [(it["role"], it["content"]) for it in reversed(items)]


# One user and a model


@BOTH
def test_a_reply_comes_with_what_was_recalled_for_it(
    client: httpx.Client, model: Model, user: str, note: str, message: str, reply: str
) -> None:
    """The model is told instructions and the recall, and both sides are stored."""
    name = note_of(client, user, note)
    model.says(reply)
    found = replied(client, CHAT, turn(user, message, instructions="你是厨师 a cook"))
    assert (found["text"], found["tool_calls"], found["leaks"]) == (reply, [], 0)
    assert name in {it["id"] for it in found["recall"]}
    assert talk(client, user)[-2:] == [("user", message), ("assistant", reply)]
    stored = read(client, user)["items"][0]
    assert (stored["message_id"], stored["session_id"]) == (found["message_id"], "s")


@ONE
def test_events_tell_the_recall_the_pieces_and_the_end(
    client: httpx.Client,
    there: OpenAIServer,
    model: Model,
    user: str,
    note: str,
    message: str,
    reply: str,
) -> None:
    """Together the pieces are the reply, and the model was shown what was recalled."""
    owner = f"events_{user}"
    name = note_of(client, owner, note)
    model.says(Streamed(reply, piece=3))
    first, *pieces, last = happened(client, CHAT, turn(owner, message))
    assert (first["type"], first["query"]) == ("recall", message)
    assert name in {it["id"] for it in first["events"]}
    assert {it["type"] for it in pieces} == {"text"} and len(pieces) > 1
    assert "".join(it["delta"] for it in pieces) == reply
    assert (last["type"], last["text"], last["leaks"]) == ("done", reply, 0)
    assert read(client, owner)["items"][0]["message_id"] == last["message_id"]
    asked = [it for it in there.requests if it.get("stream")][-1]
    assert name in asked["messages"][-1]["content"] and asked["tools"]


@ONE
def test_a_tool_that_the_model_calls_is_told(
    client: httpx.Client, model: Model, user: str, note: str, message: str, reply: str
) -> None:
    """As an event for the call and one for its result, and as one entry of a whole reply."""
    owner = f"tools_{user}"
    name = note_of(client, owner, note)
    model.says(calling("recall_memory", query=note), reply)
    told = happened(client, CHAT, turn(owner, message))
    call, result = (
        next(it for it in told if it["type"] == kind) for kind in ("tool_call", "tool_result")
    )
    assert (call["name"], json.loads(call["arguments"])) == ("recall_memory", {"query": note})
    assert call["call_id"] == result["call_id"]
    assert name in {it["id"] for it in json.loads(result["result"])["events"]}
    model.says(calling("recall_memory", query=note), reply)
    (used,) = replied(client, CHAT, turn(owner, message))["tool_calls"]
    assert (used["name"], json.loads(used["arguments"])) == ("recall_memory", {"query": note})
    assert name in used["result"]


@ONE
def test_a_turn_with_an_id_can_be_repeated(
    client: httpx.Client, model: Model, user: str, note: str, message: str, reply: str
) -> None:
    """What the user said is stored once; an id that stands for something else is refused."""
    owner = f"twice_{user}"
    for _ in range(2):
        model.says(reply)
        replied(client, CHAT, turn(owner, message, message_id=f"m_{user}"))
    assert talk(client, owner).count(("user", message)) == 1
    for headers in ({}, EVENTS):
        other = turn(owner, note, message_id=f"m_{user}")
        assert refusal(client.post(CHAT, json=other, headers=headers)) == CONFLICT


# Groups


@ONE
def test_the_members_of_a_group_reply_in_their_order(
    client: httpx.Client, model: Model, user: str, note: str, message: str, reply: str
) -> None:
    """Each with what it remembers; one with nothing to say is silent."""
    name = note_of(client, user, note, agent_id="lin")
    model.says(reply, "[silent]")
    body = group_turn(user, message, mentions=["lin"])
    lin, amy = replied(client, GROUP.format(f"g_{user}"), body)["replies"]
    assert (lin["member_id"], lin["text"]) == ("lin", reply)
    assert name in {it["id"] for it in lin["recall"]}
    assert (amy["member_id"], amy["text"], amy["message_id"]) == ("amy", "", "")
    assert name not in {it["id"] for it in amy["recall"]}


@ONE
def test_events_of_a_group_name_their_member(
    client: httpx.Client, model: Model, user: str, note: str, message: str, reply: str
) -> None:
    """Each member ends with an event of its own, and the round with one of nobody."""
    model.says(reply, Streamed(reply, breaks_after=1))
    told = happened(client, GROUP.format(f"e_{user}"), group_turn(user, message))
    assert [it.get("member_id") for it in told if it["type"] == "recall"] == ["lin", "amy"]
    ends = [(it["type"], it.get("member_id")) for it in told if it["type"] in ("done", "error")]
    assert ends == [("done", "lin"), ("error", "amy"), ("done", None)]
    assert told[-1]["type"] == "done"
    whole = "".join(
        it["delta"] for it in told if (it["type"], it.get("member_id")) == ("text", "lin")
    )
    assert whole == reply
    model.says(reply, Streamed(reply, breaks_after=1))
    answer = replied(client, GROUP.format(f"e_{user}"), group_turn(user, message))
    assert [it.get("error", {}).get("code") for it in answer["replies"]] == [None, "UNAVAILABLE"]


# Leaks


@ONE
@pytest.mark.parametrize("piece", [1, 1000])
def test_a_call_in_the_text_never_reaches_the_client(
    client: httpx.Client,
    model: Model,
    user: str,
    note: str,
    message: str,
    reply: str,
    piece: int,
) -> None:
    """It is run as a call instead, counted, and in no stored message."""
    owner = f"leak_{user}_{piece}"
    names = {note_of(client, owner, note), note_of(client, owner, note, agent_id="lin")}
    count = 'kemem_leaks_total{form="dsml",outcome="run"}'
    before = metrics(client).get(count, 0)
    for path, body in (
        (CHAT, turn(owner, message)),
        (GROUP.format("leaks"), group_turn(owner, message, members=MEMBERS[:1])),
    ):
        for headers in ({}, EVENTS):
            model.says(Streamed(leaked(note), piece=piece), Streamed(reply, piece=piece))
            answer = client.post(path, json=body, headers=headers)
            assert answer.status_code == 200, answer.text
            assert "DSML" not in answer.text and "invoke" not in answer.text
            assert any(name in answer.text for name in names) and '"leaks":1' in answer.text
    assert metrics(client)[count] == before + 4
    assert {text for role, text in talk(client, owner) if role == "assistant"} == {reply}


async def test_leaks_are_a_metric_before_the_first(tmp_path: Path) -> None:
    """Whoever watches them sees that they are counted."""
    async with AsyncMemory(data_dir=tmp_path) as memory:
        transport = httpx.ASGITransport(create_app(memory))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            text = (await client.get("/metrics")).text
    assert "# TYPE kemem_leaks_total counter" in text
    assert "kemem_leaks_total{" not in text


# Faults


@ONE
def test_a_reply_that_breaks_off_ends_in_an_error(
    client: httpx.Client, model: Model, user: str, note: str, message: str, reply: str
) -> None:
    """What came of it is told and stored as a part, in both forms; the next turn works."""
    owner = f"broken_{user}"
    model.says(Streamed(reply, piece=4, breaks_after=2))
    *_, last = happened(client, CHAT, turn(owner, message))
    model.says(Streamed(reply, piece=4, breaks_after=2))
    answer = client.post(CHAT, json=turn(owner, message))
    assert answer.status_code == 200, "there is text to show"
    part, told = last["error"]["details"], answer.json()
    assert told["text"] == part["text"] == reply[:8]
    assert told["error"]["code"] == last["error"]["code"] == "UNAVAILABLE"
    model.says(reply)
    assert replied(client, CHAT, turn(owner, message))["text"] == reply
    partial = [it for it in read(client, owner)["items"] if it["metadata"].get("partial")]
    assert {it["message_id"] for it in partial} == {part["message_id"], told["message_id"]}
    said_so = [("user", message), ("assistant", reply[:8])]
    assert talk(client, owner) == [*said_so, *said_so, ("user", message), ("assistant", reply)]


@ONE
def test_who_hangs_up_ends_the_turn(
    client: httpx.Client,
    there: OpenAIServer,
    model: Model,
    user: str,
    note: str,
    message: str,
    reply: str,
) -> None:
    """A piece arrives while the model pauses; then the model is let go, and the part is stored."""
    owner = f"gone_{user}"
    model.says(Streamed(reply, piece=3, pause=60))
    there.hung_up.clear()
    with client.stream("POST", CHAT, json=turn(owner, message), headers=EVENTS) as answer:
        coming = events(answer.iter_lines())
        assert [next(coming)[0] for _ in range(2)] == ["recall", "text"]
    wait_for(lambda: len(read(client, owner)["items"]) == 2)
    assert talk(client, owner) == [("user", message), ("assistant", reply[:3])]
    assert read(client, owner)["items"][0]["metadata"] == {"partial": True}
    wait_for(there.hung_up.is_set)


@ONE
def test_half_characters_of_a_model_break_no_answer(
    client: httpx.Client, model: Model, user: str, note: str, message: str, reply: str
) -> None:
    """They are no text and cannot be stored, which is an error like any other."""
    owner = f"half_{user}"
    model.says(f"{reply}\ud800")
    *_, last = happened(client, CHAT, turn(owner, message))
    assert (last["type"], last["error"]["code"]) == ("error", "INVALID_ARGUMENT")
    assert talk(client, owner) == [("user", message)]


@ONE
async def test_without_a_model_nobody_is_talked_to(
    tmp_path: Path, user: str, note: str, message: str, reply: str
) -> None:
    """The answer says what to set, in both forms; nothing is stored."""
    settings = Settings(data_dir=tmp_path, embedder="none", llm="none")
    async with AsyncMemory(settings=settings) as memory:
        transport = httpx.ASGITransport(create_app(memory))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for path, body in (
                (CHAT, turn(user, message)),
                (CHAT, {"mesage": message}),  # said before the fields are looked at
                (GROUP.format("g"), group_turn(user, message)),
            ):
                for headers in ({}, EVENTS):
                    answer = await client.post(path, json=body, headers=headers)
                    assert refusal(answer) == (501, "UNAVAILABLE")
                    assert "KEMEM_LLM_BASE_URL" in answer.json()["error"]["message"]
        assert (await memory.health()).messages == 0


def test_a_server_stops_in_time_while_somebody_talks(tmp_path: Path) -> None:
    """An open stream does not hold it up, and its part is stored."""
    with running_openai_server([Streamed("你好 hello", piece=2, pause=60)]) as there:
        given = {"llm_base_url": there.base_url, "llm_api_key": "any", "chat_recall": "call"}
        with running_server(tmp_path / "data", **given) as stopping, stopping.client() as client:
            body = turn("u", "你好 hello")
            with client.stream("POST", CHAT, json=body, headers=EVENTS) as answer:
                coming = events(answer.iter_lines())
                assert [next(coming)[0] for _ in range(2)] == ["recall", "text"]
                stopping.process.send_signal(signal.SIGTERM)
                stopping.process.wait(timeout=8)
        assert "Traceback" not in stopping.log.read_text("utf-8")
    with Memory(settings=load(data_dir=tmp_path / "data", embedder="none")) as memory:
        stored = [it.content for it in memory.messages(user_id="u").items]
        assert stored == ["你好", "你好 hello"]


# What is refused


@BOTH_FORMS
@each(
    ("field", "wrong"),
    [
        ("message", {"message": None}),
        ("message", {"message": " \n"}),
        ("message", {"message": "\u200b"}),
        ("message", {"message": ["你好 hello"]}),
        ("user_id", {"user_id": ""}),
        ("session_id", {"session_id": None}),
        ("session_id", {"session_id": "长" * 256}),
        ("agent_id", {"agent_id": "a\nb"}),
        ("message_id", {"message_id": " m"}),
        ("instructions", {"instructions": 7}),
        ("sensitive", {"sensitive": "yes"}),
        ("颜色", {"颜色": "red"}),
    ],
)
def test_a_wrong_turn_is_refused_by_its_field(
    client: httpx.Client, field: str, wrong: dict[str, Any], headers: dict[str, str]
) -> None:
    """With its own status, also where events were asked for; nothing is stored."""
    body = turn("wrong", "你好 hello", **wrong)
    answer = client.post(CHAT, json=body, headers=headers)
    assert refusal(answer) == INVALID
    assert answer.json()["error"]["details"]["field"].endswith(field)
    assert read(client, "wrong")["items"] == []


@BOTH_FORMS
@each(
    ("field", "wrong"),
    [
        ("message", {"message": ""}),
        ("user_id", {"user_id": 7}),
        ("members", {"members": None}),
        ("members", {"members": []}),
        ("members", {"members": [{"id": f"m{n}"} for n in range(21)]}),
        ("members", {"members": [{"id": "lin"}, {"id": "amy"}, {"id": "lin"}]}),
        ("members.id", {"members": [{"id": ""}]}),
        ("members[0].id", {"members": [{"name": "林"}]}),
        ("members[0].颜色", {"members": [{"id": "lin", "颜色": "red"}]}),
        ("members[0].name", {"members": [{"id": "lin", "name": 7}]}),
        ("mentions", {"mentions": ["长" * 256]}),
        ("mentions", {"mentions": "lin"}),
        ("session_id", {"session_id": "s"}),
    ],
)
def test_a_wrong_turn_of_a_group_is_refused_by_its_field(
    client: httpx.Client, field: str, wrong: dict[str, Any], headers: dict[str, str]
) -> None:
    """The same holds for who is in it, and for who is mentioned."""
    body = group_turn("wrong_group", "你好 hello", **wrong)
    answer = client.post(GROUP.format("g"), json=body, headers=headers)
    assert refusal(answer) == INVALID
    assert answer.json()["error"]["details"]["field"] == field
    assert read(client, "wrong_group")["items"] == []


# Who may talk


@ONE
@BOTH_FORMS
def test_a_token_talks_in_the_name_of_its_own_user_only(
    server: Server,
    client: httpx.Client,
    model: Model,
    user: str,
    note: str,
    message: str,
    reply: str,
    headers: dict[str, str],
) -> None:
    """Another user does not exist for it, and no memory of another is recalled."""
    own, other = f"own_{user}", f"other_{user}"
    note_of(client, own, note)
    post(client, other, said(f"{note} 秘密 secret", f"m_{other}"))
    with server.client(token(own)) as alone:
        for path, whose in ((CHAT, turn), (GROUP.format("g"), group_turn)):
            model.says(reply, reply)
            answer = alone.post(path, json=whose(own, message), headers=headers)
            assert answer.status_code == 200 and reply in answer.text
            assert "秘密 secret" not in answer.text
            refused = alone.post(path, json=whose(other, message), headers=headers)
            assert refusal(refused) == MISSING
            model.says(reply, reply)
            unnamed = whose(own, message)
            del unnamed["user_id"]  # its own user is meant
            answer = alone.post(path, json=unnamed, headers=headers)
            assert answer.status_code == 200 and "秘密 secret" not in answer.text
    assert talk(client, other) == [("user", f"{note} 秘密 secret")]


@ONE
def test_what_is_sensitive_is_recalled_only_where_that_is_granted(
    server: Server,
    client: httpx.Client,
    model: Model,
    user: str,
    note: str,
    message: str,
    reply: str,
) -> None:
    """The key may ask for it, a token only with the claim; who does not ask is not shown it."""
    owner = f"private_{user}"
    name = note_of(client, owner, note, sensitive=True)
    member = note_of(client, owner, note, sensitive=True, agent_id="lin")
    alone_with_lin = partial(group_turn, members=MEMBERS[:1])
    whose: list[tuple[str, Callable[..., dict[str, Any]], str]]
    whose = [(CHAT, turn, name), (GROUP.format("private"), alone_with_lin, member)]
    with (
        server.client(token(owner)) as alone,
        server.client(token(owner, sensitive=True)) as trusted,
    ):
        for path, body, key in whose:
            for asking in (client, trusted):
                for granted in (False, True):
                    model.says(reply)
                    answer = asking.post(path, json=body(owner, message, sensitive=granted))
                    assert (key in answer.text) == granted
            refused = alone.post(path, json=body(owner, message, sensitive=True))
            assert refusal(refused) == FORBIDDEN
            assert '"sensitive": true' in refused.json()["error"]["message"]


# What is described and logged


def test_the_description_names_what_a_chat_answers(client: httpx.Client) -> None:
    """Both forms of the answer, and no field too many or too few."""
    described = client.get("/openapi.json").json()
    for path, name in ((CHAT, "ChatReply"), (GROUP.format("{group_id}"), "GroupReplies")):
        content = described["paths"][path]["post"]["responses"]["200"]["content"]
        assert content.keys() == {"application/json", "text/event-stream"}
        assert content["application/json"]["schema"] == {"$ref": f"#/components/schemas/{name}"}
    required = {
        CHAT: ["message", "session_id"],
        GROUP.format("{group_id}"): ["message", "members"],
    }
    schemas = described["components"]["schemas"]
    for path, names in required.items():
        body = described["paths"][path]["post"]["requestBody"]["content"]["application/json"]
        schema = schemas[body["schema"]["$ref"].rpartition("/")[2]]
        assert sorted(schema["required"]) == sorted(names)
    member = schemas[schema["properties"]["members"]["items"]["$ref"].rpartition("/")[2]]
    assert member["required"] == ["id"]


@ONE
def test_a_reply_has_the_fields_that_are_described(
    client: httpx.Client, model: Model, user: str, note: str, message: str, reply: str
) -> None:
    """In a chat and in a group."""
    owner = f"fields_{user}"
    for agent in ("default", "lin"):
        note_of(client, owner, note, agent_id=agent)
    model.says(calling("recall_memory", query=note), reply)
    found = replied(client, CHAT, turn(owner, message))
    assert found.keys() | {"error"} == ChatReply.__annotations__.keys()
    assert found["tool_calls"][0].keys() == UsedTool.__annotations__.keys()
    assert found["recall"][0].keys() | {"said_by"} == RecalledMemory.__annotations__.keys()
    model.says(reply, reply)
    first, _ = replied(client, GROUP.format("fields"), group_turn(owner, message))["replies"]
    assert first.keys() | {"error"} == MemberReply.__annotations__.keys()


@pytest.mark.parametrize("text", ["好的，清汤", "Fine, a mild"])
def test_an_event_is_shown_as_it_is_and_an_error_as_a_failure(text: str) -> None:
    """Clients that know failures know this one; in a group it names its member."""
    plain: list[Event] = [
        RecallEvent(text, (), 0.1),
        TextEvent(text),
        ToolCallEvent("c_1", "recall_memory", "{}"),
        ToolResultEvent("c_1", "recall_memory", text),
        DoneEvent(text, "m_1"),
    ]
    assert [event_item(it) for it in plain] == [it.to_dict() for it in plain]
    part = {"text": text, "message_id": "m_1"}
    failed = {"code": "UNAVAILABLE", "message": "away", "details": part}
    error = ErrorEvent("UNAVAILABLE", "away", text, "m_1")
    assert event_item(error) == {"type": "error", "error": failed}
    named = ErrorEvent("UNAVAILABLE", "away", text, "m_1", member_id="lin")
    assert event_item(named) == {"type": "error", "member_id": "lin", "error": failed}


def test_the_log_does_not_tell_what_was_said(
    server: Server, client: httpx.Client, model: Model
) -> None:
    """Neither the message nor the reply, nor the user; a leak is told without its text."""
    for headers in ({}, EVENTS):
        model.says(f"绝密zebra{leaked('火锅 hotpot')}", "绝密zebra")
        body = turn("log_user", "绝密zebra")
        assert client.post(CHAT, json=body, headers=headers).is_success
    log = server.log.read_text("utf-8")
    assert '"route": "/v1/chat"' in log and "a tool call leaked" in log
    assert not any(word in log for word in ("绝密", "zebra", "log_user", "Traceback"))
