"""Student's t against tables and closed forms; means and differences of few repeats."""

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.evaluation.student import below, mean_difference, mean_interval, quantile, sample

# Fisher and Yates, Statistical Tables: t of 95% and 99%, two-sided, by degrees of freedom.
TABLE = {
    1: (12.706, 63.657),
    2: (4.303, 9.925),
    3: (3.182, 5.841),
    4: (2.776, 4.604),
    9: (2.262, 3.250),
    30: (2.042, 2.750),
    120: (1.980, 2.617),
}
VALUES = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=8)


@pytest.mark.parametrize(("degrees", "wanted"), TABLE.items())
def test_quantiles_are_those_of_the_table(degrees: int, wanted: tuple[float, float]) -> None:
    found = (quantile(0.975, degrees), quantile(0.995, degrees))
    assert found == pytest.approx(wanted, abs=6e-4)


@given(st.floats(0.01, 0.99))
def test_one_and_two_degrees_have_closed_forms(share: float) -> None:
    cauchy = math.tan(math.pi * (share - 0.5))
    assert quantile(share, 1) == pytest.approx(cauchy, rel=1e-9, abs=1e-9)
    two = (2 * share - 1) / math.sqrt(2 * share * (1 - share))
    assert quantile(share, 2) == pytest.approx(two, rel=1e-9, abs=1e-9)


@given(st.floats(-40, 40), st.floats(0.5, 300))
def test_the_distribution_function_is_the_integral_of_the_density(t: float, degrees: float) -> None:
    front = math.exp(math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2))
    front /= math.sqrt(degrees * math.pi)
    cells = 4000  # Simpson's rule from 0 to t
    width = t / cells
    density = [(1 + (i * width) ** 2 / degrees) ** (-(degrees + 1) / 2) for i in range(cells + 1)]
    inner = 4 * sum(density[1:-1:2]) + 2 * sum(density[2:-1:2])
    integral = front * width / 3 * (density[0] + inner + density[-1])
    assert below(t, degrees) == pytest.approx(0.5 + integral, abs=1e-6)


def test_many_degrees_come_to_the_normal_distribution() -> None:
    assert quantile(0.975, 1e7) == pytest.approx(statistics.NormalDist().inv_cdf(0.975), abs=1e-6)
    with pytest.raises(ValueError, match="degrees"):
        quantile(1.0, 3)


@given(VALUES)
def test_a_mean_of_repeats_has_the_textbook_interval(values: list[float]) -> None:
    found = mean_interval(sample(values))
    assert found is not None
    half = quantile(0.975, len(values) - 1) * statistics.stdev(values) / math.sqrt(len(values))
    mean = statistics.fmean(values)
    wanted = (mean, mean - half, mean + half)
    assert (found.value, found.lower, found.upper) == pytest.approx(wanted, rel=1e-6, abs=1e-6)


def test_of_a_single_value_no_interval_is_made_up() -> None:
    assert mean_interval(sample([0.5])) is None
    assert mean_difference(sample([0.5]), sample([0.1, 0.2])) is None
    with pytest.raises(ValueError, match="at least one"):
        sample([])


def test_a_difference_is_welchs() -> None:
    # Of equal sizes and variances it is the pooled interval, with n + m - 2 degrees of freedom.
    one, base = [0.2, 0.4, 0.6], [0.1, 0.3, 0.5]
    found = mean_difference(sample(one), sample(base))
    assert found is not None
    half = quantile(0.975, 4) * math.sqrt(2 * 0.04 / 3)
    assert (found.value, found.lower, found.upper) == pytest.approx((0.1, 0.1 - half, 0.1 + half))
    same = mean_difference(sample([1.0, 1.0]), sample([0.5, 0.5]))
    assert same is not None and (same.lower, same.upper) == (0.5, 0.5)
    tiny = mean_difference(sample([0.0, 1e-90, 2e-90]), sample([0.0, 1e-90, 2e-90]))
    assert tiny is not None and tiny.upper == pytest.approx(
        quantile(0.975, 4) * math.sqrt(2 / 3) * 1e-90
    )


@given(VALUES, VALUES)
def test_swapping_the_samples_turns_a_difference_round(one: list[float], two: list[float]) -> None:
    forth = mean_difference(sample(one), sample(two))
    back = mean_difference(sample(two), sample(one))
    assert forth is not None and back is not None
    assert (forth.lower, forth.upper) == pytest.approx((-back.upper, -back.lower))


def test_values_at_the_end_of_what_a_float_holds_are_no_error() -> None:
    huge = sample([1e200, 3e200])
    assert (huge.mean, huge.deviation) == (2e200, pytest.approx(2**0.5 * 1e200))
    half = 12.706204736432095 * 1e200  # t of one degree of freedom, at 97.5%
    found = mean_interval(huge)
    assert found is not None and found.upper == pytest.approx(2e200 + half)
    ends = sample([1.7e308, 1.7e308, -1.7e308])
    assert ends.mean == pytest.approx(1.7e308 / 3)
    assert mean_interval(ends) is None
    assert mean_difference(huge, sample([1.0, 2.0])) is None
