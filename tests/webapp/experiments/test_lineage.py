"""Where stages begin, as the API, the Checkpoints tab and removal know it."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from tests.webapp.support import Api, Driver, start
from webapp.experiments import services
from webapp.experiments.lineage import Lineage, lineage_of
from webapp.experiments.models import Checkpoint, Run, State
from webapp.problems import RefusedError

STAGES = [
    {"kind": "synthesise"},
    {"kind": "sft", "steps": 50},
    {"kind": "rl", "steps": 10, "hops": [3], "start_from": 1},
    {"kind": "rl", "steps": 10, "hops": [4], "start_from": 1},
    {"kind": "rl", "steps": 10},
]


@pytest.fixture
def driver(launch: Callable[..., Run]) -> Driver:
    return start(launch(stages=STAGES))


def saved(driver: Driver, stage: int, parent: str = "", **fields: Any) -> Checkpoint:
    return driver.run.checkpoints.create(
        attempt=driver.attempt,
        stage=stage,
        step=10,
        policy_version=1,
        path=f"checkpoints/{stage}",
        parent_path=parent,
        files={},
        final=True,
        created_at=timezone.now(),
        **fields,
    )


def test_a_checkpoint_names_the_one_that_its_stage_began_with(driver: Driver, api: Api) -> None:
    cold = saved(driver, 1)
    expert = saved(driver, 3, "checkpoints/1")
    orphan = saved(driver, 4, "checkpoints/gone")
    found = {one["id"]: one for one in api("GET", f"runs/{driver.run.pk}/checkpoints").json()}
    assert {pk: one["parent_id"] for pk, one in found.items()} == {
        cold.pk: None,
        expert.pk: cold.pk,
        orphan.pk: None,
    }
    assert api("GET", f"checkpoints/{expert.pk}").json()["parent_id"] == cold.pk


def test_a_parent_is_the_newest_of_that_path_in_the_run_itself(
    driver: Driver, launch: Callable[..., Run], api: Api
) -> None:
    saved(driver, 1)
    services.fail_attempt(driver.attempt.pk, "over")
    services.resume(driver.run.pk, driver.run.created_by)
    again = start(driver.run)
    newest = saved(again, 1)
    saved(start(launch(stages=STAGES)), 1)  # every run has such paths
    expert = saved(again, 3, "checkpoints/1")
    assert api("GET", f"checkpoints/{expert.pk}").json()["parent_id"] == newest.pk


def test_final_weights_that_a_later_stage_needs_cannot_be_removed(driver: Driver) -> None:
    cold, first, third = saved(driver, 1), saved(driver, 2), saved(driver, 3)
    with pytest.raises(RefusedError, match="Stage 2 and 3 of this run begins with"):
        services.remove_checkpoint(cold, None)
    with pytest.raises(RefusedError, match="Stage 4 of this run"):
        services.remove_checkpoint(third, None)
    services.remove_checkpoint(first, None)
    Run.objects.filter(pk=driver.run.pk).update(state=State.SUCCEEDED)
    services.remove_checkpoint(Checkpoint.objects.get(pk=cold.pk), None)
    assert services.prune_checkpoints() == 0


def test_the_checkpoints_tab_draws_the_line_of_the_stages(driver: Driver, page: Client) -> None:
    saved(driver, 1)
    driver.attempt.stages.create(
        index=1,
        name="sft",
        state="done",
        step=10,
        steps=10,
        started_at=timezone.now(),
        summary={"completion_rate": 0.25},
    )
    text = page.get(f"/runs/{driver.run.pk}/checkpoints").content.decode()
    assert text.count('class="lineage-node') == 4 and text.count('class="lineage-edge') == 3
    assert "Stage 3, rl" in text and "begins with stage 1" in text
    drawn = lineage_of(driver.run)
    assert isinstance(drawn, Lineage)
    places = {node.index: (node.x, node.y) for node in drawn.nodes}
    assert places[2][0] == places[3][0] and places[2][1] != places[3][1], "siblings"
    assert places[4][0] > places[3][0] and places[4][1] == places[3][1], "an only child"
    assert len(set(places.values())) == 4
    assert [node.completion for node in drawn.nodes] == [0.25, None, None, None]


def test_a_student_stands_right_of_its_teachers_and_left_of_what_follows(
    launch: Callable[..., Run],
) -> None:
    student = {"kind": "opd", "start_from": 1, "teachers": [{"stage": 2}, {"stage": 3}]}
    drawn = lineage_of(launch(stages=[*STAGES[:4], student, {"kind": "rl", "steps": 10}]))
    assert drawn is not None
    x = {node.index: node.x for node in drawn.nodes}
    assert x[1] < x[2] == x[3] < x[4] < x[5]
    assert sum(edge.teaches for edge in drawn.edges) == 2
    assert len({(node.x, node.y) for node in drawn.nodes}) == 5


def test_a_run_of_somebody_elses_trainer_has_no_line(driver: Driver) -> None:
    Run.objects.filter(pk=driver.run.pk).update(spec={})
    assert lineage_of(Run.objects.get(pk=driver.run.pk)) is None
