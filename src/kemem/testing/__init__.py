"""Test doubles: a scripted LLM, a scripted OpenAI server, a hashing embedder, a fake clock.

The suite that every store must pass is a package of its own, `kemem-conformance`.
"""

from kemem.testing.doubles import FakeClock, HashingEmbedder, ScriptedLLM, calling
from kemem.testing.openai_server import Streamed, openai_server_process, running_openai_server

__all__ = [
    "FakeClock",
    "HashingEmbedder",
    "ScriptedLLM",
    "Streamed",
    "calling",
    "openai_server_process",
    "running_openai_server",
]
