"""A conversation that the application keeps: its messages are stored one by one, once each."""

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
    """The messages of a request under idempotent ids: the same when the request is sent again.

    An id is a hash of the owner and of all messages up to that one; instructions do not count,
    they may tell the time.
    """

    def __init__(
        self, memory: AsyncMemory, session_id: str, messages: Sequence[Mapping[str, Any]]
    ) -> None:
        last, scope = messages[-1], memory.reach
        self._memory = memory
        self._session_id = session_id
        self._awaits_reply = last["role"] in _ANSWERED
        self._digest = sha256(json.dumps([scope.agent_id, scope.user_id, session_id]).encode())
        self.ids = [self._next_id(message) for message in messages]
        self.query = next((_text(it) for it in reversed(messages) if it["role"] == "user"), "")
        self._new = self.query if last["role"] == "user" else ""

    async def store_message(self) -> None:
        """Store the user's new message, if it has words; it is durable on return."""
        if self._new:
            message = {"role": "user", "content": self._new, "message_id": self.ids[-1]}
            await self._memory.add([message], session_id=self._session_id, wait=False)

    async def store_reply(self, text: str, *, partial: bool = False) -> None:
        """Store the reply; a failure is only logged, since the application has the reply."""
        if not self._awaits_reply or not text.strip():
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
            fields = {name: value for name, value in message.items() if value}
            self._digest.update(json.dumps(fields, sort_keys=True).encode())
        return f"m_{self._digest.hexdigest()[:40]}"


def _text(message: Mapping[str, Any]) -> str:
    """The words of a message, without its images; nothing where they are blank."""
    content = message.get("content") or ""
    if not isinstance(content, str):
        parts = (part.get("text") for part in content if part.get("type") == "text")
        content = "\n".join(part for part in parts if isinstance(part, str))
    return content if content.strip() else ""
