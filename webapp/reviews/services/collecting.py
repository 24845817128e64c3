"""Tasks of trajectories as a dataset: what a run fails at is what the next one trains on."""

from typing import Any

from pydantic import BaseModel, ConfigDict

from webapp.accounts.models import User
from webapp.experiments.models import Dataset, Job, Run
from webapp.experiments.services.datasets import checked_name
from webapp.experiments.services.jobs import start_once
from webapp.plain_text import storable
from webapp.problems import RefusedError, invalid_field
from webapp.reviews.queries import Filter, matching

COLLECT = "collect"
KIND = "tasks"


class Asked(BaseModel):
    """The spec of the job. `dataset`: the name of one, which is made if it is new."""

    model_config = ConfigDict(extra="forbid")

    run: str
    dataset: str
    filter: dict[str, Any]


def start_collecting(run: Run, user: User, wanted: Filter, dataset: str) -> Job:
    """Queue the job that adds a version to a dataset of tasks, unless it is under way.

    Raises RefusedError where nothing passes the filter, or the dataset holds something else.
    """
    name = checked_name(storable(dataset))
    held = Dataset.objects.filter(project=run.project_id, name=name).first()
    if held is not None and held.kind != KIND:
        raise invalid_field(
            "name", f"{held.name} holds {held.kind}: name a dataset of tasks, or a new one."
        )
    if not matching(run, wanted).exists():
        raise RefusedError("No stored trajectory passes this filter: there is no task to collect.")
    filter = wanted.model_dump(mode="json", exclude_none=True)
    spec = Asked(run=run.pk, dataset=name, filter=filter).model_dump()
    return start_once(run, user, COLLECT, spec, title=f"Tasks of {run.name[:100]} into {name}")
