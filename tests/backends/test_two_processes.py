"""Several processes on one store agree on what is true now."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kemem import Memory
from kemem.settings import load
from tests import warm

USERS, TOGETHER = 80, 20
WRITER = """
import asyncio, json, sys
from kemem import AsyncMemory
from kemem.settings import load

async def main(options, texts, users, together):
    settings = load(**options, embedder="none", llm="none")
    async with AsyncMemory(settings=settings) as memory:
        await memory.health()
        for start in range(0, users, together):
            print("ready", flush=True)
            sys.stdin.readline()  # until the other one is, too
            chunk = range(start, start + together)
            adding = [memory.add(texts[user % 2], f"u{user}") for user in chunk]
            for added in await asyncio.gather(*adding):
                assert not added.pending and not added.problems, added
    print("done", flush=True)

asyncio.run(main(*json.loads(sys.argv[1])))
"""
HOMES = (("I moved to Rome.", "我搬到了罗马。"), ("I moved to Oslo.", "我搬到了奥斯陆。"))


@pytest.fixture(params=["sqlite", "postgresql"])
def options(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Where a store is."""
    if request.param == "sqlite":
        return {"data_dir": str(tmp_path)}
    return {"database_url": request.getfixturevalue("store_database")}


def test_two_processes_leave_no_user_with_two_homes(options: dict[str, Any]) -> None:
    """Of 80 users whom each of them tells of another move, at the same time."""
    with Memory(settings=load(**options, embedder="none", llm="none")) as memory:
        memory.health()  # the tables are there
        writers = [
            subprocess.Popen(
                [*warm.python(), "-c", WRITER, json.dumps([options, texts, USERS, TOGETHER])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for texts in HOMES
        ]
        for _ in range(USERS // TOGETHER):
            for writer in writers:
                assert writer.stdout and writer.stdout.readline() == "ready\n"
            for writer in writers:
                assert writer.stdin
                writer.stdin.write("go\n")
                writer.stdin.flush()
        assert [writer.communicate(timeout=120)[0] for writer in writers] == ["done\n"] * 2
        homes: dict[str, list[str]] = {f"u{user}": [] for user in range(USERS)}
        for item in memory.get_all(agent_id="default", kinds=["user_info"], limit=1000):
            homes[item.row.user_id].append(item.memory)
        assert {user: found for user, found in homes.items() if len(found) != 1} == {}
