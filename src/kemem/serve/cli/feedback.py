"""The command that votes on a hit."""

from typing import Annotated, Literal

from typer import Argument, Option

from kemem.serve.cli import options
from kemem.serve.cli.console import plain
from kemem.serve.cli.terminal import Common


def feedback(
    common: Common,
    memory_id: options.MemoryId,
    vote: Annotated[Literal["up", "down"], Argument(help="Whether it answered the question.")],
    query: Annotated[str, Option(help="The question that it was found for.")],
    user: options.User = None,
    agent: options.Agent = None,
) -> None:
    """Vote on a hit: it rises or sinks for like questions.

    $ kemem feedback n_01JD8Z4XN5 down --query "where does she live?" --user mia
    """
    with common.open() as memory:
        given = memory.feedback(memory_id, vote, query, user, agent_id=agent)
    common.print(given.to_dict(), f"{given.vote}: {plain(given.memory_id)}")
