"""A real HTTP server that speaks OpenAI's chat API from a script, and fails as real ones do.

with running_openai_server([{"facts": []}, status(500), RESET]) as server:
    client = AsyncOpenAI(base_url=server.base_url, api_key="any")

As a command it reads the script from a file:  python -m kemem.testing.openai_server SCRIPT.json
"""

from kemem.testing.openai_server.script import STRICT, Script
from kemem.testing.openai_server.server import (
    OpenAIServer,
    OpenAIServerProcess,
    openai_server_process,
    running_openai_server,
)
from kemem.testing.openai_server.wire import (
    EMPTY,
    GARBAGE,
    MODEL,
    NO_CHOICES,
    NULL_CONTENT,
    RESET,
    TRUNCATED,
    Answer,
    Fault,
    Streamed,
    hang,
    huge,
    status,
)

__all__ = [
    "EMPTY",
    "GARBAGE",
    "MODEL",
    "NO_CHOICES",
    "NULL_CONTENT",
    "RESET",
    "STRICT",
    "TRUNCATED",
    "Answer",
    "Fault",
    "OpenAIServer",
    "OpenAIServerProcess",
    "Script",
    "Streamed",
    "hang",
    "huge",
    "openai_server_process",
    "running_openai_server",
    "status",
]
