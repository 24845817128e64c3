"""The calls about jobs: long work that is no run. Part of `caravan.client.Client`."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from caravan.run_calls import RunCalls

if TYPE_CHECKING:
    import httpx


class JobCalls(RunCalls):
    def jobs(
        self, kind: str = "", state: str = "", project: str | None = None, limit: int = 20
    ) -> list[dict[str, Any]]:
        """Jobs, the newest first. `state`: one of theirs, or "active" for all not ended."""
        return list(
            self.http.paged("/jobs", limit, {"kind": kind, "state": state, "project": project})
        )

    def job(self, job_id: str) -> dict[str, Any]:
        """A job with its log, and its result once it has succeeded."""
        return dict(self.http.get(f"/jobs/{quote(job_id, safe='')}"))

    def cancel_job(self, job_id: str) -> dict[str, Any]:
        return dict(self.http.post(f"/jobs/{quote(job_id, safe='')}/cancel"))

    def export_extent(self, run: str, **filter: Any) -> dict[str, Any]:
        """How much an export is: trajectories, bytes in storage, and whether it needs a job."""
        return dict(self.http.get(f"/runs/{self.run_id(run)}/exports/extent", **filter))

    def start_export(
        self, run: str, format: str = "jsonl", filter: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Make an export of any size ("jsonl", "parquet"): the job, whose file `job_file` gives."""
        body = {"format": format, "filter": dict(filter or {})}
        return dict(self.http.post(f"/runs/{self.run_id(run)}/exports", body))

    def collect_tasks(
        self, run: str, name: str, filter: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Make a version of a dataset of tasks, by its name, of what a run's trajectories were
        asked: the job, whose result names the version."""
        body = {"name": name, "filter": dict(filter or {})}
        return dict(self.http.post(f"/runs/{self.run_id(run)}/tasks", body))

    @contextmanager
    def job_file(self, job_id: str) -> "Iterator[httpx.Response]":
        """The file that a job made, read piece by piece."""
        with self.http.download(f"/jobs/{quote(job_id, safe='')}/file") as answer:
            yield answer

    def backtest(
        self,
        *,
        scheme_version: str | None = None,
        definition: Mapping[str, Any] | None = None,
        runs: list[str] | None = None,
        dataset_version: str | None = None,
        against: str | None = None,
        filter: Mapping[str, Any] | None = None,
        newest: int | None = None,
        project: str | None = None,
    ) -> dict[str, Any]:
        """Grade stored trajectories with a scheme that nobody launched yet. The job.

        Give `scheme_version` (an id) or a `definition`, and `runs` (ids or names) or a version of a
        dataset. `against`: the id of a version; without it each run's own scheme.
        """
        given: dict[str, Any] = {
            "scheme_version": scheme_version,
            "definition": definition and dict(definition),
            "dataset_version": dataset_version,
            "against": against,
            "newest": newest,
            "project": project,
        }
        body = {name: value for name, value in given.items() if value is not None}
        body |= {"runs": [self.run_id(run) for run in runs or []], "filter": dict(filter or {})}
        return dict(self.http.post("/backtests", body))
