"""What the runs of trials reported of the sweep's metric, read from the stored series."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from django.db import connection

from webapp.experiments.models import Run
from webapp.monitoring.models import Series

AXIS = "trainer_step"


@dataclass(frozen=True)
class Report:
    """The first value of the metric at a rung or after it."""

    step: int
    at: float  # seconds since 1970
    value: float


def reports_at(metric: str, wanted: Mapping[int, tuple[str, int]]) -> dict[int, Report]:
    """By trial, the first report of its run at the wanted trainer step or later, if there is one.

    `wanted`: (run, step) by trial. Of several attempts that report one step the newest counts.
    """
    if not wanted:
        return {}
    with connection.cursor() as sql:
        sql.execute(
            """
            SELECT DISTINCT ON (w.trial) w.trial, p.step, p.at, p.value
            FROM unnest(%s::bigint[], %s::text[], %s::bigint[]) AS w(trial, run, step)
            JOIN monitoring_series s ON s.run_id = w.run AND s.name = %s AND s.axis = %s
            JOIN experiments_attempt a ON a.id = s.attempt_id
            CROSS JOIN LATERAL (
                SELECT step, at, value FROM monitoring_point
                WHERE series_id = s.id AND step >= w.step ORDER BY step LIMIT 1
            ) AS p
            ORDER BY w.trial, p.step, a.number DESC
            """,
            [
                list(wanted),
                [run for run, _ in wanted.values()],
                [step for _, step in wanted.values()],
                metric,
                AXIS,
            ],
        )
        return {trial: Report(step, at, value) for trial, step, at, value in sql.fetchall()}


def last_value(run: Run, metric: str) -> float | None:
    """The newest value of the newest attempt that reported the metric; None: no finite one."""
    found = Series.objects.filter(run=run, name=metric).order_by("-attempt__number")
    value = found.values_list("last_value", flat=True).first()
    return value if value is not None and math.isfinite(value) else None
