"""Cohen's kappa and Krippendorff's alpha: published figures, and their definitions spelt out."""

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webapp.reviews.agreement import by_reviewers, cohen_kappa, krippendorff_alpha, share_of

# Krippendorff (2011), "Computing Krippendorff's Alpha-Reliability", section E: four observers,
# twelve units, missing data. Published: nominal .743, ordinal .815, interval .849.
_OBSERVERS = [
    "1 2 3 3 2 1 4 1 2 . . .",
    "1 2 3 3 2 2 4 1 2 5 . 3",
    ". 3 3 3 2 3 4 2 2 5 1 .",
    "1 2 3 3 2 4 4 1 2 5 1 .",
]
UNITS = [
    [int(v) for v in said if v != "."]
    for said in zip(*(o.split() for o in _OBSERVERS), strict=True)
]


@pytest.mark.parametrize(
    ("level", "published"), [("nominal", 0.743), ("ordinal", 0.815), ("interval", 0.849)]
)
def test_alpha_is_that_of_krippendorffs_worked_example(level, published):
    assert krippendorff_alpha(UNITS, level) == pytest.approx(published, abs=0.0005)


def test_alpha_of_two_observers_is_that_of_krippendorffs_first_example():
    # Section A: ten units, two observers, binary. Published: .095.
    meg = [0, 1, 0, 0, 0, 0, 0, 0, 1, 0]
    owen = [1, 1, 1, 0, 0, 1, 0, 0, 0, 0]
    assert krippendorff_alpha(list(zip(meg, owen, strict=True))) == pytest.approx(0.095, abs=5e-4)


def test_kappa_is_that_of_cohens_table():
    # Cohen (1960), table 1: 200 cases, three categories. Published: .492 (of .70 observed).
    counts = [[88, 14, 18], [10, 40, 10], [2, 6, 12]]
    pairs = [(i, j) for i in range(3) for j in range(3) for _ in range(counts[i][j])]
    assert share_of(pairs) == pytest.approx(0.70)
    assert cohen_kappa(pairs) == pytest.approx(0.492, abs=5e-4)


def naive_alpha(units: list[list[int]], level: str) -> float | None:
    """Observed over expected disagreement, each from all ordered pairs of values."""
    paired = [unit for unit in units if len(unit) > 1]
    pooled = sorted(v for unit in paired for v in unit)

    def distance(a: int, b: int) -> float:
        if level == "nominal":
            return float(a != b)
        if level == "interval":
            return float((a - b) ** 2)
        low, high = min(a, b), max(a, b)
        ranks = [sum(1 for v in pooled if v == value) for value in range(low, high + 1)]
        return (sum(ranks) - (ranks[0] + ranks[-1]) / 2) ** 2 if a != b else 0.0

    n = len(pooled)
    if n < 2:
        return None
    seen = sum(
        sum(distance(a, b) for a, b in permutations(unit, 2)) / (len(unit) - 1) for unit in paired
    )
    expected = sum(distance(a, b) for a, b in permutations(pooled, 2)) / (n - 1)
    return None if expected == 0 else 1 - seen / expected


@given(
    st.lists(st.lists(st.integers(0, 4), max_size=4), max_size=12),
    st.sampled_from(["nominal", "ordinal", "interval"]),
)
def test_alpha_equals_its_definition(units: list[list[int]], level: Any):
    found, naive = krippendorff_alpha(units, level), naive_alpha(units, level)
    assert found == (None if naive is None else pytest.approx(naive, abs=1e-9))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=30))
def test_kappa_equals_its_definition(pairs: list[tuple[int, int]]):
    n = len(pairs)
    share = len([1 for a, b in pairs if a == b]) / n
    chance = sum(
        len([1 for a, _ in pairs if a == k]) / n * (len([1 for _, b in pairs if b == k]) / n)
        for k in range(3)
    )
    naive = None if chance > 1 - 1e-12 else (share - chance) / (1 - chance)
    found = cohen_kappa(pairs)
    assert found == (None if naive is None else pytest.approx(naive))


def test_nothing_to_compare_is_not_computed():
    assert share_of([]) is None and cohen_kappa([]) is None and krippendorff_alpha([]) is None
    assert krippendorff_alpha([[1], [2], [3]]) is None  # nobody judged the same
    assert krippendorff_alpha([[1, 1], [1, 1]]) is None and cohen_kappa([(1, 1)]) is None


def test_each_two_reviewers_are_compared_on_what_both_judged():
    found = by_reviewers([{1: True, 2: True}, {1: True, 2: False}, {2: True, 3: True}, {1: True}])
    assert [(one.first, one.second, one.items, one.share) for one in found] == [
        (1, 2, 2, 0.5),
        (2, 3, 1, 1.0),
    ]
