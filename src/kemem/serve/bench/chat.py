"""Chats with a model: what was said in two sessions is asked in a third, by every way to ask."""

import json
import time
import tomllib
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from kemem.chat import ChatService, GroupChatService
from kemem.chat.probe import ToolProbe
from kemem.chat.proxy import Proxy
from kemem.memory import AsyncMemory
from kemem.records.times import to_micros
from kemem.serve import http
from kemem.serve.bench.model import JudgedModel, Row, share
from kemem.settings import Settings
from kemem.text.language import count_tokens

WAYS = ("JSON", "events", "group", "proxy")
_AGENT = "helper"  # who is told everything, and the member of the group
_HOUR = "T18:00:00Z"  # at which all is said
_TODAY = "2026-06-01"  # when it is asked
_EVENTS = {"Accept": "text/event-stream"}


@dataclass(slots=True)
class Tally:
    """What questions in one language by one way have come to."""

    asked: int = 0
    right: int = 0
    tokens: int = 0  # of prompts
    seconds: float = 0.0

    def add(self, is_right: bool, tokens: int, seconds: float) -> None:
        """One more question."""
        self.asked, self.right = self.asked + 1, self.right + is_right
        self.tokens, self.seconds = self.tokens + tokens, self.seconds + seconds


class RecordedClient:
    """An OpenAI client whose prompts are counted and written down."""

    def __init__(self, model: JudgedModel) -> None:
        from openai import AsyncOpenAI  # of an extra, and slow to import

        key = model.settings.llm_api_key
        self._client = AsyncOpenAI(
            base_url=model.settings.llm_base_url,
            api_key=key.get_secret_value() if key else "none",
            timeout=model.settings.llm_timeout_seconds,
            max_retries=0,
        )
        self._model = model
        self.base_url, self.api_key = self._client.base_url, self._client.api_key
        self.chat = SimpleNamespace(completions=SimpleNamespace(create=self._create))
        self.tokens = 0  # of all prompts, by our own count: streams tell none

    async def _create(self, **request: Any) -> Any:
        messages, tools = [*request["messages"]], request.get("tools") or ()
        sent = json.dumps([messages, *tools], ensure_ascii=False)
        self.tokens += count_tokens(sent)
        self._model.write({"prompt": messages, "tools": len(tools)})
        return await self._client.chat.completions.create(**request)

    async def close(self) -> None:
        """Let go of the connections."""
        await self._client.close()


class Asker:
    """Asks a server the ways that applications do."""

    def __init__(self, client: Any) -> None:
        self._http = client  # of HTTP, to the server

    async def ask(self, way: str, user: str, session: str, question: str) -> str:
        """The answer as the user would read it; empty where the model failed."""
        said = {"user_id": user, "message": question}
        single = {**said, "session_id": session, "agent_id": _AGENT}
        match way:
            case "JSON":
                return str((await self._post("/v1/chat", single)).json().get("text", ""))
            case "events":
                return "".join(_deltas((await self._post("/v1/chat", single, _EVENTS)).text))
            case "group":
                group = {**said, "members": [{"id": _AGENT}], "mentions": [_AGENT]}
                answer = await self._post(f"/v1/groups/{session}/turns", group)
                return str(answer.json()["replies"][0]["text"])
            case _:
                names = {"User": user, "Session": session, "Agent": _AGENT}
                headers = {f"X-KeMem-{name}": value for name, value in names.items()}
                body = {"messages": [{"role": "user", "content": question}]}
                answer = await self._post("/v1/chat/completions", body, headers)
                choices = answer.json().get("choices") or [{"message": {"content": ""}}]
                return str(choices[0]["message"]["content"])

    async def _post(
        self, path: str, body: Mapping[str, Any], headers: Mapping[str, str] | None = None
    ) -> Any:
        return await self._http.post(path, json=body, headers=headers)


async def run(model: JudgedModel, cases: int) -> list[Row]:
    """Suite: so many questions of each language, each by another way than the one before.

    When all have been asked, they are asked again by the next way, four times at most.
    """
    people = tomllib.loads((files(__package__) / "chat.toml").read_text("utf-8"))
    tallies = {(way, language): Tally() for way in WAYS for language in people}
    clock = [0]
    with TemporaryDirectory() as home:
        settings = Settings(
            data_dir=Path(home),
            database_url=None,
            neo4j_url=None,
            api_key=None,
            jwt_secret=None,
            llm="none",  # facts are drawn by rules: the suite `facts` judges the model there
            chat_recall=model.settings.chat_recall,
        )
        memory = AsyncMemory(settings=settings, clock=lambda: clock[0])
        async with _serving(memory, model) as (asker, client):
            for language, told in people.items():
                for way in WAYS:
                    await _tell(memory, f"{way}-{language}", told["sessions"], clock)
            clock[0] = to_micros(_TODAY + _HOUR)
            await ToolProbe(memory).ask(client, model.name)  # so that all is asked in one way
            for language, told in people.items():
                for number, way in _order(len(told["questions"]), cases):
                    question, tally = told["questions"][number], tallies[way, language]
                    ids = f"{way}-{language}", f"third-{number}"
                    before, began = client.tokens, time.monotonic()
                    answer = await asker.ask(way, *ids, question["text"])
                    tokens, seconds = client.tokens - before, time.monotonic() - began
                    is_right = any(it in answer.casefold() for it in question["right"])
                    model.write({"way": way, "answer": answer, "is_right": is_right, **question})
                    if answer:
                        model.count(tokens, seconds)
                    tally.add(is_right, tokens, seconds)
    return [_row(way, language, it) for (way, language), it in tallies.items()]


@asynccontextmanager
async def _serving(
    memory: AsyncMemory, model: JudgedModel
) -> AsyncIterator[tuple[Asker, RecordedClient]]:
    """The server over a memory, in this process, with chats by the model."""
    import httpx2  # comes with the package openai

    app, client = http.create_app(memory), RecordedClient(model)
    services = {"chat": ChatService, "group": GroupChatService, "proxy": Proxy}
    for name, service in services.items():
        chat = service(memory, client=client, model=model.name, run_jobs=False)  # type: ignore[arg-type]
        setattr(app.state, name, chat)
    transport = httpx2.ASGITransport(app, raise_app_exceptions=False)
    local = httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=None)
    async with app.router.lifespan_context(app), local:
        yield Asker(local), client
    await client.close()


async def _tell(memory: AsyncMemory, user: str, sessions: Any, clock: list[int]) -> None:
    """Tell what a user says in each session, without a model that answers."""
    for session in sessions:
        clock[0] = to_micros(session["day"] + _HOUR)
        messages = [{"role": "user", "content": it} for it in session["messages"]]
        await memory.add(messages, user, agent_id=_AGENT, session_id=session["day"])


def _order(questions: int, cases: int) -> list[tuple[int, str]]:
    """Which question is asked by which way, one after the other.

    >>> _order(2, 3)
    [(0, 'JSON'), (1, 'events'), (0, 'events')]
    """
    rounds, numbers = range(len(WAYS)), range(questions)
    return [(it, WAYS[(it + at) % len(WAYS)]) for at in rounds for it in numbers][:cases]


def _deltas(stream: str) -> Iterator[str]:
    """The pieces of a reply in server-sent events."""
    for line in stream.splitlines():
        if line.startswith("data: "):
            event = json.loads(line.removeprefix("data: "))
            if event.get("type") == "text":
                yield event["delta"]


def _row(way: str, language: str, it: Tally) -> Row:
    each = it.asked or 1
    return {
        "chat": way,
        "language": language,
        "right": share(it.right, it.asked),
        "prompt tokens": it.tokens // each,
        "seconds": f"{it.seconds / each:.1f}",
    }
