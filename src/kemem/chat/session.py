"""MemorySession: a session of the OpenAI Agents SDK, kept in the message log."""

from typing import TYPE_CHECKING, Any, cast

from kemem.chat.items import ItemLog
from kemem.memory import AsyncMemory

if TYPE_CHECKING:
    from agents.items import TResponseInputItem
    from agents.memory import SessionSettings


class MemorySession:
    """The history of one conversation for the Agents SDK, kept as messages of one user.

    What both sides say is found, cited and remembered like any other message. Calls of tools and
    what they returned stand beside it in the log; no memories are drawn from them.

        session = MemorySession(memory, "s_1", user_id="u_1")
        await Runner.run(agent, "我下周去成都", session=session)
    """

    session_settings: "SessionSettings | None"

    def __init__(
        self,
        memory: AsyncMemory,
        session_id: str,
        *,
        user_id: str,
        agent_id: str | None = None,
        session_settings: "SessionSettings | dict[str, Any] | None" = None,
    ) -> None:
        from agents.memory.session_settings import coerce_session_settings

        bound = memory.scope
        handle = memory.for_user(
            user_id,
            agent_id=agent_id if agent_id is not None else bound.agent_id or "default",
            session_id=session_id,
            sensitive=bound.is_bound and bound.sensitive,
        )
        self._log = ItemLog(handle)
        self.session_id = session_id
        self.session_settings = coerce_session_settings(session_settings or {})

    async def get_items(self, limit: int | None = None) -> "list[TResponseInputItem]":
        """The newest items, oldest of them first; all without a limit here or in the settings.

        An item is as it was added. Messages that came another way are items, too. A call whose
        result is missing is among them: the SDK's runner leaves it out by itself.
        """
        from agents.memory.session_settings import resolve_session_limit

        items = await self._log.newest(resolve_session_limit(limit, self.session_settings))
        return [cast("TResponseInputItem", item) for item in items]

    async def add_items(self, items: "list[TResponseInputItem]") -> None:
        """Append items, durable on return: all of them, or where one is invalid, none.

        Their texts can be found at once; a job draws facts from them.
        """
        await self._log.add(items)

    async def pop_item(self) -> "TResponseInputItem | None":
        """Take the newest item out of the log, with the memories that were drawn from it alone."""
        return cast("TResponseInputItem | None", await self._log.pop())

    async def clear_session(self) -> None:
        """Erase all of this session, what was remembered of it included."""
        await self._log.clear()
