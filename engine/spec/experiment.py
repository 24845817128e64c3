"""Every field a run can be launched with, and its limits."""

from typing import Annotated, Literal

from pydantic import Field

from engine.rewards.scheme import RewardScheme
from engine.spec.base import DatasetVersionId, Hops, Share, SpecModel
from engine.spec.dpo import DpoStage
from engine.spec.evaluate import EvaluateStage, Temperature, Trials
from engine.spec.opd import OpdStage
from engine.spec.rl import RlStage
from engine.spec.sft import SftStage
from engine.spec.synthesise import SynthesiseStage


class GraphSpec(SpecModel):
    """The knowledge graph the tasks are drawn from."""

    cities: int = Field(2000, ge=50, le=34_000, description="Largest cities taken into the graph")
    held_out: float = Field(0.2, gt=0, lt=1, description="Share of cities kept for evaluation")


class EnvironmentSpec(SpecModel):
    """What the agent acts in and the limits of one episode."""

    kind: Literal["kg_search"] = "kg_search"
    graph: GraphSpec = GraphSpec()
    max_calls: int = Field(8, ge=1, le=100, description="Tool calls an episode may make")
    max_turn_tokens: int = Field(
        48, ge=8, le=4096, description="Tokens the policy may sample a turn"
    )
    max_tokens: int = Field(256, ge=32, le=32_768, description="Tokens of a whole trajectory")
    max_result_chars: int = Field(400, ge=20, description="Longer tool results are cut, marked")
    call_timeout_s: float = Field(5.0, gt=0, description="Wall-clock limit of one tool call")
    episode_timeout_s: float | None = Field(
        None,
        gt=0,
        description="Wall-clock limit of an episode, which teaches nothing then; empty: none",
    )
    repeated_call_limit: int = Field(3, ge=2, description="Identical calls in a row that end it")
    invalid_call_limit: int = Field(3, ge=1, description="Malformed calls in a row that end it")


class ModelSpec(SpecModel):
    """The policy: a hybrid lightning model built from scratch, or any causal LM folder."""

    kind: Literal["hybrid"] = "hybrid"
    width: int = Field(128, ge=16, le=8192)
    heads: int = Field(4, ge=1, le=128)
    kv_heads: int | None = Field(
        None, ge=1, le=128, description="Keys and values in softmax layers; empty: one a head"
    )
    head_dim: int | None = Field(
        None, ge=2, le=512, multiple_of=2, description="Width of a head; empty: width / heads"
    )
    layers: list[Literal["lightning", "softmax"]] = Field(
        ["lightning", "softmax"] * 2, min_length=1, max_length=200
    )
    mlp_width: int = Field(256, ge=16)
    conv_width: int = Field(
        3, ge=0, le=8, description="Causal depthwise convolution on q, k; 0: off"
    )
    rope_base: float = Field(1000.0, gt=1)
    rotary_dim: int | None = Field(
        None, ge=2, multiple_of=2, description="Rotated part of a head; empty: all of it"
    )
    experts: int = Field(
        1, ge=1, le=256, description="MLPs in a layer, behind a router; 1: one, without a router"
    )
    experts_per_token: int | None = Field(
        None, ge=2, description="Experts that a token is sent to; empty: 2"
    )
    router_aux_weight: float = Field(
        0.0, ge=0, description="Weight of the loss that keeps experts evenly used"
    )
    tie_embeddings: bool = Field(True, description="The head is the embedding again")
    vocab_size: int = Field(1000, ge=300, le=200_064)
    embedding_std: float = Field(0.09, gt=0)
    init_std: float = Field(0.05, gt=0)


Stage = Annotated[
    SynthesiseStage | SftStage | RlStage | DpoStage | OpdStage | EvaluateStage,
    Field(discriminator="kind"),
]


class RolloutSpec(SpecModel):
    """How trajectories are produced."""

    workers: int = Field(1, ge=1, le=1024)
    slots: int = Field(192, ge=1, description="Episodes that a worker keeps in flight")
    temperature: float = Field(1.0, gt=0, le=5)
    live_episodes: int = Field(
        2,
        ge=0,
        le=16,
        description="Running episodes whose turns a worker publishes at a time; 0: nothing of "
        "what runs is told",
    )


class GateSpec(SpecModel):
    """Fixed shares per category that a training batch must keep, and how long to wait for them."""

    shares: dict[str, Share] = Field(default={}, description="Largest share of a batch by category")
    max_wait_s: float = Field(30.0, ge=0, description="Training goes on after this wait")


class PoolSpec(SpecModel):
    """The data pool between rollout and training."""

    max_staleness: int = Field(4, ge=0, description="Trainer version minus the token's version")
    capacity: int = Field(96, ge=1, description="Groups waiting, at most")
    gate: GateSpec = GateSpec()


class TrainerSpec(SpecModel):
    """Processes, precision and micro-batches of training."""

    workers: int = Field(1, ge=1, le=1024)
    threads: int = Field(1, ge=1, le=256, description="CPU threads of each process")
    precision: Literal["float32", "bfloat16"] = "bfloat16"
    tree_merge: Literal["auto", "on", "off"] = Field(
        "auto", description="Compute prefixes that samples share once; auto: where it pays"
    )
    pack_tokens: int = Field(
        2048, ge=16, description="Tokens in memory at once, at most; shared ones count once"
    )


class CheckpointSpec(SpecModel):
    every_steps: int = Field(10, ge=1)
    keep: int = Field(3, ge=1, description="Newest checkpoints kept; older ones are removed")


class EvaluationSpec(SpecModel):
    """Held-out tasks: frozen by the seed, with start entities that never occur in training
    questions, or the rows of a dataset."""

    dataset: DatasetVersionId | None = Field(
        None,
        description="Id of the version of tasks that are held out and quick ones; empty: drawn "
        "from the graph",
    )
    tasks: int = Field(600, ge=10, description="Held-out tasks; of a dataset, at most")
    hops: list[Hops] = Field(
        [3, 4], min_length=1, description="Numbers of hops of the tasks that are drawn"
    )
    every_steps: int = Field(10, ge=1)
    quick_tasks: int = Field(
        120, ge=10, description="Other held-out tasks, for the evaluations during training"
    )
    trials: int = Trials
    temperature: float = Temperature


class ExperimentSpec(SpecModel):
    """One run, wholly: frozen at launch and never changed afterwards."""

    name: str = Field(min_length=1, max_length=120)
    description: str = Field("", max_length=4000)
    seed: int = Field(0, ge=0, lt=2**31)
    tags: list[str] = []
    environment: EnvironmentSpec = EnvironmentSpec()
    reward: RewardScheme = RewardScheme()
    model: ModelSpec = ModelSpec()
    stages: list[Stage] = Field(min_length=1)
    rollout: RolloutSpec = RolloutSpec()
    pool: PoolSpec = PoolSpec()
    trainer: TrainerSpec = TrainerSpec()
    checkpoint: CheckpointSpec = CheckpointSpec()
    evaluation: EvaluationSpec = EvaluationSpec()
