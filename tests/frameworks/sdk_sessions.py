"""A pytest plugin that runs the Agents SDK's own tests of sessions on MemorySession.

Its tests make a SQLiteSession; with this plugin, that name is a MemorySession whose store is opened
in the constructor, as theirs is. Each of their database files is another user. The plugin is loaded
by its file's name alone, because the SDK's tests are a package called `tests`, too.
"""

import asyncio
import inspect
import itertools
import tempfile
import threading
from functools import cache
from pathlib import Path
from typing import Any

import agents
import agents.memory
import pytest

from kemem import AsyncMemory
from kemem.chat.session import MemorySession
from kemem.settings import load

_directory = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
_owners = itertools.count()


@cache
def opened() -> AsyncMemory:
    """The memory of all sessions."""
    place = Path(_directory.name)
    memory = AsyncMemory(settings=load(data_dir=place, embedder="none", llm="none"))

    async def read() -> None:
        await memory.health()

    opening = threading.Thread(target=lambda: asyncio.run(read()))
    opening.start()
    opening.join()
    return memory


@cache
def owner(db_path: str) -> str:
    """The user who stands for a database file."""
    return f"user_{next(_owners)}"


class SwappedSession(MemorySession):
    """A MemorySession that is made as the SDK's SQLiteSession is."""

    def __init__(
        self, session_id: str, db_path: str | Path = ":memory:", session_settings: Any = None
    ) -> None:
        place = str(db_path) if db_path != ":memory:" else f":memory:{next(_owners)}"
        super().__init__(
            opened(), session_id, user_id=owner(place), session_settings=session_settings
        )

    def close(self) -> None:
        """Nothing: a memory is closed by who opened it, here the end of the process."""


for _package in (agents, agents.memory):
    vars(_package)["SQLiteSession"] = SwappedSession


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an async test, which the SDK leaves to a package that we do not install."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
