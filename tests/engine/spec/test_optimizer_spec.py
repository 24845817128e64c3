"""Optimizers as they are written in a spec: MuonClip's names, and what cannot be honoured."""

from typing import Any

import pytest

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


def test_muonclip_is_read_as_the_fields_that_make_it() -> None:
    made = optimizer(kind="muonclip", lr=1e-3)
    assert (made.kind, made.muon_scale, made.qk_clip) == ("muon", "match_rms_adamw", 100.0)
    assert (made.weight_decay, made.matrix_lr, made.qk_clip_shared_keys) == (0.1, 1e-3, False)
    other = optimizer(kind="muonclip", qk_clip=30, weight_decay=0.0, muon_scale="match_rms_adamw")
    assert (other.qk_clip, other.weight_decay) == (30.0, 0.0)
    critic = {"optimizer": {"kind": "muonclip"}}
    spec, problems = problems_of(
        changed(stages__2__algorithm="ppo", stages__2__weight_max=..., stages__2__critic=critic)
    )
    assert problems == [] and spec is not None
    assert spec.stages[2].critic.optimizer.qk_clip == 100.0


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"muon_scale": "original"}, "muonclip means muon_scale 'match_rms_adamw'"),
        ({"qk_clip": None}, "qk_clip is empty: leave it out"),
    ],
)
def test_what_is_no_muonclip_is_refused_under_its_name(fields: dict[str, Any], says: str) -> None:
    _, (problem,) = problems_of(changed(stages__1__optimizer={"kind": "muonclip", **fields}))
    assert problem.path == "stages.1" and says in problem.message


@pytest.mark.parametrize(
    ("data", "both"),
    [
        (
            changed(stages__1__optimizer__qk_clip=100.0, model__layers=["lightning"] * 2),
            ["stages.1.optimizer.qk_clip", "model.layers"],
        ),
        (
            changed(stages__2__optimizer__qk_clip_shared_keys=True),
            ["stages.2.optimizer.qk_clip_shared_keys", "stages.2.optimizer.qk_clip"],
        ),
        (
            changed(stages__2__optimizer__qk_clip=100.0, stages__2__lora={}),
            ["stages.2.lora", "stages.2.optimizer.qk_clip"],
        ),
        (changed(stages__1__optimizer__qk_clip=0.0), ["stages.1.optimizer.qk_clip"]),
        (changed(stages__1__optimizer__qk_clip=float("nan")), ["stages.1.optimizer.qk_clip"]),
    ],
)
def test_a_bound_that_cannot_be_kept_is_refused(data: dict[str, Any], both: list[str]) -> None:
    assert paths(data) == both


def test_by_default_nothing_is_clipped_and_muon_is_as_it_was() -> None:
    made = optimizer(kind="muon")
    assert (made.qk_clip, made.muon_scale, made.matrix_lr) == (None, "original", 0.02)
