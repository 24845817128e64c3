"""Keeping the names of config fields of a project, for the pickers of columns and groups."""

from typing import Any

from webapp.accounts.models import Project
from webapp.experiments.models import ConfigField
from webapp.experiments.queries import flat_spec

LONGEST = 120  # characters of a path that can be a column
MOST_OF_RUN = 2_000
MOST_OF_PROJECT = 20_000  # a trainer's own config may have ids as names


def keep_config_fields(project: Project, spec: dict[str, Any]) -> None:
    """Of a run that is being made: names that the project has not yet, the first ones of many."""
    paths = (path for path, _ in flat_spec(spec) if len(path) <= LONGEST)
    wanted = list(dict.fromkeys(paths))[:MOST_OF_RUN]
    known = ConfigField.objects.filter(project=project)
    new = set(wanted) - set(known.filter(path__in=wanted).values_list("path", flat=True))
    if not new or known.count() >= MOST_OF_PROJECT:
        return
    rows = [ConfigField(project=project, path=path) for path in sorted(new)]
    ConfigField.objects.bulk_create(rows, ignore_conflicts=True)  # a run is made beside this one
