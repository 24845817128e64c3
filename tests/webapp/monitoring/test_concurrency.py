"""Writers that meet do not wait for each other in a circle, and cursors follow the commits."""

import json
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection

from tests.webapp.support import metrics, start
from webapp.accounts.models import Project, User
from webapp.experiments import services
from webapp.experiments.models import Run
from webapp.monitoring import rollups
from webapp.monitoring.ingest import parsing, storing
from webapp.monitoring.models import Point, Series

pytestmark = pytest.mark.django_db(transaction=True)
BATCHES = 15


def in_thread(action: Callable[[], Any]) -> Any:
    try:
        return action()
    finally:
        connection.close()


def test_writers_readers_and_people_meet_without_harm(
    launch: Callable[..., Run], owner: User
) -> None:
    Project.objects.update(max_running=10)
    drivers = [start(launch()) for _ in range(2)]
    names = [f"metric {number}" for number in range(12)]

    def report(driver: Any, source: str) -> None:
        chance = random.Random(source)
        for batch in range(BATCHES):
            chosen = chance.sample(names, 8)
            item = metrics(batch + 1, batch, source, **dict.fromkeys(chosen, 1.0))
            text = json.dumps({"items": [item]}).encode()
            storing.store(driver.token, parsing.parse(text))

    def roll_up() -> None:
        for _ in range(BATCHES * 2):
            rollups.roll_up_some()

    def read() -> None:
        for _ in range(BATCHES):
            for series in Series.objects.filter(run=drivers[0].run):
                rollups.roll_up([series.pk])

    def people() -> None:
        for number in range(BATCHES):
            services.set_tags(drivers[0].run.pk, owner, [f"t{number % 3}"], [])
            services.pause(drivers[1].run.pk, owner, rollouts=bool(number % 2))
            services.claim(launch(name=f"another {number}").attempts.get().pk)

    work: list[Callable[[], None]] = [roll_up, read, people]
    for driver in drivers:
        for writer in ("a", "b"):
            work.append(lambda d=driver, w=writer: report(d, f"{d.run.pk}.{w}"))  # type: ignore[misc]
    with ThreadPoolExecutor(len(work)) as pool:
        for future in [pool.submit(in_thread, action) for action in work]:
            future.result(timeout=120)

    for driver in drivers:
        points = Point.objects.filter(series__run=driver.run)
        run = Run.objects.get(pk=driver.run.pk)
        assert points.count() == len({(p.series_id, p.step) for p in points})
        assert max(p.cursor for p in points) <= run.cursor
        assert run.cursor >= 2 * BATCHES
    while rollups.roll_up_some():
        pass
    for series in Series.objects.all():
        (rolled,) = rollups.rolled(series.run, [series.name], buckets=1)
        assert rolled.buckets[0][6] == Point.objects.filter(series=series).count()
