"""Events on the wire: what actors spool and ingest stores. One item, one JSON object.

Every item carries `source` (the writer) and `seq` (counted by that writer, from 1, never reused),
so that storing twice changes nothing. Non-finite numbers travel as strings, see `encode_number`.
"""

import math
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    model_validator,
)

from engine.records.trajectory import StepField

MAX_BATCH_ITEMS = 5_000
MAX_BATCH_BYTES = 8 * 2**20
MAX_NAME = 120
MAX_VALUES = 1000  # of metrics at one point

_NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def encode_number(value: float) -> float | str:
    """JSON has no NaN: the three non-finite values become strings."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def _decode_number(value: Any) -> Any:
    return _NON_FINITE.get(value, value) if isinstance(value, str) else value


Number = Annotated[
    float, BeforeValidator(_decode_number), PlainSerializer(encode_number, when_used="json")
]
NAME_FORM = r"^[\w./ %@-]+$"
Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME, pattern=NAME_FORM)]


MAX_TREE_NODES = 2_000
MAX_PLAYING = 32  # episodes of a worker that are listed
MAX_PUBLISHED_TURNS = 20  # of one event
MAX_PUBLISHED_CHARS = 2_000  # of a field of a turn
MAX_TRIALS_OF_PART = 2_000
MAX_TRIAL_PARTS = 64  # of an evaluation
NodeColumn = Annotated[
    list[Annotated[int, Field(ge=-1, lt=2**53)]], Field(max_length=MAX_TREE_NODES)
]


class Item(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    source: Annotated[str, Field(min_length=1, max_length=80)]
    seq: Annotated[int, Field(ge=1, lt=2**63)]
    at: Annotated[float, Field(description="Wall clock, seconds since 1970, UTC")]


class Metrics(Item):
    """Numbers taken at one point of the run; `step` is on the axis that `axis` names."""

    kind: Literal["metrics"] = "metrics"
    axis: Literal["trainer_step", "rollout_step", "environment_step", "wall"] = "trainer_step"
    step: Annotated[int, Field(ge=0, lt=2**53)]
    values: Annotated[dict[Name, Number], Field(min_length=1, max_length=MAX_VALUES)]


class Clock(Item):
    """Joins the axes: where each of them stood at one moment."""

    kind: Literal["clock"] = "clock"
    trainer_step: int
    rollout_step: int
    environment_step: int
    tokens: int


class PoolSnapshot(Item):
    """The data pool at one moment, in groups.

    Conserves: produced = consumed + waiting + leased + discarded.
    """

    kind: Literal["pool"] = "pool"
    trainer_version: int
    produced: int
    consumed: int
    waiting: int
    leased: int = 0  # handed to the trainer; no checkpoint covers them yet
    discarded: dict[str, int]  # by reason
    categories: dict[str, int]  # waiting groups by category
    target: dict[str, float]  # largest share by category; empty: no gate
    staleness: dict[str, int]  # waiting groups by trainer version minus their version
    oldest_s: float


class TreeSnapshot(Item):
    """The prefix forest of one training batch: its largest nodes in depth-first preorder.

    By column, parents before their children. tokens: length of a node; samples: how many share
    its first token; label: an index into `labels`, -1 where samples of different labels meet.
    `nodes` counts all nodes, sent or not.
    """

    kind: Literal["tree"] = "tree"
    step: Annotated[int, Field(ge=0, lt=2**53, description="Trainer step")]
    parents: NodeColumn
    tokens: NodeColumn
    samples: NodeColumn
    label: NodeColumn
    labels: Annotated[list[Annotated[str, Field(max_length=200)]], Field(max_length=MAX_TREE_NODES)]
    nodes: int
    total_tokens: int  # of the forest
    sample_tokens: int  # of the samples, each alone

    @model_validator(mode="after")
    def _is_a_forest(self) -> Self:
        sizes = {len(self.parents), len(self.tokens), len(self.samples), len(self.label)}
        if len(sizes) > 1:
            raise ValueError("parents, tokens, samples and label must have one entry for each node")
        if any(not -1 <= parent < node for node, parent in enumerate(self.parents)):
            raise ValueError("the parent of a node must come before it, or be -1")
        if any(not -1 <= label < len(self.labels) for label in self.label):
            raise ValueError("a label must be an index into labels, or -1")
        if any(count < 1 for count in (*self.tokens, *self.samples)):
            raise ValueError("a node has at least one token and one sample")
        return self


class GateDecision(Item):
    """Why training waited, or went on although the shares did not fit."""

    kind: Literal["decision"] = "decision"
    text: Annotated[str, Field(max_length=400)]
    waited_s: float


class Devices(Item):
    """Utilisation (0 to 1) and memory (bytes) of each device of one node."""

    kind: Literal["devices"] = "devices"
    node: Annotated[str, Field(max_length=80)]
    devices: list[dict[str, Any]]  # {name, kind: gpu|cpu|memory, busy, memory_used, memory_total}


class Spans(Item):
    """Phases of one actor; `start` and `stop` in seconds since 1970, from a monotonic clock."""

    kind: Literal["spans"] = "spans"
    spans: list[
        tuple[
            Literal["generate", "tool", "queue", "train", "sync", "evaluate", "idle"], float, float
        ]
    ]


class Log(Item):
    kind: Literal["log"] = "log"
    level: Literal["debug", "info", "warning", "error"] = "info"
    text: Annotated[str, Field(max_length=20_000)]


class StageChange(Item):
    """The run entered a stage, or a stage ended; progress is in the stage's own steps."""

    kind: Literal["stage"] = "stage"
    index: int
    name: Annotated[str, Field(max_length=40)]
    state: Literal["running", "done"]
    step: int = 0
    steps: int = 0
    summary: dict[str, Any] = {}


class TrajectoryRows(Item):
    """Index rows of trajectories in one uploaded shard."""

    kind: Literal["trajectories"] = "trajectories"
    shard: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the blob")]
    rows: list[dict[str, Any]]  # see engine.records.shards.index_row


class RunningEpisode(BaseModel):
    """An episode that is being played. `trajectory`: the id that it will be stored under."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    trajectory: Annotated[str, Field(min_length=1, max_length=40, pattern=r"^[\w.-]+$")]
    task: Annotated[str, Field(max_length=80)]
    category: Annotated[str, Field(max_length=40)]
    purpose: Annotated[str, Field(max_length=14)]
    prompt: Annotated[str, Field(max_length=500)]
    started_at: Annotated[float, Field(ge=0, lt=1e11, description="Seconds since 1970")]
    turns: Annotated[int, Field(ge=0, lt=2**31)]
    tokens: Annotated[int, Field(ge=0, lt=2**31, description="Sampled so far")]
    followed: bool = Field(description="Whether its turns are published")


class Playing(Item):
    """What a worker plays now; its newest one tells all there is."""

    kind: Literal["playing"] = "playing"
    running: Annotated[int, Field(ge=0, lt=2**31, description="Episodes, listed or not")]
    rows: Annotated[list[RunningEpisode], Field(max_length=MAX_PLAYING)]


PublishedText = Annotated[str, Field(max_length=MAX_PUBLISHED_CHARS)]


class PublishedTurn(BaseModel):
    """A turn and what came back, for people. `more`: what is cut here, and its whole size."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: PublishedText
    answer: PublishedText | None = None
    tool: Annotated[str, Field(max_length=200)] | None = None
    arguments: PublishedText | None = None  # as JSON; None: they could not be parsed
    result: PublishedText = ""
    error: Annotated[str, Field(max_length=200)] | None = None
    duration_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    more: dict[StepField, int] = {}


class EpisodeEnd(BaseModel):
    """How an episode ended; nothing but a reason where it was dropped with its stage."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reason: Annotated[str, Field(max_length=20)]
    reward: Annotated[float, Field(allow_inf_nan=False)] | None = None  # None: invalid
    success: bool | None = None


class Turns(Item):
    """Turns of one running episode, from number `first` on, and its end once it is there."""

    kind: Literal["turns"] = "turns"
    episode: RunningEpisode
    first: Annotated[int, Field(ge=0, lt=2**31)]
    turns: Annotated[list[PublishedTurn], Field(max_length=MAX_PUBLISHED_TURNS)]
    end: EpisodeEnd | None = None


class TrainedRows(Item):
    """Index rows of what the loss saw of trajectories' tokens, in one uploaded shard."""

    kind: Literal["trained"] = "trained"
    shard: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the blob")]
    rows: list[dict[str, Any]]  # see engine.records.trained.write_trained


class CheckpointSaved(Item):
    """A checkpoint that is complete on run storage."""

    kind: Literal["checkpoint"] = "checkpoint"
    stage: int
    step: int
    version: int
    path: Annotated[str, Field(max_length=500, description="Relative to the run's storage")]
    files: dict[str, dict[str, Any]]  # name -> {size, sha256}
    final: bool = False
    parent: Annotated[
        str, Field(max_length=500, description="Path of the checkpoint that its stage began with")
    ] = ""


class TaskTrials(BaseModel):
    """What the trials of a task came to, a character and a trajectory for each: solved, failed, or
    ended by something but the policy."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    task: str
    category: str
    results: Annotated[str, Field(pattern="^[10x]+$")]
    trajectories: list[str]

    @model_validator(mode="after")
    def _one_each(self) -> Self:
        if len(self.trajectories) != len(self.results):
            raise ValueError(
                f"{len(self.results)} results have {len(self.trajectories)} trajectories: give "
                "one each"
            )
        return self


class TrialRows(Item):
    """A part of an evaluation's trials; the evaluation of this `path` is reported after them."""

    kind: Literal["trials"] = "trials"
    path: Annotated[str, Field(max_length=500)]
    part: Annotated[int, Field(ge=0, description=f"At most {MAX_TRIAL_PARTS} are stored")]
    rows: Annotated[
        list[TaskTrials], Field(description=f"With at most {MAX_TRIALS_OF_PART:,} trials in all")
    ]


class EvaluationDone(Item):
    """Tasks were played with frozen weights; all about each trial lies on run storage."""

    kind: Literal["evaluation"] = "evaluation"
    tasks: Literal["held_out", "quick"]
    stage: int
    step: int  # of the stage
    trainer_step: int
    version: int
    trials: int  # of each task
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    path: Annotated[str, Field(max_length=500, description="Relative to the run's storage")]
    parts: Annotated[int, Field(ge=0)]  # of its trials, that were reported before
    report: dict[str, Any]  # see engine.evaluation.report.Report
    # loss and token_accuracy on those that nothing learns from; empty: not measured
    demonstrations: dict[Name, Number] = {}


class Gap(Item):
    """Telemetry that was dropped or thinned, recorded instead of invented."""

    kind: Literal["gap"] = "gap"
    what: Annotated[str, Field(max_length=200)]
    items: int
    since: float


Event = Annotated[
    Metrics
    | Clock
    | PoolSnapshot
    | TreeSnapshot
    | GateDecision
    | Devices
    | Spans
    | Log
    | StageChange
    | TrajectoryRows
    | TrainedRows
    | Playing
    | Turns
    | CheckpointSaved
    | TrialRows
    | EvaluationDone
    | Gap,
    Field(discriminator="kind"),
]
