"""A clock for tests."""

from kemem.records import Micros


class FakeClock:
    """Time that stands still until it is advanced, so that equal times are common.

    clock = FakeClock(0); clock.advance(seconds=1.5); clock() -> 1_500_000
    """

    def __init__(self, start: Micros) -> None:
        self.now = start

    def __call__(self) -> Micros:
        return self.now

    def advance(self, *, seconds: float) -> None:
        """Move on by some seconds."""
        self.now += round(seconds * 1_000_000)
