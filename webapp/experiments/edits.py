"""Two people editing one thing: what was seen is said on saving, and nobody's text is lost."""

import difflib
from dataclasses import dataclass
from typing import Any

from webapp.accounts.models import AuditEntry
from webapp.experiments.models import Experiment, Run
from webapp.rest.etags import etag_of

MOST_LINES = 2_000  # of a text that is compared line by line


@dataclass(frozen=True)
class Field:
    """A field that both changed: as it stands now, and as it was about to be saved."""

    name: str
    label: str
    theirs: str
    yours: str
    is_long: bool = False

    @property
    def lines(self) -> list[tuple[str, str]]:
        """(removed, added, place or nothing, line) from theirs to yours."""
        old, new = self.theirs.splitlines()[:MOST_LINES], self.yours.splitlines()[:MOST_LINES]
        found = []
        for line in list(difflib.unified_diff(old, new, n=2, lineterm=""))[2:]:
            kind = {"-": "removed", "+": "added", "@": "place"}.get(line[:1], "")
            found.append((kind, line))
        return found


def seen_experiment(experiment: Experiment) -> str:
    """A tag of what the form of an experiment edits."""
    return etag_of(experiment.name, experiment.notes)


def seen_run(run: Run) -> str:
    return etag_of(run.name, run.notes, run.tags)


def last_change(edited: Experiment | Run, action: str) -> AuditEntry | None:
    """Who changed it last, and when."""
    rows = AuditEntry.objects.filter(project=edited.project_id, target=edited.pk)
    rows = rows.filter(action__in=(action, "run.tags"))
    return rows.select_related("user").order_by("-pk").first()


def conflict_context(
    edited: Experiment | Run, action: str, seen: str, fields: list[Field], back: str
) -> dict[str, Any]:
    """For the page `experiments/edit_conflict.html`; `seen` is the tag as it stands now."""
    return {
        "title": edited.name,
        "change": last_change(edited, action),
        "seen": seen,
        "fields": fields,
        "differing": [field for field in fields if field.theirs != field.yours],
        "back": back,
    }
