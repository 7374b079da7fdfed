"""AsyncMemory: the class that applications use."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from kemem.assemble import assemble
from kemem.errors import InvalidArgument, Unavailable
from kemem.jobs import prepare, run_due
from kemem.ports import Embedder, Parts
from kemem.reading import transcript
from kemem.reading.search import search
from kemem.settings import Settings, load
from kemem.text.ids import check_id
from kemem.text.times import to_micros
from kemem.types import (
    ROLES,
    Health,
    Hit,
    Ingested,
    Job,
    Message,
    Messages,
    Micros,
    Page,
    Scope,
    Where,
)
from kemem.writing.ingest import ingest
from kemem.writing.parse import Owner

Time = str | datetime  # RFC 3339, or a datetime with a time zone


class AsyncMemory:
    """The memory of agents and chat products: stores every message, finds the right ones again.

    Nothing is opened before the first call.

        async with AsyncMemory() as memory:
            await memory.ingest("我不吃辣", user_id="u_1")
            hits = await memory.hybrid_search("火锅", user_id="u_1")
    """

    def __init__(
        self,
        *,
        data_dir: str | Path | None = None,
        database_url: str | None = None,
        embedder: Embedder | None = None,
        settings: Settings | None = None,
        clock: Callable[[], Micros] | None = None,
    ) -> None:
        if settings and (data_dir or database_url):
            raise InvalidArgument("give settings, or data_dir or database_url, not both")
        self.settings = settings or load(data_dir=data_dir, database_url=database_url)
        self._embedder = embedder
        self._clock = clock
        self._opening = asyncio.Lock()
        self._opened: Parts | None = None
        self._closed = False
        self._model_noted = False

    async def ingest(
        self,
        messages: Messages,
        user_id: str,
        *,
        agent_id: str = "default",
        session_id: str = "default",
    ) -> Ingested:
        """Store messages verbatim: one atomic batch, durable on return, idempotent by message_id.

        A message is a text or {role, content, message_id?, ts?, session_id?, agent_id?,
        content_type?, parent_message_id?, metadata?}.
        """
        owner = Owner(
            check_id(user_id, "user_id"),
            check_id(agent_id, "agent_id"),
            check_id(session_id, "session_id"),
        )
        parts = await self._prepared()
        return await ingest(messages, owner, self.settings.max_content_bytes, parts)

    async def messages(
        self,
        user_id: str,
        since: Time | None = None,
        until: Time | None = None,
        role: str | None = None,
        page_size: int = 50,
        cursor: str | None = None,
    ) -> Page[Message]:
        """The transcript, newest first; `since` is inclusive, `until` is not."""
        where = _where(user_id, since, until, role)
        return await transcript.read(where, page_size, cursor, await self._parts())

    async def lexical_search(
        self,
        query_text: str,
        user_id: str,
        *,
        since: Time | None = None,
        until: Time | None = None,
        role: str | None = None,
        page_size: int = 50,
        cursor: str | None = None,
    ) -> Page[Hit]:
        """Messages by their words, best first; takes "phrases", AND, OR, NOT, prefix*, ( )."""
        where = _where(user_id, since, until, role)
        parts = await self._parts()
        return await transcript.by_words(where, query_text, page_size, cursor, parts)

    async def semantic_search(
        self,
        query_text: str | None = None,
        user_id: str | None = None,
        *,
        query_embedding: Sequence[float] | None = None,
        since: Time | None = None,
        until: Time | None = None,
        role: str | None = None,
        top_k: int = 20,
        min_score: float | None = None,
    ) -> list[Hit]:
        """Messages by their meaning, most similar first, for a text or for a vector."""
        where = _where(user_id, since, until, role)
        asked = query_text if query_embedding is None else query_embedding
        both = query_text is not None and query_embedding is not None
        if asked is None or both or not isinstance(query_text, str | None):
            raise InvalidArgument(
                "give query_text, a text, or query_embedding: one of the two", field="query_text"
            )
        parts = await self._parts()
        return await transcript.by_meaning(where, asked, top_k, min_score, parts)

    async def hybrid_search(
        self,
        query_text: str,
        user_id: str,
        limit: int = 10,
        since: Time | None = None,
        until: Time | None = None,
        role: str | None = None,
        *,
        agent_id: str | None = None,
        session_id: str | None = None,
    ) -> list[Hit]:
        """Messages by words and meaning together, with the reasons for each."""
        where = _where(user_id, since, until, role, agent_id, session_id)
        return await search(query_text, where, limit, await self._parts())

    async def neighbors(
        self, message_id: str, user_id: str, before: int = 20, after: int = 0
    ) -> list[Message]:
        """A message in its context, in the order things were said."""
        scope = Scope(user_id=check_id(user_id, "user_id"))
        found = check_id(message_id, "message_id")
        return await transcript.neighbors(scope, found, before, after, await self._parts())

    async def run_jobs(self) -> int:
        """Work through what earlier failures left to do; returns how many steps were done."""
        return await run_due(await self._prepared())

    async def jobs(self, limit: int = 100) -> list[Job]:
        """Work that waits or has failed, for operators."""
        most = transcript.page_limit(limit, "limit")
        return await (await self._parts()).store.jobs(most)

    async def reindex(self) -> int:
        """Derive words and vectors of all messages again; returns how many steps were done."""
        parts = await self._prepared()
        await parts.store.rebuild_words()
        await prepare(parts, again=True)
        return await run_due(parts)

    async def health(self) -> Health:
        """The state of the store; raises Unavailable when it cannot be reached."""
        return await (await self._parts()).store.health()

    async def close(self) -> None:
        """Let go of files and connections; a closed memory stays closed."""
        async with self._opening:
            self._closed = True
            if self._opened:
                await self._opened.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def _parts(self) -> Parts:
        if self._opened and not self._closed:
            return self._opened
        async with self._opening:
            if self._closed:
                raise Unavailable("this memory is closed")
            if self._opened is None:
                self._opened = await asyncio.to_thread(
                    assemble, self.settings, self._embedder, self._clock
                )
        return self._opened

    async def _prepared(self) -> Parts:
        """The parts for work that makes vectors; reading with another model changes nothing."""
        parts = await self._parts()
        if not self._model_noted:
            await prepare(parts)
            self._model_noted = True
        return parts


def _where(
    user_id: str | None,
    since: Time | None,
    until: Time | None,
    role: str | None,
    agent_id: str | None = None,
    session_id: str | None = None,
) -> Where:
    """What a call may see, from its arguments."""
    if role is not None and role not in ROLES:
        raise InvalidArgument(
            f"role must be one of {', '.join(ROLES)}, not {role!r:.80}", field="role"
        )
    scope = Scope(
        user_id=check_id(user_id, "user_id"),
        agent_id=None if agent_id is None else check_id(agent_id, "agent_id"),
        session_id=None if session_id is None else check_id(session_id, "session_id"),
    )
    first = None if since is None else to_micros(since, "since")
    last = None if until is None else to_micros(until, "until")
    if first is not None and last is not None and first > last:
        raise InvalidArgument("since must not be later than until", field="since")
    return Where(scope, first, last, role)
