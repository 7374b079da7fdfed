"""Applications of OpenAI's client whose base URL is a KeMem server, and the model behind it."""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

import httpx
from openai import AsyncOpenAI, DefaultAsyncHttpxClient, DefaultHttpxClient, OpenAI

from kemem.testing import running_openai_server
from kemem.testing.openai_server import Answer, OpenAIServer, status
from tests.routes import SECRET
from tests.server import Server, note_of, read, running_server

KEY = "operator-key-0123456789"
MODEL_KEY = "sk-model-key-0123456789"
MODEL_NAME = "deepseek-chat"
RECALL = "recall_memory"


@dataclass(frozen=True, slots=True)
class Tongue:
    """The same talk in one language."""

    note: str
    asked: str
    words: str  # to recall the note by
    reply: str
    preamble: str
    limit_reached: str


CHINESE = Tongue(
    note="用户不吃辣，火锅要清汤",
    asked="火锅要清汤吗？",
    words="火锅 清汤",
    reply="要，你不吃辣。",
    preamble="我想一想。",
    limit_reached="已达上限",
)
ENGLISH = Tongue(
    note="User orders the mild hotpot without chilli",
    asked="Which hotpot does the user order?",
    words="mild hotpot",
    reply="The mild one, as ever.",
    preamble="Let me think.",
    limit_reached="is reached",
)


Line = Answer | Callable[[dict[str, Any]], Answer]


class Model:
    """A chat model that says what a test tells it to, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self._lines: list[Line] = []

    def says(self, *lines: Line) -> None:
        """Begin anew with these answers, or functions of the request that give them."""
        self.asked, self._lines = [], list(lines)

    def __call__(self, request: dict[str, Any]) -> Answer:
        self.asked.append(request)
        line = self._lines.pop(0) if self._lines else status(500, "nothing is left to say")
        return line(request) if callable(line) else line


@dataclass(frozen=True, slots=True)
class Site:
    """A KeMem server, the model that it asks, and where that is."""

    server: Server
    operator: httpx.Client  # with the key
    model: Model
    upstream: OpenAIServer

    def application(self, user: str | None, token: str = KEY, **headers: str) -> OpenAI:
        """The official client, in the name of a user."""
        plain = DefaultHttpxClient(verify=False, trust_env=False)  # certificates take long to read
        return OpenAI(**_connection(self, user, token, headers), http_client=plain)

    def async_application(self, user: str) -> AsyncOpenAI:
        """The same, asynchronous."""
        plain = DefaultAsyncHttpxClient(verify=False, trust_env=False)
        return AsyncOpenAI(**_connection(self, user, KEY, {}), http_client=plain)

    def new_user(self, *notes: str, **more: Any) -> str:
        """Somebody of whom this is remembered."""
        user = f"u_{token_hex(6)}"
        for note in notes:
            note_of(self.operator, user, note, **more)
        return user

    def stored(self, user: str) -> list[tuple[str, str]]:
        """What a user's conversations say, oldest first; the texts of notes are left out."""
        return [(it["role"], it["content"]) for it in self.messages(user)]

    def messages(self, user: str) -> list[dict[str, Any]]:
        """The stored messages that the application has brought about, oldest first."""
        items = read(self.operator, user)["items"]
        return [it for it in reversed(items) if it["message_id"].startswith("m_") and _is_ours(it)]


@contextmanager
def running_site(
    data_dir: Path, *, strict: Collection[str] = (), **settings: str
) -> Iterator[Site]:
    """A server with credentials of both kinds; facts are drawn from nothing that is said."""
    model = Model()
    given = {"llm_model": MODEL_NAME, "llm_api_key": MODEL_KEY, "api_key": KEY}
    given |= {"chat_recall": "call"}
    with (
        running_openai_server(model, formatted={"facts": []}, strict=strict) as upstream,
        running_server(
            data_dir, llm_base_url=upstream.base_url, jwt_secret=SECRET, **{**given, **settings}
        ) as server,
        server.client(KEY) as operator,
    ):
        yield Site(server, operator, model, upstream)


@dataclass(frozen=True, slots=True)
class Told:
    """What an application gets, streamed or not."""

    text: str | None
    calls: tuple[tuple[str, Any], ...]  # names and arguments
    finish: str
    usage: Any


def ask(client: OpenAI, stream: bool, messages: str | Sequence[Any], **more: Any) -> Told:
    """A request of the application; a stream must have the form of one answer."""
    said = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
    request: dict[str, Any] = {"model": "kemem", "messages": said, **more}
    if not stream:
        answer = client.chat.completions.create(**request)
        message = answer.choices[0].message
        calls = [it.function for it in message.tool_calls or () if it.type == "function"]
        return Told(
            message.content,
            tuple((it.name, json.loads(it.arguments)) for it in calls),
            answer.choices[0].finish_reason,
            answer.usage and answer.usage.to_dict(),
        )
    request["stream_options"] = {"include_usage": True}
    return joined([it.to_dict() for it in client.chat.completions.create(stream=True, **request)])


def joined(chunks: Sequence[dict[str, Any]]) -> Told:
    """The answer that chunks make: one id, one role at the beginning, one end, then the usage."""
    *parts, last = chunks
    assert len({chunk["id"] for chunk in chunks}) == 1
    assert last["choices"] == [] and all(it["usage"] is None for it in parts)
    choices = [choice for chunk in parts for choice in chunk["choices"]]
    assert [it["index"] for it in choices] == [0] * len(parts)
    assert [it["delta"].get("role") for it in choices] == ["assistant"] + [None] * (len(parts) - 1)
    assert [it["finish_reason"] for it in choices[:-1]] == [None] * (len(parts) - 1)
    texts = [it["delta"]["content"] for it in choices if it["delta"].get("content")]
    calls = [it for choice in choices for it in choice["delta"].get("tool_calls", ())]
    assert [it["index"] for it in calls] == list(range(len(calls)))
    named = tuple((it["function"]["name"], json.loads(it["function"]["arguments"])) for it in calls)
    return Told("".join(texts) or None, named, choices[-1]["finish_reason"], last["usage"])


def recalled(request: dict[str, Any]) -> list[list[str]]:
    """What each result of recall_memory in a request says, in their order."""
    calls = {
        call["id"]: call["function"]["name"]
        for message in request["messages"]
        for call in message.get("tool_calls") or ()
    }
    results = [it for it in request["messages"] if it["role"] == "tool"]
    found = [json.loads(it["content"]) for it in results if calls[it["tool_call_id"]] == RECALL]
    return [[event["content"] for event in it.get("events", ())] for it in found]


def _connection(
    site: Site, user: str | None, token: str, headers: dict[str, str]
) -> dict[str, Any]:
    named = {"X-KeMem-User": user} if user else {}
    named |= {f"X-KeMem-{name.title()}": value for name, value in headers.items()}
    url = f"{site.server.url}/v1"
    return {"base_url": url, "api_key": token, "max_retries": 0, "default_headers": named}


def _is_ours(item: dict[str, Any]) -> bool:
    return len(item["message_id"]) == 42  # notes come from messages with shorter ids
