"""What the core asks of a store whose journal lines can be claimed."""

from typing import Protocol, runtime_checkable

from kemem.records import Line

ANSWER = "idempotency"  # the kind of lines that hold answers to requests, or claims of them
AUDIT = "audit"  # the kind of lines that say who did what; they outlive the user they name


@runtime_checkable
class LineStore(Protocol):
    """A store that changes a line of its journal only if nobody else has changed it."""

    async def exchange(self, before: Line | None, after: Line | None) -> Line | None:
        """Put `after` in the place of `before`, if that is what is stored; None is no line.

        Returns what is stored now. A power failure may undo the newest exchanges.
        """
