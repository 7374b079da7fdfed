"""AsyncLog: the message log of a memory, read by time, by words, by meaning."""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Self

from kemem.add.ingest import ingest
from kemem.errors import InvalidArgument, PermissionDenied
from kemem.ports import Deps
from kemem.records import ROLES, Message, Messages, Page, Where
from kemem.results import Hit, Ingested
from kemem.runtime import Runtime
from kemem.scope import CallScope, Time, to_range
from kemem.search import transcript
from kemem.search.recipe import search
from kemem.settings import Settings
from kemem.text.ids import check_id


class AsyncLog:
    """What was said: the part of AsyncMemory that knows messages only."""

    def __init__(self, runtime: Runtime, reach: CallScope) -> None:
        self._runtime = runtime
        self._reach = reach

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._runtime.settings

    @property
    def runtime(self) -> Runtime:
        """The store and models behind this memory, for what is built on it."""
        return self._runtime

    @property
    def reach(self) -> CallScope:
        """Whose data this memory is bound to; of the application's own, nobody's."""
        return self._reach

    def for_user(
        self,
        user_id: str,
        *,
        agent_id: str | None = None,
        session_id: str | None = None,
        sensitive: bool = False,
    ) -> Self:
        """A handle that is bound to one user: no argument of any call leads to another's data.

        It sees no sensitive notes and messages unless that is granted, by `sensitive`. It shares
        the store with this memory, which is the one to close.
        """
        check_id(user_id, "user_id")
        reach, _ = self._reach.restrict(user_id, agent_id, session_id)
        handle = copy(self)
        handle._reach = replace(reach, sensitive=reach.sensitive and sensitive is True)
        return handle

    async def ingest(
        self,
        messages: Messages,
        user_id: str | None = None,
        *,
        agent_id: str | None = None,
        session_id: str | None = None,
    ) -> Ingested:
        """Store messages verbatim: one atomic batch, durable on return, idempotent by message_id.

        A message is a text or {role, content, message_id?, ts?, session_id?, agent_id?,
        content_type?, parent_message_id?, metadata?}.
        """
        if self._reach.user_id is None:
            check_id(user_id, "user_id")
        reach, _ = self._reach.restrict(user_id, agent_id, session_id)
        deps = await self._runtime.prepared()
        owner = reach.to_owner(self._reach)
        return await ingest(messages, owner, self.settings.max_content_bytes, deps)

    async def messages(
        self,
        user_id: str | None = None,
        since: Time | None = None,
        until: Time | None = None,
        role: str | None = None,
        page_size: int = 50,
        cursor: str | None = None,
    ) -> Page[Message]:
        """The transcript, newest first; `since` is inclusive, `until` is not."""
        where = self._where(user_id, since, until, role)
        return await transcript.read(where, page_size, cursor, await self._runtime.deps())

    async def lexical_search(
        self,
        query_text: str,
        user_id: str | None = None,
        *,
        since: Time | None = None,
        until: Time | None = None,
        role: str | None = None,
        page_size: int = 50,
        cursor: str | None = None,
    ) -> Page[Hit]:
        """Messages by their words, best first; takes "phrases", AND, OR, NOT, prefix*, ( )."""
        where = self._where(user_id, since, until, role)
        deps = await self._runtime.deps()
        return await transcript.by_words(where, query_text, page_size, cursor, deps)

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
        where = self._where(user_id, since, until, role)
        asked = query_text if query_embedding is None else query_embedding
        both = query_text is not None and query_embedding is not None
        if asked is None or both or not isinstance(query_text, str | None):
            raise InvalidArgument(
                "give query_text, a text, or query_embedding: one of the two", field="query_text"
            )
        deps = await self._runtime.deps()
        return await transcript.by_meaning(where, asked, top_k, min_score, deps)

    async def hybrid_search(
        self,
        query_text: str,
        user_id: str | None = None,
        limit: int = 10,
        since: Time | None = None,
        until: Time | None = None,
        role: str | None = None,
        *,
        agent_id: str | None = None,
        session_id: str | None = None,
    ) -> list[Hit]:
        """Messages by words and meaning together, with the reasons for each."""
        where = self._where(user_id, since, until, role, agent_id, session_id)
        return list(await search(query_text, where, limit, await self._runtime.deps()))

    async def neighbors(
        self, message_id: str, user_id: str | None = None, before: int = 20, after: int = 0
    ) -> list[Message]:
        """A message in its context, in the order things were said."""
        where = self._where(user_id, None, None, None)
        found = check_id(message_id, "message_id")
        return await transcript.neighbors(where, found, before, after, await self._runtime.deps())

    async def _operate(self) -> Deps:
        """The deps for an operator's work, which no handle of one user may do."""
        self._check_unbound()
        return await self._runtime.deps()

    def _check_unbound(self) -> None:
        if self._reach.is_bound:
            raise PermissionDenied("a handle that is bound to someone's data cannot do this")

    def _where(
        self,
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
        if self._reach.user_id is None:
            check_id(user_id, "user_id")
        reach, _ = self._reach.restrict(user_id, agent_id, session_id)
        return Where(reach.scope, *to_range(since, until), role, sensitive=reach.sensitive)
