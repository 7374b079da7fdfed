"""A chat to test: something to say in each language, a scripted model, and what came of it."""

import json
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kemem import AsyncMemory
from kemem.chat import ChatService, Event, LeakCounts
from kemem.records import Message
from kemem.settings import load
from kemem.testing.openai_server import MODEL, STRICT, Answer, status
from tests.scripted import ScriptedApi, scripted_api

SAID = [
    ("zh", "用户不吃辣，火锅要清汤", "火锅要清汤吗？", "好的，点清汤锅底。"),
    ("en", "User orders the mild hotpot", "Which hotpot does the user order?", "The mild one."),
]
BOTH = pytest.mark.parametrize(("user", "note", "message", "reply"), SAID, ids=["zh", "en"])
ONE = pytest.mark.parametrize(("user", "note", "message", "reply"), SAID[:1], ids=["zh"])
PATIENCE = 20.0  # seconds until a test gives up


@dataclass(frozen=True, slots=True)
class Talk:
    """A turn in one language; its message and its query both find the note."""

    language: str
    note: str
    message: str
    reply: str
    query: str


CHINESE, ENGLISH = Talk(*SAID[0], query="火锅 清汤"), Talk(*SAID[1], query="mild hotpot")
# Both languages where code depends on the language, else one of them.
TALKS = pytest.mark.parametrize("talk", [CHINESE, ENGLISH], ids=["zh", "en"])
TALK = pytest.mark.parametrize("talk", [CHINESE], ids=["zh"])


class Model:
    """A chat model that says what the test at hand has written for it."""

    def __init__(self) -> None:
        self._answers: list[Answer | Callable[[dict[str, Any]], Answer]] = []
        self.asked: list[dict[str, Any]] = []  # since it was told what to say

    def says(self, *answers: Answer | Callable[[dict[str, Any]], Answer]) -> None:
        """What it answers next, one after the other; a function is given the request."""
        self._answers, self.asked = [*answers], []

    def __call__(self, request: dict[str, Any]) -> Answer:
        self.asked.append(request)
        answer = self._answers.pop(0) if self._answers else status(500, "nothing was written")
        return answer(request) if callable(answer) else answer


@dataclass(frozen=True, slots=True)
class Stage:
    """A memory without a model of its own, a chat on it, and the model that it talks to."""

    memory: AsyncMemory
    chat: ChatService
    model: Model
    api: ScriptedApi
    counts: LeakCounts

    async def turn(self, message: str, user: str, session: str = "s", **more: Any) -> list[Event]:
        """All that happens in a turn."""
        turn = self.chat.turn(message, user_id=user, session_id=session, **more)
        return [event async for event in turn]

    async def stored(self, user: str) -> list[Message]:
        """What is in a user's log, oldest first."""
        return list(reversed((await self.memory.messages(user)).items))

    async def said(self, user: str) -> list[tuple[str, str]]:
        """Who said what, oldest first."""
        return [(it.role, it.content) for it in await self.stored(user)]


@asynccontextmanager
async def staged(
    directory: Path, memory: AsyncMemory | None = None, **settings: Any
) -> AsyncIterator[Stage]:
    """A stage whose API is strict, and whose client asks once only."""
    model, counts = Model(), LeakCounts()
    given = {"embedder": "none", "llm": "none", "chat_recall": "call", **settings}
    chosen = load(data_dir=directory, **given)
    api = scripted_api(model, strict=STRICT)
    async with memory or AsyncMemory(settings=chosen) as opened, api.async_client() as client:
        chat = ChatService(opened, client=client, model=MODEL, counts=counts)
        yield Stage(opened, chat, model, api, counts)
        await chat.close()


def kinds(events: Iterable[Event]) -> list[str]:
    """The types of events; of texts in a row one."""
    names = [event.type for event in events]
    pairs = zip(names, [None, *names], strict=False)
    return [name for name, before in pairs if name != "text" or before != "text"]


def roles(request: dict[str, Any]) -> list[str]:
    """Who speaks in a request."""
    return [message["role"] for message in request["messages"]]


def results(request: dict[str, Any]) -> list[Any]:
    """What the tools answered in a request, from JSON."""
    told = [it["content"] for it in request["messages"] if it["role"] == "tool"]
    return [json.loads(it) for it in told]


def leaked(query: str) -> str:
    """A tool call as DeepSeek writes it when it should not."""
    return (
        '<｜DSML｜function_calls>\n<｜DSML｜invoke name="recall_memory">\n'
        f'<｜DSML｜parameter name="query" string="true">{query}</｜DSML｜parameter>\n'
        "</｜DSML｜invoke>\n</｜DSML｜function_calls>"
    )
