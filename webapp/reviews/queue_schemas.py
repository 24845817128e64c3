"""What the REST API of review queues takes and gives."""

from datetime import datetime
from typing import Any, Literal

from ninja import Schema
from pydantic import Field

from webapp.reviews import queries
from webapp.reviews.agreement import Pairwise
from webapp.reviews.models import Queue
from webapp.reviews.queue_queries import JudgedItem, Progress
from webapp.reviews.rubric import Choice, Rubric, Style
from webapp.reviews.sampling import Kind

Mark = Literal["good", "neutral", "bad"]


class Sample(Schema):
    sample: Kind = Field("newest", description="Which of those that match the filter")
    size: int = Field(50, ge=1, description="Items, at most")
    style: Style = Field("single", description="pairwise: two trajectories of a group an item")
    seed: int = Field(0, description="Of what is random: a preview shows what will be made")


class NewQueue(Sample):
    run: str
    name: str
    instructions: str = Field("", description="Markdown")
    rubric: Rubric = Rubric()
    filter: queries.Filter = queries.Filter()
    reviews_per_item: Literal[1, 2] = Field(1, description="2: blind double review")
    assignees: list[int] = Field([], description="Ids of editors; empty: all of them")


class PickOut(Schema):
    trajectory: str
    other: str | None
    reason: dict[str, Any]


class PreviewOut(Schema):
    matching: int = Field(description="Trajectories that pass the filter")
    found: int = Field(description="Items that the sample could take")
    picks: list[PickOut]


class QueueOut(Schema):
    id: str
    name: str
    run: str | None = Field(validation_alias="run_id")
    instructions: str
    rubric: Rubric
    style: Style
    filter: dict[str, Any]
    sample: str
    reviews_per_item: int
    assignees: list[int]
    created_at: datetime
    closed_at: datetime | None

    @staticmethod
    def resolve_assignees(queue: Queue) -> list[int]:
        return [person.pk for person in queue.assignees.all()]


class QueueRow(QueueOut):
    items: int = Field(validation_alias="item_count")
    done: int = Field(validation_alias="done_count")
    disputed: int = Field(validation_alias="disputed_count")


class QueuePage(Schema):
    items: list[QueueRow]
    next_cursor: str | None


class TwoReviewers(Schema):
    first: str
    second: str
    items: int
    share: float
    kappa: float | None = Field(description="Cohen's; null: not computed")


class LabelAgreement(Schema):
    name: str
    alpha: float | None


class ScaleAgreement(Schema):
    name: str
    ordinal: float | None
    interval: float | None


class AgreementOut(Schema):
    """Krippendorff's alpha: nominal of the verdict and of each label; null: not computed."""

    items: int = Field(description="With two verdicts or more")
    share: float | None
    alpha: float | None
    reviewers: list[TwoReviewers]
    labels: list[LabelAgreement]
    scales: list[ScaleAgreement]


class VerdictOut(Schema):
    reviewer: str = Field(validation_alias="reviewer.email")
    choice: Choice
    adjudicates: bool
    labels: list[str]
    scores: dict[str, int]
    note: str
    changed_at: datetime


class MarkOut(Schema):
    step: int
    mark: Mark
    note: str


class ItemOut(Schema):
    id: str
    trajectory: str
    other: str | None
    position: int
    reason: dict[str, Any]
    outcome: str = Field(description="open, disputed, or what its verdicts agree on")
    held_by: list[str] = Field(description="Who reviews it now")
    verdicts: list[VerdictOut] = Field(description="Those that you may see")


class ItemPage(Schema):
    items: list[ItemOut]
    next_cursor: str | None


class ItemDetail(ItemOut):
    marks: list[MarkOut] = Field(description="Yours")


class QueueDetail(Schema):
    queue: QueueOut
    counts: dict[str, int] = Field(description="Items by outcome")
    mine: int = Field(description="Verdicts that you gave")
    left: int = Field(description="Items that you could still judge")
    agreement: AgreementOut | None


class NextItem(Schema):
    item: str | None = Field(description="null: nothing is left for you")
    trajectory: str | None
    other: str | None = None


class After(Schema):
    after: int = Field(-1, description="A position in the queue")


class VerdictIn(Schema):
    choice: Choice = Field(description="accepted, rejected; of two: first, second, same")
    labels: list[str] = []
    scores: dict[str, int] = {}
    note: str = Field("", max_length=10_000)


class MarkIn(Schema):
    mark: Mark
    note: str = Field("", max_length=2_000)


class ClaimOut(Schema):
    expires_at: datetime | None = Field(description="null: judged by you, nothing to hold")


class QueueChange(Schema):
    closed: bool


class Target(Schema):
    dataset: str = Field(description="A dataset of trajectories, pairs or step_labels")


class LearnedBy(Schema):
    run: str = Field(validation_alias="run_id")
    stage: int


class VersionOut(Schema):
    id: str
    number: int
    rows: int
    source: dict[str, Any]


class MadeVersion(VersionOut):
    dataset: str = Field(validation_alias="dataset_id")
    kind: str = Field(validation_alias="dataset.kind")
    created_at: datetime
    runs: list[LearnedBy] = Field(validation_alias="stage_datasets")


def item_row(one: JudgedItem) -> dict[str, Any]:
    return {
        "id": one.item.pk,
        "trajectory": one.item.trajectory_id,
        "other": one.item.other_id,
        "position": one.item.position,
        "reason": one.item.reason,
        "outcome": one.item.outcome,
        "held_by": [claim.user.email for claim in one.claims],
        "verdicts": one.verdicts,
    }


def two_reviewers(first: str, second: str, both: Pairwise) -> dict[str, Any]:
    return {
        "first": first,
        "second": second,
        "items": both.items,
        "share": both.share,
        "kappa": both.kappa,
    }


def progress(found: Progress) -> dict[str, Any]:
    return {"counts": found.counts, "mine": found.mine, "left": found.left}
