"""The schemes that can be chosen by name, against what their names say."""

import pytest

from engine.rewards import score
from engine.rewards.presets import PRESETS, preset
from engine.spec import problems_of
from tests.engine.rewards.samples import step, trajectory


def test_composite_is_completion_efficiency_and_errors() -> None:
    solved = trajectory(step(), step("unknown_entity"), step(answer="Euro"))
    reward = score(preset("composite"), solved)
    assert reward.value == pytest.approx(1 * 0.8 + (1 - 3 / 8) * 0.2 - 1 * 1.5)


def test_its_curriculum_starts_from_completion_alone() -> None:
    solved = trajectory(step(), step("unknown_entity"), step(answer="Euro"))
    scheme = preset("composite-curriculum")
    assert score(scheme, solved, process_weight=0.0).value == pytest.approx(0.8)
    assert scheme.terms == preset("composite").terms


@pytest.mark.parametrize("name", PRESETS)
def test_a_spec_names_it(name: str) -> None:
    spec, problems = problems_of({"name": "x", "reward": name, "stages": [{"kind": "synthesise"}]})
    assert problems == [] and spec is not None
    assert spec.reward == preset(name)


def test_a_name_that_does_not_exist_is_refused_with_those_that_do() -> None:
    _, (problem,) = problems_of({"name": "x", "reward": "best", "stages": [{"kind": "rl"}]})
    assert problem.path == "reward"
    assert "no reward scheme 'best': there are exact-answer, composite" in problem.message
