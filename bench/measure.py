"""The one clock: every system is timed by the same loop."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean, quantiles


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds of each call: on the wall, and of this process's processors (all threads)."""

    wall_ms: tuple[float, ...]
    cpu_ms: tuple[float, ...]

    @property
    def calls(self) -> int:
        return len(self.wall_ms)

    @property
    def seconds(self) -> float:
        return sum(self.wall_ms) / 1e3


def measure(call: Callable[[int], object], times: int, budget_seconds: float = math.inf) -> Timing:
    """Times call(0), call(1), … `times` times, or fewer once the budget is spent."""
    wall: list[float] = []
    cpu: list[float] = []
    end = time.perf_counter() + budget_seconds
    for number in range(times):
        if time.perf_counter() >= end:
            break
        cpu_before, wall_before = time.process_time_ns(), time.perf_counter_ns()
        call(number)
        wall.append((time.perf_counter_ns() - wall_before) / 1e6)
        cpu.append((time.process_time_ns() - cpu_before) / 1e6)
    return Timing(tuple(wall), tuple(cpu))


def percentile(values: tuple[float, ...], percent: int) -> float:
    """The value below which `percent` of the values lie; with one value, that value.

    >>> percentile((1.0, 2.0, 3.0), 50)
    2.0
    """
    if len(values) < 2:
        return fmean(values)
    return quantiles(values, n=100, method="inclusive")[percent - 1]
