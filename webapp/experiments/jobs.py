"""What a job is to the function that does it: its kind in a table, its progress, how it is stopped.

A kind is one function `work(job: Working) -> dict`, whose answer is the job's result. It is named
here by its path and imported by the process that works on jobs, never by the web tier.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

from django.utils import timezone
from django.utils.functional import Promise
from django.utils.module_loading import import_string
from django.utils.translation import gettext_lazy as _

from webapp.accounts.models import Membership, Role
from webapp.experiments.models import Job
from webapp.experiments.services import jobs as services
from webapp.plain_text import storable
from webapp.problems import RefusedError

WRITE_EVERY_S = 0.5
LOG_CHARS = 200_000


class CancelledError(Exception):
    """Somebody asked the job to stop, or it is no longer this process that works on it."""


@dataclass(frozen=True)
class Kind:
    label: str | Promise
    work: str  # dotted path of the function
    role: Role = Role.EDITOR  # that starting one needs


KINDS: dict[str, Kind] = {
    "prune": Kind(_("Pruning"), "webapp.experiments.pruning_job.work", Role.ADMIN),
    "storage": Kind(_("Measuring the storage"), "webapp.experiments.storage_use.measure"),
    "export": Kind(_("Export of trajectories"), "webapp.reviews.export_job.work"),
    "collect": Kind(_("Tasks of trajectories"), "webapp.reviews.collect_job.work"),
    "backtest": Kind(_("Reward backtest"), "webapp.experiments.backtests.work"),
}


def work_of(kind: str) -> "Callable[[Working], dict[str, Any]]":
    return cast("Callable[[Working], dict[str, Any]]", import_string(KINDS[kind].work))


def check_asker(job: Job) -> None:
    """Whether who asked for a job may still do that; it may have waited for long.

    Raises RefusedError.
    """
    needed = KINDS[job.kind].role
    member = Membership.objects.filter(
        project=job.project_id, user=job.created_by_id, user__is_active=True
    ).first()
    if member is None or Role(member.role).rank < needed.rank:
        raise RefusedError(
            f"This needs the role {needed.value}, which {job.created_by or 'who asked for it'} "
            "no longer holds. Somebody who holds it can do it again.",
            status=403,
        )


class Working:
    """A job in the hands of the process that claimed it."""

    def __init__(self, job: Job, every_s: float = WRITE_EVERY_S) -> None:
        self.job = job
        self._every_s = every_s
        self._next = 0.0
        self._state: dict[str, Any] = {}
        self._lines: list[str] = []
        self._logged = 0

    @property
    def spec(self) -> dict[str, Any]:
        return cast(dict[str, Any], self.job.spec)

    def progress(self, done: int, total: int | None = None, text: str = "") -> None:
        """How far it is. Call it often: it writes twice a second at most.

        Raises CancelledError where the job shall end.
        """
        self._state = {"done": done, "total": total, "text": storable(text)[:200]}
        if time.monotonic() >= self._next:
            self.write()

    def log(self, line: str) -> None:
        """Add a line to the job's log, shown with the next progress."""
        text = f"{timezone.now():%H:%M:%S} {storable(line)}\n"
        if self._logged + len(text) <= LOG_CHARS:
            self._lines.append(text)
        elif self._logged <= LOG_CHARS:
            self._lines.append("… what follows is not kept\n")
        self._logged += len(text)

    def write(self) -> None:
        """Store progress and log now. Raises CancelledError."""
        self._next = time.monotonic() + self._every_s
        lines, self._lines = "".join(self._lines), []
        if not services.report_job(self.job.pk, self.job.claim, lines, **self._state):
            raise CancelledError
