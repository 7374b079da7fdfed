"""The command that serves MCP to the client that started it, and the configuration of clients."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import quote

import typer

from kemem.serve.cli.terminal import (
    DatabaseUrl,
    DataDir,
    errors,
    output,
    print_json,
    settings_in_force,
)

Client = Literal["claude", "claude-desktop", "cursor", "vscode"]
User = Annotated[str | None, typer.Option(help="Whose memories: the client reaches no other's.")]
Agent = Annotated[str | None, typer.Option(help="Only memories of this agent.")]

mcp = typer.Typer()


@mcp.callback(invoke_without_command=True)
def serve_mcp(
    context: typer.Context,
    user: User = None,
    agent: Agent = None,
    session: Annotated[
        str | None, typer.Option(help="The conversation that new memories belong to.")
    ] = None,
    sensitive: Annotated[
        bool, typer.Option("--sensitive", help="Show what is sensitive, too.")
    ] = False,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Serve MCP to the client that starts this: coding agents, desktops."""
    if context.invoked_subcommand is not None:
        return
    if user is None:
        raise typer.BadParameter("say whose memories the client may reach", param_hint="--user")
    settings = settings_in_force(data_dir, database_url)

    from kemem.serve.mcp.stdio import serve_stdio

    serve_stdio(settings, user, agent, session, sensitive)


@mcp.command()
def install(
    client: Annotated[Client, typer.Option(help="Who is to use the memory.")],
    user: User = None,
    agent: Agent = None,
    http: Annotated[
        str | None, typer.Option(help="A server to use, as http://127.0.0.1:8420/mcp.")
    ] = None,
    data_dir: DataDir = None,
    database_url: DatabaseUrl = None,
) -> None:
    """Print the configuration of a client; nothing is written."""
    if http is not None and client == "claude-desktop":
        raise typer.BadParameter("this client takes a command, no address", param_hint="--http")
    if http is None and user is None:
        raise typer.BadParameter("say whose memories the client may reach", param_hint="--user")
    headers = {"X-KeMem-User": user, "X-KeMem-Agent": agent}
    named = {name: quote(value) for name, value in headers.items() if value is not None}
    if http is None:
        where = {"--data-dir": data_dir and data_dir.absolute(), "--database-url": database_url}
        given = {"--user": user, "--agent": agent, **where}
        flags = [str(it) for pair in given.items() if pair[1] is not None for it in pair]
        _show_command(client, [_command(), "mcp", *flags])
    else:
        _show_address(client, http, named)
        errors.print("A server that asks for a key needs the header 'Authorization: Bearer <key>'.")


def _show_command(client: Client, command: list[str]) -> None:
    """How a client starts the memory by itself."""
    if client == "claude":
        output.print(shlex.join(["claude", "mcp", "add", "kemem", "--", *command]))
        return
    _show_entry(client, {"command": command[0], "args": command[1:]}, "stdio")


def _show_address(client: Client, url: str, headers: dict[str, str]) -> None:
    """How a client finds a running server."""
    if client == "claude":
        shown = [it for header in headers.items() for it in ("--header", ": ".join(header))]
        line = ["claude", "mcp", "add", "--transport", "http", "kemem", url, *shown]
        output.print(shlex.join(line))
        return
    _show_entry(client, {"url": url, **({"headers": headers} if headers else {})}, "http")


def _show_entry(client: Client, entry: dict[str, Any], transport: str) -> None:
    if client == "vscode":
        print_json({"servers": {"kemem": {"type": transport, **entry}}})
    else:
        print_json({"mcpServers": {"kemem": entry}})


def _command() -> str:
    """This very command, for clients that know no search path of ours."""
    own = Path(sys.argv[0])
    return str(own.absolute()) if own.name == "kemem" else "kemem"
