"""How many series an attempt may have: names made of ids would fill every list and every page."""

from engine.records.events import Metrics
from webapp.monitoring.ingest.parsing import Batch
from webapp.monitoring.ingest.writing import Writing
from webapp.monitoring.models import Series

MAX_SERIES = 10_000  # names, each on each of its axes


def refuse_too_many(
    target: Writing, given: list[tuple[int, Metrics]], batch: Batch
) -> list[tuple[int, Metrics]]:
    """Items without those that would bring the attempt over the limit; these are rejected."""
    keys = {(name, item.axis) for _, item in given for name in item.values}
    if target.series + len(keys) <= MAX_SERIES:
        return given
    names = {name for name, _ in keys}
    stored = Series.objects.filter(attempt_id=target.attempt_id, name__in=names)
    known = set(stored.values_list("name", "axis"))
    room = MAX_SERIES - target.series
    kept = []
    for index, item in given:
        new = {(name, item.axis) for name in item.values} - known
        if len(new) > room:
            batch.reject(
                index,
                item,
                "values",
                f"An attempt has at most {MAX_SERIES:,} series, and {min(new)[0]!r} would be one "
                "more: names must not be made of ids or steps.",
            )
            continue
        known |= new
        room -= len(new)
        kept.append((index, item))
    return kept
