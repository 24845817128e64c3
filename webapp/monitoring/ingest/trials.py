"""What each trial of an evaluation came to, stored in parts."""

from engine.records.events import MAX_TRIAL_PARTS, MAX_TRIALS_OF_PART, TrialRows
from webapp import storage
from webapp.monitoring.models import TrialPart
from webapp.plain_text import storable_json

MAX_CHARS = 1_000_000  # of the texts of a part


def problem_of_trials(item: TrialRows) -> tuple[str, str] | None:
    """(field, message) where a part cannot be stored."""
    if not storage.is_safe(item.path):
        return "path", "A relative path of plain names is expected."
    if item.part >= MAX_TRIAL_PARTS:
        return "part", f"An evaluation has at most {MAX_TRIAL_PARTS} parts of trials."
    if (trials := sum(len(row.results) for row in item.rows)) > MAX_TRIALS_OF_PART:
        return "rows", f"A part has at most {MAX_TRIALS_OF_PART:,} trials, not {trials:,}."
    texts = (text for row in item.rows for text in (row.task, row.category, *row.trajectories))
    if (chars := sum(map(len, texts))) > MAX_CHARS:
        return "rows", f"A part has at most {MAX_CHARS:,} characters, not {chars:,}."
    return None


def store_trials(attempt_id: str, items: list[TrialRows]) -> None:
    """Parts are stored once each."""
    TrialPart.objects.bulk_create(
        [
            TrialPart(
                attempt_id=attempt_id,
                path=item.path,
                part=item.part,
                tasks=storable_json([row.task for row in item.rows]),
                categories=storable_json([row.category for row in item.rows]),
                results=[row.results for row in item.rows],
                trajectories=storable_json([pk for row in item.rows for pk in row.trajectories]),
            )
            for item in items
        ],
        ignore_conflicts=True,
    )
