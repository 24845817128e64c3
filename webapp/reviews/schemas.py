"""What the REST API of trajectories and comments takes and gives."""

from datetime import datetime
from typing import Any, Literal

from ninja import Schema
from pydantic import Field

from webapp.accounts.access import Actor
from webapp.accounts.models import Role
from webapp.markdown import render_markdown
from webapp.rest.etags import etag_of
from webapp.reviews import reading, services
from webapp.reviews.models import Comment

FIELD_PAGE = 20_000  # characters


class StepRange(Schema):
    first: int = Field(0, alias="from", ge=0)
    count: int = Field(50, ge=1, le=reading.MAX_STEPS)
    tokens: bool = True


class CharacterRange(Schema):
    first: int = Field(0, alias="from", ge=0)
    count: int = Field(FIELD_PAGE, ge=1, le=10 * FIELD_PAGE)


class SearchQuery(Schema):
    q: str = Field(min_length=1, max_length=200)


class TrajectoryOut(Schema):
    """An index row; `reward` is null where it is invalid."""

    id: str
    run_id: str
    task_id: str
    group_id: str
    category: str
    purpose: str
    prompt: str = Field(description="Its first 500 characters")
    stop_reason: str
    reward: float | None
    success: bool
    steps: int
    calls: int
    failed_calls: int
    sampled_tokens: int
    tokens: int
    version_min: int = Field(description="Oldest policy version; -1: none sampled it")
    version_max: int
    worker: str
    started_at: datetime
    duration_s: float
    attempt: int = Field(validation_alias="attempt.number")
    url: str

    @staticmethod
    def resolve_url(row: Any) -> str:
        return f"/trajectories/{row.id}/"


class TrajectoryPage(Schema):
    items: list[TrajectoryOut]
    next_cursor: str | None


class RewardOut(Schema):
    value: float | None
    valid: bool
    terms: dict[str, float | None] = Field(description="Each raw, before its weight")
    weights: dict[str, float]
    problem: str


class SegmentOut(Schema):
    parent: int | None = Field(description="The segment whose context was edited into this one")
    tokens: int


class Neighbour(Schema):
    id: str
    reward: float | None
    success: bool
    steps: int


class TrajectoryDetail(Schema):
    row: TrajectoryOut
    prompt: str
    answer: str = Field(description="The right one")
    reward: RewardOut
    segments: list[SegmentOut]
    group: list[Neighbour] = Field(description="Of the same prompt, itself included, in order")


class Outline(Schema):
    tools: list[str]
    errors: list[str]
    tool: list[int] = Field(description="Index in `tools`, -1: no call")
    error: list[int] = Field(description="Index in `errors`, -1: none")
    duration_s: list[float | None]
    tokens: list[int]
    chars: list[int]
    segment: list[int]
    reward: list[float | None]
    detour: list[bool]
    answer: list[bool]


class TokenOut(Schema):
    id: int
    text: str | None = Field(description="null: it continues a character of the token before")
    logprob: float
    version: int = Field(description="Policy version that sampled it")
    trained: bool


class CallOut(Schema):
    id: str = Field(validation_alias="call_id")
    name: str
    arguments: dict[str, Any] | None = Field(description="null: they could not be parsed")
    result: str
    error: str | None
    duration_s: float


class EmbeddedOut(Schema):
    """Base64 in a text, for which one character stands there."""

    at: int = Field(description="Which character of the text that is sent stands for it")
    start: int = Field(description="Its characters in the whole field")
    stop: int
    kind: str = Field(description="png, jpeg, gif or webp; empty: no image that may be shown")
    label: str
    bytes: int
    width: int = Field(description="Pixels")
    height: int


class StepOut(Schema):
    index: int
    segment: int
    start: int
    stop: int
    text: str
    answer: str | None
    call: CallOut | None
    reward: float | None
    detour: bool
    more: dict[str, int] = Field(description="What is cut here, and its whole size")
    embedded: dict[str, list[EmbeddedOut]] = Field(description="By field, in order")
    tokens: list[TokenOut] | None = None


class Window(Schema):
    first: int
    total: int
    steps: list[StepOut]


class TrainedRecord(Schema):
    """A trainer step that had the trajectory in its batch."""

    attempt: int = Field(validation_alias="attempt.number")
    step: int = Field(description="Trainer step of the run")
    version: int = Field(description="Of the policy before that step")
    tokens: int = Field(description="Trained tokens of the whole trajectory")
    left_out: str = Field(description="Why the step did not train on it; empty: it did")


NumberColumn = list[float | Literal["NaN", "Infinity", "-Infinity"] | None] | None


class TrainedColumns(Schema):
    """One entry for each token of the turn, null where training saw none; a column that is null was
    not recorded, since the loss used none."""

    logprob: NumberColumn = Field(description="Under the policy that was trained")
    entropy: NumberColumn = Field(description="Of that policy at the token, nats")
    advantage: NumberColumn
    weight: NumberColumn = Field(description="Importance weight as used, before any bound")
    clipped: list[int | None] | None = Field(description="1: an upper bound held, -1: a lower one")
    correction: NumberColumn = Field(description="Factor of the policy term; 0: masked")
    passes: list[int | None] | None = Field(
        description="How often the step trained on it; the other columns are of the last time"
    )


class TrainedStep(Schema):
    """What training saw of a turn. No records: nothing was recorded, which is not zero."""

    records: list[TrainedRecord] = Field(description="Newest first")
    record: int | None = Field(description="Which of them `columns` are of")
    start: int
    stop: int
    columns: TrainedColumns | None


class FieldPart(Schema):
    first: int = Field(description="Where it begins: earlier than asked for where an image is cut")
    stop: int = Field(description="Where it ends in the field, so where the next part begins")
    total: int
    text: str
    embedded: list[EmbeddedOut]


class ImagePlace(Schema):
    at: int = Field(ge=0, lt=2**53, description="`start` of what is embedded")


class SpanOut(Schema):
    by: Literal["policy", "environment"]
    trained: bool
    start: int
    stop: int
    ids: list[int]
    text: str | None = Field(description="null: the sampler did not say what its tokens are")


class Context(Schema):
    step: int
    segment: int
    parent: int | None
    total: int = Field(description="Tokens that the model had read")
    first: int
    stop: int
    spans: list[SpanOut]


class MatchOut(Schema):
    step: int | None = Field(description="null: in the prompt")
    field: str
    start: int
    stop: int
    before: str
    match: str
    after: str


class Matches(Schema):
    matches: list[MatchOut]
    complete: bool


class Divergence(Schema):
    step: int
    field: str = Field(description="`end`: one of the two has no such step")
    at: int = Field(description="Characters of the field that are the same")


class DivergenceOut(Schema):
    divergence: Divergence | None


class NewComment(Schema):
    text: str = Field(description="Markdown")
    step: int | None = Field(None, ge=0)
    field: Literal["", "text", "result"] = ""
    span: tuple[int, int] | None = Field(None, description="Characters of the field")
    reply_to: str | None = Field(None, description="A comment: the answer stands where it does")


class CommentChange(Schema):
    text: str | None = None
    resolved: bool | None = None


class CommentOut(Schema):
    id: str
    reply_to: str | None
    step: int | None
    field: str
    start: int | None
    stop: int | None
    text: str
    html: str
    author: str
    mine: bool
    may_delete: bool
    created_at: datetime
    edited_at: datetime | None
    resolved_at: datetime | None
    etag: str


class Comments(Schema):
    comments: list[CommentOut]


def comment_etag(row: Comment) -> str:
    return etag_of(row.text, row.resolved_at)


def comment(row: Comment, actor: Actor, role: Role) -> dict[str, Any]:
    mine = row.author_id == actor.user.pk
    return {
        "id": row.id,
        "reply_to": row.reply_to_id,
        "step": row.step,
        "field": row.field,
        "start": row.start,
        "stop": row.stop,
        "text": row.text,
        "html": str(render_markdown(row.text)),
        "author": str(row.author) if row.author else "",
        "mine": mine,
        "may_delete": actor.may_write and services.may_delete(row, actor.user, role),
        "created_at": row.created_at,
        "edited_at": row.edited_at,
        "resolved_at": row.resolved_at,
        "etag": comment_etag(row),
    }
