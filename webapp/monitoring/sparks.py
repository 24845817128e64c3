"""Short curves for lists: the newest points of a metric of many runs, in one query."""

from collections import defaultdict

from django.db import connection

POINTS = 60


def sparks(
    run_ids: list[str], metrics: list[str], points: int = POINTS
) -> dict[tuple[str, str], list[float | None]]:
    """By (run id, metric): the newest `points` values in order of their steps.

    A value that is not finite is None, a gap of the curve. Of two attempts' values at a step the
    newer attempt's is taken.
    """
    if not run_ids:
        return {}
    with connection.cursor() as sql:
        sql.execute(
            """
            SELECT s.run_id, s.name, p.step, p.value
            FROM monitoring_series AS s
            JOIN experiments_attempt AS a ON a.id = s.attempt_id
            CROSS JOIN LATERAL (
                SELECT step, value FROM monitoring_point
                WHERE series_id = s.id ORDER BY step DESC LIMIT %s
            ) AS p
            WHERE s.run_id = ANY(%s) AND s.name = ANY(%s)
            ORDER BY s.run_id, s.name, p.step, a.number
            """,
            [points, run_ids, metrics],
        )
        rows = sql.fetchall()
    found: dict[tuple[str, str], dict[int, float | None]] = defaultdict(dict)
    for run, name, step, value in rows:
        found[run, name][step] = value if abs(value) < float("inf") else None
    return {key: list(curve.values())[-points:] for key, curve in found.items()}
