"""Moments gathered in parts, against numpy on all of it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.rewards.moments import Moments

pairs = st.tuples(st.floats(-100, 100), st.floats(-100, 100))


@given(st.lists(st.lists(pairs, max_size=6), max_size=6))
def test_parts_add_up_to_the_whole(parts: list[list[tuple[float, float]]]) -> None:
    whole = Moments()
    for part in parts:
        one = Moments()
        for x, y in part:
            one.add(x, y)
        whole.merge(one)
    xs, ys = np.array([pair for part in parts for pair in part]).reshape(-1, 2).T
    assert whole.count == len(xs)
    if len(xs) == 0:
        return
    assert (whole.x, whole.y) == (pytest.approx(xs.mean()), pytest.approx(ys.mean()))
    for found, one, other in ((whole.xx, xs, xs), (whole.yy, ys, ys), (whole.xy, xs, ys)):
        expected = ((one - one.mean()) * (other - other.mean())).sum()
        assert found == pytest.approx(expected, abs=1e-6)
    if len(ys) > 1:
        error = ys.std(ddof=1) / np.sqrt(len(ys))
        assert whole.error_of_y == pytest.approx(error, abs=1e-6)
    if xs.std() > 1e-3 and ys.std() > 1e-3:
        assert whole.correlation == pytest.approx(np.corrcoef(xs, ys)[0, 1], abs=1e-6)


def test_what_does_not_vary_has_no_correlation() -> None:
    one = Moments()
    for y in (0.0, 1.0, 2.0):
        one.add(0.1 + 0.2, y)
    assert one.correlation is None
    assert Moments().correlation is None and Moments().error_of_y is None


def test_a_rate_of_one_is_not_certain() -> None:
    """Agresti and Coull: as if one more had succeeded and one had failed."""
    one = Moments()
    for _ in range(8):
        one.add(1.0, 0.0)
    assert one.error_of_rate == pytest.approx(np.std([1.0] * 9 + [0.0]) / np.sqrt(10))
