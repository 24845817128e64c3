"""Stages of every preset, multi-turn trajectories for them, and how two steps are compared."""

import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, get_args

import torch

from engine.records.trajectory import Reward, Segment, Step, StopReason, ToolCall, Trajectory
from engine.spec import DpoStage, RlStage, SftStage
from engine.spec.algorithms import Preset
from engine.spec.lineage import TrainedStage
from engine.spec.opd import OpdStage, TeacherSpec
from engine.synthesis.repair import Pair
from engine.training.distillation import opd_step
from engine.training.preference import preference_step
from engine.training.reinforcement import rl_step
from engine.training.rl_batch import gather
from engine.training.supervised import sft_step
from engine.training.teachers import Teacher
from engine.training.trainer import Trainer
from tests.engine.training.samples import FLAT, VOCABULARY, gradients, make_trainer

TOLERANCE = 1e-10
OLD = {"anchor": "old", "epochs": 2, "minibatches": 2}

# Every preset, and what presets leave out: the other estimators, corrections, terms and updates.
STAGES: dict[str, dict[str, Any]] = {
    **{name: {"algorithm": name} for name in get_args(Preset)},
    "kl in the loss": {"algorithm": "grpo", "kl_weight": 0.1},
    "kl in the reward": {"algorithm": "reinforce_pp", "kl_weight": 0.1, "kl_place": "reward"},
    "icepop": {"algorithm": "reinforce", "correction": "icepop"},
    "decoupled": {"algorithm": "grpo", "correction": "truncated", **OLD},
    "geometric": {"algorithm": "grpo", "correction": "geometric", **OLD},
    "drift": {"algorithm": "grpo", "drift_max": 0.5},
    "turns": {"algorithm": "grpo", "advantage": "turn_reward_to_go", "gamma": 0.9},
    "gigpo": {"algorithm": "grpo", "advantage": "gigpo", "gamma": 0.9},
}

# The presets that are stages of their own, and sft, whose step rejection sampling takes too.
TAUGHT = [TeacherSpec(stage=1, weight=0.75), TeacherSpec(stage=2, weight=0.5)]
OTHERS: dict[str, TrainedStage] = {
    "sft": SftStage(steps=20, optimizer=FLAT),
    "opd": OpdStage(teachers=TAUGHT, steps=20, optimizer=FLAT),
    "gkd": OpdStage(teachers=TAUGHT, algorithm="gkd", steps=20, optimizer=FLAT),
    "opd one token": OpdStage(
        teachers=TAUGHT, form="one_token", reward_weight=0.5, steps=20, optimizer=FLAT
    ),
    "dpo": DpoStage(steps=20, optimizer=FLAT),
    "dpo of first tokens": DpoStage(own_tokens="first", steps=20, optimizer=FLAT),
    "ipo": DpoStage(loss="ipo", steps=20, optimizer=FLAT),
    "sigmoid_norm": DpoStage(loss="sigmoid_norm", rpo_weight=0.1, steps=20, optimizer=FLAT),
}

Groups = list[list[Trajectory]]
Result = tuple[dict[str, float], dict[str, torch.Tensor], dict[str, torch.Tensor]]


def stage_of(name: str) -> TrainedStage:
    return OTHERS[name] if name in OTHERS else rl_stage_of(name)


def rl_stage_of(name: str) -> RlStage:
    fields = {"steps": 20, "optimizer": FLAT, **STAGES[name]}
    if fields["algorithm"] == "ppo":
        fields |= {"gae_lambda": 0.9, "critic": {"optimizer": FLAT}}
    return RlStage.model_validate(fields)


def begun(name: str, **trainer: Any) -> Trainer:
    """A trainer in float64 at the start of a stage, off its reference where it has one."""
    made = make_trainer(precision="float32", **trainer)
    start(made, stage_of(name))
    return made


def start(trainer: Trainer, stage: TrainedStage) -> None:
    trainer.begin(stage)
    if trainer.reference is not None:
        move(trainer.reference, seed=1)


@torch.no_grad()
def move(model: torch.nn.Module, seed: int) -> None:
    """Away from where it is, by as much as a short stage would."""
    drawn = torch.Generator().manual_seed(seed)
    for weight in model.parameters():
        weight += 0.02 * torch.randn(weight.shape, generator=drawn)


@cache
def teachers(one_back: bool) -> list[Teacher]:
    made = []
    for number, spec in enumerate(TAUGHT):
        model = make_trainer().model.requires_grad_(False)
        move(model, seed=2 + number)
        if one_back:
            look_one_back(model)
        made.append(Teacher(spec, model))
    return made


@torch.no_grad()
def look_one_back(model: torch.nn.Module) -> None:
    """Mixers and MLPs add nothing: what comes next depends on the last token alone."""
    for named, weight in model.named_parameters():
        if named.endswith(("out_proj.weight", "down_proj.weight")):
            weight.zero_()


def step(trainer: Trainer, groups: Groups, one_back: bool = False) -> Result:
    """The figures of a step, the gradient of its last update, and the weights after it.

    one_back: teachers see one token back.
    """
    figures = _step(trainer, groups, one_back)
    return figures, gradients(trainer), trainer.weights()


def _step(trainer: Trainer, groups: Groups, one_back: bool) -> dict[str, float]:
    stage = trainer.stage
    if isinstance(stage, RlStage):
        return rl_step(trainer, groups)
    if isinstance(stage, OpdStage):
        return opd_step(trainer, teachers(one_back), groups)
    if isinstance(stage, DpoStage):
        pairs = [pair_of_tokens(one) for group in groups for one in group]
        known = [(-3.0 - sum(one.chosen) % 7, -4.0 - sum(one.rejected) % 7) for one in pairs]
        return preference_step(trainer, pairs, known, stage)
    return sft_step(trainer, [one for group in groups for one in group])


def pair_of_tokens(one: Trajectory) -> Pair:
    """The last turn is what was chosen, the same turned round and one longer what was not."""
    last, ids = one.steps[-1], one.segments[0].ids
    chosen = ids[last.start : last.stop]
    rejected = [(chosen[0] + 1) % VOCABULARY, *reversed(chosen)]
    return Pair("fault", "t", ids[: last.start], chosen, rejected)


def assert_equal(found: Result, expected: Result, tolerance: float = TOLERANCE) -> None:
    figures, *tensors = found
    known, *known_tensors = expected
    for name in known.keys() | figures.keys():
        if not name.startswith("tree_") and name != "batch_tokens":
            assert abs(figures[name] - known[name]) <= tolerance * max(1, abs(known[name])), name
    for named, known_named in zip(tensors, known_tensors, strict=True):
        for name, tensor in named.items():
            assert float((tensor - known_named[name]).abs().max()) <= tolerance, name


def sampled_at(
    trainer: Trainer, groups: Groups, log_ratio: Callable[[Trajectory], float]
) -> Groups:
    """The groups, with behaviour log-probabilities so that log pi / mu is what is asked for."""
    found = gather(groups)
    assert found is not None
    current = trainer.logprobs(found.batch, found.groups, 1.0)
    rows = iter(current.tolist())
    for member in found.members:
        for segment in member.trajectory.segments:
            pairs = zip(next(rows), segment.loss_mask, strict=False)
            segment.logprobs = [
                value - log_ratio(member.trajectory) if sampled else 0.0 for value, sampled in pairs
            ]
    return groups


PerToken = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]  # log-probs, behaviour: both [n]


def by_hand(
    trainer: Trainer, parts: Sequence[tuple[Segment, PerToken]]
) -> tuple[float, dict[str, torch.Tensor]]:
    """The sum of a function of each segment's trained tokens, and its gradient: one segment after
    the other through the model, with no part of the trainer."""
    trainer.model.zero_grad()
    total = torch.zeros(())
    for segment, per_token in parts:
        ids = torch.tensor(segment.ids)
        log_p = torch.log_softmax(trainer.model(ids[None]).logits[0, :-1], dim=-1)
        log_p = log_p.gather(1, ids[1:, None])[:, 0]
        mask = torch.tensor(segment.loss_mask)[1:]
        behaviour = torch.tensor(segment.logprobs, dtype=torch.float32)[1:].double()
        total = total + per_token(log_p[mask], behaviour[mask])
    total.backward()
    return float(total.detach()), gradients(trainer)


def assert_same_gradient(
    found: dict[str, torch.Tensor], known: dict[str, torch.Tensor], tolerance: float = TOLERANCE
) -> None:
    for name, tensor in known.items():
        assert float((found[name] - tensor).abs().max()) <= tolerance, name


def make_groups(seed: int, groups: int = 3, size: int = 3) -> Groups:
    """Groups share a prompt; rewards differ within each group."""
    rng = random.Random(seed)
    made: Groups = []
    for g in range(groups):
        prompt = [rng.randrange(VOCABULARY) for _ in range(rng.randint(2, 5))]
        rewards = [rng.choice([0.0, 1.0]) + rng.random() for _ in range(size)]
        made.append([trajectory(rng, f"g{g}", reward, prompt) for reward in rewards])
    return made


def trajectory(
    rng: random.Random, group: str, reward: float | None, prompt: list[int]
) -> Trajectory:
    """One to three turns, with what the environment answered between, and now and then after."""
    segment = Segment([], [], [], [])
    write(segment, prompt)
    steps = []
    turns = rng.randint(1, 3)
    for index in range(turns):
        ids = [rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 5))]
        begin = len(segment.ids)
        say(segment, ids, [-rng.uniform(3.0, 4.4) for _ in ids])
        call = ToolCall("c", "look", {}, rng.choice(["left", "right"]), None, 0.0)
        steps.append(Step(index, 0, begin, len(segment.ids), "", call=call))
        if index < turns - 1 or rng.random() < 0.2:
            write(segment, [rng.randrange(VOCABULARY) for _ in range(rng.randint(1, 4))])
    made = finished([segment], steps, group, reward, f"{rng.random()}")
    share_out(made, rng)
    return made


def finished(
    segments: list[Segment], steps: list[Step], group: str, reward: float | None, name: str
) -> Trajectory:
    return Trajectory(
        id=name,
        task_id="t",
        group_id=group,
        category="3 hops",
        prompt="",
        answer="",
        segments=segments,
        steps=steps,
        stop_reason=StopReason.ANSWERED,
        reward=Reward(reward, reward is not None),
        success=(reward or 0.0) >= 1,
        worker="w",
        started_at="",
        duration_s=1.0,
        sampled_tokens=sum(sum(one.loss_mask) for one in segments),
    )


def trajectory_of(
    mask: list[bool], reward: float | None, group: str = "g", seed: int = 0
) -> Trajectory:
    """With the policy's tokens where the mask says so, and one turn for each run of them."""
    rng = random.Random(seed)
    segment = Segment([], [], [], [])
    steps: list[Step] = []
    for place, sampled in enumerate(mask):
        token = [rng.randrange(VOCABULARY)]
        if not sampled:
            write(segment, token)
            continue
        if not place or not mask[place - 1]:
            steps.append(Step(len(steps), 0, place, place, ""))
        say(segment, token, [-rng.uniform(3.0, 4.4)])
        steps[-1].stop = place + 1
    return finished([segment], steps, group, reward, f"{seed}")


def share_out(one: Trajectory, rng: random.Random) -> None:
    """Gives each turn a part of the reward; the parts add up to it."""
    left = one.reward.value
    for step_ in one.steps[:-1]:
        step_.reward = None if left is None else rng.uniform(-0.3, 0.3)
        left = None if left is None or step_.reward is None else left - step_.reward
    one.steps[-1].reward = left


def write(segment: Segment, ids: list[int]) -> None:
    """Tokens of the environment."""
    segment.ids += ids
    segment.loss_mask += [False] * len(ids)
    segment.logprobs += [0.0] * len(ids)
    segment.versions += [-1] * len(ids)


def say(segment: Segment, ids: list[int], logprobs: list[float]) -> None:
    """Tokens of the policy."""
    segment.ids += ids
    segment.loss_mask += [True] * len(ids)
    segment.logprobs += logprobs
    segment.versions += [0] * len(ids)
