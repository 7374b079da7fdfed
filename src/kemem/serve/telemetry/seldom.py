"""Warnings that every request would repeat while something is away: each once in a while."""

import time
from collections.abc import Callable

import structlog

from kemem.errors import StoreMoved

_PAUSE = 30.0  # seconds between two equal warnings
_MOST = 100  # warnings that are remembered

log = structlog.get_logger("kemem")


class SeldomWarnings:
    """Logs a warning, unless an equal one was logged a moment ago; the next one counts those."""

    def __init__(self, timer: Callable[[], float] = time.monotonic) -> None:
        self._timer = timer
        self._logged: dict[tuple[str, str], float] = {}  # when
        self._held_back: dict[tuple[str, str], int] = {}
        self._moved: set[str] = set()  # places

    def warn(self, event: str, **values: object) -> None:
        """Warn of an event."""
        key, now = (event, repr(values)), self._timer()
        if now - self._logged.get(key, -_PAUSE) < _PAUSE:
            self._held_back[key] = self._held_back.get(key, 0) + 1
            return
        if len(self._logged) >= _MOST:
            self._logged.clear()
            self._held_back.clear()
        self._logged[key] = now
        count = self._held_back.pop(key, 0)
        log.warning(event, **values, **({"repeated": count} if count else {}))

    def warn_moved(self, error: StoreMoved) -> None:
        """Say once that a store was moved, and to where, which only operators are told."""
        place = str(error.details.get("place"))
        if place not in self._moved:
            self._moved.add(place)
            log.error("the store was moved and takes no more writes", place=place)


seldom = SeldomWarnings()  # of this process
