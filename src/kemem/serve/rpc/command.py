"""The commands `kemem rpc` and `kemem admin dump`: JSON-RPC over a pipe, and all that it holds."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from typing import Annotated, BinaryIO

import typer

from kemem.memory import AsyncMemory
from kemem.serve.cli.terminal import Common, print_json
from kemem.serve.rpc.jsonrpc import INVALID_REQUEST, error_response, respond
from kemem.serve.rpc.methods import Level, MemoryTools

_CHUNK = 1 << 16

Agent = Annotated[str | None, typer.Option(metavar="ID", help="Agent that owns the knowledge.")]


def rpc(common: Common, agent: Agent = None) -> None:
    """Answer JSON-RPC on standard input and output.

    One request and one response per line.

    $ kemem rpc --agent support
    """
    settings, responses = common.settings, sys.stdout.buffer
    most = settings.max_body_bytes
    too_long = error_response(INVALID_REQUEST, f"Invalid Request: a line has at most {most} bytes")
    with redirect_stdout(sys.stderr), asyncio.Runner() as runner:  # only responses go out
        memory = AsyncMemory(settings=settings)
        methods = MemoryTools(memory, agent or settings.rpc_agent).methods
        try:
            for line in _lines(sys.stdin.buffer, most):
                response = too_long if line is None else runner.run(respond(line, methods))
                if response is not None:
                    responses.write(response + b"\n")
                    responses.flush()
        finally:
            runner.run(memory.close())


def dump(
    common: Common,
    level: Annotated[Level, typer.Option(help="What to show.")] = "all",
    agent: Agent = None,
) -> None:
    """Print knowledge and the files of workspaces as JSON.

    $ kemem admin dump --agent support
    """

    async def read() -> object:
        async with AsyncMemory(settings=common.settings) as memory:
            return await MemoryTools(memory, agent or common.settings.rpc_agent).dump(level)

    print_json(asyncio.run(read()))


def _lines(stream: BinaryIO, most: int) -> Iterator[bytes | None]:
    """Lines that are not blank; None for one that is too long, which is skipped."""
    while line := stream.readline(most + 1):
        if len(line) <= most or line.endswith(b"\n"):
            if line.strip():
                yield line
            continue
        while line and not line.endswith(b"\n"):
            line = stream.readline(_CHUNK)
        yield None
