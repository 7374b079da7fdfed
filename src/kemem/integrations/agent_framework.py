"""KeMemContextProvider: memory for agents of Microsoft's Agent Framework."""

from collections.abc import Sequence
from typing import Any

from agent_framework import (
    AgentSession,
    ContextProvider,
    Message,
    SessionContext,
    SupportsAgentRun,
)

from kemem.compat.tools import memories_text
from kemem.memory import AsyncMemory
from kemem.sync import bind

_SPEAKERS = ("user", "assistant")


class KeMemContextProvider(ContextProvider):
    """Puts what one user's memories answer before a run, and remembers what both sides say.

        provider = KeMemContextProvider(memory, user_id="u_1")
        agent = Agent(client=client, context_providers=[provider])

    Memories come as data, up to `limit` of them, and nothing where none answers. What is said in a
    run is a message of the session; a job draws facts from it.
    """

    def __init__(
        self,
        memory: AsyncMemory,
        *,
        user_id: str,
        agent_id: str | None = None,
        limit: int = 10,
        source_id: str = "kemem",
    ) -> None:
        super().__init__(source_id)
        self._memory = bind(memory, user_id, agent_id)
        self._limit = limit

    async def before_run(
        self,
        *,
        agent: SupportsAgentRun,
        session: AgentSession,
        context: SessionContext,
        state: dict[str, Any],
    ) -> None:
        """Add the memories that answer what the user says."""
        query = "\n".join(
            content for role, content in _said(context.input_messages) if role == "user"
        )
        if not query:
            return
        hits = await self._memory.search(query, limit=self._limit)
        if text := memories_text(query, hits):
            context.extend_messages(self, [Message("user", [text])])

    async def after_run(
        self,
        *,
        agent: SupportsAgentRun,
        session: AgentSession,
        context: SessionContext,
        state: dict[str, Any],
    ) -> None:
        """Store what both sides said."""
        answers = context.response.messages if context.response else []
        said = _said([*context.input_messages, *answers])
        messages = [{"role": role, "content": content} for role, content in said]
        if messages:
            await self._memory.add(messages, session_id=session.session_id, wait=False)


def _said(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """Who said what, without calls and results of tools."""
    said = [(str(message.role), message.text) for message in messages]
    return [(role, text) for role, text in said if role in _SPEAKERS and text.strip()]
