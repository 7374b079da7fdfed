"""The model that answers, asked alike by every system."""

import time
from dataclasses import dataclass
from typing import Any

from openai import AsyncOpenAI

from bench.answers.prompt import Messages

MOST_TOKENS = 64  # of an answer
TIMEOUT = 600.0  # seconds for one answer: a processor without an accelerator is slow


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer, and what it cost."""

    text: str
    prompt_tokens: int
    completion_tokens: int
    seconds: float


class Model:
    """A model behind OpenAI's protocol; short answers at temperature 0, nothing is repeated."""

    def __init__(self, base_url: str, name: str, api_key: str = "none") -> None:
        self.base_url, self.name = base_url, name
        self.client = AsyncOpenAI(
            base_url=base_url, api_key=api_key, timeout=TIMEOUT, max_retries=0
        )
        create = self.client.chat.completions.create

        async def bounded(**request: Any) -> Any:
            if request.get("stream"):
                request["stream_options"] = {"include_usage": True}
            return await create(**{**request, "temperature": 0, "max_tokens": MOST_TOKENS})

        # Whoever is handed the client, as KeMem's chat is, asks within the same bounds.
        setattr(self.client.chat.completions, "create", bounded)  # noqa: B010

    async def reply(self, messages: Messages) -> Reply:
        """The answer to a prompt."""
        begun = time.perf_counter()
        answer: Any = await self.client.chat.completions.create(
            model=self.name,
            messages=messages,  # type: ignore[arg-type]
        )
        took, usage = time.perf_counter() - begun, answer.usage
        return Reply(
            (answer.choices[0].message.content or "").strip(),
            usage.prompt_tokens if usage else 0,
            usage.completion_tokens if usage else 0,
            took,
        )


class NoModel(Model):
    """Answers nothing, where only the evidence counts."""

    def __init__(self) -> None:
        self.base_url, self.name = "", "none"

    async def reply(self, messages: Messages) -> Reply:
        """An empty answer."""
        return Reply("", 0, 0, 0.0)
