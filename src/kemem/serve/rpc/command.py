"""Commands for programs: the memory tools over a pipe, and all that they hold."""

import asyncio
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from typing import Annotated, BinaryIO, Literal

import typer

from kemem.memory import AsyncMemory
from kemem.serve.cli.terminal import Common, print_json
from kemem.serve.rpc.jsonrpc import INVALID_REQUEST, refused, respond
from kemem.serve.rpc.methods import Dump, MemoryTools
from kemem.settings import Settings

_CHUNK = 1 << 16

Agent = Annotated[str | None, typer.Option(help="Whose knowledge it is.")]
Level = Annotated[Literal["kb", "workspace", "all"], typer.Option(help="What to show.")]


def rpc(common: Common, agent: Agent = None) -> None:
    """Answer JSON-RPC on standard input and output, one text a line."""
    settings = common.settings
    answers = sys.stdout.buffer
    with redirect_stdout(sys.stderr), asyncio.Runner() as runner:  # only answers go out
        memory = AsyncMemory(settings=settings)
        methods = MemoryTools(memory, agent or settings.rpc_agent).methods
        most = settings.max_body_bytes
        try:
            for line in _lines(sys.stdin.buffer, most):
                if line is None:
                    reason = f"Invalid Request: a line has at most {most} bytes"
                    answer: bytes | None = refused(INVALID_REQUEST, reason)
                else:
                    answer = runner.run(respond(line, methods))
                if answer is not None:
                    answers.write(answer + b"\n")
                    answers.flush()
        finally:
            runner.run(memory.close())


def dump(common: Common, level: Level = "all", agent: Agent = None) -> None:
    """Print knowledge and the files of workspaces as JSON."""
    print_json(asyncio.run(_dumped(common.settings, agent, level)))


async def _dumped(
    settings: Settings, agent: str | None, level: Literal["kb", "workspace", "all"]
) -> object:
    async with AsyncMemory(settings=settings) as memory:
        return await MemoryTools(memory, agent or settings.rpc_agent).dump(Dump(level=level))


def _lines(stream: BinaryIO, most: int) -> Iterator[bytes | None]:
    """Lines that say something; None for one that is too long, which is passed over."""
    while line := stream.readline(most + 1):
        if len(line) <= most or line.endswith(b"\n"):
            if line.strip():
                yield line
            continue
        while line and not line.endswith(b"\n"):
            line = stream.readline(_CHUNK)
        yield None
