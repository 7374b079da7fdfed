"""A client whose chat calls are told of: the time each took, whether it answered, its tokens."""

import time
from typing import Any

from kemem.ports import OnReply, Reply


class Metered:
    """What is not metered is the client's own.

    Only `chat.completions.create` of an asynchronous client is: chats call nothing else.
    """

    def __init__(self, inner: Any, told: OnReply) -> None:
        self._inner = inner
        self._told = told

    def __getattr__(self, name: str) -> Any:
        own = getattr(self._inner, name)
        return Metered(own, self._told) if name in ("chat", "completions") else own

    async def create(self, **request: Any) -> Any:
        """Ask, and tell when all of the answer has come."""
        call = _Call(self._told)
        try:
            answer = await self._inner.create(**request)
        except BaseException:
            call.end(False)
            raise
        if hasattr(answer, "__anext__"):
            return _Stream(answer, call)
        call.take(answer)
        call.end(True)
        return answer


class _Call:
    """One call, told of once."""

    def __init__(self, told: OnReply) -> None:
        self._told = told
        self._begun = time.perf_counter()
        self._tokens = (0, 0)
        self._has_ended = False

    def take(self, answer: Any) -> None:
        """Note the tokens that an answer or a chunk names; not every server does."""
        if usage := getattr(answer, "usage", None):
            self._tokens = (usage.prompt_tokens or 0, usage.completion_tokens or 0)

    def end(self, is_of_use: bool) -> None:
        """Tell of it."""
        if not self._has_ended:
            self._has_ended = True
            self._told(time.perf_counter() - self._begun, is_of_use, Reply("", *self._tokens))


class _Stream:
    """An answer in chunks; who stops reading ends the call."""

    def __init__(self, inner: Any, call: _Call) -> None:
        self._inner = inner
        self._call = call

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def __aiter__(self) -> "_Stream":
        return self

    async def __anext__(self) -> Any:
        try:
            chunk = await anext(self._inner)
        except StopAsyncIteration:
            self._call.end(True)
            raise
        except Exception:
            self._call.end(False)
            raise
        self._call.take(chunk)
        return chunk

    async def close(self) -> None:
        """End it early."""
        self._call.end(True)
        await self._inner.close()
