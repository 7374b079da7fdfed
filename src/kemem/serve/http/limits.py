"""Rate limits: how many requests a minute a caller or an address may send to this process."""

import math
import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.types import Scope

from kemem.errors import Exhausted
from kemem.serve.http.auth import Caller
from kemem.settings import Settings

_MINUTE = 60.0  # seconds
_WHOLE = 1 - 1e-9  # of a token: whoever has waited as told has it, but for rounding
_MOST_NAMES = 10_000  # that are remembered; those that were silent longest go first


def address_of(scope: Scope) -> str:
    """The address that a request came from: behind a proxy, that of the proxy."""
    client: tuple[str, int] | None = scope.get("client")
    return client[0] if client else ""


class RateLimited(Exhausted):
    """Too many requests came; `retry_after` says how many seconds to wait."""

    status = 429


class Buckets:
    """Token buckets by name: each holds as much as a minute allows, and is refilled evenly."""

    def __init__(
        self,
        per_minute: int,
        clock: Callable[[], float] = time.monotonic,
        limited: str = "requests a minute",
    ) -> None:
        self._size = per_minute
        self._clock = clock
        self._limited = limited
        self._levels: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens, and when

    def __len__(self) -> int:
        return len(self._levels)

    def take(self, name: str) -> None:
        """Take a token, or raise RateLimited; without a limit nothing happens."""
        if not self._size:
            return
        level = self._level(name)
        self._levels[name] = (level - 1 if level >= _WHOLE else level, self._clock())
        self._levels.move_to_end(name)
        if len(self._levels) > _MOST_NAMES:
            self._levels.popitem(last=False)
        if level < _WHOLE:
            raise self._refusal(level)

    def check(self, name: str) -> None:
        """Raise RateLimited if no token is left; none is taken."""
        if self._size and (level := self._level(name)) < _WHOLE:
            raise self._refusal(level)

    def _level(self, name: str) -> float:
        level, at = self._levels.get(name, (float(self._size), 0.0))
        return min(self._size, level + (self._clock() - at) * self._size / _MINUTE)

    def _refusal(self, level: float) -> RateLimited:
        wait = math.ceil((1 - level) * _MINUTE / self._size)
        reason = f"more than {self._size} {self._limited}: try again in {wait} s"
        return RateLimited(reason, retry_after=wait)


class RateLimits:
    """The limits of one process: of each credential, of each address, and of wrong credentials."""

    def __init__(self, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        self._callers = Buckets(settings.rate_limit, clock)
        self._addresses = Buckets(settings.address_rate_limit, clock)
        limited = "invalid keys a minute from this address"
        self._failures = Buckets(settings.failure_rate_limit, clock, limited)

    def count(self, address: str) -> None:
        """Count a request from an address."""
        self._addresses.take(address)

    def count_caller(self, caller: Caller) -> None:
        """Count a request of a credential; without one there is nobody to count."""
        if caller.name is not None:
            self._callers.take(caller.name)

    def count_failure(self, address: str) -> None:
        """Count a wrong credential from an address."""
        self._failures.take(address)

    def check_failures(self, address: str) -> None:
        """Refuse an address that has sent too many wrong credentials."""
        self._failures.check(address)
