"""The clocks of `bench.cost`."""

from pathlib import Path

from bench.cost import STAGES, watched
from kemem import AsyncMemory

USER = "u"


async def test_every_stage_of_a_search_has_a_clock(tmp_path: Path) -> None:
    """A stage by another name would stop the measurement."""
    async with AsyncMemory(data_dir=tmp_path) as memory:
        await memory.add("I keep two llamas.", user_id=USER)
        with watched() as watch:
            await memory.hybrid_search("What animals do I keep?", USER)
    assert {*watch.spent} == {stage for _, _, stage in STAGES}
