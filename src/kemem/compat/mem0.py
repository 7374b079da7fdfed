"""mem0's `AsyncMemory` over KeMem: what its HTTP routes and `kemem.integrations.mem0` share."""

import logging
from collections.abc import Mapping
from typing import Any, Self

from kemem.compat import mem0_values as values
from kemem.errors import InvalidArgument, NotFound
from kemem.memory import AsyncMemory as KeMem
from kemem.records import NOTE_KINDS
from kemem.results import is_over
from kemem.scope import CallScope
from kemem.settings import load

TOP_K = 20  # results of a call that names no number, as in mem0 2.x
_PAGE = 1000  # memories that are read at once
_INSTEAD = {
    "reference_date": "KeMem's search has as_of and past",
    "show_expired": "what has expired is erased",
}
_UNSET: Any = object()  # None clears an expiration date in mem0

log = logging.getLogger("kemem")


class MemoryNotFound(NotFound, ValueError):
    """No memory has this id for this caller; mem0 raises a ValueError."""


class AsyncMemory:
    """mem0's `AsyncMemory` over a KeMem memory of your own, or over one that settings describe.

        memory = AsyncMemory()
        await memory.add("我不吃辣", user_id="ann")
        await memory.search("火锅", filters={"user_id": "ann"})

    `ignored` names the parts of a mem0 config that mean nothing here.
    """

    def __init__(self, config: object = None, *, memory: KeMem | None = None) -> None:
        """`config` is mem0's, as an object or a dict; `memory` stays open when this is closed."""
        if config is not None and memory is not None:
            raise InvalidArgument("pass config or memory, not both", field="memory")
        chosen = values.Config.read(config)
        if chosen.ignored:
            log.warning("of the mem0 config this is ignored: %s", ", ".join(chosen.ignored))
        self.ignored = chosen.ignored
        self._prompt = chosen.instructions
        self._is_own = memory is None
        self._memory = memory or KeMem(settings=load(**chosen.settings))

    @classmethod
    def from_config(cls, config_dict: Mapping[str, Any]) -> Self:
        """A memory with the model and the instructions of a mem0 config; the rest is ignored."""
        return cls(config_dict)

    async def add(
        self,
        messages: Any,
        *,
        user_id: object = None,
        agent_id: object = None,
        run_id: object = None,
        metadata: Mapping[str, Any] | None = None,
        filters: Mapping[str, Any] | None = None,
        timestamp: object = None,
        expiration_date: object = None,
        infer: bool = True,
        memory_type: str | None = None,
        prompt: str | None = None,
    ) -> dict[str, Any]:
        """Remember a text or messages: {"results": [{"id", "memory", "event"}]}."""
        if memory_type is not None:
            reason = f"memory_type {memory_type!r:.80} has no counterpart; see KeMem's end_session"
            raise InvalidArgument(reason, field="memory_type")
        scope, _ = self._scope(user_id, agent_id, run_id, filters)
        if scope.filters is not None:
            raise InvalidArgument("filters of add hold ids and nothing else", field="filters")
        added = await self._memory.add(
            messages,
            **_ids(scope),
            metadata=metadata,
            timestamp=values.to_moment(timestamp),
            expires_at=values.to_expiry(expiration_date),
            infer=infer,
            prompt=prompt or self._prompt,
        )
        return {"results": values.to_events(added)}

    async def search(
        self,
        query: str,
        *,
        user_id: object = None,
        agent_id: object = None,
        run_id: object = None,
        limit: int | None = None,
        top_k: int | None = None,
        filters: Mapping[str, Any] | None = None,
        threshold: float | None = None,
        rerank: bool = True,
        explain: bool = False,
        reference_date: object = None,
        show_expired: bool = False,
    ) -> dict[str, Any]:
        """The memories that answer a question, best first: {"results": [{"id", "score", ...}]}.

        Scores are KeMem's, which are calibrated: 0.5 is a good `threshold`, and none is set.
        """
        _refuse(reference_date=reference_date, show_expired=show_expired)
        scope, conditions = self._scope(user_id, agent_id, run_id, filters)
        hits = await self._memory.search(
            query.strip() if isinstance(query, str) else query,
            **_ids(scope),
            filters=conditions,
            limit=min(values.to_count(limit, top_k, TOP_K), _PAGE),
            threshold=threshold,
            rerank=rerank,
            explain=explain,
            kinds=NOTE_KINDS,
        )
        return {"results": [values.to_memory(hit) for hit in hits if hits.past or not is_over(hit)]}

    async def get(self, memory_id: str) -> dict[str, Any] | None:
        """One memory, or None."""
        try:
            return values.to_memory(await self._memory.get(memory_id))
        except NotFound:
            return None

    async def get_all(
        self,
        *,
        user_id: object = None,
        agent_id: object = None,
        run_id: object = None,
        filters: Mapping[str, Any] | None = None,
        limit: int | None = None,
        top_k: int | None = None,
        show_expired: bool = False,
    ) -> dict[str, Any]:
        """Memories, newest first: {"results": [...]}; any number of them."""
        _refuse(show_expired=show_expired)
        scope, conditions = self._scope(user_id, agent_id, run_id, filters)
        left, cursor = values.to_count(limit, top_k, TOP_K), None
        memories: list[dict[str, Any]] = []
        while True:
            page = await self._memory.get_all(
                **_ids(scope),
                filters=conditions,
                limit=min(left, _PAGE),
                cursor=cursor,
                kinds=NOTE_KINDS,
            )
            memories += (values.to_memory(item) for item in page)
            left, cursor = left - len(page), page.next_cursor
            if cursor is None or left < 1:
                return {"results": memories}

    async def update(
        self,
        memory_id: str,
        text: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        expiration_date: object = _UNSET,
        data: str | None = None,
    ) -> dict[str, str]:
        """Change the text, or add to the metadata; `data` is another name of `text`."""
        if expiration_date is not _UNSET:
            reason = (
                "expiration_date of a stored memory cannot be changed; delete it and add it again"
            )
            raise InvalidArgument(reason, field="expiration_date")
        content = data if text is None else text
        if content is None and metadata is None:
            raise InvalidArgument("text or metadata is required", field="text")
        try:
            if metadata is not None:
                before = (await self._memory.get(memory_id)).metadata
                metadata = {**before, **metadata} if isinstance(metadata, Mapping) else metadata
            await self._memory.update(memory_id, content, metadata)
        except NotFound as error:
            raise MemoryNotFound(error.message, **error.details) from None
        return {"message": "Memory updated successfully!"}

    async def delete(self, memory_id: str) -> dict[str, str]:
        """Erase one memory; no search finds the messages behind it any more."""
        try:
            await self._memory.delete(memory_id)
        except NotFound as error:
            raise MemoryNotFound(error.message, **error.details) from None
        return {"message": "Memory deleted successfully!"}

    async def delete_all(
        self,
        user_id: object = None,
        agent_id: object = None,
        run_id: object = None,
        filters: Mapping[str, Any] | None = None,
    ) -> dict[str, str]:
        """Erase all that carries the ids: memories, messages and histories; `reset` is for more."""
        scope, conditions = self._scope(user_id, agent_id, run_id, filters)
        await self._memory.delete_all(**_ids(scope), filters=conditions)
        return {"message": "Memories deleted successfully!"}

    async def history(self, memory_id: str) -> list[dict[str, Any]]:
        """The changes of a memory, oldest first."""
        try:
            return values.to_history(await self._memory.history(memory_id, limit=_PAGE))
        except NotFound:
            return []

    async def reset(self) -> None:
        """Erase everything, of all users and agents."""
        agents: list[str] = []
        cursor: str | None = None
        while True:
            page = await self._memory.agents(limit=_PAGE, cursor=cursor)
            agents += (agent.id for agent in page.items)
            cursor = page.next_cursor
            if cursor is None:
                break
        for agent_id in agents:
            await self._memory.delete_all(agent_id=agent_id)

    async def close(self) -> None:
        """Close files and connections; a memory that was passed in stays open."""
        if self._is_own:
            await self._memory.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def _scope(
        self, user_id: object, agent_id: object, run_id: object, filters: object
    ) -> tuple[CallScope, Any]:
        """Whose memories a call means, and its filters; no call goes without an id."""
        user, agent, run = (values.to_id(it) for it in (user_id, agent_id, run_id))
        conditions = values.to_filters(filters) or None
        scope = self._memory.scope.restrict(user, agent, run, filters=conditions)
        if not scope.is_bound:
            reason = "user_id, agent_id or run_id is required, as in filters={'user_id': 'ann'}"
            raise InvalidArgument(reason, field="filters")
        return scope, conditions


def _ids(scope: CallScope) -> dict[str, Any]:
    return {
        "user_id": scope.user_id,
        "agent_id": scope.agent_id,
        "session_id": scope.session_id,
    }


def _refuse(**options: object) -> None:
    """Refuse options of mem0 that would be ignored otherwise."""
    for name, value in options.items():
        if value is not None and value is not False:
            raise InvalidArgument(f"{name} has no counterpart; {_INSTEAD[name]}", field=name)
