"""The calls about when runs start, and about many runs of one spec. Part of `Client`."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from caravan.naming import one_named
from caravan.run_calls import RunCalls


class QueueCalls(RunCalls):
    def queue(self, project: str | None = None) -> list[dict[str, Any]]:
        """Queued runs, project by project, in the order in which they start."""
        return list(self.http.get("/run-queue", project=project))

    def move(
        self, run: str, *, place: str | None = None, priority: int | None = None
    ) -> dict[str, Any]:
        """Move a queued run "up", "down" or to the "front", or give it another priority."""
        given = {"place": place, "priority": priority}
        body = {key: value for key, value in given.items() if value is not None}
        return dict(self.http.post(f"/runs/{self.run_id(run)}/queue", body))

    def dry_run(self, run: str) -> dict[str, Any]:
        """{passed, checks} of a dry run; `passed` is None while it goes on."""
        return dict(self.http.get(f"/runs/{self.run_id(run)}/dry-run"))

    def create_sweep(self, sweep: Mapping[str, Any], launch: bool = True) -> dict[str, Any]:
        """Launch a sweep from what its file says; with `launch` false, only what it would try.

        {spec|recipe|preset, overrides, space, method, metric, direction, budget, at_once, seeds,
        halving, seed, priority, name, experiment, notes, project}. Problems name their fields.
        """
        return dict(self.http.post("/sweeps" if launch else "/sweeps/preview", dict(sweep)))

    def sweeps(self, project: str | None = None, limit: int = 50) -> list[dict[str, Any]]:
        """Sweeps, the newest first."""
        return list(self.http.paged("/sweeps", limit, {"project": project}))

    def sweep(self, sweep: str) -> dict[str, Any]:
        """A sweep by id, or by name where only one has it."""
        if not sweep.startswith("swp_"):
            sweep = one_named("sweep", self.sweeps(limit=1000), sweep)["id"]
        return dict(self.http.get(f"/sweeps/{quote(sweep, safe='')}"))

    def trials(self, sweep_id: str, limit: int = 10_000) -> list[dict[str, Any]]:
        """Trials of a sweep by their number, each with its values, runs and metric."""
        return list(self.http.paged(f"/sweeps/{quote(sweep_id, safe='')}/trials", limit, {}))

    def control_sweep(self, sweep: str, action: str) -> dict[str, Any]:
        """`action`: pause, continue or stop."""
        return dict(self.http.post(f"/sweeps/{self.sweep(sweep)['id']}/{action}"))
