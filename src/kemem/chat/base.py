"""What single chats, groups and the proxy share: the memory, the model, and the jobs afterwards."""

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kemem.chat.completions import Json
from kemem.chat.filters import LeakCounts
from kemem.chat.guard import guard_and_meter
from kemem.chat.prompts import language_of
from kemem.chat.turn import ChatModel
from kemem.errors import Conflict, InvalidArgument, NotFound
from kemem.memory import AsyncMemory
from kemem.recall.results import indented
from kemem.records import Message
from kemem.results import Context
from kemem.settings import Settings
from kemem.text.fence import neutralise

if TYPE_CHECKING:
    from openai import AsyncOpenAI

NO_MODEL = (
    "no chat model is configured: set KEMEM_LLM_API_KEY for OpenAI, or KEMEM_LLM_BASE_URL and "
    "KEMEM_LLM_MODEL for any server that speaks its API (DeepSeek, Ollama, vLLM …)"
)

log = logging.getLogger("kemem")


class ChatBase:
    """Chats on a memory that is not bound to a user: each turn is bound to its own."""

    def __init__(
        self,
        memory: AsyncMemory,
        *,
        client: "AsyncOpenAI | None" = None,
        model: str | None = None,
        counts: LeakCounts | None = None,
        run_jobs: bool = True,
    ) -> None:
        """With `run_jobs=False` a worker elsewhere draws facts from what was said, not the chat."""
        if memory.scope.is_bound:
            raise InvalidArgument("give the memory itself: a chat binds each turn to its user")
        self.memory = memory
        self._client = client
        self._owns_client = client is None
        self._model = model
        self._counts = counts or LeakCounts()
        self._runs_jobs = run_jobs
        self._jobs: asyncio.Task[None] | None = None

    def _chat_model(self) -> ChatModel:
        """The model for one reply, which counts its own leaks; Conflict where there is none."""
        if self._client is None:
            self._client = _connect(self.memory.settings)
        counts = LeakCounts(self._counts)
        client = guard_and_meter(self._client, counts, self.memory.runtime.replied)
        return ChatModel(client, self._model or self.memory.settings.llm_model, counts)

    def _language(self, message: str) -> str:
        """The language to speak to the model in."""
        chosen = self.memory.settings.recall_language
        return language_of(message) if chosen == "auto" else chosen

    def _start_jobs(self) -> None:
        """Run the outbox while the chat goes on; a job that fails is retried later."""
        if self._runs_jobs and (self._jobs is None or self._jobs.done()):
            self._jobs = asyncio.create_task(self._run_jobs())

    async def close(self) -> None:
        """Wait for the jobs of the last turns and close the model's client, not the memory."""
        if self._jobs is not None:
            await self._jobs
            await self._run_jobs()  # of turns that ended while the last job was being done
        if self._owns_client and self._client is not None:
            await self._client.close()
            self._client = None

    async def _run_jobs(self) -> None:
        try:
            await self.memory.run_jobs()
        except Exception as error:  # of the store or a model; jobs stay in the outbox
            log.warning("facts will be drawn later: %s", type(error).__name__)


def _connect(settings: Settings) -> "AsyncOpenAI":
    """A client for the model of the settings; Conflict where there is none."""
    if not settings.has_llm:
        raise Conflict(NO_MODEL)
    from openai import AsyncOpenAI

    key = settings.llm_api_key
    return AsyncOpenAI(
        base_url=settings.llm_base_url,
        # Without a key the library would send one from the environment to another's server.
        api_key=key.get_secret_value() if key else "none",
        timeout=settings.llm_timeout_seconds,
        max_retries=1,
    )


async def history_of(memory: AsyncMemory, session_id: str) -> Context:
    """The context of a session, as much as a model is shown; empty for a new session."""
    try:
        return await memory.context(session_id, max_tokens=memory.settings.chat_history_tokens)
    except NotFound:
        return Context()


def messages_before(message_id: str | None, history: Context) -> Sequence[Message]:
    """The messages up to one that is sent again; all of them where it is new."""
    ids = [message.message_id for message in history.messages]
    return history.messages[: ids.index(message_id) if message_id in ids else None]


def to_chat_messages(messages: Sequence[Message], own_id: str = "") -> list[Json]:
    """Stored messages as a model reads them: those of other members begin with their names."""
    chat_messages: list[Json] = []
    for message in messages:
        is_other = message.metadata.get("member_id", own_id) != own_id
        if message.role == "assistant" and not is_other:
            chat_messages.append({"role": "assistant", "content": message.content})
        elif message.role in ("user", "assistant"):
            name = message.metadata.get("speaker") if is_other else None
            # Of another member: data, whose further lines cannot pose as somebody's.
            named = f"{name}: {indented(neutralise(message.content))}"
            chat_messages.append({"role": "user", "content": named if name else message.content})
    return chat_messages


def message_ids(history: Context) -> set[str]:
    """The messages that a model is shown verbatim."""
    return {message.message_id for message in history.messages}


def check_message(message: object, max_bytes: int) -> None:
    """Refuse a blank message, and one that would be stored shorter than a model is shown it."""
    if not isinstance(message, str) or not message.strip():
        raise InvalidArgument(
            f"message must be a text that is not blank, not {message!r:.80}", field="message"
        )
    size = len(message.encode(errors="surrogatepass"))
    if size > max_bytes:
        raise InvalidArgument(
            f"message must be at most {max_bytes} bytes, not {size}", field="message"
        )
