"""How often models wrote calls into their text, and what came of it."""

import logging
from collections import Counter
from collections.abc import Iterator
from threading import Lock
from typing import Literal

from kemem.chat.leaks import Leak

Outcome = Literal["run", "hidden", "doubled", "unreadable"]

_LONGEST_NAME = 64  # a name is written by the model, too

log = logging.getLogger("kemem")


class LeakCounts:
    """Leaks by form and outcome; each is an error in the log, without what it said.

    What is counted here is also counted `into` another, as the leaks of one reply among all.

    counts = LeakCounts()
    client = guard(AsyncOpenAI(), counts=counts)
    dict(counts)  # {("dsml", "run"): 3, ("hermes", "unreadable"): 1}
    """

    def __init__(self, into: "LeakCounts | None" = None) -> None:
        self._into = into
        self._counts: Counter[tuple[str, Outcome]] = Counter()
        self._lock = Lock()

    def note(self, leak: Leak, outcome: Outcome) -> None:
        """Count a leak, and log it."""
        self._add(leak.form, outcome)
        names = [call.name[:_LONGEST_NAME] for call in leak.calls]
        log.error("a tool call leaked into text: form %s, tools %r, %s", leak.form, names, outcome)

    @property
    def total(self) -> int:
        """All leaks so far."""
        with self._lock:
            return self._counts.total()

    def __iter__(self) -> Iterator[tuple[tuple[str, Outcome], int]]:
        with self._lock:
            return iter(sorted(self._counts.items()))

    def _add(self, form: str, outcome: Outcome) -> None:
        with self._lock:
            self._counts[form, outcome] += 1
        if self._into is not None:
            self._into._add(form, outcome)
