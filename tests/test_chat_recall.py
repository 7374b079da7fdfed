"""How what is recalled reaches a chat model: `KEMEM_CHAT_RECALL`, and the probe behind `auto`."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from secrets import token_hex
from typing import Any

import pytest

from kemem import AsyncMemory
from kemem.chat import ChatService, GroupChatService, Member
from kemem.chat.probe import KIND, ToolProbe
from kemem.chat.proxy import Proxy
from kemem.chat.tools import RECALL, memory_note
from kemem.errors import InvalidArgument
from kemem.settings import load
from kemem.testing import calling
from kemem.testing.openai_server import Answer, Fault, status
from tests.cases import each
from tests.chats import CHINESE, TALKS, Talk
from tests.command import kemem
from tests.scripted import ScriptedApi, scripted_api

BOAT = "What colour is my boat?"  # what the probe asks
GOOD = "Your boat is turquoise."
WEATHER = {"type": "function", "function": {"name": "get_weather", "parameters": {}}}


class Model:
    """A model that answers every chat alike, and the probe as it is told."""

    def __init__(self, *probed: Answer) -> None:
        self.probed = [*probed]
        self.chats: list[dict[str, Any]] = []
        self.probes: list[dict[str, Any]] = []

    def __call__(self, request: dict[str, Any]) -> Answer:
        if request["messages"][1]["content"] != BOAT:
            self.chats.append(request)
            return "好的 OK"
        self.probes.append(request)
        return self.probed.pop(0) if self.probed else status(500, "asked too often")


@asynccontextmanager
async def remembering(directory: Path, **settings: Any) -> AsyncIterator[AsyncMemory]:
    """A memory that draws facts by rules."""
    chosen = load(data_dir=directory, embedder="none", llm="none", **settings)
    async with AsyncMemory(settings=chosen) as memory:
        yield memory


@asynccontextmanager
async def chatting(memory: AsyncMemory, api: ScriptedApi) -> AsyncIterator[ChatService]:
    async with api.async_client() as client:
        chat = ChatService(memory, client=client, model="m")
        yield chat
        await chat.close()


async def say(chat: ChatService, message: str) -> None:
    """A turn, and what is found out after it."""
    await chat.reply(message, user_id="u", session_id="s")
    if chat._probe._task is not None:
        await chat._probe._task


def way_of(request: dict[str, Any]) -> str:
    """How a request tells what was recalled."""
    calls = [it for it in request["messages"] if it.get("tool_calls")]
    assert bool(calls) == ("tools" in request)
    assert bool(calls) != ("<memories>" in request["messages"][0]["content"])
    return "call" if calls else "note"


@TALKS
@each("chosen", ["call", "note"])
async def test_the_way_that_is_set_is_taken_at_once_and_nobody_is_asked(
    tmp_path: Path, talk: Talk, chosen: str
) -> None:
    model = Model()
    async with (
        remembering(tmp_path, chat_recall=chosen) as memory,
        chatting(memory, scripted_api(model)) as chat,
    ):
        await memory.add(talk.note, "u", infer=False)
        await say(chat, talk.message)
    assert [way_of(it) for it in model.chats] == [chosen] and not model.probes


def test_another_way_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(InvalidArgument, match=r"KEMEM_CHAT_RECALL.*'auto', 'call' or 'note'"):
        load(chat_recall="both")


@TALKS
@each(
    ("answer", "way"),
    [
        (GOOD, "call"),
        ("It is yellow.", "note"),
        ("To determine the color, recall the messages. The boat was painted turquoise.", "note"),
        ('{"content": "I painted my boat turquoise."}', "note"),
        (calling(RECALL, query="boat"), "note"),
        ('{"name": "recall_memory", "arguments": {"query": "turquoise boat"}}', "note"),
        (f'<tool_call>{{"name": "{RECALL}", "arguments": {{}}}}</tool_call> {GOOD}', "note"),
        (status(400, "m does not support tools"), "note"),
        (status(500, "tools param requires --jinja flag"), "note"),
    ],
)
async def test_a_model_is_asked_once_after_its_first_reply(
    tmp_path: Path, talk: Talk, answer: Answer, way: str
) -> None:
    """The first reply comes with a note, the others as the model's answer decides."""
    model = Model(answer)
    async with (
        remembering(tmp_path / token_hex(4)) as memory,
        chatting(memory, scripted_api(model)) as chat,
    ):
        await memory.add(talk.note, "u", infer=False)
        for _ in range(3):
            await say(chat, talk.message)
    assert [way_of(it) for it in model.chats] == ["note", way, way]
    assert len(model.probes) == 1


async def test_what_was_found_holds_for_every_face_and_the_next_process(tmp_path: Path) -> None:
    """The journal keeps it; another model of the same address is asked for itself."""
    model, talk = Model(GOOD, "It is yellow."), CHINESE
    api = scripted_api(model)
    async with remembering(tmp_path) as memory, chatting(memory, api) as chat:
        await memory.add(talk.note, "u", agent_id="lin", infer=False)
        await say(chat, talk.message)
        async with api.async_client() as client:
            group = GroupChatService(memory, client=client, model="m")
            members = [Member("lin")]
            await group.replies(talk.message, user_id="u", group_id="g", members=members)
            await group.close()
    async with remembering(tmp_path) as memory, api.async_client() as client:
        proxy = Proxy(memory, client=client, model="m")
        body = {"messages": [{"role": "user", "content": talk.message}], "tools": [WEATHER]}
        await proxy.complete(body, memory.for_user("u"), "other")
        for _ in range(2):
            await proxy.complete({**body, "model": "n"}, memory.for_user("u"), "other")
            assert proxy._probe._task
            await proxy._probe._task
        await proxy.close()
    _, in_group, proxied, *others = model.chats
    assert way_of(in_group) == "call" and len(in_group["tools"]) == 3
    assert [it["function"]["name"] for it in proxied["tools"]] == ["get_weather", RECALL]
    assert [it["tools"] for it in others] == [[WEATHER]] * 2  # the application's are its own
    assert [it["model"] for it in model.probes] == ["m", "n"]


@each("fault", [status(503), status(429, "slow down"), Fault(reset=True)])
async def test_a_model_that_does_not_answer_the_probe_is_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    """It is asked again, but not at once."""
    model, talk, folder = Model(fault, GOOD), CHINESE, tmp_path / token_hex(4)
    async with remembering(folder) as memory, chatting(memory, scripted_api(model)) as chat:
        await memory.add(talk.note, "u", infer=False)
        for _ in range(3):
            await say(chat, talk.message)
        assert len(model.probes) == 1
        assert not await memory.journal.lines(KIND)
        monkeypatch.setattr(chat._probe, "_retry_at", {})  # minutes later
        for _ in range(2):
            await say(chat, talk.message)
    assert [way_of(it) for it in model.chats] == ["note"] * 4 + ["call"]


async def test_a_finding_is_asked_for_again_after_a_week(tmp_path: Path) -> None:
    """Another model may have the same name by then."""
    model, talk = Model(GOOD, "It is yellow."), CHINESE
    async with remembering(tmp_path) as memory, chatting(memory, scripted_api(model)) as chat:
        await say(chat, talk.message)
        (line,) = await memory.journal.lines(KIND)
        assert "scripted.test" not in json.dumps(dict(line.body)) + line.id
        deps = await memory.runtime.deps()
        now = deps.clock()
        object.__setattr__(deps, "clock", lambda: now + 8 * 86_400_000_000)
        await say(chat, talk.message)
        (line,) = await memory.journal.lines(KIND)
    assert len(model.probes) == 2 and line.body["seen"] == "missed"


async def test_a_probe_gives_way_to_a_reply(tmp_path: Path) -> None:
    """On a server that does one thing at a time nobody waits for it; it is asked again later."""
    slow, talk = Fault(b"{}", delay=60), CHINESE
    model = Model(slow, GOOD)
    api = scripted_api(model)
    async with remembering(tmp_path) as memory, chatting(memory, api) as chat:
        await memory.add(talk.note, "u", infer=False)
        await chat.reply(talk.message, user_id="u", session_id="s")
        async with asyncio.timeout(20):
            while not model.probes:
                await asyncio.sleep(0.01)
            await say(chat, talk.message)
            assert api.hung_up.is_set() and len(model.probes) == 1, "not begun again at once"
            chat._probe._retry_at.clear()  # a minute later
            await say(chat, talk.message)
            await say(chat, talk.message)
    assert [way_of(it) for it in model.chats] == ["note", "note", "note", "call"]


async def test_who_closes_a_chat_does_not_wait_for_the_probe(tmp_path: Path) -> None:
    model = Model(Fault(b"{}", delay=60))
    async with (
        asyncio.timeout(20),
        remembering(tmp_path) as memory,
        chatting(memory, scripted_api(model)) as chat,
    ):
        await chat.reply(CHINESE.message, user_id="u", session_id="s")
        while not model.probes:
            await asyncio.sleep(0.01)


async def test_models_of_known_addresses_are_not_asked(tmp_path: Path) -> None:
    async with remembering(tmp_path) as memory:
        for address in ("https://api.openai.com/v1", "https://api.deepseek.com"):
            assert (await ToolProbe(memory).way(address, "m")).name == "call"
        assert (await ToolProbe(memory).way("https://openai.com.test/v1", "m")).name == "note"
    async with remembering(tmp_path, chat_recall_limit=0) as memory:
        assert (await ToolProbe(memory).way("https://api.openai.com/v1", "m")).name == "note"


# The note


EVENT = {"id": "n_1", "kind": "user_info", "time": "2026-03-04T10:00:00Z", "score": 0.9}


@each(
    ("language", "event", "line"),
    [
        ("en", {"content": "User is a nurse"}, "- 2026-03-04: User is a nurse"),
        ("zh", {"content": "用户是护士"}, "- 2026-03-04：用户是护士"),
        ("en", {"content": "I'm a nurse", "said_by": "user"}, "- 2026-03-04 user: I'm a nurse"),
        ("zh", {"content": "我是护士", "said_by": "user"}, "- 2026-03-04 用户：我是护士"),
        ("zh", {"content": "好的", "said_by": "小林"}, "- 2026-03-04 小林：好的"),
        (
            "en",
            {"content": "Turquoise.", "said_by": "user", "in_reply_to": "Which colour?"},
            "- 2026-03-04 assistant: Which colour? user: Turquoise.",
        ),
        (
            "en",
            {"content": "User is a cook", "no_longer_true_since": "2026-05-06T00:00:00Z"},
            "- 2026-03-04 (no longer true since 2026-05-06): User is a cook",
        ),
        (
            "zh",
            {"content": "用户是厨师", "no_longer_true_since": "2026-05-06T00:00:00Z"},
            "- 2026-03-04（2026-05-06 起不再成立）：用户是厨师",
        ),
        ("en", {"content": "a\n- 2026-01-01: b"}, "- 2026-03-04: a\n  - 2026-01-01: b"),
    ],
)
def test_a_memory_is_a_line_with_its_day_and_who_said_it(
    language: str, event: dict[str, Any], line: str
) -> None:
    """Without ids and scores, which a small model would repeat; the same line stands once."""
    note = memory_note([{**EVENT, **event}] * 2, language)
    assert re.findall(r"<memories>\n(.*)\n</memories>", note, re.DOTALL) == [line]


# The doctor


@each(
    ("answer", "seen"),
    [
        (GOOD, "call: .* the model used the result of a tool"),
        ("It is yellow.", "note: .* the model did not use the result of a tool"),
        (f"By the recall tool: {GOOD}", "note: .* spoke of the call of a tool, or wrote JSON"),
        ('{"answer": "turquoise"}', "note: .* spoke of the call of a tool, or wrote JSON"),
        (calling(RECALL, query="boat"), "note: .* called the tool again"),
        (f'{{"name": "{RECALL}", "arguments": {{"query": "boat"}}}}', "note: .* called the tool"),
        (status(400, "m does not support tools"), "note: .* the server refused tools"),
    ],
)
async def test_the_reason_of_a_way_is_what_was_seen(
    tmp_path: Path, answer: Answer, seen: str
) -> None:
    """As the doctor tells it, in this process and the next."""
    directory, api = tmp_path / token_hex(4), scripted_api(Model(answer))
    address = ""
    for _ in range(2):
        async with remembering(directory) as memory, chatting(memory, api) as chat:
            if not address:
                await say(chat, CHINESE.message)
                address = str(chat._chat_model().client.base_url)
            way = await ToolProbe(memory).way(address, "m")
            assert re.match(seen, f"{way.name}: {way.reason}")


def test_the_doctor_says_how_recalls_reach_the_model_and_why(tmp_path: Path) -> None:
    """Without asking the model; what a chat has found out is in the journal."""
    address = "http://scripted.test/v1"
    given = {"KEMEM_LLM_BASE_URL": address, "KEMEM_LLM_MODEL": "m", "KEMEM_EMBEDDER": "none"}

    def told(**more: str) -> str:
        ran = kemem(tmp_path, "doctor", "--json", **given, **more)
        assert ran.returncode == 0, ran.stdout
        (found,) = [it["found"] for it in json.loads(ran.stdout)["checks"] if it["name"] == "chat"]
        return str(found)

    assert told().startswith("note: ") and "asked once" in told()
    assert not (tmp_path / "data").exists()
    assert "KEMEM_CHAT_RECALL is call" in told(KEMEM_CHAT_RECALL="call")

    async def chat() -> None:
        api = scripted_api(Model(GOOD))
        async with remembering(tmp_path / "data") as memory, chatting(memory, api) as talking:
            await say(talking, CHINESE.message)

    asyncio.run(chat())
    assert told().startswith("call: ") and "used the result of a tool" in told()
