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


@pytest.fixture
def limit() -> int:
    return 3


@each("number", [1, 2])
def test_cases_share_a_fixture(limit: int, number: int) -> None:
    assert number < limit


@pytest.mark.parametrize("factor", [1, 2])
@each("number", [1, 2, 3])
async def test_cases_of_an_asynchronous_test_run(number: int, factor: int) -> None:
    assert number * factor in range(1, 7)


async def test_failures_of_an_asynchronous_test_are_listed() -> None:
    @each("number", [1, 2, 3])
    async def check(number: int) -> None:
        assert number == 2

    with pytest.raises(AssertionError, match=r"(?s)2 of 3:.*\(1,\).*\(3,\)"):
        await check()
