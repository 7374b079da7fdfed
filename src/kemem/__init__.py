"""KeMem: the memory of LLM agents and chat products."""

from kemem.add.edit import Policy
from kemem.errors import (
    Conflict,
    Exhausted,
    Internal,
    InvalidArgument,
    KeMemError,
    NotConfigured,
    NotFound,
    PermissionDenied,
    Unauthenticated,
    Unavailable,
)
from kemem.memory import AsyncMemory
from kemem.privacy import Export, Receipt
from kemem.records import (
    Change,
    Checkpoint,
    Entry,
    Health,
    Inventory,
    Layer,
    Link,
    Message,
    Note,
    Page,
    Relation,
)
from kemem.records.batch import Job
from kemem.results import (
    Added,
    Context,
    Deletion,
    Hit,
    Ingested,
    Item,
    Memories,
    Outcome,
    Profile,
)
from kemem.settings import Settings
from kemem.snapshot import Backup
from kemem.sync import Memory

__version__ = "0.2.0"

__all__ = [
    "Added",
    "AsyncMemory",
    "Backup",
    "Change",
    "Checkpoint",
    "Conflict",
    "Context",
    "Deletion",
    "Entry",
    "Exhausted",
    "Export",
    "Health",
    "Hit",
    "Ingested",
    "Internal",
    "InvalidArgument",
    "Inventory",
    "Item",
    "Job",
    "KeMemError",
    "Layer",
    "Link",
    "Memories",
    "Memory",
    "Message",
    "NotConfigured",
    "NotFound",
    "Note",
    "Outcome",
    "Page",
    "PermissionDenied",
    "Policy",
    "Profile",
    "Receipt",
    "Relation",
    "Settings",
    "Unauthenticated",
    "Unavailable",
    "__version__",
]
