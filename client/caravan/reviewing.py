"""Review queues as plain calls: made, judged, turned into dataset versions; the inbox."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from caravan.client import Client
from caravan.naming import one_named


class Reviewing:
    """What a `Client` asks of review. Every method raises RefusedError or AccessError as it does.

    A queue is named by its id, or by its name.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self.http = client.http

    def queues(self, project: str | None = None) -> list[dict[str, Any]]:
        """The newest first, each with `items`, `done` and `disputed`."""
        return list(self.http.paged("/queues", None, {"project": project}))

    def queue(self, queue: str, project: str | None = None) -> dict[str, Any]:
        """A queue with counts by outcome, agreement, and what is left for you."""
        return dict(self.http.get(f"/queues/{self.queue_id(queue, project)}"))

    def queue_id(self, queue: str, project: str | None = None) -> str:
        if queue.startswith("que_"):
            return quote(queue, safe="")
        return str(one_named("review queue", self.queues(project), queue)["id"])

    def preview(self, run: str, filters: Mapping[str, Any], **sample: Any) -> dict[str, Any]:
        """Which trajectories a queue would take. `sample`: sample, size, style, seed."""
        path = f"/runs/{self.client.run_id(run)}/queue-preview"
        return dict(self.http.get(path, **filters, **sample))

    def create(
        self, run: str, name: str, filters: Mapping[str, Any], **wanted: Any
    ) -> dict[str, Any]:
        """A new queue. `wanted`: sample, size, style, seed, rubric, instructions,
        reviews_per_item, assignees."""
        body = {"run": self.client.run_id(run), "name": name, "filter": dict(filters), **wanted}
        return dict(self.http.post("/queues", body))

    def next(self, queue: str, after: int = -1) -> dict[str, Any]:
        """The next item, held for you for five minutes: {item, trajectory, other}, each may be
        None."""
        return dict(self.http.post(f"/queues/{self.queue_id(queue)}/next", {"after": after}))

    def item(self, item: str) -> dict[str, Any]:
        return dict(self.http.get(f"/queue-items/{quote(item, safe='')}"))

    def verdict(
        self,
        item: str,
        choice: str,
        labels: list[str] | None = None,
        scores: Mapping[str, int] | None = None,
        note: str = "",
    ) -> dict[str, Any]:
        """Give or change your verdict; on a dispute of others, your ruling."""
        body = {"choice": choice, "labels": labels or [], "scores": dict(scores or {})}
        return dict(
            self.http.put(f"/queue-items/{quote(item, safe='')}/verdict", {**body, "note": note})
        )

    def withdraw(self, item: str) -> None:
        """Take your verdict back."""
        self.http.delete(f"/queue-items/{quote(item, safe='')}/verdict")

    def mark(self, item: str, step: int, mark: str, note: str = "") -> dict[str, Any]:
        """Mark a step good, neutral or bad."""
        path = f"/queue-items/{quote(item, safe='')}/marks/{step}"
        return dict(self.http.put(path, {"mark": mark, "note": note}))

    def make_dataset(
        self, queue: str, dataset: str, kind: str = "", project: str | None = None
    ) -> dict[str, Any]:
        """A version of a dataset, which is made where it is new: `kind` says then what it holds."""
        queue_id = self.queue_id(queue, project)
        with self.client.dataset_to_fill(dataset, kind, project) as found:
            return dict(self.http.post(f"/queues/{queue_id}/dataset", {"dataset": found["id"]}))

    def versions(self, queue: str, project: str | None = None) -> list[dict[str, Any]]:
        """Dataset versions made from the queue, with the runs that learn from them."""
        return list(self.http.get(f"/queues/{self.queue_id(queue, project)}/versions"))

    def inbox(self, project: str | None = None, unread: bool = False) -> dict[str, Any]:
        """Mentions, replies, and queues that wait."""
        return dict(self.http.get("/inbox", project=project, unread=unread))

    def suspects(self, scheme: str, version: int | None = None) -> dict[str, Any]:
        """Labels that contradict the reward of a scheme."""
        found = self.client.reward_scheme(scheme)
        return dict(self.http.get(f"/reward-schemes/{found['id']}/suspects", version=version))
