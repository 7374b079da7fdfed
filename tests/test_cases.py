"""The helper that runs many cases as one test lists every case that fails."""

import pytest

from tests.cases import each


def test_all_cases_run_and_all_failures_are_listed() -> None:
    seen: list[tuple[int, str]] = []

    @each("number", [1, 2, 3])
    @each(("letter", "good"), [("a", True), ("b", False)])
    def check(number: int, letter: str, good: bool) -> None:
        seen.append((number, letter))
        assert good or number == 2

    with pytest.raises(AssertionError, match=r"(?s)2 of 3:.*1,.*'b', False.*3,.*'b', False"):
        check()
    assert len(seen) == 6


def test_a_case_that_does_not_raise_is_listed() -> None:
    @each("value", ["1", "x", "2"])
    def check(value: str) -> None:
        with pytest.raises(ValueError, match="invalid"):
            int(value)

    with pytest.raises(AssertionError, match=r"(?s)2 of 3:.*'1'.*DID NOT RAISE.*'2'"):
        check()
