"""Which checkpoints are kept: the newest of each run, the ends of stages, what is resumed from."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from webapp import storage
from webapp.accounts.models import Project
from webapp.accounts.services import ensure_admin
from webapp.experiments import services
from webapp.experiments.models import Attempt, Checkpoint, Run
from workers.control import tasks

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def run(tmp_path: Path, settings: Any) -> Run:
    settings.CARAVAN_STORAGE = str(tmp_path)
    admin = ensure_admin("ada@example.org")
    project = Project.objects.get(memberships__user=admin)
    spec = {"name": "x", "stages": [{"kind": "synthesise"}], "checkpoint": {"keep": 2}}
    return services.launch_run(project, admin, services.check_spec(spec))


def save(run: Run, step: int, final: bool = False) -> Checkpoint:
    folder = Path(storage.run_folder(run.pk)) / f"checkpoints/{step}"
    folder.mkdir(parents=True)
    (folder / "model").write_text("weights")
    return Checkpoint.objects.create(
        run=run,
        attempt=run.attempts.get(),
        stage=1,
        step=step,
        policy_version=step,
        path=f"checkpoints/{step}",
        files={},
        final=final,
        created_at=timezone.now() + timedelta(seconds=step),
    )


def kept(run: Run) -> list[int]:
    rows = list(run.checkpoints.filter(removed_at=None).values_list("step", flat=True))
    folder = Path(storage.run_folder(run.pk)) / "checkpoints"
    assert sorted(rows) == sorted(int(path.name) for path in folder.iterdir())
    return sorted(rows)


def test_it_keeps_the_newest_and_the_ends_of_stages(run: Run) -> None:
    for step in range(1, 7):
        save(run, step, final=step == 2)
    tasks.reap()
    assert kept(run) == [2, 5, 6]
    tasks.reap()
    assert kept(run) == [2, 5, 6]


def test_it_keeps_what_an_attempt_resumes_from(run: Run) -> None:
    first = save(run, 1)
    Attempt.objects.update(resume_from=first)
    for step in range(2, 6):
        save(run, step)
    tasks.reap()
    assert kept(run) == [1, 4, 5]


def test_it_leaves_the_checkpoints_of_others_own_trainers_alone(run: Run) -> None:
    Run.objects.update(spec={})
    for step in range(1, 6):
        save(run, step)
    tasks.reap()
    assert kept(run) == [1, 2, 3, 4, 5]


def test_it_finishes_what_a_deleted_run_has_left(run: Run) -> None:
    save(run, 1)
    admin = ensure_admin("ada@example.org")
    services.stop(run.pk, admin)
    services.archive(run.pk, admin)
    services.delete_run(run.pk, admin)
    folder = Path(storage.run_folder(run.pk))
    assert folder.exists()
    tasks.reap()
    assert not folder.exists()
    tasks.remove()
