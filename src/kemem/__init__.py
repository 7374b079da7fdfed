"""KeMem: the memory of LLM agents and chat products."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
        StoreMoved,
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

# Where the names of this package are. They are imported on first use: whoever needs an error or the
# version does not wait for numpy and SQLAlchemy.
_MODULES = {
    "kemem.add.edit": ("Policy",),
    "kemem.errors": (
        "Conflict",
        "Exhausted",
        "Internal",
        "InvalidArgument",
        "KeMemError",
        "NotConfigured",
        "NotFound",
        "PermissionDenied",
        "StoreMoved",
        "Unauthenticated",
        "Unavailable",
    ),
    "kemem.memory": ("AsyncMemory",),
    "kemem.privacy": (
        "Export",
        "Receipt",
    ),
    "kemem.records": (
        "Change",
        "Checkpoint",
        "Entry",
        "Health",
        "Inventory",
        "Layer",
        "Link",
        "Message",
        "Note",
        "Page",
        "Relation",
    ),
    "kemem.records.batch": ("Job",),
    "kemem.results": (
        "Added",
        "Context",
        "Deletion",
        "Hit",
        "Ingested",
        "Item",
        "Memories",
        "Outcome",
        "Profile",
    ),
    "kemem.settings": ("Settings",),
    "kemem.snapshot": ("Backup",),
    "kemem.sync": ("Memory",),
}
_HOMES = {name: module for module, names in _MODULES.items() for name in names}

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
    "StoreMoved",
    "Unauthenticated",
    "Unavailable",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
