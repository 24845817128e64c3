"""Groups of runs: what belongs together, the means over it, and pages of many groups."""

import math
from collections.abc import Callable
from typing import Any

import pytest

from tests.webapp.support import Api
from webapp.accounts.models import Project, User
from webapp.experiments import services
from webapp.experiments.models import Run
from webapp.experiments.run_groups import list_groups
from webapp.monitoring.models import Series
from webapp.problems import RefusedError

Launcher = Callable[..., Run]


def measure(run: Run, value: float | None, name: str = "extra/kl") -> None:
    attempt = run.attempts.get()
    Series.objects.create(
        run=run, attempt=attempt, name=name, axis="trainer_step", last_step=1, last_value=value
    )


def runs() -> Any:
    return Run.objects.all()


def keys(**wanted: Any) -> list[str | None]:
    return [one.key for one in list_groups(runs(), **wanted).items]


def test_repeats_with_other_seeds_and_labels_are_one_variant(launch: Launcher) -> None:
    first = launch(seed=0)
    again = launch(seed=1, name="again", tags=["other"], description="the second")
    other = launch(trainer={"threads": 2})
    first.refresh_from_db()
    again.refresh_from_db()
    other.refresh_from_db()
    assert first.variant == again.variant != other.variant
    groups = list_groups(runs(), group="variant").items
    assert [(one.n, set(one.runs)) for one in groups] == [
        (1, {other.pk}),
        (2, {first.pk, again.pk}),
    ]


def test_seeds_of_a_trainer_of_ones_own_are_repeats_too(project: Project, owner: User) -> None:
    for seed in (1, 2):
        config = {"seed": seed, "lr": 0.1}
        services.begin_external(project, owner, config, services.Launch(name=f"own {seed}"))
    assert len(keys(group="variant")) == 1
    assert keys(group="config.seed", sort="newest") == ["1", "2"]


def test_runs_are_grouped_by_any_field_and_those_without_it_stay_together(
    launch: Launcher, project: Project, owner: User
) -> None:
    launch(seed=3)
    launch(seed=4)
    launch(seed=4)
    services.begin_external(project, owner, {}, services.Launch(name="own"))
    found = {one.key: one.n for one in list_groups(runs(), group="seed").items}
    assert found == {"3": 1, "4": 2, None: 1}
    with pytest.raises(RefusedError, match="path of the spec"):
        list_groups(runs(), group="a..b")


def test_means_are_over_finite_values_and_say_over_how_many(launch: Launcher) -> None:
    for value in (1.0, 2.0, 4.0, math.nan, math.inf):
        measure(launch(), value)
    launch()
    (group,) = list_groups(runs(), group="seed", metrics=["extra/kl", "none/such"]).items
    found = group.metrics["extra/kl"]
    assert group.n == 6 and found.sample is not None and found.interval is not None
    assert (found.sample.n, found.sample.mean) == (3, pytest.approx(7 / 3))
    # By hand: s = sqrt(7 / 3), t(2) of 95% is 4.3027.
    half = 4.302652729911275 * math.sqrt(7 / 3) / math.sqrt(3)
    assert found.interval.upper - found.interval.value == pytest.approx(half)
    assert group.metrics["none/such"].sample is None


def test_a_headline_metric_is_found_by_its_short_word(launch: Launcher) -> None:
    run = launch()
    Run.objects.filter(pk=run.pk).update(headline={"rollout/reward_mean": 0.25})
    (group,) = list_groups(runs(), group="variant", metrics=["reward"]).items
    found = group.metrics["rollout/reward_mean"]
    assert found.sample is not None and found.sample.mean == 0.25 and found.interval is None


@pytest.mark.parametrize("sort", ["extra/kl", "-extra/kl"])
def test_groups_without_a_value_come_last_and_pages_join(launch: Launcher, sort: str) -> None:
    values = [3.0, None, 1.0, 2.0, math.nan]
    for seed, value in enumerate(values):
        run = launch(seed=seed)
        if value is not None:
            measure(run, value)
    whole = keys(group="seed", sort=sort)
    assert whole == [*(["0", "3", "2"] if sort[0] == "-" else ["2", "3", "0"]), "1", "4"]
    paged, cursor = [], None
    while True:
        page = list_groups(runs(), group="seed", sort=sort, cursor=cursor, limit=2)
        paged += [one.key for one in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert paged == whole and page.total == 5


def test_the_api_gives_the_same_groups(api: Api, launch: Launcher) -> None:
    for value in (1.0, 3.0):
        measure(launch(), value)
    body = api("GET", "run-groups?by=seed&metrics=extra/kl&q=status:active").json()
    (group,) = body["items"]
    found = group["metrics"]["extra/kl"]
    assert (group["key"], group["n"], found["n"], found["mean"]) == ("0", 2, 2, 2.0)
    half = 12.706204736432095 * math.sqrt(2) / math.sqrt(2)  # t of one degree of freedom
    assert found["upper"] == pytest.approx(2 + half)
    assert api("GET", "run-groups?by=a..b").status_code == 422
