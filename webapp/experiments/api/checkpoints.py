"""REST of checkpoints: list, download, remove, evaluate."""

from typing import Any, Literal

from django.http import HttpRequest, StreamingHttpResponse
from ninja import Router, Schema, Status

from webapp import storage
from webapp.accounts import access
from webapp.accounts.models import Role
from webapp.experiments import queries, services
from webapp.experiments.api.schemas import CheckpointOut, RunDetailOut, detail_out
from webapp.experiments.lineage import with_parents
from webapp.experiments.models import Checkpoint, Run
from webapp.problems import RefusedError

router = Router(tags=["checkpoints"])


@router.get("/runs/{run_id}/checkpoints", response=list[CheckpointOut])
def list_checkpoints(request: HttpRequest, run_id: str) -> Any:
    """A run's checkpoints, the newest first; those removed meanwhile say when."""
    run = access.get(Run.objects.all(), run_id, access.actor_of(request))
    return with_parents(run.checkpoints.all()).order_by("-created_at", "-step")


@router.get("/checkpoints/{checkpoint_id}", response=CheckpointOut)
def get_checkpoint(request: HttpRequest, checkpoint_id: str) -> Any:
    return find(request, checkpoint_id)


@router.get("/checkpoints/{checkpoint_id}/files/{path:name}", response={200: None})
def download(request: HttpRequest, checkpoint_id: str, name: str) -> StreamingHttpResponse:
    """One file of a checkpoint, by its name in the manifest."""
    checkpoint = find(request, checkpoint_id)
    if name not in checkpoint.files:
        access.found_or_404(None)
    if checkpoint.removed_at is not None:
        raise RefusedError("The files of this checkpoint were removed.", status=410)
    shown = f"{checkpoint.pk}-{name.replace('/', '-')}"
    manifest = checkpoint.files[name]
    if "parts" in manifest:  # uploaded by an external run, which shares no storage with us
        if not all(storage.has_blob(sha256) for sha256 in manifest["parts"]):
            raise _missing()
        return storage.attachment(storage.joined(manifest["parts"]), shown, manifest["size"])
    try:
        file, size = storage.open_run_file(checkpoint.run_id, f"{checkpoint.path}/{name}")
    except FileNotFoundError:
        raise _missing() from None
    return storage.attachment(storage.chunks(file), shown, size)


@router.delete("/checkpoints/{checkpoint_id}", response={204: None})
def remove(request: HttpRequest, checkpoint_id: str) -> Any:
    """Remove its files; the entry stays."""
    checkpoint = find(request, checkpoint_id, Role.EDITOR)
    services.remove_checkpoint(checkpoint, access.actor_of(request).user)
    return Status(204, None)


def _missing() -> RefusedError:
    return RefusedError("The file is missing from the run's storage.", status=410)


def find(request: HttpRequest, pk: str, role: Role = Role.VIEWER) -> Checkpoint:
    """A checkpoint of my projects. Raises 404 where there is none, 403 without the role."""
    rows = with_parents(Checkpoint.objects.select_related("run__project", "run__experiment"))
    return access.get(rows, pk, access.actor_of(request), role)


class EvaluateIn(Schema):
    """What to play, as the fields of a stage of kind evaluate; `dataset`: the id of a version of
    tasks that are played, all of them, in place of the run's own held-out ones."""

    tasks: Literal["held_out", "quick"] = "held_out"
    hops: list[int] | None = None
    number: int | None = None
    trials: int = 1
    temperature: float = 0.0
    dataset: str | None = None
    name: str = ""


@router.post("/checkpoints/{checkpoint_id}/evaluate", response={201: RunDetailOut})
def evaluate(request: HttpRequest, checkpoint_id: str, data: EvaluateIn) -> Any:
    """Judge a checkpoint in a run of its own, whose parent is the checkpoint's run."""
    checkpoint = find(request, checkpoint_id, Role.EDITOR)
    wanted = services.Wanted(**data.dict(exclude={"name"}))
    user = access.actor_of(request).user
    run = services.evaluate_checkpoint(checkpoint, user, wanted, data.name)
    return Status(201, detail_out(queries.run_detail(run)))
