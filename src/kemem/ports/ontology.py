"""The ontology in force: the types of the settings, and those that a store keeps in its journal."""

import time
from typing import Any, Protocol

from kemem.errors import KeMemError
from kemem.records import Line
from kemem.records.ontology import Ontology

KIND, LINE = "ontology", "current"  # of the line of the journal
_TRUSTED = 1.0  # seconds until a change that another process has made is seen


class _Journal(Protocol):
    async def journal(self, kind: str, *, limit: int = 1000) -> list[Line]: ...


class CurrentOntology:
    """Types of the settings and of the store; where both have a name, that of the settings."""

    def __init__(self, fixed: Ontology | None = None) -> None:
        self.fixed = fixed or Ontology()
        self.derived: dict[str, Any] = {}  # what others compute from it, until it changes
        self._stored = Ontology()
        self._merged = self.fixed
        self._known_until = 0.0  # by the monotonic clock

    async def read(self, store: _Journal) -> Ontology:
        """All types; what is stored is read once a second at most."""
        if time.monotonic() >= self._known_until:
            asked = time.monotonic()
            lines = await store.journal(KIND, limit=1)
            self.keep(_parsed(lines[0]) if lines else Ontology())
            self._known_until = asked + _TRUSTED
        return self._merged

    def keep(self, stored: Ontology) -> None:
        """Take what is stored now."""
        if stored != self._stored:
            self._stored, self._merged = stored, self.fixed.merged(stored)
            self.derived.clear()

    @property
    def stored(self) -> Ontology:
        """The types that are stored, as they were last read."""
        return self._stored


def _parsed(line: Line) -> Ontology:
    try:
        return Ontology.parse(line.body)
    except KeMemError:  # of a later version, or a name that is built in by now
        return Ontology()
