"""The one line that tells how the quick start ended."""

from workers.local.quick_start import summary_line


def held_out(rate: float) -> dict[str, object]:
    return {
        "name": "held_out",
        "completion_rate": rate,
        "completion_rate_low": rate - 0.02,
        "completion_rate_high": rate + 0.02,
    }


def test_it_tells_where_the_run_began_and_where_it_ended() -> None:
    quick = {**held_out(0.1), "name": "quick"}
    run = {
        "state": "succeeded",
        "state_reason": "",
        "summary": {"evaluations": [held_out(0.5), quick, held_out(0.91)]},
    }
    assert summary_line(run, 375) == (
        "the quick start succeeded after 6.2 min: 50.0% -> 91.0% of the held-out tasks solved "
        "(95% interval 89.0% to 93.0%)"
    )


def test_it_tells_why_a_run_did_not_succeed() -> None:
    run = {"state": "failed", "state_reason": "the disk is full", "summary": {}}
    assert summary_line(run, 60) == "the quick start failed after 1.0 min (the disk is full)"
