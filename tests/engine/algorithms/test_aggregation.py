"""Weights of tokens in the loss: golden numbers, and the means that the names promise."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.algorithms.aggregation import token_weights
from engine.spec.algorithms import Aggregation

KINDS = get_args(Aggregation)


def total(kind: Aggregation, rows: list[list[float]], longest: int) -> float:
    weights = token_weights(kind, [len(row) for row in rows], longest)
    return sum(weight * sum(row) for weight, row in zip(weights, rows, strict=True))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("token-mean", 1.2),
        ("token-sum", 6.0),
        ("seq-mean-token-mean", 1.5),
        ("seq-mean-token-sum", 3.0),
        ("seq-mean-token-sum-norm", 0.75),
    ],
)
def test_it_gives_the_golden_numbers(kind: Aggregation, expected: float) -> None:
    assert total(kind, [[1.0, 1.0, 1.0, 1.0], [2.0]], 4) == pytest.approx(expected)


def test_unequal_pieces_do_not_tilt_the_token_mean() -> None:
    assert total("token-mean", [[0.5] * 100, [0.3] * 900], 1) == pytest.approx(0.32)


@given(
    st.lists(st.lists(st.floats(-3, 3), min_size=1, max_size=5), min_size=1, max_size=6),
    st.sampled_from(KINDS),
)
def test_it_is_the_mean_that_it_is_named_after(rows: list[list[float]], kind: Aggregation) -> None:
    sums, means = [sum(row) for row in rows], [sum(row) / len(row) for row in rows]
    expected = {
        "token-mean": sum(sums) / sum(map(len, rows)),
        "token-sum": sum(sums),
        "seq-mean-token-mean": sum(means) / len(rows),
        "seq-mean-token-sum": sum(sums) / len(rows),
        "seq-mean-token-sum-norm": sum(sums) / len(rows) / 7,
    }
    assert total(kind, rows, 7) == pytest.approx(expected[kind], abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_a_trajectory_without_loss_tokens_is_no_error(kind: Aggregation) -> None:
    assert len(token_weights(kind, [2, 0], 4)) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_step_without_tokens_is_refused(kind: Aggregation) -> None:
    with pytest.raises(ValueError, match="no mean"):
        token_weights(kind, [0, 0], 4)
