"""The command that serves: HTTP API, dashboard and MCP in one process."""

import shlex
import sys
from shutil import which
from typing import Annotated

from typer import Option

from kemem.serve.cli import terminal
from kemem.serve.cli.demo import is_empty
from kemem.serve.cli.doctor import shown_url
from kemem.serve.cli.terminal import output


def serve(
    host: Annotated[str | None, Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, Option(help="Port to listen on.", min=0, max=65_535)] = None,
    data_dir: terminal.DataDir = None,
    database_url: terminal.DatabaseUrl = None,
) -> None:
    """Serve the HTTP API."""
    settings = terminal.settings_in_force(data_dir, database_url, host=host, port=port)

    from kemem.serve.http.app import serve as serve_http
    from kemem.serve.http.auth import Authenticator

    authenticator = Authenticator(settings)
    authenticator.check_host(settings.host)
    name = f"[{settings.host}]" if ":" in settings.host else settings.host
    database, protected = settings.database_url, authenticator.requires_credentials
    hints = []
    if is_empty(settings):
        program = "kemem" if which("kemem") else sys.argv[0]
        here = f" --data-dir {shlex.quote(str(data_dir))}" if data_dir else ""
        hints = [f"Empty?  {program} demo{here} fills it with examples, from another terminal"]

    def announce(port: int) -> None:
        server = f"http://{name}:{port}"
        output.print(
            f"Look    {server}/dashboard",
            f"API     {server}/v1",
            f"MCP     {server}/mcp",
            f"Docs    {server}/docs",
            f"Health  {server}/readyz",
            f"Data    {settings.data_dir if database is None else shown_url(database)}",
            f"Access  {'with a key or token' if protected else 'from this machine, without a key'}",
            *hints,
            sep="\n",
        )
        sys.stdout.flush()

    options = {"host": host, "port": port, "data_dir": data_dir, "database_url": database_url}
    flags = frozenset(name for name, value in options.items() if value is not None)
    serve_http(settings, flags, announce)
