"""The decay schedules against their published tables."""

import pytest
import torch

from engine.kernels.lightning import SlopeSchedule, head_slopes


def test_the_schedules_match_their_published_tables() -> None:
    minimax = head_slopes(SlopeSchedule.MINIMAX, 64, 0, 80)
    assert minimax[0] == pytest.approx(0.9170 * (1 + 1e-5), abs=1e-4)
    assert minimax[-1] == pytest.approx(2**-8 * (1 + 1e-5))
    deepest = head_slopes(SlopeSchedule.MINIMAX, 64, 79, 80)
    assert deepest[-1] == pytest.approx(2**-8 * 1e-5, rel=1e-3)
    twelve = head_slopes(SlopeSchedule.ALIBI, 12, 3, 8)
    assert twelve[:4].tolist() == pytest.approx([0.5, 0.25, 0.125, 0.0625])
    assert twelve[8:10].tolist() == pytest.approx([0.7071, 0.3536], abs=1e-4)
    bailing = head_slopes(SlopeSchedule.BAILING, 4, 2, 5)
    assert bailing.tolist() == pytest.approx([2 ** (-2 * h) * (0.75 + 1e-5) for h in range(1, 5)])
    transnormer = head_slopes(SlopeSchedule.TRANSNORMER, 4, 1, 2)
    assert transnormer.tolist() == [0.0, 1.0, 2.0, 3.0]
    assert minimax.dtype == torch.float32
