"""What single chats and groups share: the memory, the model, and what is remembered afterwards."""

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kemem.chat.counts import LeakCounts
from kemem.chat.guard import guard_and_meter
from kemem.chat.models import connect
from kemem.chat.turn import Item, Speaker
from kemem.errors import InvalidArgument, NotFound
from kemem.memory import AsyncMemory
from kemem.recall.results import indented
from kemem.records import Message
from kemem.results import Context
from kemem.text.fence import neutralise
from kemem.text.language import is_chinese

if TYPE_CHECKING:
    from openai import AsyncOpenAI

log = logging.getLogger("kemem")


class Room:
    """Where chats take place; its memory is the application's own, which reaches every user."""

    def __init__(
        self,
        memory: AsyncMemory,
        *,
        client: "AsyncOpenAI | None" = None,
        model: str | None = None,
        counts: LeakCounts | None = None,
    ) -> None:
        if memory.reach.is_bound:
            raise InvalidArgument("give the memory itself: a chat binds each turn to its user")
        self.memory = memory
        self._client = client
        self._owns_client = client is None
        self._model = model
        self._counts = counts or LeakCounts()
        self._remembering: asyncio.Task[None] | None = None

    def speaker(self) -> Speaker:
        """The model for one reply, which counts its own leaks; Conflict where there is none."""
        if self._client is None:
            self._client, chosen = connect(self.memory.settings)
            self._model = self._model or chosen
        model = self._model or self.memory.settings.llm_model
        counts = LeakCounts(self._counts)
        client = guard_and_meter(self._client, counts, self.memory.runtime.replied)
        return Speaker(client, model, counts)

    def language(self, message: str) -> str:
        """The language to speak to the model in."""
        chosen = self.memory.settings.recall_language
        return ("zh" if is_chinese(message) else "en") if chosen == "auto" else chosen

    def remember(self) -> None:
        """Draw from what was said, while the chat goes on; what fails is tried again by a job."""
        if self._remembering is None or self._remembering.done():
            self._remembering = asyncio.create_task(self._run_jobs())

    async def close(self) -> None:
        """Wait for what is being remembered, and let go of the model; the memory stays open."""
        if self._remembering is not None:
            await self._remembering
            await self._run_jobs()  # what came when the last job had been done
        if self._owns_client and self._client is not None:
            await self._client.close()
            self._client = None

    async def _run_jobs(self) -> None:
        try:
            await self.memory.run_jobs()
        except Exception as error:  # of the store or a model; jobs stay where they are
            log.warning("what was said will be remembered later: %s", type(error).__name__)


async def history_of(memory: AsyncMemory, session_id: str) -> Context:
    """What was said in a session so far, as much as a model is shown; of a new one nothing."""
    try:
        return await memory.context(session_id, max_tokens=memory.settings.chat_history_tokens)
    except NotFound:
        return Context()


def before(message_id: str | None, history: Context) -> Context:
    """What was said until a message that is sent again; all of it where it is new."""
    ids = [message.message_id for message in history.messages]
    if message_id not in ids:
        return history
    return replace(history, messages=history.messages[: ids.index(message_id)])


def as_items(messages: Sequence[Message], own_id: str = "") -> list[Item]:
    """What was said before, as a model reads it: others of a group by their names."""
    items: list[Item] = []
    for message in messages:
        other = message.metadata.get("member_id", own_id) != own_id
        if message.role == "assistant" and not other:
            items.append({"role": "assistant", "content": message.content})
        elif message.role in ("user", "assistant"):
            name = message.metadata.get("speaker") if other else None
            # Of another member: data, whose further lines cannot pose as somebody's.
            said = f"{name}: {indented(neutralise(message.content))}" if name else message.content
            items.append({"role": "user", "content": said})
    return items


def shown_ids(history: Context) -> set[str]:
    """The messages that a model is shown verbatim."""
    return {message.message_id for message in history.messages}


def check_message(message: object, most: int) -> None:
    """Refuse what nobody can answer, and what would be stored shorter than a model is shown it."""
    if not isinstance(message, str) or not message.strip():
        raise InvalidArgument(
            f"message must be a text that is not blank, not {message!r:.80}", field="message"
        )
    size = len(message.encode(errors="surrogatepass"))
    if size > most:
        raise InvalidArgument(f"message must be at most {most} bytes, not {size}", field="message")
