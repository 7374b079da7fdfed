"""Commands about sessions: their list, and short-term memory of one of them."""

from typing import Annotated

import typer
from rich.text import Text
from typer import Argument, Option

from kemem.records import Checkpoint
from kemem.serve.cli import options
from kemem.serve.cli.console import plain
from kemem.serve.cli.help import Group
from kemem.serve.cli.language import t
from kemem.serve.cli.manage import print_entries
from kemem.serve.cli.remember import added_lines
from kemem.serve.cli.terminal import Common, progress, register, when

SessionId = Annotated[str, Argument(metavar="SESSION", help="The id of the session.")]
User = Annotated[str | None, Option(metavar="ID", help="Whose session, where several have it.")]
Agent = Annotated[str | None, Option(metavar="ID", help="With which agent.")]

session = typer.Typer(cls=Group)


def sessions(
    common: Common,
    user: options.User = None,
    agent: options.Agent = None,
    limit: options.Limit = 100,
    cursor: options.CursorOption = None,
) -> None:
    """List the sessions of a user or an agent.

    $ kemem sessions --user mia
    """
    with common.open() as memory:
        page = memory.sessions(user, agent, limit=limit, cursor=cursor)
    print_entries(common, page, t("There is no session yet."))


@session.callback()
def of_one() -> None:
    """Short-term memory of one session."""


def context(
    common: Common,
    session_id: SessionId,
    user: User = None,
    agent: Agent = None,
    max_tokens: Annotated[int, Option(help="How long it may be.", min=50)] = 2000,
    leaf: Annotated[
        str | None, Option(metavar="ID", help="Only the branch that ends with this message.")
    ] = None,
) -> None:
    """Show what goes into a prompt.

    Summaries of what is older, then the newest messages.

    $ kemem session context s_1 --user mia --max-tokens 500
    """
    with common.open() as memory:
        shown = memory.context(session_id, user, agent, max_tokens=max_tokens, leaf=leaf)
    common.print(shown.to_dict(), *map(plain, shown.text.splitlines()))


def summarize(
    common: Common, session_id: SessionId, user: User = None, agent: Agent = None
) -> None:
    """Bring the summary of a session up to date.

    $ kemem session summarize s_1 --user mia
    """
    with common.open() as memory, progress(t("Summarising")):
        state = memory.summarize(session_id, user, agent)
    data = {"checkpoint": None if state is None else state.to_dict()}
    none = t("The whole session still fits verbatim; no summary is needed.")
    common.print(data, *(_checkpoint_lines(state) if state else [none]))


def show(common: Common, session_id: SessionId, user: User = None, agent: Agent = None) -> None:
    """Show a session and its checkpoints, newest first.

    $ kemem session show s_1 --user mia
    """
    with common.open() as memory:
        entry, checkpoints = memory.session(session_id, user, agent)
    data = {**entry.to_dict(), "checkpoints": [it.to_dict() for it in checkpoints]}
    owner = " · ".join(filter(None, [entry.agent_id, entry.user_id]))
    lines: list[str | Text] = [_checkpoint_lines(it)[0] for it in checkpoints]
    head = Text.assemble(plain(entry.id), (f"  {plain(owner)} · {when(entry.updated)}", "dim"))
    common.print(data, head, *(lines or [t("It has no checkpoint.")]))


def checkpoint(
    common: Common, session_id: SessionId, user: User = None, agent: Agent = None
) -> None:
    """Save the short-term memory of a session as it is now.

    $ kemem session checkpoint s_1 --user mia
    """
    with common.open() as memory:
        saved = memory.checkpoint(session_id, user, agent)
    common.print(saved.to_dict(), _checkpoint_lines(saved)[0])


def restore(
    common: Common,
    session_id: SessionId,
    checkpoint_id: Annotated[
        str | None, Argument(metavar="[CHECKPOINT]", help="Its id; without one, the newest.")
    ] = None,
    user: User = None,
    agent: Agent = None,
) -> None:
    """Bring short-term memory back to a checkpoint.

    Messages stay as they are.

    $ kemem session restore s_1 --user mia
    """
    with common.open() as memory:
        restored = memory.restore_checkpoint(session_id, checkpoint_id, user, agent)
    common.print(restored.to_dict(), _checkpoint_lines(restored)[0])


def end(common: Common, session_id: SessionId, user: User = None, agent: Agent = None) -> None:
    """End a session.

    Its experience stays as a note, its short-term memory goes.

    $ kemem session end s_1 --user mia
    """
    with common.open() as memory, progress(t("Ending")):
        added = memory.end_session(session_id, user, agent)
    common.print(added.to_dict(), *added_lines(added))


def _checkpoint_lines(state: Checkpoint) -> list[Text]:
    """A checkpoint to be read: its id, and the summaries in it."""
    counts = t(
        "{summaries} summaries, {notes} notes", summaries=len(state.layers), notes=len(state.notes)
    )
    head = Text.assemble(state.checkpoint_id, (f"  {when(state.created)} · {counts}", "dim"))
    return [head, *(Text(f"  {plain(layer.text)}") for layer in state.layers)]


register(session, show, context, summarize, checkpoint, restore, end)
