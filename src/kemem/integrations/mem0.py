"""mem0's classes over KeMem: the same arguments, the same results, another memory behind them.

    from kemem.integrations.mem0 import Memory  # was: from mem0 import Memory

It takes the calls of mem0 1.x (`user_id=`, `limit=`, `data=`) and of 2.x (`filters=`, `top_k=`,
`text=`), and does not need mem0 itself.
"""

from collections.abc import Mapping
from typing import Any, Self

from kemem.compat.mem0 import AsyncMemory, MemoryNotFound
from kemem.memory import AsyncMemory as KeMem
from kemem.sync import Portal, blocking

__all__ = ["AsyncMemory", "Memory", "MemoryNotFound"]


class Memory:
    """mem0's `Memory`: AsyncMemory for code that does not await.

    memory = Memory()
    memory.add("我不吃辣", user_id="ann")
    memory.search("火锅", filters={"user_id": "ann"})
    """

    def __init__(self, config: object = None, *, memory: KeMem | None = None) -> None:
        self._memory = AsyncMemory(config, memory=memory)
        self._portal = Portal()

    @classmethod
    def from_config(cls, config_dict: Mapping[str, Any]) -> Self:
        """A memory with the model and the instructions of a mem0 config; the rest is ignored."""
        return cls(config_dict)

    @property
    def ignored(self) -> tuple[str, ...]:
        """The parts of the config that mean nothing here."""
        return self._memory.ignored

    add = blocking(AsyncMemory.add)
    search = blocking(AsyncMemory.search)
    get = blocking(AsyncMemory.get)
    get_all = blocking(AsyncMemory.get_all)
    update = blocking(AsyncMemory.update)
    delete = blocking(AsyncMemory.delete)
    delete_all = blocking(AsyncMemory.delete_all)
    history = blocking(AsyncMemory.history)
    reset = blocking(AsyncMemory.reset)

    def close(self) -> None:
        """Close files and connections; a memory that was passed in stays open."""
        self._portal.close(self._memory.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
