"""What takes space in a project, and by which rules it is kept."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from django.db import connection
from django.db.models import Count, F, Sum
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from webapp import pruning, storage
from webapp.accounts.models import Project
from webapp.experiments.jobs import Working
from webapp.experiments.models import Dataset, Job, Removal, Run, State, Upload
from webapp.experiments.services.job_files import EXPORTS_KEPT, files_of
from webapp.experiments.services.prune import MEASURE

SHOWN = 100

# Bytes by the manifests: what lies on run storage is not asked here.
_CHECKPOINTS = """
    SELECT c.run_id, count(DISTINCT c.id),
        coalesce(sum((f.value ->> 'size')::numeric), 0)::bigint
    FROM experiments_checkpoint AS c
    JOIN experiments_run AS r ON r.id = c.run_id
    LEFT JOIN LATERAL jsonb_each(c.files) AS f ON true
    WHERE r.project_id = %s AND c.removed_at IS NULL
    GROUP BY c.run_id
"""
_TABLES = """
    SELECT relname, pg_total_relation_size(oid), greatest(reltuples, 0)::bigint
    FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace
    ORDER BY 2 DESC LIMIT 12
"""


@dataclass
class RunUse:
    """Bytes of one run. `files` is what was measured last on run storage; None: never."""

    run_id: str
    name: str = ""
    state: str = ""
    number: int = 0
    archived: bool = False
    keep: int | None = None  # `checkpoint.keep` of its spec
    checkpoints: int = 0
    checkpoint_bytes: int = 0
    uploads: int = 0
    upload_bytes: int = 0
    files: dict[str, int] | None = None  # bytes by top folder: checkpoints, pool, ...

    @property
    def total(self) -> int:
        return self.checkpoint_bytes + self.upload_bytes

    @property
    def pool_bytes(self) -> int | None:
        return None if self.files is None else self.files.get("pool", 0)


@dataclass(frozen=True)
class DatasetUse:
    dataset_id: str
    name: str
    versions: int
    bytes: int


@dataclass(frozen=True)
class TableUse:
    """A table of PostgreSQL with its indexes, of all projects together; rows are an estimate."""

    name: str
    bytes: int
    rows: int


@dataclass
class Use:
    """The largest runs and datasets first; the totals are of all of them."""

    runs: list[RunUse]
    run_count: int
    checkpoint_bytes: int
    upload_bytes: int
    dataset_bytes: int
    datasets: list[DatasetUse]
    dataset_count: int
    tables: list[TableUse]
    export_bytes: int
    waiting: int  # files of deleted runs that still lie there
    measured: Job | None
    measured_bytes: dict[str, int] = field(default_factory=dict)  # by top folder, of all runs


def use_of(project: Project, shown: int = SHOWN) -> Use:
    """Some aggregated queries, however many runs there are; no file is looked at."""
    uses: dict[str, RunUse] = {}
    with connection.cursor() as sql:
        sql.execute(_CHECKPOINTS, [project.pk])
        for run_id, count, size in sql.fetchall():
            uses[run_id] = RunUse(run_id, checkpoints=count, checkpoint_bytes=size)
        sql.execute(_TABLES)
        tables = [TableUse(*row) for row in sql.fetchall()]
    uploads = Upload.objects.filter(run__project=project).values("run_id").order_by()
    for run_id, count, size in uploads.annotate(n=Count("pk"), b=Sum("size")).values_list(
        "run_id", "n", "b"
    ):
        one = uses.setdefault(run_id, RunUse(run_id))
        one.uploads, one.upload_bytes = count, size
    measured = newest_measure(project)
    found = (measured.result or {}).get("runs", {}) if measured else {}
    for run_id, folders in found.items():
        uses.setdefault(run_id, RunUse(run_id)).files = folders
    largest = sorted(uses.values(), key=lambda one: (-one.total, one.run_id))
    runs = _named(project, largest[:shown])
    datasets = (
        Dataset.objects.filter(project=project, versions__isnull=False)
        .annotate(n=Count("versions"), b=Sum("versions__size"))
        .order_by("-b", "name")
        .values_list("pk", "name", "n", "b")
    )
    held = [DatasetUse(*row) for row in datasets]
    totals: dict[str, int] = {}
    for folders in found.values():
        for name, size in folders.items():
            totals[name] = totals.get(name, 0) + size
    return Use(
        runs=runs,
        run_count=len(uses),
        checkpoint_bytes=sum(one.checkpoint_bytes for one in uses.values()),
        upload_bytes=sum(one.upload_bytes for one in uses.values()),
        dataset_bytes=sum(one.bytes for one in held),
        datasets=held[:shown],
        dataset_count=len(held),
        tables=tables,
        export_bytes=sum(size for _run, _job, size in files_of(project.pk)),
        waiting=Removal.objects.count(),
        measured=measured,
        measured_bytes=dict(sorted(totals.items(), key=lambda item: -item[1])),
    )


def newest_measure(project: Project) -> Job | None:
    done = Job.objects.filter(project=project, kind=MEASURE, state=State.SUCCEEDED)
    return done.order_by("-created_at").first()


def _named(project: Project, uses: Sequence[RunUse]) -> list[RunUse]:
    """With what the runs' rows say; a run that was deleted since it was measured is left out."""
    rows = Run.objects.filter(project=project, pk__in=[one.run_id for one in uses]).annotate(
        keep=F("spec__checkpoint__keep")
    )
    known = {run.pk: run for run in rows.defer("spec", "summary")}
    named = []
    for one in uses:
        if (run := known.get(one.run_id)) is not None:
            one.name, one.state, one.number = run.name, run.state, run.number
            one.archived = run.archived_at is not None
            one.keep = run.keep if isinstance(run.keep, int) else None
            named.append(one)
    return named


def policies() -> list[dict[str, Any]]:
    """What is removed by itself, and when; the same rules that `reap` works by."""
    days = _("after %(n)d days")
    found: list[tuple[str | Promise, Any]] = [
        (
            _("Checkpoints of a run"),
            _(
                "The newest, as many as checkpoint.keep of its spec says, and the final one of "
                "every stage; looked at every minute. Of a trainer that is not ours: all."
            ),
        ),
        (
            _("Trajectories"),
            _(
                "All of them up to a rate; above it all failures and evaluations, and a sample of "
                "groups. What was stored stays until its run is deleted or pruned here."
            ),
        ),
        (_("Versions of datasets and reward schemes"), _("always: they never change")),
        (_("Metrics, logs and other events of a run"), _("until the run is deleted")),
        (_("Files of deleted runs"), _("removed at once; what is left over, every minute")),
        (_("Samples of devices"), days % {"n": pruning.DEVICES_KEPT.days}),
        (_("Files of exports"), days % {"n": EXPORTS_KEPT.days}),
        (_("Jobs that measured, pruned or exported"), days % {"n": pruning.JOBS_KEPT.days}),
        (_("Invitations and login links"), days % {"n": pruning.LINKS_KEPT.days}),
        (_("Deliveries of webhooks"), days % {"n": pruning.LINKS_KEPT.days}),
        (_("Turns of running episodes, for those who follow them"), _("after half an hour")),
        (_("Answers kept for repeated calls"), _("after a day")),
    ]
    return [{"what": what, "kept": kept} for what, kept in found]


def measure(working: Working) -> dict[str, Any]:
    """The function of jobs of kind `storage`: bytes by top folder of every run's files."""
    runs = list(Run.objects.filter(project=working.job.project_id).values_list("pk", flat=True))
    found: dict[str, dict[str, int]] = {}
    for done, run_id in enumerate(runs):
        working.progress(done, len(runs), "Looking at files")
        folders = storage.run_usage(run_id)
        found[run_id] = {name: size for name, (size, _count) in folders.items()}
    working.progress(len(runs), len(runs))
    return {"runs": found, "bytes": sum(sum(one.values()) for one in found.values())}
