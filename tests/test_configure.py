"""Agents, users and sessions are named, typed, configured and disabled."""

import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kemem import AsyncMemory, InvalidArgument, Memory, NotFound, PermissionDenied
from kemem.chat import ChatService
from kemem.compat.keyed import KeyedNotes
from kemem.settings import Settings, load
from kemem.testing import FakeClock, HashingEmbedder
from tests.cases import each
from tests.command import kemem
from tests.server import local_server

NOW = 1_767_225_600_000_000  # 2026-01-01T00:00:00Z

LEVELS = {"agent": "助手 a", "user": "小明 u", "session": "会话 s"}
EACH = pytest.mark.parametrize("level", LEVELS)
IDS: dict[str, Any] = {
    "user_id": LEVELS["user"],
    "agent_id": LEVELS["agent"],
    "session_id": LEVELS["session"],
}
OWNER: dict[str, Any] = {"user_id": IDS["user_id"], "agent_id": IDS["agent_id"]}
SAID = {"zh": ("我不吃辣", "辣"), "en": ("I love jazz", "jazz")}


@pytest.fixture
def either(either_settings: Settings) -> Iterator[Memory]:
    """On both databases."""
    with Memory(
        settings=either_settings, clock=FakeClock(NOW), embedder=HashingEmbedder()
    ) as opened:
        tell(opened)
        yield opened


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    settings = load(data_dir=tmp_path, embedder="none", llm="none")
    with Memory(settings=settings) as opened:
        tell(opened)
        yield opened


def tell(memory: Memory) -> None:
    for text, _ in SAID.values():
        memory.add(text, **IDS)


def entry(memory: Memory, level: str) -> Any:
    lists: dict[str, Callable[[], Any]] = {
        "agent": memory.agents,
        "user": memory.users,
        "session": lambda: memory.sessions(**OWNER),
    }
    (found,) = [it for it in lists[level]().items if it.id == LEVELS[level]]
    return found


def change(memory: Memory, level: Any, **given: Any) -> Any:
    owner = OWNER if level == "session" else {}
    return memory.configure(level, LEVELS[level], **owner, **given)


@EACH
def test_what_is_configured_is_listed(either: Memory, level: str) -> None:
    """What is not given stays; an empty text or object takes away."""
    plain = entry(either, level)
    assert (plain.type, plain.config, plain.disabled) == (None, {}, False)
    made = change(either, level, name="小美 May", type="vip", config={"模型": {"t": 0.5}})
    assert (made.name, made.type, made.config) == ("小美 May", "vip", {"模型": {"t": 0.5}})
    assert made == entry(either, level)
    assert change(either, level, type="") == entry(either, level)
    bare = change(either, level, name="", config={})
    assert (bare.name, bare.type, bare.config) == (plain.name, None, {})
    assert bare.to_dict().keys() >= {"name", "type", "config", "disabled", "active"}


@EACH
def test_who_is_disabled_adds_nothing_and_is_not_served(either: Memory, level: str) -> None:
    """The error says who; lists and deleting go on, and enabled again everything is back."""
    (_, word), (_, other) = SAID.values()
    found = [hit.id for hit in either.search(word, **IDS)]
    card = either.profile(**OWNER)
    assert found and card.groups
    assert change(either, level, disabled=True).disabled
    calls: list[Callable[[], object]] = [
        lambda: either.add("新的 new", **IDS),
        lambda: either.add("新的 new", **IDS, infer=False),
        lambda: either.ingest("新的 new", **IDS),
        lambda: either.search(word, **IDS),
        lambda: either.context(**IDS),
        lambda: either.extract(**IDS),
        lambda: either.summarize(**IDS),
        lambda: either.checkpoint(**IDS),
        lambda: either.restore_checkpoint(**IDS),
        lambda: either.end_session(**IDS),
    ]
    note = either.get_all(**IDS)[0].id
    if level != "session":
        calls += [
            lambda: either.hybrid_search(word, **OWNER),
            lambda: either.recall(word, **OWNER),
            lambda: either.profile(**OWNER),
            lambda: either.update(note, "改了 changed", **OWNER),
        ]
    if level == "agent":
        calls.append(lambda: either.learn("知识 knowledge", agent_id=IDS["agent_id"]))
    if level == "user":
        user = IDS["user_id"]
        calls += [
            lambda: either.lexical_search(word, user),
            lambda: either.semantic_search(word, user),
        ]
    for call in calls:
        with pytest.raises(PermissionDenied, match=f"{level} '{LEVELS[level]}' is disabled"):
            call()
    assert len(either.get_all(**IDS, kinds=["message"])) == 2
    assert either.messages(IDS["user_id"]).items and either.graph(**OWNER) is not None
    gone = next(it for it in either.get_all(**IDS) if other in it.memory)
    assert either.delete(gone.id, **OWNER).deleted == 1
    assert not change(either, level, disabled=False).disabled
    assert set(found) <= {hit.id for hit in either.search(word, **IDS)}
    assert either.add("回来了 back", **IDS, infer=False).message_ids


def test_others_are_not_concerned(either: Memory) -> None:
    """Of a user with two agents, what the disabled one has is left out of searches and the card."""
    either.add("我住在成都", IDS["user_id"], "other")
    either.add("I live in Rome", "another user", IDS["agent_id"])
    change(either, "agent", disabled=True)
    user = IDS["user_id"]
    assert {hit.row.agent_id for hit in either.search("成都 jazz 辣", user)} == {"other"}
    text = either.profile(user).text
    assert "成都" in text and "jazz" not in text
    change(either, "agent", disabled=False)
    assert "jazz" in either.profile(user).text
    change(either, "user", disabled=True)
    assert either.search("Rome", "another user")
    assert {hit.row.user_id for hit in either.search("Rome jazz 辣", agent_id=IDS["agent_id"])} == {
        "another user"
    }


def test_jobs_of_what_was_said_before_go_on(either: Memory) -> None:
    either.add("我养了一只猫叫咪咪", **IDS, wait=False)
    change(either, "user", disabled=True)
    either.run_jobs()
    assert any("咪咪" in item.memory for item in either.get_all(**IDS))
    assert either.health().failed_jobs == 0


@each(
    ("arguments", "error", "reason"),
    [
        (("robot", "x"), InvalidArgument, "level must be agent, user or session"),
        (("user", "没有 nobody"), NotFound, "no user '没有 nobody'"),
        (("session", "没有 none"), NotFound, "no session"),
        (("user", ""), InvalidArgument, "id must be 1-255 characters"),
    ],
)
def test_who_is_not_there_or_cannot_be_is_refused(
    memory: Memory, arguments: tuple[Any, str], error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        memory.configure(*arguments, name="x")


@each(
    ("given", "reason"),
    [
        ({}, "one of name, type, config, disabled is required"),
        ({"disabled": 1}, "disabled must be True or False, not 1"),
        ({"config": [1]}, "config must be an object"),
        ({"config": {"a": float("nan")}}, "config must be JSON"),
        ({"name": 5}, "name must"),
        ({"agent_id": "a", "name": "x"}, "only a session needs agent_id"),
    ],
)
def test_a_value_that_cannot_be_is_refused(
    memory: Memory, given: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidArgument, match=reason):
        memory.configure("user", IDS["user_id"], **given)


def test_a_handle_configures_nothing(memory: Memory) -> None:
    with pytest.raises(PermissionDenied, match="user-scoped handle"):
        memory.for_user(IDS["user_id"]).configure("user", IDS["user_id"], disabled=False)


def test_a_session_of_two_owners_needs_its_owner(memory: Memory) -> None:
    memory.add("你好", "another", IDS["agent_id"], IDS["session_id"])
    with pytest.raises(InvalidArgument, match="pass user_id and agent_id"):
        memory.configure("session", IDS["session_id"], name="x")


async def test_chats_and_keyed_notes_refuse_who_is_disabled(tmp_path: Path) -> None:
    """Before a model is asked."""
    settings = load(data_dir=tmp_path, embedder="none", llm_base_url="http://127.0.0.1:9/v1")
    async with AsyncMemory(settings=settings) as memory:
        await memory.add("你好 hello", "u")
        await memory.configure("user", "u", disabled=True)
        chat = ChatService(memory, run_jobs=False)
        keyed = KeyedNotes(memory.for_user("u"), await memory.runtime.deps())
        note = keyed.note(keyed.note_id("k"), "v", {}, None)
        calls: list[Callable[[], Awaitable[object]]] = [
            lambda: anext(chat.turn("hi", user_id="u", session_id="new")),
            lambda: keyed.write([note], stored={}),
        ]
        for call in calls:
            with pytest.raises(PermissionDenied, match="user 'u' is disabled"):
                await call()
        await chat.close()


def test_over_http_only_operators_configure(tmp_path: Path) -> None:
    """As Python has it, at an address for each level; what is unknown is refused."""
    with local_server(tmp_path) as server, server.client() as client:
        for text, _ in SAID.values():
            client.post("/v1/memories", json={"messages": text, **IDS}).raise_for_status()
        for level, name in LEVELS.items():
            owner = OWNER if level == "session" else {}
            where = f"/v1/{level}s/{name}"
            body = {"name": "小美 May", "config": {"a": 1}, "disabled": True, **owner}
            made = client.patch(where, json=body).json()
            assert (made["name"], made["config"], made["disabled"]) == ("小美 May", {"a": 1}, True)
            refused = client.post("/v1/memories", json={"messages": "x", **IDS})
            assert refused.status_code == 403
            assert refused.json()["error"]["message"] == f"{level} '{name}' is disabled"
            assert (
                client.post("/v1/memories/search", json={"query": "辣", **IDS}).status_code == 403
            )
            assert client.patch(where, json={"disabled": False, **owner}).json()["active"]
            assert client.patch(where, json=owner).status_code == 400
            assert client.patch(where, json={"colour": "red", **owner}).status_code == 400
        assert client.patch("/v1/users/nobody", json={"name": "x"}).status_code == 404
        listed = client.get("/v1/users").json()["items"]
        assert [(it["id"], it["name"]) for it in listed] == [(IDS["user_id"], "小美 May")]


def test_on_the_command_line(tmp_path: Path) -> None:
    with Memory(settings=load(data_dir=tmp_path / "data", embedder="none", llm="none")) as memory:
        tell(memory)
    ran = kemem(
        *(tmp_path, "configure", "user", IDS["user_id"], "--name", "小美 May", "--disable"),
        *("--config", '{"a": 1}', "--json"),
    )
    shown = json.loads(ran.stdout)
    assert (shown["name"], shown["disabled"], shown["config"]) == ("小美 May", True, {"a": 1})
    enabled = kemem(tmp_path, "configure", "user", IDS["user_id"], "--enable")
    assert IDS["user_id"] in enabled.stdout and "disabled" not in enabled.stdout
    wrong = kemem(tmp_path, "configure", "user", IDS["user_id"], "--config", "{")
    assert wrong.returncode == 2 and "--config must be a JSON object" in wrong.stderr
