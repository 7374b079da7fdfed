"""KeMem: the memory of LLM agents and chat products."""

from kemem.errors import (
    Conflict,
    Exhausted,
    Internal,
    InvalidArgument,
    KeMemError,
    NotFound,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
)
from kemem.memory import AsyncMemory
from kemem.settings import Settings
from kemem.sync import Memory
from kemem.types import Health, Hit, Ingested, Job, Message, Page

__all__ = [
    "AsyncMemory",
    "Conflict",
    "Exhausted",
    "Health",
    "Hit",
    "Ingested",
    "Internal",
    "InvalidArgument",
    "Job",
    "KeMemError",
    "Memory",
    "Message",
    "NotFound",
    "Page",
    "PermissionDenied",
    "Settings",
    "Unauthenticated",
    "Unavailable",
]
