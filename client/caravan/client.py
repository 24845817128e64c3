"""Everything that people ask of a Caravan server, as plain calls. Answers are those of the API."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self
from urllib.parse import quote

import httpx

from caravan.access import find_access
from caravan.errors import RefusedError
from caravan.http import Http
from caravan.job_calls import JobCalls
from caravan.naming import one_named
from caravan.preset_calls import PresetCalls
from caravan.queue_calls import QueueCalls
from caravan.text import lines_of


class Client(JobCalls, PresetCalls, QueueCalls):
    """Asks one server with one token; use it as a context manager, or close it.

    Without arguments it takes CARAVAN_URL and CARAVAN_TOKEN, else what `caravan login` stored.
    Every method raises RefusedError (what was given is at fault) or AccessError (not reached, or
    not let in). A run is named by its id, or by its name where only one has it.
    """

    def __init__(self, url: str | None = None, token: str | None = None) -> None:
        self.http = Http(find_access(url, token))
        self.url = self.http.url

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self.http.close()

    def me(self) -> dict[str, Any]:
        """Who the token belongs to, and their role in each project."""
        found: dict[str, Any] = self.http.get("/me")
        return found

    def launch(
        self,
        *,
        recipe: str | None = None,
        preset: str | None = None,
        spec: str | Mapping[str, Any] | None = None,
        overrides: Mapping[str, Any] | None = None,
        reward: str | None = None,
        project: str | None = None,
        experiment: str = "",
        name: str = "",
        notes: str = "",
        tags: list[str] | None = None,
        priority: int = 0,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Launch a recipe by its name, a preset by its name or id, or a spec as YAML text or data.
        The new run.

        `reward` is the id of a stored version of a reward scheme, which replaces the spec's;
        `overrides` replaces single fields by path: {"stages.1.steps": 10}. A spec that cannot be
        launched raises RefusedError, whose `problems` name the fields. Of the queued runs of a
        project those of higher `priority` start first.
        """
        given = {
            "recipe": recipe,
            "preset": preset,
            "spec": spec,
            "reward": reward,
            "project": project,
        }
        found: dict[str, Any] = self.http.post(
            "/runs",
            {
                **{key: value for key, value in given.items() if value is not None},
                "overrides": dict(overrides or {}),
                "experiment": experiment,
                "name": name,
                "notes": notes,
                "tags": tags or [],
                "priority": priority,
                "dry_run": dry_run,
            },
        )
        return found

    def fork(
        self,
        checkpoint: str,
        *,
        spec: str | Mapping[str, Any] | None = None,
        overrides: Mapping[str, Any] | None = None,
        name: str = "",
        notes: str = "",
        tags: list[str] | None = None,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Launch a run that starts from the weights of a checkpoint, by its id. The new run.

        Without a spec it has that of the checkpoint's run; seed, environment, synthesis and model
        must stay as they were there.
        """
        body: dict[str, Any] = {"checkpoint": checkpoint, "overrides": dict(overrides or {})}
        body |= {} if spec is None else {"spec": spec}
        body |= {"name": name, "notes": notes, "tags": tags or [], "dry_run": dry_run}
        return dict(self.http.post("/runs", body))

    def evaluate(self, checkpoint: str, **wanted: Any) -> dict[str, Any]:
        """Judge a checkpoint in a run of its own. The new run.

        `wanted`: tasks ("held_out" or "quick"), dataset, hops, number, trials, temperature, name.
        """
        path = f"/checkpoints/{quote(checkpoint, safe='')}/evaluate"
        return dict(self.http.post(path, wanted))

    def run_groups(
        self,
        by: str = "variant",
        q: str = "",
        *,
        metrics: str = "success,reward",
        sort: str = "-newest",
        project: str | None = None,
        archived: bool = False,
        limit: int = 50,
    ) -> list[dict[str, Any]]:
        """Runs in groups by a path of the spec, or by all of it but the seed (variant), with the
        mean of each metric over the runs and its 95% interval."""
        query: dict[str, Any] = {"q": q, "by": by, "metrics": metrics, "sort": sort}
        return list(
            self.http.paged(
                "/run-groups", limit, {**query, "project": project, "archived": archived}
            )
        )

    def saved_view(self, page: str, name: str, project: str | None = None) -> dict[str, Any]:
        """A saved view of a page by its name, one's own before the team's. Raises RefusedError."""
        found = self.http.get("/saved-views", page=page, project=project)
        named = [one for one in found if one["name"].lower() == name.lower()]
        if not named:
            there = ", ".join(repr(one["name"]) for one in found) or "none is saved"
            raise RefusedError(f"There is no view {name!r} of {page}: {there}.")
        return dict(min(named, key=lambda one: bool(one["shared"])))

    def run(self, run: str) -> dict[str, Any]:
        """A run with its spec, attempts and stages."""
        found: dict[str, Any] = self.http.get(f"/runs/{self.run_id(run)}")
        return found

    def stop(self, run: str) -> dict[str, Any]:
        """Ask a run to save a checkpoint and end; one that waits in the queue ends at once."""
        found: dict[str, Any] = self.http.post(f"/runs/{self.run_id(run)}/stop")
        return found

    def resume(self, run: str) -> dict[str, Any]:
        """Queue a new attempt of a run that ended early, from its newest checkpoint."""
        found: dict[str, Any] = self.http.post(f"/runs/{self.run_id(run)}/resume")
        return found

    def archive(self, run: str, archived: bool = True) -> dict[str, Any]:
        """Take a run that has ended out of the lists, or put it back."""
        path = f"/runs/{self.run_id(run)}"
        return dict(self.http.patch(path, {"archived": archived}))

    def delete(self, run: str) -> None:
        """Remove an archived run for good, with everything that it reported. Admins only."""
        self.http.delete(f"/runs/{self.run_id(run)}")

    def begin_external(self, **fields: Any) -> dict[str, Any]:
        """Begin a run of a trainer of your own; `caravan.Run` does this and reports for you."""
        given = {key: value for key, value in fields.items() if value is not None}
        return dict(self.http.post("/external-runs", given, once=False))

    def restart_external(self, run: str) -> dict[str, Any]:
        """A new attempt of such a run; the one before can report no more."""
        path = f"/external-runs/{self.run_id(run)}/attempts"
        return dict(self.http.post(path, once=False))

    def series(self, run: str, search: str = "") -> list[dict[str, Any]]:
        """The run's series with their newest values; `search` is a part of the name."""
        return list(self.http.get(f"/runs/{self.run_id(run)}/series", search=search)["items"])

    def points(self, run: str, names: list[str], after: int) -> dict[str, Any]:
        """{cursor, more, series}: points of the named metrics stored after a cursor."""
        path = f"/runs/{self.run_id(run)}/points"
        found: dict[str, Any] = self.http.get(path, names=",".join(names), after=after)
        return found

    def compare(self, runs: list[str]) -> dict[str, Any]:
        """{runs, differences, metrics, series} of several runs, in their order."""
        ids = ",".join(self.run_id(run) for run in runs)
        found: dict[str, Any] = self.http.get("/compare", runs=ids)
        return found

    def compare_completion(self, runs: list[str], group: str = "") -> dict[str, Any]:
        """{runs, groups}: completion rates with intervals, each run against the first; paired by
        task where the held-out tasks are the same. `group`: see `run_groups`."""
        ids = ",".join(self.run_id(run) for run in runs)
        return dict(self.http.get("/compare/completion", runs=ids, group=group))

    def compare_tasks(self, first: str, second: str, category: str = "") -> dict[str, Any]:
        """Tasks that one of two runs solves and the other does not: `lost` and `gained`, p."""
        pair = {"first": self.run_id(first), "second": self.run_id(second)}
        return dict(self.http.get("/compare/tasks", **pair, category=category))

    @contextmanager
    def trajectories(self, run: str, **wanted: Any) -> Iterator[Iterator[str]]:
        """Lines of JSON, one whole trajectory each; `{"id", "problem"}` where one is unreadable.

        `wanted` filters: purpose, category, success, stop_reason, min_reward, max_reward, attempt.
        Raises RefusedError for so many that they need a job: see `export`.
        """
        with self.export(run, **wanted) as answer:
            yield (line.decode() for line in lines_of(answer.iter_bytes()))

    @contextmanager
    def export(
        self, run: str | None = None, trajectory: str | None = None, **query: Any
    ) -> Iterator[httpx.Response]:
        """A run's trajectories or a single one as a file, read piece by piece.

        `query`: format (jsonl, parquet, or html of a single one), and what narrows a run's. Many
        trajectories need a job: see `export_extent` and `start_export`.
        """
        path = f"/trajectories/{quote(trajectory or '', safe='')}/export"
        if run is not None:
            path = f"/runs/{self.run_id(run)}/trajectories/export"
        with self.http.download(path, **query) as answer:
            yield answer

    def try_checkpoint(
        self,
        checkpoint: str,
        *,
        position: int | None = None,
        question: str | None = None,
        answer: str | None = None,
        temperature: float = 0.0,
    ) -> dict[str, Any]:
        """Play one task with a checkpoint's weights: the held-out one at `position`, a question
        with its right answer, or one at random. The run that plays it."""
        given = {
            "position": position,
            "question": question,
            "answer": answer,
            "temperature": temperature,
        }
        found: dict[str, Any] = self.http.post(
            f"/checkpoints/{quote(checkpoint, safe='')}/try", given
        )
        return found

    def checkpoints(self, run: str) -> list[dict[str, Any]]:
        """A run's checkpoints, the newest first."""
        return list(self.http.get(f"/runs/{self.run_id(run)}/checkpoints"))

    @contextmanager
    def checkpoint_file(self, checkpoint: str, name: str) -> Iterator[httpx.Response]:
        path = f"/checkpoints/{quote(checkpoint, safe='')}/files/{quote(name)}"
        with self.http.download(path) as answer:
            yield answer

    def reward_schemes(self, project: str | None = None, q: str = "") -> list[dict[str, Any]]:
        """By name; `q` is a part of it."""
        return list(self.http.paged("/reward-schemes", None, {"project": project, "q": q}))

    def reward_scheme(self, scheme: str) -> dict[str, Any]:
        """A scheme by id or name, with its versions, the newest first."""
        found = one_named("reward scheme", self.reward_schemes(), scheme)
        return dict(self.http.get(f"/reward-schemes/{found['id']}"))

    def push_reward_scheme(
        self, definition: Mapping[str, Any], note: str = "", project: str | None = None
    ) -> dict[str, Any]:
        """The next version of the scheme that the definition names, or its first one."""
        name = str(definition.get("name", ""))
        known = {one["name"].lower(): one["id"] for one in self.reward_schemes(project, name)}
        body: dict[str, Any] = {"definition": dict(definition), "note": note}
        scheme = known.get(name.lower())
        if scheme is not None:
            return dict(self.http.post(f"/reward-schemes/{scheme}/versions", body))
        if project is not None:
            body["project"] = project
        return dict(self.http.post("/reward-schemes", body))

    @contextmanager
    def dataset_to_fill(
        self, name: str, kind: str = "", project: str | None = None
    ) -> Iterator[dict[str, Any]]:
        """The dataset with this name or id, or a new one of a kind, which goes again where what
        shall fill it is refused. Raises RefusedError."""
        rows = self.datasets(project)
        found = [one for one in rows if name == one["id"] or name.lower() == one["name"].lower()]
        if found and kind and kind != found[0]["kind"]:
            raise RefusedError(f"Dataset {name!r} holds {found[0]['kind']}, not {kind}.")
        if not found and not kind:
            raise RefusedError(f"{name!r} is a new dataset: say what it holds with --kind.")
        if found:
            yield found[0]
            return
        made = self.create_dataset(name, kind, project)
        try:
            yield made
        except RefusedError:
            self.http.delete(f"/datasets/{made['id']}")
            raise

    def datasets(self, project: str | None = None, q: str = "") -> list[dict[str, Any]]:
        """By name; `q` is a part of it."""
        return list(self.http.paged("/datasets", None, {"project": project, "q": q}))

    def dataset(self, dataset: str) -> dict[str, Any]:
        """A dataset by id or name, with its versions, the newest first."""
        found = one_named("dataset", self.datasets(), dataset)
        return dict(self.http.get(f"/datasets/{found['id']}"))

    def create_dataset(self, name: str, kind: str, project: str | None = None) -> dict[str, Any]:
        """`kind`: tasks, trajectories, pairs or step_labels."""
        body = {"name": name, "kind": kind}
        return dict(self.http.post("/datasets", {**body, "project": project} if project else body))

    def push_dataset(self, dataset_id: str, name: str, file: Any, note: str = "") -> dict[str, Any]:
        """Upload JSON lines from an open file as the next version.

        Wrong rows raise RefusedError, whose `problems` name them ("rows.17"); nothing is stored.
        """
        path = f"/datasets/{dataset_id}/versions"
        return dict(self.http.upload(path, name, file, {"note": note}))

    @contextmanager
    def dataset_file(self, dataset_id: str, number: int) -> Iterator[httpx.Response]:
        """A version as zstd-compressed JSON lines."""
        with self.http.download(f"/datasets/{dataset_id}/versions/{number}/file") as answer:
            yield answer

    def tokens(self) -> list[dict[str, Any]]:
        return list(self.http.get("/tokens"))

    def create_token(
        self,
        name: str,
        *,
        scope: str = "write",
        project: str | None = None,
        expires_at: str | None = None,
    ) -> dict[str, Any]:
        """A new token; its text, `token`, is shown only now. `scope`: read or write."""
        body = {"name": name, "scope": scope, "project": project, "expires_at": expires_at}
        return dict(self.http.post("/tokens", body, once=False))

    def revoke_token(self, token_id: str) -> None:
        self.http.delete(f"/tokens/{quote(token_id, safe='')}")
