"""A conversation that an application keeps itself, stored message by message as it goes on."""

import json
import logging
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from kemem.errors import KeMemError
from kemem.memory import AsyncMemory

INSTRUCTIONS = ("system", "developer")
_ANSWERED = ("user", "tool", "function")  # roles that wait for a reply

log = logging.getLogger("kemem")


class Conversation:
    """The messages of a request, under ids that are the same when the request is sent again.

    An id comes from whose the conversation is and from all that was said until then; instructions
    do not count, they may tell the time.
    """

    def __init__(
        self, memory: AsyncMemory, session_id: str, messages: Sequence[Mapping[str, Any]]
    ) -> None:
        last, reach = messages[-1], memory.reach
        self._memory = memory
        self._session_id = session_id
        self._waits = last["role"] in _ANSWERED
        self._digest = sha256(json.dumps([reach.agent_id, reach.user_id, session_id]).encode())
        self.ids = [self._next_id(message) for message in messages]
        self.asked = next((_text(it) for it in reversed(messages) if it["role"] == "user"), "")
        self.heard = self.asked if last["role"] == "user" else ""  # what is new, if it has words

    async def keep_heard(self) -> None:
        """Store what the user said; it is durable on return."""
        said = {"role": "user", "content": self.heard, "message_id": self.ids[-1]}
        await self._memory.add([said], session_id=self._session_id, wait=False)

    async def keep_reply(self, text: str, *, partial: bool = False) -> None:
        """Store what was replied; what cannot be stored has been said all the same."""
        if not self._waits or not text.strip():
            return
        reply = {"role": "assistant", "content": text}
        message_id = self._next_id({**reply, "partial": partial})
        try:
            await self._memory.add(
                [{**reply, "message_id": message_id}],
                session_id=self._session_id,
                metadata={"partial": True} if partial else None,
                wait=False,
            )
        except KeMemError as error:
            log.error("a reply could not be stored: %s", error.code)

    def _next_id(self, message: Mapping[str, Any]) -> str:
        if message["role"] not in INSTRUCTIONS:
            told = {name: value for name, value in message.items() if value}
            self._digest.update(json.dumps(told, sort_keys=True).encode())
        return f"m_{self._digest.hexdigest()[:40]}"


def _text(message: Mapping[str, Any]) -> str:
    """The words of a message, without its images; nothing where they are blank."""
    content = message.get("content") or ""
    if not isinstance(content, str):
        parts = (part.get("text") for part in content if part.get("type") == "text")
        content = "\n".join(part for part in parts if isinstance(part, str))
    return content if content.strip() else ""
