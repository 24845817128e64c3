"""`seed_demo` fills every kind of page, makes the sizes of the bars, and keeps off real runs."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.db.models import Count

from webapp.experiments.models import Checkpoint, Dataset, Experiment, Preset, RewardScheme, Run
from webapp.monitoring.models import Point, RunEvent, Series
from webapp.monitoring.seed import scale, sweeps
from webapp.monitoring.seed.sweeps import BEST_LR, LR
from webapp.reviews.models import Comment, Queue, Trajectory, Verdict
from webapp.sweeps.models import Sweep
from webapp.sweeps.queries import sweep_detail


def seed(**options) -> str:
    said = StringIO()
    call_command("seed_demo", stdout=said, **options)
    return said.getvalue()


def test_it_leaves_something_of_every_kind(owner) -> None:
    seed(runs=2)
    demo = Run.objects.filter(tags__contains=["demo"])
    assert demo.filter(trial_run=None).count() == 2
    kinds = set(RunEvent.objects.values_list("kind", flat=True))
    assert {"pool", "spans", "log", "tree", "clock", "decision", "evaluation"} <= kinds
    made = (
        Checkpoint,
        Comment,
        Dataset,
        Experiment,
        Preset,
        Queue,
        RewardScheme,
        Trajectory,
        Verdict,
    )
    assert not [model.__name__ for model in made if not model.objects.exists()]
    paused, ended = Sweep.objects.order_by("-created_at")
    assert (paused.state, ended.state) == ("paused", "finished")
    found = sweep_detail(ended)  # what TPE and ASHA made of made-up runs
    assert found.counts.keys() == {"complete", "pruned"} and found.launched == 10
    assert found.rungs[0].arrived == 10
    assert found.best is not None and BEST_LR / 5 < found.best.params[LR] < 5 * BEST_LR
    over_seeds = sweep_detail(paused)
    assert over_seeds.counts == {"complete": 4} and over_seeds.best.band is not None
    assert not Run.objects.filter(ended_at=None).exists()
    oldest = Run.objects.filter(trial_run=None).earliest("created_at")
    newest = Run.objects.exclude(trial_run=None).latest("created_at")
    assert newest.created_at < oldest.created_at  # lists show the others first


def test_a_second_time_it_adds_runs_only(owner, monkeypatch) -> None:
    monkeypatch.setattr(sweeps, "make", lambda *given, days: None)
    seed(runs=1)
    before = Queue.objects.count()
    seed(runs=1)
    assert (Run.objects.count(), Queue.objects.count()) == (2, before)


def test_it_keeps_off_a_database_with_real_runs(owner, run, monkeypatch) -> None:
    monkeypatch.setattr(sweeps, "make", lambda *given, days: None)
    with pytest.raises(CommandError, match="1 real runs.*--beside-real-runs"):
        seed(runs=1)
    assert Run.objects.count() == 1
    seed(runs=1, beside_real_runs=True)
    assert Run.objects.filter(trial_run=None).count() == 2


def test_the_sizes_are_those_of_the_bars() -> None:
    assert scale.Sizes.of(1.0) == scale.Sizes(5000, 200, 1_000_000, 10_000, 10_000)


def test_a_small_scale_has_the_same_shape(owner) -> None:
    said = seed(runs=0, scale=0.002)
    assert "10 runs with 20 metrics" in said
    wide = Run.objects.filter(experiment__name="10 runs").annotate(series_count=Count("series"))
    assert [run.series_count for run in wide] == [20] * 10
    newest = {one.name: one.last_value for one in wide[0].series.all()}
    assert wide[0].headline and wide[0].headline.items() <= newest.items()
    long = Series.objects.get(name=scale.LONG)
    assert Point.objects.filter(series=long).count() == 2000 == long.last_step + 1
    assert long.rolled == long.cursor
    assert Trajectory.objects.filter(run__name="trajectories").count() == 20
    assert Trajectory.objects.get(run__name="long trajectory").steps == 40
