"""The parts of a memory, opened with the first call and shared by its handles."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

from kemem.assemble import assemble
from kemem.errors import Unavailable
from kemem.fork import ProcessBound
from kemem.jobs import prepare
from kemem.ports import Deps, Embedder, OnReply, Reply, Reranker
from kemem.records import Micros
from kemem.settings import Settings
from kemem.uses import Uses

_DAY = 86_400.0  # seconds


class Runtime(ProcessBound):
    """Opens once, closes once."""

    def __init__(
        self,
        settings: Settings,
        *,
        embedder: Embedder | None,
        llm: object,
        reranker: Reranker | None,
        clock: Callable[[], Micros] | None,
    ) -> None:
        self.settings = settings
        self._given = (embedder, llm, reranker, clock)
        self._owns_llm = llm is None  # one that is given is closed by its owner
        self._lock = asyncio.Lock()
        self._deps: Deps | None = None
        self._closed = False
        self._model_noted = False
        self._forgot: float | None = None
        self.uses = Uses()
        self.on_reply: list[OnReply] = []  # listeners; they may come and go at any time
        self.on_recall: list[Callable[[Any], None]] = []

    async def deps(self) -> Deps:
        """The deps; the store is opened by whoever asks first."""
        self.use()
        if self._deps and not self._closed:
            return self._deps
        async with self._lock:
            if self._closed:
                raise Unavailable("this memory is closed")
            if self._deps is None:
                deps = await asyncio.to_thread(assemble, self.settings, *self._given)
                self._deps = replace(deps, on_reply=self.replied)
        return self._deps

    def replied(self, seconds: float, is_of_use: bool, reply: Reply | None) -> None:
        """Call the listeners with a reply of the LLM."""
        for listener in self.on_reply:
            listener(seconds, is_of_use, reply)

    def recalled(self, report: Any) -> None:
        """Call the listeners with a recall that has ended, of the memory or of a handle."""
        for listener in self.on_recall:
            listener(report)

    async def prepared(self) -> Deps:
        """The deps for work that makes vectors; reading with another model changes nothing."""
        deps = await self.deps()
        if not self._model_noted:
            await prepare(deps)
            self._model_noted = True
        return deps

    def forgetting_is_due(self) -> bool:
        """Whether a day has passed since this was last asked and true."""
        now = time.monotonic()
        due = self._forgot is None or now - self._forgot >= _DAY
        self._forgot = now if due else self._forgot
        return due

    async def close(self) -> None:
        """Let go of files and connections; what is closed stays closed."""
        if self.is_forked:  # connections and threads are the parent's
            return
        async with self._lock:
            was_closed, self._closed = self._closed, True
            if self._deps and not was_closed:
                with suppress(Unavailable):  # a count is not worth a failure
                    await self.uses.flush(self._deps)
                if self._deps.graph:
                    await self._deps.graph.close()
                await self._deps.store.close()
                if self._owns_llm and (close := getattr(self._deps.llm, "close", None)):
                    await close()
