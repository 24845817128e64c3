"""Optimizers as they are written in a spec: MuonClip's names, and what cannot be honoured."""

from typing import Any

from engine.spec import problems_of
from tests.engine.spec.test_spec import changed, paths


def optimizer(**fields: Any) -> Any:
    """That of the cold start, with `fields` instead of the recipe's."""
    spec, problems = problems_of(changed(stages__1__optimizer=fields))
    assert problems == [] and spec is not None
    return spec.stages[1].optimizer


def test_moonlights_scale_is_of_muon() -> None:
    assert optimizer(kind="muon", muon_scale="match_rms_adamw").matrix_lr == 4e-4
    data = changed(stages__2__optimizer__muon_scale="match_rms_adamw")
    assert paths(data) == ["stages.2.optimizer.muon_scale", "stages.2.optimizer.kind"]
