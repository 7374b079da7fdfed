"""A PostgreSQL that restarts under load: nothing acknowledged is lost, and service resumes."""

import asyncio
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import httpx
import psycopg
import pytest

from kemem import AsyncMemory, Unavailable
from kemem.ports import Prompt
from kemem.settings import load
from kemem.testing import ScriptedLLM
from kemem.testing.postgres import PostgresServer, postgres_server
from tests.fixtures import new_database
from tests.server import running_server, wait_for

WRITERS = 4
FACTS = {"我不吃辣，我住在杭州。": "用户不吃辣", "I am vegan, and live in Oslo.": "User is vegan"}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A server of this module's own, which its tests stop and start; each has a new database."""
    with postgres_server() as running:
        yield running


async def restart_under_load(server: PostgresServer, memory: AsyncMemory) -> tuple[set[str], int]:
    """What was acknowledged, and how many calls failed."""
    stored, failed, resumed = set[str](), 0, asyncio.Event()

    async def write(number: int) -> None:
        nonlocal failed
        for turn in count():
            name = f"m{number}_{turn}"
            said = {"role": "user", "content": "我不吃辣 no spice", "message_id": name}
            try:
                await memory.ingest(said, f"u{number}")
                await memory.messages(f"u{number}", page_size=1)
            except Unavailable:  # any other error fails the test
                failed += 1
                await asyncio.sleep(0.05)
            else:
                stored.add(name)
                if resumed.is_set():
                    return

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        for number in range(WRITERS):
            group.create_task(write(number))
        while len(stored) < 3 * WRITERS:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(server.stop)
        await asyncio.to_thread(server.start)
        resumed.set()
    return stored, failed


async def test_a_restart_under_load_loses_nothing(server: PostgresServer) -> None:
    settings = load(database_url=new_database(server.url), embedder="none", llm="none")
    async with AsyncMemory(settings=settings) as memory:
        await memory.health()
        acknowledged, failed = await restart_under_load(server, memory)
        assert failed
        for number in range(WRITERS):
            page = await memory.messages(f"u{number}", page_size=1000)
            own = {name for name in acknowledged if name.startswith(f"m{number}_")}
            assert own <= {message.message_id for message in page.items}


async def test_a_job_under_a_restart_is_taken_up_again(server: PostgresServer) -> None:
    """By the worker that held it, at once and not when its lease has ended; it is done once."""

    def answer(prompt: Prompt) -> object:
        if len(llm.calls) == 1:
            server.stop()  # what the answer says cannot be written, nor that it was not
        said = prompt[-1]["content"].rpartition("<conversation>")[2]
        return {"facts": [{"text": fact} for text, fact in FACTS.items() if text in said]}

    llm = ScriptedLLM([answer], repeat=True)
    settings = load(database_url=new_database(server.url), embedder="none")
    async with AsyncMemory(settings=settings, llm=llm) as memory:
        for text in FACTS:
            await memory.add(text, "u", wait=False)
        for _ in range(2):
            with pytest.raises(Unavailable, match="PostgreSQL"):
                await memory.run_jobs()
        await asyncio.to_thread(server.start)
        assert await memory.run_jobs()
        assert await memory.jobs() == []
        texts = [it.memory for it in await memory.get_all("u")]
        assert all(texts.count(fact) == 1 for fact in FACTS.values()), texts
        assert len({it.id for it in await memory.get_all("u")}) == len({*texts})


def test_a_server_says_once_that_its_store_is_away_and_that_it_is_back(
    tmp_path: Path, server: PostgresServer
) -> None:
    """Not with each request that it refuses; these are told when to come again."""
    asked = [{"query": it, "user_id": "u"} for it in ("辣", "spice")]
    running = running_server(tmp_path / "data", database_url=new_database(server.url))
    with running as kemem, kemem.client() as client:

        def search(number: int) -> httpx.Response:
            return client.post("/v1/memories/search", json=asked[number % 2])

        def logged(event: str) -> int:
            return kemem.log.read_text("utf-8").count(f'"event": "{event}"')

        assert search(0).status_code == 200
        server.stop()
        for number in range(6):
            answer = search(number)
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
            assert client.get("/readyz").status_code == 503
        wait_for(lambda: logged("jobs failed") == 1)
        assert 1 <= logged("cannot serve now") <= 4  # by its reason, not by its requests
        assert logged("store does not answer") == 1
        server.start()
        wait_for(lambda: logged("jobs succeeded again") == 1)
        assert search(1).status_code == 200
        assert logged("jobs failed") == 1 and "Traceback" not in kemem.log.read_text("utf-8")


async def test_a_statement_that_takes_too_long_is_given_up(store_database: str) -> None:
    """As is one that waits for a lock, which an operator holds here."""
    options = {"database_timeout_seconds": 0.2, "embedder": "none", "llm": "none"}
    async with AsyncMemory(settings=load(database_url=store_database, **options)) as memory:
        await memory.ingest("我不吃辣", "小明")
        with psycopg.connect(store_database) as operator:
            operator.execute("LOCK TABLE message")
            with pytest.raises(Unavailable, match=r"longer than 0\.2 seconds"):
                await memory.ingest("still here", "小明")
        assert (await memory.ingest("still here", "小明")).inserted
