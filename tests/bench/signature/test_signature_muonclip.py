"""MuonClip's experiment: a tiny run of each arm, and verdicts of made-up runs both ways."""

from typing import Any

import pytest

from bench.signature import Results
from bench.signature.muonclip import EXPERIMENT, KINDS, RATES, Settings, arm_of, run_one

TINY = Settings(symbols=4, copied=3, rows=4, width=16, heads=2, steps=12, warmup=1, last=3, tau=0.1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_says_its_peak_its_loss_and_how_often_it_clipped(kind: str) -> None:
    found = run_one(TINY, arm_of(kind, RATES[1]), 0)
    assert len(found["logits"]) == TINY.steps
    assert found["peak_logit"] == pytest.approx(max(found["logits"]), abs=1e-3)
    assert 0 < found["end_loss"] < 3
    assert (found["clipped_steps"] > 0) == (kind == "muonclip")
    assert found == run_one(TINY, arm_of(kind, RATES[1]), 0)


def made_up(**peaks: float) -> Results:
    """Five seeds around a peak for each kind; MuonClip's loss is `muonclip_loss`."""
    loss = peaks.pop("muonclip_loss", 0.001)

    def outcome(kind: str, seed: int) -> dict[str, Any]:
        return {
            "peak_logit": peaks[kind.replace("+", "_")] * (1 + 0.01 * seed),
            "end_loss": (loss if kind == "muonclip" else 0.001) + 1e-5 * seed,
            "clipped_steps": 7 * (kind == "muonclip"),
        }

    return Results(
        {
            arm_of(kind, rate): {seed: outcome(kind, seed) for seed in range(5)}
            for rate in RATES
            for kind in KINDS
        }
    )


AS_CLAIMED = {"adamw": 25.0, "muon": 60.0, "muon_decay": 40.0, "muonclip": 16.0}


@pytest.mark.parametrize(
    ("claim", "otherwise"),
    [
        ("grows", {"muon": 24.0}),
        ("decay", {"muon_decay": 15.0}),
        ("bounds", {"muonclip": 19.0}),
        ("below", {"adamw": 14.0}),
        ("below", {"muon": 15.0}),
        ("free", {"muonclip_loss": 0.02}),
    ],
)
def test_it_tells_runs_that_bear_a_claim_out_from_others(
    claim: str, otherwise: dict[str, float]
) -> None:
    assert EXPERIMENT.verdicts(made_up(**AS_CLAIMED))[claim].reproduced
    assert not EXPERIMENT.verdicts(made_up(**{**AS_CLAIMED, **otherwise}))[claim].reproduced
