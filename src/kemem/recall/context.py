"""MemoryContext: the end of a conversation, and the rounds of a recall that look at it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from kemem.errors import InvalidArgument, NotFound
from kemem.recall.desk import TOOL_SECONDS, Desk, MemoryReader
from kemem.results import Item

log = logging.getLogger("kemem")

Round = Callable[[Desk, Sequence[Item]], Awaitable[int | None]]


class MemoryContext:
    """Shows the last messages, and more of them whenever a round ends with an expansion."""

    def __init__(self, memory: MemoryReader, session_id: str | None = None) -> None:
        self._memory = memory
        self._session_id = session_id

    async def relaunch(self, desk: Desk, play: Round) -> None:
        """Play rounds until one asks for no larger window."""
        size: int | None = min(desk.budget.window, desk.budget.max_window)
        while size is not None:
            window = await self._last(size, desk)
            desk.windows.append(len(window))
            size = await play(desk, window)
            if size is not None:
                desk.iteration += 1
                desk.in_a_row = 0

    async def _last(self, size: int, desk: Desk) -> Sequence[Item]:
        """The newest messages in the order they were said; a recall can do without them."""
        try:
            async with asyncio.timeout(min(TOOL_SECONDS, desk.seconds_left)):
                page = await self._memory.get_all(
                    session_id=self._session_id, kinds=["message"], limit=size
                )
        except (InvalidArgument, NotFound):
            raise
        except Exception as error:  # the store's code or network, which may raise anything
            log.warning("recall: the conversation failed: %s", type(error).__name__)
            desk.problems.append(desk.say("无法读取对话", "the conversation could not be read"))
            return ()
        desk.has_more = page.next_cursor is not None
        return page.items[::-1]
