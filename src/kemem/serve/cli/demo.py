"""The command that fills a fresh store with examples."""

import asyncio
import time

import typer

from kemem.errors import Conflict
from kemem.memory import AsyncMemory
from kemem.runtime import system_clock
from kemem.serve.cli.console import output
from kemem.serve.cli.language import t
from kemem.serve.cli.terminal import Common, Yes, progress
from kemem.serve.demo.world import evaluate, fill, read_questions, read_world
from kemem.serve.telemetry.audit import STORE_FILE
from kemem.settings import Settings, shown_url
from kemem.sync import Memory

TO_TRY = (
    "kemem search 我上周说的那家牙医叫什么 --user lin_yue",
    'kemem recall "Does Grace still eat bacon?" --user grace',
    "kemem serve",
)


def demo(common: Common, yes: Yes = False) -> None:
    """Fill a fresh store with examples in Chinese and English.

    $ kemem demo --data-dir demo
    """
    settings, url = common.settings, common.settings.database_url
    place = str(settings.data_dir) if url is None else shown_url(url)
    with _open_store(settings) as memory:
        health = memory.health()
        if health.messages or health.notes or memory.agents(limit=1).items:
            reason = t(
                "the store {place} is in use ({messages} messages, {notes} notes): "
                "examples go into a fresh one, as in kemem demo --data-dir demo",
                place=place,
                messages=health.messages,
                notes=health.notes,
            )
            raise Conflict(reason)
    if not yes:
        question = t("Fill the empty store {place} with made-up people?", place=place)
        typer.confirm(question, abort=True, err=True)
    started = time.perf_counter()
    world, questions = read_world(system_clock()), read_questions()

    async def fill_store() -> None:
        with progress(t("Adding"), len(world.events)) as advance:
            await fill(world, settings, system_clock(), advance)
        async with AsyncMemory(settings=settings.model_copy(update={"llm": "none"})) as memory:
            with progress(t("Making vectors")):
                # run_jobs would make none where a server has noted its model before
                await memory.reindex()
            with progress(t("Asking"), len(questions)) as advance:
                await evaluate(questions, memory, advance)

    asyncio.run(fill_store())
    with common.open() as memory:
        health, users = memory.health(), memory.users().items
        counts = {
            "users": len({user.id for user in users}),
            "messages": health.messages,
            "notes": health.notes,
            "relations": sum(len(memory.graph(user.id, limit=1000)) for user in users),
            "workspaces": len({task for task, _ in world.files}),
        }
    common.print_counts(counts, time.perf_counter() - started)
    if not common.as_json:
        output.print(t("Try:"), *(f"  {command}{common.flags}" for command in TO_TRY), sep="\n")


def is_empty(settings: Settings) -> bool:
    """Whether the embedded store is empty; False for a database elsewhere, which is not asked."""
    if settings.database_url is not None:
        return False
    if not (settings.data_dir / STORE_FILE).exists():
        return True
    with _open_store(settings) as memory:
        return not memory.agents(limit=1).items


def _open_store(settings: Settings) -> Memory:
    """The store without a model or a graph database beside it."""
    return Memory(settings=settings.model_copy(update={"llm": "none", "neo4j_url": None}))
