"""Which versions of datasets a spec names, where, and who reads them."""

import pytest

from engine.spec import problems_of
from engine.spec.datasets import EVALUATION, PRACTICE, DatasetUse, datasets_of


def version(number: int) -> str:
    return f"ver_{number:016}"


STAGES = [
    {"kind": "synthesise"},
    {"kind": "sft", "source": "dataset", "dataset": version(1)},
    {"kind": "sft", "source": "accepted", "practice": {"dataset": version(2)}},
    {"kind": "dpo", "dataset": version(3)},
    {"kind": "dpo", "practice": {"dataset": version(2)}},
    {"kind": "rl", "dataset": version(4)},
    {"kind": "opd", "dataset": version(5), "teachers": [{"stage": 1}]},
    {"kind": "sft"},
    {"kind": "evaluate"},
]


def test_every_version_is_found_with_its_place_and_its_reader():
    spec, problems = problems_of(
        {"name": "x", "stages": STAGES, "evaluation": {"dataset": version(6)}}
    )
    assert spec is not None, problems
    assert datasets_of(spec) == [
        DatasetUse("stages.1.dataset", 1, "sft", version(1)),
        DatasetUse("stages.2.practice.dataset", 2, PRACTICE, version(2)),
        DatasetUse("stages.3.dataset", 3, "dpo", version(3)),
        DatasetUse("stages.4.practice.dataset", 4, PRACTICE, version(2)),
        DatasetUse("stages.5.dataset", 5, "rl", version(4)),
        DatasetUse("stages.6.dataset", 6, "opd", version(5)),
        DatasetUse("evaluation.dataset", None, EVALUATION, version(6)),
    ]


@pytest.mark.parametrize("stage", [2, 4, 5, 6])
def test_no_stage_trains_on_the_tasks_that_judge_the_run(stage):
    used = version({2: 2, 4: 2, 5: 4, 6: 5}[stage])
    _, problems = problems_of({"name": "x", "stages": STAGES, "evaluation": {"dataset": used}})
    place = "practice.dataset" if stage in (2, 4) else "dataset"
    assert f"stages.{stage}.{place}" in {one.path for one in problems}
    assert all("trains on" in one.message for one in problems)
