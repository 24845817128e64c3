"""REST of trajectories and of comments on them."""

from typing import Any

from django.db import transaction
from django.http import HttpRequest, HttpResponse
from ninja import Query, Router, Status

from engine.records.trajectory import StepField
from webapp.accounts import access
from webapp.accounts.models import Role
from webapp.experiments.models import Run
from webapp.problems import RefusedError, invalid_field
from webapp.rest.etags import check_match, tagged
from webapp.reviews import finding, queries, reading, schemas, services, trained
from webapp.reviews.models import Comment, Trajectory

router = Router(tags=["trajectories"])


def _trajectory(request: HttpRequest, pk: str, role: Role = Role.VIEWER) -> Trajectory:
    rows = Trajectory.objects.select_related("project", "run", "attempt")
    return access.get(rows, pk, access.actor_of(request), role)


@router.get("/runs/{run_id}/trajectories", response=schemas.TrajectoryPage)
def list_trajectories(
    request: HttpRequest,
    run_id: str,
    wanted: Query[queries.Filter],
    cursor: str | None = None,
    limit: int = queries.PAGE,
) -> Any:
    """The run's trajectories, the newest first."""
    run = access.get(Run.objects.all(), run_id, access.actor_of(request))
    return queries.page_of(run, wanted, cursor, limit)


@router.get("/trajectories/{pk}", response=schemas.TrajectoryDetail)
def get_trajectory(request: HttpRequest, pk: str) -> Any:
    row = _trajectory(request, pk)
    with reading.stored(row) as source:
        fields = source.fields
    return {
        "row": row,
        "prompt": fields["prompt"],
        "answer": fields["answer"],
        "reward": fields["reward"]
        | {"weights": reading.term_weights(row.run.spec, fields["reward"])},
        "segments": [{"parent": s["parent"], "tokens": s["tokens"]} for s in source.segments],
        "group": queries.group_of(row),
    }


@router.get("/trajectories/{pk}/outline", response=schemas.Outline)
def get_outline(request: HttpRequest, pk: str) -> Any:
    """A few numbers of every step, by column: enough for a timeline of the whole trajectory."""
    with reading.stored(_trajectory(request, pk)) as source:
        return source.outline()


@router.get("/trajectories/{pk}/steps", response=schemas.Window)
def get_steps(request: HttpRequest, pk: str, wanted: Query[schemas.StepRange]) -> Any:
    """A window of steps. `more` of a step says which fields are cut and how long they are."""
    with reading.stored(_trajectory(request, pk)) as source:
        steps = reading.window(source, wanted.first, wanted.count, with_tokens=wanted.tokens)
    return {"first": wanted.first, "total": source.step_count, "steps": steps}


@router.get("/trajectories/{pk}/steps/{step}/field/{name}", response=schemas.FieldPart)
def get_field(
    request: HttpRequest,
    pk: str,
    step: int,
    name: StepField,
    wanted: Query[schemas.CharacterRange],
) -> Any:
    """Characters of one field of a step; arguments as JSON."""
    row = _trajectory(request, pk)
    _check_step(row, step)
    with reading.stored(row) as source:
        text = source.field(step, name)
    return reading.field_part(text, wanted.first, wanted.count)


@router.get("/trajectories/{pk}/steps/{step}/field/{name}/image", response={200: None})
def get_image(
    request: HttpRequest,
    pk: str,
    step: int,
    name: StepField,
    wanted: Query[schemas.ImagePlace],
) -> HttpResponse:
    """An image that stands in a field as base64: PNG, JPEG, GIF or WebP, told by its bytes."""
    row = _trajectory(request, pk)
    _check_step(row, step)
    with reading.stored(row) as source:
        image = reading.image_at(source.field(step, name), wanted.at)
    if image is None:
        raise RefusedError("No image that may be shown begins there.", status=404)
    answer = HttpResponse(image.data, content_type=f"image/{image.kind}")
    answer["Content-Disposition"] = f'inline; filename="image.{image.kind}"'
    answer["Content-Security-Policy"] = "default-src 'none'; sandbox"
    answer["Cache-Control"] = "private, max-age=86400, immutable"
    return answer


@router.get("/trajectories/{pk}/steps/{step}/trained", response=schemas.TrainedStep)
def get_trained(request: HttpRequest, pk: str, step: int, record: int = 0) -> Any:
    """What the loss saw of a turn's tokens, aligned with them; `record`: a number in `records`."""
    row = _trajectory(request, pk)
    _check_step(row, step)
    with reading.stored(row) as source:
        turn = source.steps(step, 1)[0]
    start, stop = turn["start"], min(turn["stop"], turn["start"] + reading.MAX_TOKENS)
    records = trained.records_of(row)
    found = {"records": records, "record": None, "start": start, "stop": stop, "columns": None}
    if not records:
        return found
    if not 0 <= record < len(records):
        raise invalid_field("record", f"There are {len(records)} records, from 0.")
    columns = trained.columns_of(records[record], turn["segment"], start, stop)
    return found | {"record": record, "columns": columns}


@router.get("/trajectories/{pk}/context", response=schemas.Context)
def get_context(request: HttpRequest, pk: str, step: int, before: int | None = None) -> Any:
    """The tokens that the model had read when it began this step; pages go backwards from there."""
    row = _trajectory(request, pk)
    _check_step(row, step)
    with reading.stored(row) as source:
        return reading.context(source, step, before)


@router.get("/trajectories/{pk}/search", response=schemas.Matches)
def search_trajectory(request: HttpRequest, pk: str, wanted: Query[schemas.SearchQuery]) -> Any:
    """Where a text occurs in the prompt and in the steps, whatever its case."""
    with reading.stored(_trajectory(request, pk)) as source:
        return finding.search(source, wanted.q)


@router.get("/trajectories/{pk}/divergence", response=schemas.DivergenceOut)
def get_divergence(request: HttpRequest, pk: str, other: str) -> Any:
    """Where this trajectory and another one first differ; null where they do not."""
    one, two = _trajectory(request, pk), _trajectory(request, other)
    with reading.stored(one) as a, reading.stored(two) as b:
        return {"divergence": reading.divergence(a, b)}


def _check_step(row: Trajectory, step: int) -> None:
    if not 0 <= step < row.steps:
        raise invalid_field(
            "step", f"There is no step {step}: the trajectory has {row.steps}, from 0."
        )


@router.get("/trajectories/{pk}/comments", response=schemas.Comments)
def list_comments(request: HttpRequest, pk: str) -> Any:
    row = _trajectory(request, pk)
    actor = access.actor_of(request)
    role = access.require(actor, row.project_id)
    return {"comments": [schemas.comment(c, actor, role) for c in queries.comments_on(row)]}


@router.post("/trajectories/{pk}/comments", response={201: schemas.CommentOut})
def add_comment(request: HttpRequest, pk: str, data: schemas.NewComment) -> Any:
    """Editors comment on a trajectory, on a step, or on a span of characters of a step."""
    row = _trajectory(request, pk, Role.EDITOR)
    actor = access.actor_of(request)
    thread = None
    if data.reply_to is not None:
        comments = Comment.objects.select_related("reply_to")
        thread = access.get(comments, data.reply_to, actor)
    made = services.add_comment(
        row, actor.user, data.text, data.step, data.field, data.span, thread
    )
    return Status(201, schemas.comment(made, actor, access.require(actor, row.project_id)))


def _comment(request: HttpRequest, pk: str) -> Comment:
    comments = Comment.objects.select_related("project", "author")
    return access.get(comments, pk, access.actor_of(request), Role.EDITOR)


@router.patch("/comments/{pk}", response=schemas.CommentOut)
def change_comment(
    request: HttpRequest, response: HttpResponse, pk: str, data: schemas.CommentChange
) -> Any:
    """Its author changes the text; any editor resolves it or opens it again."""
    actor = access.actor_of(request)
    role = access.require(actor, _comment(request, pk).project_id)
    with transaction.atomic():
        rows = Comment.objects.select_for_update(no_key=True)
        comment = access.found_or_404(rows.filter(pk=pk).first())
        check_match(request, schemas.comment_etag(comment))
        if data.text is not None:
            comment = services.edit_comment(comment, actor.user, data.text)
        if data.resolved is not None:
            comment = services.resolve_comment(comment, actor.user, data.resolved)
    tagged(response, schemas.comment_etag(comment))
    return schemas.comment(comment, actor, role)


@router.delete("/comments/{pk}", response={204: None})
def delete_comment(request: HttpRequest, pk: str) -> Any:
    """Its author may, and so may an admin."""
    comment, actor = _comment(request, pk), access.actor_of(request)
    services.delete_comment(comment, actor.user, access.require(actor, comment.project_id))
    return Status(204, None)
