"""Home: what works now, in as many queries whatever their number."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from tests.webapp.support import start
from webapp.accounts.models import Project
from webapp.experiments.models import Run, Stage
from webapp.experiments.queries import newest_stages

pytestmark = pytest.mark.django_db


def stage_of(run: Run, number: int = 1) -> Stage:
    attempt = run.attempts.get(number=number)
    return Stage.objects.create(
        attempt=attempt, index=1, name="sft", state="running", step=40, steps=100,
        started_at=timezone.now(),
    )  # fmt: skip


def test_it_shows_the_stage_of_each_run_in_as_many_queries(
    page: Client, project: Project, launch: Callable[..., Run]
) -> None:
    def queries() -> int:
        with CaptureQueriesContext(
            connection,
        ) as found:
            answer = page.get(f"/projects/{project.pk}/")
        assert answer.content.decode().count('run-card"') == project.runs.count()
        assert answer.content.decode().count("sft 40 / 100") == project.runs.count()
        return len(found)

    project.max_running = 20
    project.save()
    page.get(f"/projects/{project.pk}/")
    counts = []
    for _ in range(2):
        for _ in range(4):
            run: Any = launch()
            start(run)
            stage_of(run)
        counts.append(queries())
    assert counts[0] == counts[1]


def test_only_the_newest_attempt_counts(launch: Callable[..., Run]) -> None:
    run, other = launch(), launch()
    start(run)
    stage_of(run)
    run.attempts.create(number=2)
    newer = stage_of(run, 2)
    assert newest_stages([run.pk, other.pk]) == {run.pk: [newer], other.pk: []}
