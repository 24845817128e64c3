"""`caravan bench flops`: the ratios meet their bars, and the paper's curve is the paper's."""

import pytest

from bench import flops
from bench.flops import CURVE_OF_M1, CURVE_OF_R1, Curve


def test_every_ratio_meets_its_bar() -> None:
    figures = {figure.metric: figure for figure in flops.ratios()}
    assert len(figures) == 7
    assert all(figure.passed for figure in figures.values())
    # Computed by hand from the formulas and published configurations, in percent.
    expected = {
        "next_token_100k": 22.2,
        "generation_100k": 34.4,
        "generation_100k_absorbed": 12.0,
        "generation_100k_paper_curve": 30.4,
        "next_token_1m_twin_256k": 57.5,
    }
    found = {metric: figures[metric].value for metric in expected}
    assert found == pytest.approx(expected, abs=0.05)


@pytest.mark.parametrize(("tokens", "share"), [(65_536, 0.385), (102_400, 0.287), (131_072, 0.244)])
def test_the_curves_are_those_of_the_figure(tokens: int, share: float) -> None:
    """Read off figure 1 of 2506.13585, where M1 has 8 softmax layers."""
    drawn = Curve(CURVE_OF_M1.linear, CURVE_OF_M1.square * 8 / 10)
    assert drawn.at(tokens) / CURVE_OF_R1.at(tokens) == pytest.approx(share, abs=0.0006)
