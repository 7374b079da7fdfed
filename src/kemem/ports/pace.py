"""How fast the model of an endpoint answers, as its own replies show."""

import time
from collections.abc import Callable

REST = 300.0  # seconds after which what is known is old, and a slow model is tried again
_NEWEST = 0.5  # weight of the newest reply in the estimate


class Pace:
    """A running estimate of the seconds that a reply takes.

    >>> pace = Pace()
    >>> pace.answered(4.0)
    >>> pace.answered(2.0)
    >>> pace.seconds, pace.fits(5.0), pace.fits(1.0)
    (3.0, True, False)
    """

    def __init__(self, timer: Callable[[], float] = time.monotonic) -> None:
        self.seconds = 0.0
        self._timer = timer
        self._measured: float | None = None  # when something was last learned

    def answered(self, seconds: float) -> None:
        """A reply has come after so many seconds."""
        last = seconds if self._measured is None else self.seconds
        self.seconds, self._measured = last + _NEWEST * (seconds - last), self._timer()

    def gave_up(self, seconds: float) -> None:
        """Nothing came within so many seconds: a reply takes longer than that."""
        self.seconds, self._measured = max(self.seconds, seconds), self._timer()

    def fits(self, seconds: float) -> bool:
        """Whether a reply is likely to come in time; a model that is not known is to be tried."""
        is_known = self._measured is not None and self._timer() - self._measured < REST
        return self.seconds < seconds if is_known else seconds > 0
