"""KeMemMemoryBlock: one user's memories in the Memory of LlamaIndex."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from llama_index.core.llms import ChatMessage
from llama_index.core.memory import BaseMemoryBlock
from pydantic import PrivateAttr

from kemem.compat.tools import memories_text
from kemem.memory import AsyncMemory
from kemem.results import Hit
from kemem.sync import Memory, UserCalls
from kemem.text.shapes import role_of

_SPEAKERS = ("user", "assistant")
_MAX_HITS = 100


class _Said(NamedTuple):
    role: str
    text: str
    number: int  # how often the same was said before


class KeMemMemoryBlock(BaseMemoryBlock[list[ChatMessage]]):
    """Puts what one user's memories answer before a history, and remembers what both sides say.

        block = KeMemMemoryBlock(Memory(), user_id="u_1")
        memory = llama_index.core.memory.Memory.from_defaults("s_1", memory_blocks=[block])

    Memories come as a message of data, up to `limit` of them, and none where nothing answers. A
    `Memory` serves blocking and async engines and agents, an `AsyncMemory` async ones.
    """

    name: str = "kemem"
    limit: int = 10
    _calls: UserCalls = PrivateAttr()

    def __init__(
        self,
        memory: Memory | AsyncMemory,
        *,
        user_id: str,
        agent_id: str | None = None,
        **fields: Any,
    ) -> None:
        super().__init__(**fields)
        self._calls = UserCalls(memory, user_id, agent_id)

    async def _aget(
        self,
        messages: list[ChatMessage] | None = None,
        session_id: str | None = None,
        **block_kwargs: Any,
    ) -> list[ChatMessage]:
        """What answers the last message of the user; what is new of the history is stored.

        LlamaIndex hands a block only what leaves a long history: most would never be remembered.
        """
        said = _said(messages or [])
        text = await self._calls.wait(self._answer(said, session_id))
        return [ChatMessage(role="user", content=text)] if text else []

    async def _aput(self, messages: list[ChatMessage]) -> None:
        """Store what both sides said."""
        session_id = messages[0].additional_kwargs.get("session_id") if messages else None
        await self._calls.wait(self._store(_said(messages), session_id))

    async def _answer(self, said: Sequence[_Said], session_id: str | None) -> str:
        users = [at for at, it in enumerate(said) if it.role == "user"]
        if not users:
            return ""
        query = said[users[-1]].text
        size = min(self.limit + len(said), _MAX_HITS)
        hits = await self._calls.memory.search(query, limit=size)
        texts = {it.text for it in said}
        others = [hit for hit in hits if not _is_shown(hit, texts, session_id)]
        # The last turn, and the answer of the turn before, which an engine adds after it reads.
        await self._store(said[users[-2] + 1 if users[1:] else 0 :], session_id)
        return memories_text(query, replace(hits, items=tuple(others[: self.limit])))

    async def _store(self, said: Sequence[_Said], session_id: str | None) -> None:
        # The same history comes again and again: an id makes a message the same one.
        messages = [
            {"role": it.role, "content": it.text, "id": f"llama_index {it.number}"} for it in said
        ]
        if messages:
            await self._calls.memory.add(messages, session_id=session_id, wait=False)


def _said(messages: Sequence[ChatMessage]) -> list[_Said]:
    """Who said what, without calls and results of tools."""
    said: list[_Said] = []
    counts: Counter[tuple[str, str]] = Counter()
    for message in messages:
        role, text = str(role_of(message.role.value)), message.content or ""
        if role not in _SPEAKERS or not text.strip():
            continue
        if said and said[-1][:2] == (role, text):  # an agent that goes on asks the same again
            continue
        said.append(_Said(role, text, counts[role, text]))
        counts[role, text] += 1
    return said


def _is_shown(hit: Hit, texts: set[str], session_id: str | None) -> bool:
    """Whether a hit is a message of the history, which the model reads anyway."""
    if hit.kind != "message":
        return False
    return hit.message.session_id == session_id and hit.message.content in texts
