"""The test kit: a reference store, models that need no model, a clock that stands still.

`kemem.testing.conformance` has the suite that every store must pass; it needs pytest and
hypothesis and is therefore imported by name.
"""

from kemem.testing.clock import FakeClock
from kemem.testing.embedders import HashingEmbedder
from kemem.testing.llm import ScriptedLLM, calling
from kemem.testing.openai_server import Streamed, openai_server_process, running_openai_server
from kemem.testing.ram import RamStore

__all__ = [
    "FakeClock",
    "HashingEmbedder",
    "RamStore",
    "ScriptedLLM",
    "Streamed",
    "calling",
    "openai_server_process",
    "running_openai_server",
]
