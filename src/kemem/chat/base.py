"""What all chats share: a memory, the model that replies, and what it is shown of a history."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kemem.chat.events import DoneEvent, ErrorEvent, Event
from kemem.chat.filters import LeakCounts
from kemem.chat.guard import guard
from kemem.chat.probe import ToolProbe
from kemem.chat.requests import Json, language_of
from kemem.chat.turn import ChatModel, to_the_end
from kemem.errors import InvalidArgument, KeMemError, NotConfigured, NotFound
from kemem.memory import AsyncMemory
from kemem.ports.entries import check_enabled
from kemem.ports.limits import MOST_PATIENCE, TokenLimit, most_of_reply
from kemem.ports.turns import QUIET
from kemem.recall.results import indented
from kemem.records import Scope
from kemem.records.privacy import ContentPolicy
from kemem.results import Context
from kemem.text.fence import neutralise
from kemem.text.ids import is_blank
from kemem.text.personal import apply_policy

if TYPE_CHECKING:
    from openai import AsyncOpenAI

NO_MODEL = (
    "no chat model is configured: set KEMEM_LLM_API_KEY for OpenAI, or KEMEM_LLM_BASE_URL and "
    "KEMEM_LLM_MODEL for any server that speaks its API (DeepSeek, Ollama, vLLM …)"
)

T = TypeVar("T")

log = logging.getLogger("kemem")


class Said(Generic[T]):
    """What a user said: stored once, whatever becomes of the turn."""

    def __init__(self, add: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._add = add
        self._task: asyncio.Task[T] | None = None

    @property
    def is_stored(self) -> bool:
        """Whether that was begun."""
        return self._task is not None

    async def store(self) -> T:
        """What became of it, durable on return."""
        self._task = self._task or asyncio.create_task(self._add())
        return await to_the_end(self._task)


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
        self.wake_worker: Callable[[], None] | None = None  # called after a turn, if one is set
        self._runs_jobs = run_jobs
        self._jobs: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()
        self._limit = TokenLimit()
        self._probe = ToolProbe(memory)

    def check_model(self) -> None:
        """NotConfigured where there is no model."""
        if self._client is None and not self.memory.settings.has_llm:
            raise NotConfigured(NO_MODEL)

    def _chat_model(self) -> ChatModel:
        """The model for one reply, which counts its own leaks; NotConfigured without one."""
        settings = self.memory.settings
        self.check_model()
        if self._client is None:
            self._client = self.memory.runtime.open_chat_client()
        counts, runtime = LeakCounts(self._counts), self.memory.runtime
        name, client = self._model or settings.llm_model, guard(self._client, counts=counts)
        seconds = MOST_PATIENCE * settings.llm_timeout_seconds
        tokens = most_of_reply(settings.chat_history_tokens)
        return ChatModel(
            *(client, name, counts, runtime.replied, runtime.turns, seconds, tokens),
            limit=self._limit,
        )

    async def _recall_limit(self, model: ChatModel) -> int:
        """How often the model may recall; 0: it has no tool, what is recalled stands in a note."""
        way = await self._probe.way(str(model.client.base_url), model.name)
        return self.memory.settings.chat_recall_limit if way.name == "call" else 0

    def _language(self, message: str) -> str:
        """The language to speak to the model in."""
        chosen = self.memory.settings.recall_language
        return language_of(message) if chosen == "auto" else chosen

    async def _in_order(
        self, session: Scope, model: ChatModel, said: Said[Any], events: AsyncGenerator[Event, None]
    ) -> AsyncGenerator[Event, None]:
        """The events of a turn, which begins when those of its session before it have ended."""
        place = self.memory.runtime.turns.place(session)
        try:
            await place.wait(model.seconds)
            async with aclosing(events):
                async for event in events:
                    if isinstance(event, DoneEvent | ErrorEvent) and not event.member_id:
                        place.leave()  # nobody may read on
                    yield event
        except asyncio.CancelledError:  # who hangs up before the reply has spoken all the same
            with suppress(KeMemError):
                await said.store()
            raise
        finally:
            place.leave()
            if said.is_stored:
                self._after_turn(model)

    def _after_turn(self, model: ChatModel) -> None:
        """Find out what the model can do, and draw facts, while the chat goes on.

        Facts are drawn here or in a worker; a job that fails is retried.
        """
        self._probe.start(self._client, model.name)
        if self.wake_worker is not None:
            self.wake_worker()
        elif self._runs_jobs and (self._jobs is None or self._jobs.done()):
            self._jobs = asyncio.create_task(self._run_jobs_when_quiet())

    async def close(self) -> None:
        """Wait for the jobs of the last turns and close the model's client, not the memory."""
        await self._probe.close()
        if self._jobs is not None:
            self._closing.set()
            await self._jobs
            self._closing.clear()
            await self._run_jobs()  # what waited for quiet, and turns that ended meanwhile
        if self._owns_client and self._client is not None:
            await self._client.close()
            self._client = None

    async def _run_jobs_when_quiet(self) -> None:
        """Run jobs, again after a pause while some are left that wait for their session."""
        while not self._closing.is_set() and await self._run_jobs(debounce=True):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), QUIET / 1_000_000)

    async def _run_jobs(self, *, debounce: bool = False) -> int:
        try:
            return await self.memory.run_jobs(debounce=debounce)
        except Exception as error:  # of the store or a model; jobs stay in the outbox
            log.warning("facts will be drawn later: %s", type(error).__name__)
            return 0


async def history_of(memory: AsyncMemory, session_id: str) -> Context:
    """The context of a session, as much as a model is shown; empty for a new session."""
    # Before a model is asked:
    await check_enabled((await memory.runtime.deps()).store, memory.scope.scope)
    try:
        return await memory.context(session_id, max_tokens=memory.settings.chat_history_tokens)
    except NotFound:
        return Context()


def to_chat_messages(
    history: Context, before: str | None = None, member_id: str = ""
) -> list[Json]:
    """A history as a model reads it, before a message that is sent again; others by their names."""
    chat_messages: list[Json] = []
    for message in history.messages:
        if message.message_id == before:
            break
        is_other = message.metadata.get("member_id", member_id) != member_id
        name, content = message.metadata.get("speaker") if is_other else None, message.content
        if name:  # data of another member, whose further lines cannot pose as somebody's
            content = f"{name}: {indented(neutralise(content))}"
        if message.role in ("user", "assistant"):
            role = "user" if is_other else message.role
            chat_messages.append({"role": role, "content": content})
    return chat_messages


def check_message(message: object, policy: ContentPolicy) -> None:
    """Refuse a blank message, and one that would be stored shorter than a model is shown it.

    What may not be stored is refused before a model is asked.
    """
    if not isinstance(message, str) or is_blank(message):
        reason = f"message must be a text that is not blank, not {message!r:.80}"
        raise InvalidArgument(reason, field="message")
    size = len(message.encode(errors="surrogatepass"))
    if size > policy.max_bytes:
        reason = f"message must be at most {policy.max_bytes} bytes, not {size}"
        raise InvalidArgument(reason, field="message")
    apply_policy(message, policy, "message")
