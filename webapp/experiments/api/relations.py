"""REST of lineage: what a run came from, and what came of it."""

from typing import Any

from django.http import HttpRequest
from ninja import Router, Schema

from webapp.accounts import access
from webapp.experiments.models import Run
from webapp.experiments.relations import relations_of

router = Router(tags=["runs"])


class Named(Schema):
    id: str
    name: str


class ChildOut(Named):
    """`kind`: fork or clone, evaluation or try."""

    kind: str
    state: str
    checkpoint_id: str | None


class VersionOut(Schema):
    id: str
    dataset_id: str
    name: str
    number: int


class LearnedOut(VersionOut):
    """A version that a stage learns from, and where that came from."""

    stage: int | None  # null: the run's evaluations play it
    source: dict[str, Any]
    run: Named | None
    queue: Named | None


class KeptOut(Schema):
    """A checkpoint that is kept, or that runs started from."""

    id: str
    stage: int
    step: int
    forks: int


class RelationsOut(Schema):
    parent: Named | None
    checkpoint_id: str | None  # of the parent, which the run started from
    reward_scheme_version_id: str | None
    learned: list[LearnedOut]
    checkpoints: list[KeptOut]
    children: list[ChildOut]
    versions: list[VersionOut]  # made from what the run did
    queues: list[Named]  # in which it is judged


@router.get("/runs/{run_id}/lineage", response=RelationsOut)
def lineage(request: HttpRequest, run_id: str) -> Any:
    """Parent, datasets with their sources, reward scheme, checkpoints, children, what was made."""
    runs = Run.objects.select_related("parent")
    run = access.get(runs, run_id, access.actor_of(request))
    found = relations_of(run)
    return {
        "parent": _named(run.parent),
        "checkpoint_id": run.checkpoint_id,
        "reward_scheme_version_id": run.reward_scheme_id,
        "learned": [
            {
                **_version(one.provenance.version),
                "stage": one.stage,
                "source": one.provenance.version.source,
                "run": _named(one.provenance.run),
                "queue": _named(one.provenance.queue),
            }
            for one in found.learned
        ],
        "checkpoints": [
            {"id": one.pk, "stage": one.stage, "step": one.step, "forks": one.fork_count}  # type: ignore[attr-defined]
            for one in found.checkpoints
        ],
        "children": [
            {
                "id": one.run.pk,
                "name": one.run.name,
                "kind": one.kind,
                "state": one.run.state,
                "checkpoint_id": one.run.checkpoint_id,
            }
            for one in found.children
        ],
        "versions": [_version(one) for one in found.versions],
        "queues": [_named(one) for one in found.queues],
    }


def _named(one: Any) -> dict[str, str] | None:
    return one and {"id": one.pk, "name": one.name}


def _version(version: Any) -> dict[str, Any]:
    return {
        "id": version.pk,
        "dataset_id": version.dataset_id,
        "name": version.dataset.name,
        "number": version.number,
    }
