"""On PostgreSQL calls are counted by how often they wait for the network, not by statements."""

from collections.abc import AsyncIterator

import pytest
from sqlalchemy.engine import make_url

from kemem.memory import AsyncMemory
from kemem.settings import load
from kemem.testing import HashingEmbedder
from tests.balancer import Balancer, balanced


@pytest.fixture
async def memory(store_database: str) -> AsyncIterator[tuple[AsyncMemory, Balancer]]:
    """A memory that reaches its database through something that counts."""
    url = make_url(store_database)
    with balanced([(url.host or "", url.port or 0)]) as counter:
        via = url.set(port=counter.port).render_as_string(hide_password=False)
        settings = load(database_url=via, llm="none")
        async with AsyncMemory(settings=settings, embedder=HashingEmbedder()) as opened:
            yield opened, counter


async def test_a_single_add_waits_four_times(memory: tuple[AsyncMemory, Balancer]) -> None:
    """BEGIN and COMMIT included; messages, words, vectors and counters are written."""
    opened, counter = memory
    await opened.ingest("我不吃辣", "小明")
    counter.round_trips = 0
    assert (await opened.ingest("I don't eat spicy food", "小明")).inserted
    assert counter.round_trips <= 4
    counter.round_trips = 0
    assert (await opened.add("喜欢火锅 hotpot", "小明", infer=False)).results
    assert counter.round_trips <= 4
