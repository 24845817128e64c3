"""Every field a run can be launched with, and its limits."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from engine.rewards.scheme import RewardScheme
from engine.spec import algorithms

Share = Annotated[float, Field(ge=0, le=1)]
Beta = Annotated[float, Field(ge=0, lt=1)]
Hops = Annotated[int, Field(ge=1, le=9)]
HopsKey = Annotated[str, Field(pattern=r"^[1-9]$")]  # a number of hops as a key of a mapping
Count = Annotated[int, Field(ge=0, le=1_000_000)]


def hop_category(hops: int) -> str:
    """The category of tasks with this many hops, by which the pool's gate knows them."""
    return "1 hop" if hops == 1 else f"{hops} hops"


class SpecModel(BaseModel):
    """Base of all parts of a spec: unknown keys are refused and nothing is coerced."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


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


class OptimizerSpec(SpecModel):
    """Muon for matrices and AdamW for the rest, or AdamW alone; warm-up, then linear decay."""

    kind: Literal["muon", "adamw"] = "adamw"
    lr: float = Field(4e-4, gt=0, description="AdamW learning rate")
    muon_lr: float = Field(0.02, gt=0, description="Learning rate of the matrices under muon")
    betas: tuple[Beta, Beta] = (0.9, 0.95)
    weight_decay: float = Field(0.01, ge=0)
    warmup_steps: int = Field(10, ge=0)
    decay_share: Share = Field(0.5, description="Last share of the steps with linear decay")
    clip_norm: float = Field(1.0, gt=0)


class SynthesiseStage(SpecModel):
    """Draw tasks from the graph, demonstrate them, keep what the verifier accepts."""

    kind: Literal["synthesise"] = "synthesise"
    tasks: dict[HopsKey, Count] = Field(
        default={"1": 3000, "2": 6000, "3": 3000, "4": 3000},
        description="Training tasks to draw for each number of hops",
    )
    demonstrations: dict[HopsKey, Count] = Field(
        default={"1": 6000, "2": 13_600, "3": 200, "4": 200},
        description="Demonstrations for each number of hops",
    )
    detour_share: Share = Field(0.1, description="Demonstrations with a forced, masked detour")
    made_up_share: Share = Field(0.3, description="Demonstrations with names of random pieces")


class SftStage(SpecModel):
    """Supervised cold start on the accepted demonstrations."""

    kind: Literal["sft"] = "sft"
    steps: int = Field(300, ge=1)
    batch_size: int = Field(64, ge=1)
    optimizer: OptimizerSpec = OptimizerSpec(
        kind="muon", lr=2e-3, warmup_steps=50, decay_share=0.4, clip_norm=1.0
    )


class RlStage(SpecModel):
    """Asynchronous reinforcement learning through the data pool."""

    kind: Literal["rl"] = "rl"
    algorithm: algorithms.Preset = Field(
        "cispo", description="A named set of the four parts below; cispo where nothing is known"
    )
    advantage: algorithms.Advantage | None = Field(
        None, description="How much better a trajectory was than expected; empty: the algorithm's"
    )
    loss: algorithms.Loss | None = Field(None, description="Policy loss; empty: the algorithm's")
    aggregation: algorithms.Aggregation | None = Field(
        None, description="What a token weighs in the loss; empty: the algorithm's"
    )
    correction: algorithms.Correction | None = Field(
        None, description="Weight against the age of the batch, where the loss has none of its own"
    )
    eps_low: float | None = Field(None, ge=0, le=1, description="Ratios stay above 1 - eps_low")
    eps_high: float | None = Field(
        None, ge=0, description="Ratios, and CISPO's weights, stay below 1 + eps_high"
    )
    weight_min: float | None = Field(None, ge=0, description="Smallest weight of icepop")
    weight_max: float | None = Field(None, gt=0, description="Largest importance weight, absolute")
    anchor: Literal["rollout"] = Field(
        "rollout", description="Ratios and weights are taken against the behaviour policy"
    )
    hops: list[Hops] = Field(
        default=[3, 4], min_length=1, description="Numbers of hops of the training tasks"
    )
    prompts_per_step: int = Field(24, ge=1)
    group_size: int = Field(8, ge=2)
    steps: int = Field(70, ge=1)
    optimizer: OptimizerSpec = OptimizerSpec(betas=(0.9, 0.98), clip_norm=0.5, weight_decay=0.0)

    def resolved(self) -> algorithms.Algorithm:
        """The algorithm with what this stage says of its own."""
        preset = algorithms.PRESETS[self.algorithm]
        loss, correction = self.loss or preset.loss, self.correction or preset.correction
        if self.loss and self.loss != preset.loss and self.correction is None:
            correction = "none"
        bounds = algorithms.CORRECTION_BOUNDS[correction] | algorithms.LOSS_BOUNDS[loss]
        given = {name: getattr(self, name) for name in algorithms.BOUNDS}
        bounds = {
            name: value if given[name] is None else given[name] for name, value in bounds.items()
        }
        if loss == "cispo" and self.eps_high is not None:
            bounds["weight_max"] = 1 + self.eps_high
        return algorithms.Algorithm(
            self.advantage or preset.advantage,
            loss,
            self.aggregation or preset.aggregation,
            correction,
            bounds,
        )


Stage = Annotated[SynthesiseStage | SftStage | RlStage, Field(discriminator="kind")]


class RolloutSpec(SpecModel):
    """How trajectories are produced."""

    workers: int = Field(1, ge=1, le=1024)
    slots: int = Field(192, ge=1, description="Episodes that a worker keeps in flight")
    temperature: float = Field(1.0, gt=0, le=5)


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
    """Held-out tasks, frozen by the seed; start entities never occur in training questions."""

    tasks: int = Field(600, ge=10)
    hops: list[Hops] = Field([3, 4], min_length=1)
    every_steps: int = Field(10, ge=1)
    quick_tasks: int = Field(
        120, ge=10, description="Other held-out tasks, for the evaluations during training"
    )


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
