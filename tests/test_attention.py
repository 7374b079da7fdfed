"""The network that reads candidates beside each other: what it may and may not depend on."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kemem.search import attention

RELATIONS = 5


def rows(seed: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Features of some candidates, and relations between them."""
    chance, names = np.random.default_rng(seed), attention._weights()["names"]
    beside = chance.random((size, size, RELATIONS))
    return chance.normal(0, 1, (size, len(names))), beside


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 40))
def test_the_order_of_candidates_changes_no_value(seed: int, size: int) -> None:
    own, beside = rows(seed, size)
    order = np.random.default_rng(seed).permutation(size)
    values, none = attention.network(attention._weights(), own, beside)
    again, same = attention.network(attention._weights(), own[order], beside[order][:, order])
    np.testing.assert_allclose(again, values[order], atol=1e-6)
    assert same == pytest.approx(none, abs=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.floats(-1e6, 1e6), st.integers(0, 200))
def test_no_feature_can_outweigh_all_others(value: float, place: int) -> None:
    """A feature far from all that taught counts as one at the border."""
    own, beside = rows(1, 5)
    own[2, place % own.shape[1]] = value
    values, none = attention.network(attention._weights(), own, beside)
    assert np.isfinite(values).all() and abs(none) < 100 and np.abs(values).max() < 100


def test_it_has_read_the_other_candidates() -> None:
    """The value of one changes with what stands beside it."""
    own, beside = rows(2, 6)
    alone, _ = attention.network(attention._weights(), own[:1], beside[:1, :1])
    among, _ = attention.network(attention._weights(), own, beside)
    assert abs(alone[0] - among[0]) > 1e-3
