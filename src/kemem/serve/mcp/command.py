"""The command `kemem mcp`, which serves MCP to the client that starts it, and `mcp install`."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

import typer

from kemem.scope import DEFAULT
from kemem.serve.cli import terminal
from kemem.serve.cli.console import errors, output
from kemem.serve.cli.help import Command, Group
from kemem.serve.cli.language import t

Client = Literal["claude", "claude-desktop", "cursor", "vscode"]
User = Annotated[
    str | None,
    typer.Option(metavar="ID", help="User whose memory the client reaches; if none: default."),
]
Agent = Annotated[str | None, typer.Option(metavar="ID", help="Only memories of this agent.")]
Session = Annotated[
    str | None, typer.Option(metavar="ID", help="The conversation that new memories belong to.")
]
Tools = Literal["kemem", "official"]
ToolSet = Annotated[
    Tools, typer.Option("--tools", help="KeMem's, or those of the official memory server.")
]
Sensitive = Annotated[bool, typer.Option("--sensitive", help="Show what is sensitive, too.")]
Url = Annotated[
    str | None,
    typer.Option("--url", "--http", help="A server to use, as http://127.0.0.1:8420/mcp."),
]

mcp = typer.Typer(cls=Group)


@mcp.callback(invoke_without_command=True)
def serve_mcp(
    context: typer.Context,
    user: User = None,
    agent: Agent = None,
    session: Session = None,
    sensitive: Sensitive = False,
    tools: ToolSet = "kemem",
    data_dir: terminal.DataDir = None,
    database_url: terminal.DatabaseUrl = None,
    project: terminal.Project = None,
) -> None:
    """Serve MCP to the client that starts this command.

    $ kemem mcp --user mia
    """
    if context.invoked_subcommand is not None:
        return
    settings = terminal.settings_in_force(data_dir, database_url, project=project)

    from kemem.compat.tools import MEMORY_TOOLS
    from kemem.serve.mcp.official import OFFICIAL_TOOLS
    from kemem.serve.mcp.server import serve_stdio

    chosen = OFFICIAL_TOOLS if tools == "official" else MEMORY_TOOLS
    serve_stdio(settings, DEFAULT if user is None else user, agent, session, sensitive, chosen)


@mcp.command(cls=Command)
def install(
    client: Annotated[Client, typer.Option(help="The client to configure.")],
    user: User = None,
    agent: Agent = None,
    tools: ToolSet = "kemem",
    url: Url = None,
    data_dir: terminal.DataDir = None,
    database_url: terminal.DatabaseUrl = None,
    project: terminal.Project = None,
) -> None:
    """Print the configuration of a client; nothing is written.

    $ kemem mcp install --client claude --user mia
    """
    entry: dict[str, Any]
    if url is None:
        place = {"--data-dir": data_dir and data_dir.absolute(), "--database-url": database_url}
        values = {"--user": user, "--agent": agent, **place, "--project": project}
        values |= {"--tools": None if tools == "kemem" else tools}
        flags = [str(part) for pair in values.items() if pair[1] is not None for part in pair]
        own = Path(sys.argv[0])  # a client may have another search path than we have
        command = [str(own.absolute()) if own.name == "kemem" else "kemem", "mcp", *flags]
        transport, arguments = "stdio", ["--", *command]
        entry = {"command": command[0], "args": command[1:]}
    elif tools != "kemem":
        raise typer.BadParameter(t("a server has KeMem's tools only"), param_hint="--tools")
    elif client == "claude-desktop":
        raise typer.BadParameter(t("this client takes a command, no address"), param_hint="--url")
    else:
        ids = {"X-KeMem-User": user, "X-KeMem-Agent": agent, "X-KeMem-Project": project}
        headers = {name: quote(value) for name, value in ids.items() if value is not None}
        flags = [part for header in headers.items() for part in ("--header", ": ".join(header))]
        transport, arguments = "http", [url, *flags]
        entry = {"url": url, **({"headers": headers} if headers else {})}
    if client == "claude":
        flags = ["--transport", "http"] if transport == "http" else []
        output.print(shlex.join(["claude", "mcp", "add", *flags, "kemem", *arguments]))
    elif client == "vscode":
        terminal.print_json({"servers": {"kemem": {"type": transport, **entry}}})
    else:
        terminal.print_json({"mcpServers": {"kemem": entry}})
    if transport == "http":
        header = "Authorization: Bearer <key>"
        errors.print(t("A server that asks for a key needs the header: {it}", it=header))
