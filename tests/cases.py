"""Many cases in one test: all that fail are listed together."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import iscoroutinefunction, signature
from typing import Any

import pytest

Test = Callable[..., Any]


def each(names: str | tuple[str, ...], cases: Iterable[Any]) -> Callable[[Test], Test]:
    """Run a test for every case, as `pytest.mark.parametrize` does, but as one test.

    Cheaper where cases take microseconds: pytest collects and reports each of its own for longer.
    Fixtures are the same for all cases: not for cases that need a fresh one.
    """
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else names
    listed = [case if len(keys) > 1 else (case,) for case in cases]
    given = [dict(zip(keys, values, strict=True)) for values in listed]

    def decorate(test: Test) -> Test:
        if iscoroutinefunction(test):

            @wraps(test)
            async def run(**outer: Any) -> None:
                failures: list[str] = []
                for values in given:
                    with _listing(failures, values):
                        await test(**outer, **values)
                _report(failures, len(given))

        else:

            @wraps(test)
            def run(**outer: Any) -> None:
                failures: list[str] = []
                for values in given:
                    with _listing(failures, values):
                        test(**outer, **values)
                _report(failures, len(given))

        taken = signature(test)
        others = [it for name, it in taken.parameters.items() if name not in keys]
        run.__signature__ = taken.replace(parameters=others)  # type: ignore[attr-defined]
        return run

    return decorate


@contextmanager
def _listing(failures: list[str], values: dict[str, Any]) -> Iterator[None]:
    """Note that a case fails, so that the others run all the same."""
    try:
        yield
    except (Exception, pytest.fail.Exception) as error:
        failures.append(f"{tuple(values.values())!r:.500}: {type(error).__name__}: {error}")


def _report(failures: list[str], number: int) -> None:
    assert not failures, f"{len(failures)} of {number}:\n" + "\n".join(failures)
