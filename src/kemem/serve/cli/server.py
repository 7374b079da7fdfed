"""The command that serves: HTTP API, dashboard and MCP in one process."""

import errno
import shlex
import socket
import sys
from contextlib import suppress
from shutil import which
from typing import Annotated

import structlog
from rich.cells import cell_len, set_cell_size
from typer import Option

from kemem.errors import Conflict, InvalidArgument, PermissionDenied, Unavailable
from kemem.serve.cli import terminal
from kemem.serve.cli.console import output
from kemem.serve.cli.demo import is_empty
from kemem.serve.cli.language import t
from kemem.settings import shown_url, unknown_variables

log = structlog.get_logger("kemem")


def check_port(host: str, port: int) -> None:
    """Refuse, before anything is opened or announced, to serve where nobody can listen."""
    try:
        places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in places:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
    except OSError as error:  # also where the name of the host is unknown
        if error.errno == errno.EADDRINUSE:
            reason = t(
                "port {port} of {host} is in use: stop what uses it, or choose another --port",
                port=port,
                host=host,
            )
            raise Conflict(reason) from None
        if error.errno == errno.EACCES:
            reason = t("port {port} is only for root: choose a --port above 1023", port=port)
            raise PermissionDenied(reason) from None
        reason = t("host {host} is not an address of this machine", host=f"{host!r:.80}")
        raise InvalidArgument(reason, field="host") from None


def serve(
    host: Annotated[str | None, Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, Option(help="Port to listen on.", min=0, max=65_535)] = None,
    data_dir: terminal.DataDir = None,
    database_url: terminal.DatabaseUrl = None,
) -> None:
    """Serve the HTTP API, the dashboard and MCP.

    $ kemem serve --port 8420
    """
    settings = terminal.settings_in_force(data_dir, database_url, host=host, port=port)
    if settings.project is not None:
        reason = t("a server serves all projects: unset KEMEM_PROJECT; a key or header chooses one")
        raise InvalidArgument(reason, field="project")
    check_port(settings.host, settings.port)
    if unknown := unknown_variables():
        log.warning("unknown variables are ignored", names=unknown)

    from kemem.serve.http.app import is_protected
    from kemem.serve.http.app import serve as serve_http

    name = f"[{settings.host}]" if ":" in settings.host else settings.host
    database, protected, hints = settings.database_url, False, list[tuple[str, str]]()
    with suppress(Unavailable):  # the server starts all the same, and asks again
        protected = is_protected(settings)
    if is_empty(settings):
        program = "kemem" if which("kemem") else sys.argv[0]
        here = f" --data-dir {shlex.quote(str(data_dir))}" if data_dir else ""
        command = f"{program} demo{here}"
        hint = t("{command} fills it with examples, from another terminal", command=command)
        hints += [(t("Empty?"), hint)]

    def announce(port: int) -> None:
        server = f"http://{name}:{port}"
        open_access = t("from this machine, without a key")
        lines = [
            (t("Look"), f"{server}/dashboard"),
            (t("API"), f"{server}/v1"),
            ("MCP", f"{server}/mcp"),
            (t("Docs"), f"{server}/docs"),
            (t("Health"), f"{server}/readyz"),
            (t("Data"), str(settings.data_dir if database is None else shown_url(database))),
            (t("Access"), t("with a key or token") if protected else open_access),
            *([(t("Projects"), ", ".join(settings.projects))] if settings.projects else []),
            *hints,
        ]
        width = max(8, *(cell_len(head) + 2 for head, _ in lines))
        output.print(*(f"{set_cell_size(head, width)}{rest}" for head, rest in lines), sep="\n")
        sys.stdout.flush()

    options = {"host": host, "port": port, "data_dir": data_dir, "database_url": database_url}
    flags = frozenset(name for name, value in options.items() if value is not None)
    serve_http(settings, flags, announce)
