"""KeMemMemoryService: the long-term memory of agents of Google's ADK."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from google.adk.events.event import Event
from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions.session import Session
from google.genai.types import Content, Part

from kemem.errors import InvalidArgument
from kemem.memory import AsyncMemory
from kemem.records.times import to_rfc3339
from kemem.results import Hit, is_over
from kemem.sync import bind


class KeMemMemoryService(BaseMemoryService):
    """A memory service of ADK: sessions become memories of their user, and are searched.

        runner = Runner(..., memory_service=KeMemMemoryService(memory))

    The application is the agent. Users are those of the sessions that the application runs, which
    no model names; a handle of `for_user` serves that user alone.
    """

    def __init__(self, memory: AsyncMemory, *, limit: int = 10) -> None:
        self._memory = memory
        self._limit = limit

    async def add_session_to_memory(self, session: Session) -> None:
        """Store what is new of a session, and remember what it says."""
        await self._add(session.app_name, session.user_id, session.events, session.id, None)

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Store events that are new, and remember what they say."""
        await self._add(app_name, user_id, events, session_id, custom_metadata)

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Keep memories word by word."""
        handle = bind(self._memory, user_id, app_name)
        for entry in memories:
            texts = [part.text for part in entry.content.parts or [] if part.text]
            metadata = {**(custom_metadata or {}), **entry.custom_metadata}
            when = {"timestamp": entry.timestamp} if entry.timestamp else {}
            await handle.add("\n".join(texts), infer=False, metadata=metadata, **when)

    async def search_memory(
        self, *, app_name: str, user_id: str, query: str
    ) -> SearchMemoryResponse:
        """What a user's memories and messages answer to a question, and what still holds of it."""
        hits = await bind(self._memory, user_id, app_name).search(query, limit=self._limit)
        entries = [_entry(hit) for hit in hits if hits.past or not is_over(hit)]
        return SearchMemoryResponse(memories=entries)

    async def delete_memory(
        self, *, app_name: str, user_id: str, memory_id: str | None = None
    ) -> None:
        """Erase one memory; the messages that it was drawn from are withdrawn."""
        if memory_id is None:
            raise InvalidArgument("memory_id is required", field="memory_id")
        await bind(self._memory, user_id, app_name).delete(memory_id)

    async def _add(
        self,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None,
        metadata: Mapping[str, object] | None,
    ) -> None:
        messages = [_message(event) for event in events if event.content and event.content.parts]
        if messages:
            handle = bind(self._memory, user_id, app_name)
            await handle.add(messages, session_id=session_id, metadata=metadata)


def _message(event: Event) -> dict[str, Any]:
    """An event as a message of Gemini's; its id lets a session be added again and again."""
    content = event.content.model_dump(mode="json", exclude_none=True)
    role = "user" if event.author == "user" else "model"
    ts = datetime.fromtimestamp(event.timestamp, UTC)
    return {"role": role, "parts": content["parts"], "message_id": event.id, "ts": ts}


def _entry(hit: Hit) -> MemoryEntry:
    author = "user" if hit.kind != "message" else hit.message.role
    return MemoryEntry(
        id=hit.id,
        content=Content(role="user", parts=[Part(text=hit.text)]),
        author=author,
        timestamp=to_rfc3339(hit.row.ts),
        custom_metadata={"kind": hit.kind, "score": hit.score, **hit.marks},
    )
