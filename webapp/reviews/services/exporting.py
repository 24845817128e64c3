"""Exports of many trajectories: how much one is, and the job that makes it where that is much."""

from dataclasses import dataclass
from typing import Any, Literal

from django.db.models import Count, Sum
from pydantic import BaseModel, ConfigDict

from webapp.accounts.models import User
from webapp.experiments.models import Job, Run
from webapp.experiments.services.job_files import EXPORT
from webapp.experiments.services.jobs import start_once
from webapp.problems import RefusedError, conflict
from webapp.reviews.queries import Filter, matching

MOST_SENT = 1_000  # trajectories of an export that is sent while it is made
MOST_SENT_BYTES = 16 * 2**20  # of theirs in storage

Format = Literal["jsonl", "parquet"]


class Asked(BaseModel):
    """The spec of the job."""

    model_config = ConfigDict(extra="forbid")

    run: str
    format: Format
    filter: dict[str, Any]


@dataclass(frozen=True)
class Extent:
    """How much an export is. `bytes`: in storage, where they are compressed."""

    trajectories: int
    bytes: int

    @property
    def needs_job(self) -> bool:
        return self.trajectories > MOST_SENT or self.bytes > MOST_SENT_BYTES


def extent_of(run: Run, wanted: Filter) -> Extent:
    found = matching(run, wanted).aggregate(count=Count("pk"), size=Sum("length"))
    return Extent(found["count"], found["size"] or 0)


def check_extent(run: Run, wanted: Filter) -> None:
    """Raises RefusedError (409) where only a job may make the export."""
    extent = extent_of(run, wanted)
    if extent.needs_job:
        raise conflict(
            f"These are {extent.trajectories:,} trajectories, {extent.bytes / 1e6:,.0f} MB in "
            f"storage: more than {MOST_SENT:,} or {MOST_SENT_BYTES / 1e6:,.0f} MB are exported by "
            "a job, which POST to exports of the run starts."
        )


def start_export(run: Run, user: User, wanted: Filter, format: Format) -> Job:
    """Queue the job that makes the file, unless it is under way.

    Raises RefusedError where nothing passes the filter.
    """
    if not matching(run, wanted).exists():
        raise RefusedError("No stored trajectory passes this filter: there is nothing to export.")
    filter = wanted.model_dump(mode="json", exclude_none=True)
    spec = Asked(run=run.pk, format=format, filter=filter).model_dump()
    return start_once(run, user, EXPORT, spec, title=f"Export of {run.name[:120]} as {format}")
