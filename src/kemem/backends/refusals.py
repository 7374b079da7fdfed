"""What a server does not know, as its refusals tell, and for how long that is believed."""

import re
import time
from collections.abc import Callable, Iterable

_BELIEVED = 3600.0  # seconds; then it is tried again, as another server may stand there
_REFUSALS = (400, 422)
_FAILURES = (404, 500, 501)  # which are refusals, too, where they name what is refused

# How servers name what they refuse.
_FORMAT = re.compile(r"response.?format|json|schema|grammar|structured|guided", re.IGNORECASE)
_TOOLS = re.compile(r"tool|function", re.IGNORECASE)


class Refusals:
    """What a server has refused by name: a format of answers, or tools.

    A refusal without a reason, as of a request that was bad for another cause, is none of these.
    """

    def __init__(self, timer: Callable[[], float] = time.monotonic) -> None:
        self._timer = timer
        self._until: dict[str, float] = {}

    def hold(self, what: str) -> bool:
        """Whether this was refused a short time ago."""
        return self._timer() < self._until.get(what, 0.0)

    def learn(self, names: Iterable[str]) -> None:
        """These were refused by name, and without them the server has answered."""
        self._until |= dict.fromkeys(names, self._timer() + _BELIEVED)


def refuses(error: Exception, what: str) -> tuple[bool, bool]:
    """Whether an error may refuse something, and whether it names that."""
    status = getattr(error, "status_code", None)
    is_named = bool((_TOOLS if what == "tools" else _FORMAT).search(str(error)))
    return status in _REFUSALS or (status in _FAILURES and is_named), is_named
