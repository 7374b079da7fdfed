"""The command that fills a fresh store with examples, so that there is something to look at."""

import asyncio
import shlex
import time

import typer

from kemem.assemble import system_clock
from kemem.errors import Conflict
from kemem.memory import AsyncMemory
from kemem.serve.cli.doctor import shown_url
from kemem.serve.cli.terminal import Common, Yes, output, progress
from kemem.serve.demo.asking import ask, read_questions
from kemem.serve.demo.world import World, read_world, tell
from kemem.settings import Settings
from kemem.sync import Memory

STORE_FILE = "kemem.db"  # of the embedded store
TO_TRY = (
    "kemem search 我上周说的那家牙医叫什么 --user lin_yue",
    'kemem recall "Does Grace still eat bacon?" --user grace',
    "kemem serve",
)


def demo(common: Common, yes: Yes = False) -> None:
    """Fill a fresh store with examples in Chinese and English."""
    settings = common.settings
    _refuse_what_is_used(settings)
    if not yes:
        question = f"Fill the empty store {_place(settings)} with made-up people?"
        typer.confirm(question, abort=True, err=True)
    started = time.perf_counter()
    world = read_world(system_clock())
    asyncio.run(_fill(world, settings))
    with Memory(settings=settings) as memory:
        counts = {**_counts(memory), "workspaces": len({task for task, _ in world.files})}
    common.print_counts(counts, time.perf_counter() - started)
    if common.as_json:
        return
    here = f" --data-dir {shlex.quote(str(common.data_dir))}" if common.data_dir else ""
    here = (
        " --database-url URL" if common.database_url else here
    )  # the URL itself may hold a password
    output.print("Try:", *(f"  {command}{here}" for command in TO_TRY), sep="\n")


async def _fill(world: World, settings: Settings) -> None:
    """Tell the world, make its vectors, and ask about it."""
    with progress("Telling", len(world.happened)) as advance:
        await tell(world, settings, system_clock(), advance)
    plain = settings.model_copy(update={"llm": "none"})
    async with AsyncMemory(settings=plain) as memory:
        with progress("Making vectors", None):
            # run_jobs would make none where a server has noted its model before
            await memory.reindex()
        questions = read_questions()
        with progress("Asking", len(questions)) as advance:
            await ask(questions, memory, advance)


def is_empty(settings: Settings) -> bool:
    """Whether the embedded store has nothing in it; of a database elsewhere it is not asked."""
    if settings.database_url is not None:
        return False
    if not (settings.data_dir / STORE_FILE).exists():
        return True
    with _opened(settings) as memory:
        return not memory.agents(limit=1).items


def _refuse_what_is_used(settings: Settings) -> None:
    """Examples are never mixed with what is real."""
    with _opened(settings) as memory:
        found = memory.health()
        if found.messages or found.notes or memory.agents(limit=1).items:
            raise Conflict(
                f"the store {_place(settings)} is in use ({found.messages} messages, "
                f"{found.notes} notes): examples go into a fresh one, as in "
                "kemem demo --data-dir demo"
            )


def _opened(settings: Settings) -> Memory:
    """The store without a model or a graph database beside it."""
    return Memory(settings=settings.model_copy(update={"llm": "none", "neo4j_url": None}))


def _place(settings: Settings) -> str:
    url = settings.database_url
    return str(settings.data_dir) if url is None else shown_url(url)


def _counts(memory: Memory) -> dict[str, int]:
    """What is stored now."""
    found = memory.health()
    users = memory.users().items
    relations = sum(len(memory.graph(user.id, limit=1000)) for user in users)
    return {
        "users": len({user.id for user in users}),
        "messages": found.messages,
        "notes": found.notes,
        "relations": relations,
    }
