"""Commands that change what is remembered, and those about users, agents and their settings."""

from typing import Annotated, Any, Literal

import typer
from rich.console import RenderableType
from rich.text import Text
from typer import Argument, Option

from kemem.errors import InvalidArgument
from kemem.records import Entry, Page
from kemem.serve.cli import options
from kemem.serve.cli.console import plain
from kemem.serve.cli.language import t
from kemem.serve.cli.look import item_text
from kemem.serve.cli.options import read_text, to_object
from kemem.serve.cli.terminal import Common, more_line, when


def update(
    common: Common,
    memory_id: options.NoteId,
    text: Annotated[
        str | None, Argument(metavar="[TEXT]", help="What it says from now on; - is standard input")
    ] = None,
    user: options.User = None,
    agent: options.Agent = None,
    session: options.Session = None,
    metadata: options.Metadata = None,
) -> None:
    """Change the text or the metadata of a note.

    $ kemem update n_01JD8Z4XN5 "User lives in Braga" --user mia
    """
    if text is None and metadata is None:
        raise typer.BadParameter(t("give a text or --metadata"), param_hint="TEXT")
    content = None if text is None else read_text(text)
    given = to_object(metadata, "--metadata")
    ids: dict[str, Any] = {"user_id": user, "agent_id": agent, "session_id": session}
    with common.open() as memory:
        item = memory.update(memory_id, content, given, **ids)
    common.print(item.to_dict(), item_text(item))


def delete(
    common: Common,
    memory_id: options.MemoryId,
    user: options.User = None,
    agent: options.Agent = None,
    sources: Annotated[
        bool, Option("--sources", help="Erase the messages that a note cites, too.")
    ] = False,
) -> None:
    """Erase a memory.

    Messages that a note cites are withdrawn: only transcripts show them.

    $ kemem delete n_01JD8Z4XN5 --user mia
    """
    if user is None and agent is None:
        raise InvalidArgument(t("--user or --agent is required"), field="user_id")
    with common.open() as memory:
        gone = memory.delete(memory_id, user_id=user, agent_id=agent, sources=sources)
    parts = ((t("withdrawn"), gone.withdrawn), (t("erased"), gone.erased))
    lines = [f"{what}: {plain(', '.join(ids))}" for what, ids in parts if ids]
    common.print(gone.to_dict(), t("deleted: {count}", count=gone.deleted), *lines)


def reopen(
    common: Common,
    memory_id: options.NoteId,
    user: options.User = None,
    agent: options.Agent = None,
) -> None:
    """Make a note that has ended valid again.

    $ kemem reopen n_01JD8Z4XN5 --user mia
    """
    with common.open() as memory:
        item = memory.reopen(memory_id, user_id=user, agent_id=agent)
    common.print(item.to_dict(), item_text(item))


def forget(common: Common, user: options.User = None, agent: options.Agent = None) -> None:
    """Forget weak notes now, as the settings say.

    The settings are KEMEM_FORGET_LIMIT, KEMEM_FORGET_BELOW and KEMEM_FORGET_HALF_LIFE_DAYS.

    $ kemem forget --user mia
    """
    with common.open() as memory:
        gone = memory.forget(user, agent)
    lines = [f"{note_id}  {plain(reason)}" for note_id, reason in gone.items()]
    common.print({"forgotten": gone}, *(lines or [t("Nothing was forgotten.")]))


def users(
    common: Common,
    agent: options.Agent = None,
    limit: options.Limit = 100,
    cursor: options.CursorOption = None,
) -> None:
    """List all users, or those of an agent.

    $ kemem users
    """
    with common.open() as memory:
        page = memory.users(agent, limit=limit, cursor=cursor)
    print_entries(common, page, t("There is no user yet."))


def agents(common: Common, limit: options.Limit = 100, cursor: options.CursorOption = None) -> None:
    """List all agents.

    $ kemem agents
    """
    with common.open() as memory:
        page = memory.agents(limit=limit, cursor=cursor)
    print_entries(common, page, t("There is no agent yet."))


def print_entries(common: Common, page: Page[Entry], none: str) -> None:
    """Print users, agents or sessions, one a line."""
    more = more_line(page.next_cursor)
    lines: list[RenderableType] = [*map(_entry_line, page.items), *more]
    common.print(page.to_dict(), *(lines or [none]))


def _entry_line(entry: Entry) -> Text:
    ids = {"user": entry.user_id if entry.level == "session" else None}
    ids["agent"] = entry.agent_id if entry.level != "agent" else None
    of = [f"{t(level)} {it}" for level, it in ids.items() if it]
    state = [t("disabled")] * entry.disabled + [t("ended")] * (entry.ended is not None)
    name = None if entry.name == entry.id else entry.name
    shown = [name, entry.type, *of, t("last change {time}", time=when(entry.updated)), *state]
    about = " · ".join(it for it in shown if it)
    return Text.assemble(f"{plain(entry.id)}  ", (plain(about), "dim"))


def configure(
    common: Common,
    level: Annotated[
        Literal["agent", "user", "session"],
        Argument(metavar="LEVEL", help="Agent, user or session."),
    ],
    name: Annotated[str, Argument(metavar="ID", help="Its id.")],
    label: Annotated[str | None, Option("--name", help='Display name; "" removes it.')] = None,
    kind: Annotated[str | None, Option("--type", help='Type; "" removes it.')] = None,
    config: Annotated[
        str | None, Option(metavar="JSON", help="A JSON object that replaces the current one.")
    ] = None,
    disabled: Annotated[
        bool | None,
        Option("--disable/--enable", help="Stop or resume storing and serving its memory."),
    ] = None,
    user: Annotated[str | None, Option(metavar="ID", help="Whose session it is.")] = None,
    agent: Annotated[str | None, Option(metavar="ID", help="With which agent.")] = None,
) -> None:
    """Name, configure or disable an agent, user or session.

    $ kemem configure user mia --name "Mia Costa"
    """
    given: dict[str, Any] = {"name": label, "type": kind, "disabled": disabled}
    given["config"] = to_object(config, "--config")
    with common.open() as memory:
        entry = memory.configure(level, name, user_id=user, agent_id=agent, **given)
    state = [*filter(None, [entry.name, entry.type]), *[t("disabled")] * entry.disabled]
    common.print(entry.to_dict(), plain("  ".join([level, entry.id, *state])))
