"""Algorithms as data: the advantage, policy loss, aggregation and correction of each preset."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Advantage = Literal[
    "group_normalised",
    "group_centred",
    "leave_one_out",
    "batch_centred",
    "batch_whitened",
    "group_batch_whitened",
    "turn_reward_to_go",
    "gigpo",
    "gae",
]
Loss = Literal["cispo", "gspo", "ppo", "reinforce"]
Aggregation = Literal[
    "token-mean",
    "token-sum",
    "seq-mean-token-mean",
    "seq-mean-token-sum",
    "seq-mean-token-sum-norm",
]
Correction = Literal["none", "truncated", "icepop", "geometric"]
Bound = Literal["eps_low", "eps_high", "dual_clip", "weight_min", "weight_max"]
KlKind = Literal["k1", "abs", "k2", "k3", "k3_unbiased"]
Preset = Literal[
    "cispo",
    "dapo",
    "dr_grpo",
    "grpo",
    "gspo",
    "ppo",
    "reinforce",
    "reinforce_pp",
    "reinforce_pp_baseline",
    "rloo",
]


def unknown(part: str, kind: str, known: Sequence[str]) -> ValueError:
    """For a name that would else be taken for another's."""
    return ValueError(f"There is no {part} {kind!r}: there are {', '.join(known)}.")


@dataclass(frozen=True)
class Algorithm:
    """What a step of reinforcement learning does with its batch.

    bounds: of the loss; correction_bounds: of the correction. eps_low, eps_high: a clipped ratio
    stays in [1 - eps_low, 1 + eps_high]; dual_clip: the ratio that a negative advantage counts with
    at most; weight_min, weight_max: the importance weights that are let through.
    """

    advantage: Advantage
    loss: Loss
    aggregation: Aggregation
    correction: Correction = "none"
    bounds: Mapping[Bound, float] = field(default_factory=dict)
    correction_bounds: Mapping[Bound, float] = field(default_factory=dict)


PRESETS: dict[Preset, Algorithm] = {
    "cispo": Algorithm("group_normalised", "cispo", "token-mean"),  # 2506.13585
    "dapo": Algorithm(
        "group_normalised", "ppo", "token-mean", bounds={"eps_high": 0.28}
    ),  # 2503.14476
    "grpo": Algorithm("group_normalised", "ppo", "seq-mean-token-mean"),  # 2402.03300
    "dr_grpo": Algorithm("group_centred", "ppo", "seq-mean-token-sum-norm"),  # 2503.20783
    "gspo": Algorithm("group_normalised", "gspo", "seq-mean-token-mean"),  # 2507.18071
    "ppo": Algorithm("gae", "ppo", "token-mean"),  # 1707.06347
    "rloo": Algorithm(
        "leave_one_out", "reinforce", "seq-mean-token-sum", "truncated"
    ),  # 2402.14740
    "reinforce": Algorithm("batch_centred", "reinforce", "token-mean", "truncated"),
    "reinforce_pp": Algorithm("batch_whitened", "ppo", "token-mean"),  # 2501.03262
    "reinforce_pp_baseline": Algorithm("group_batch_whitened", "ppo", "token-mean"),
}

BOUNDS: tuple[Bound, ...] = get_args(Bound)

# The bounds that each part reads, with their defaults. MiniMax gives no number for CISPO's cap;
# 2510.13786 finds 4, 5 and 8 alike. GSPO's ratio is length-normalised and hardly moves.
LOSS_BOUNDS: dict[Loss, dict[Bound, float]] = {
    "cispo": {"weight_max": 5.0},
    "gspo": {"eps_low": 3e-4, "eps_high": 4e-4},
    "ppo": {"eps_low": 0.2, "eps_high": 0.2, "dual_clip": math.inf},
}
CORRECTION_BOUNDS: dict[Correction, dict[Bound, float]] = {
    "none": {},
    "truncated": {"weight_max": 2.0},
    "icepop": {"weight_min": 0.5, "weight_max": 5.0},
    "geometric": {"weight_min": 0.5, "weight_max": 2.0},
}

# What compares the rewards of one group: equal ones, and a group of one, teach nothing there.
GROUP_RELATIVE: frozenset[Advantage] = frozenset(
    {
        "group_normalised",
        "group_centred",
        "leave_one_out",
        "group_batch_whitened",
        "turn_reward_to_go",
        "gigpo",
    }
)
# Estimators that know what to do with a KL term in the reward: on every token, or on the outcome.
KL_BY_TOKEN: frozenset[Advantage] = frozenset({"gae", "batch_whitened"})
KL_BY_OUTCOME: frozenset[Advantage] = frozenset(
    {"group_normalised", "group_centred", "leave_one_out"}
)

# Names of TRL (loss_type) and verl (the others), as the fields of a stage that they stand for.
PEERS: dict[str, dict[str, dict[str, str]]] = {
    "loss_type": {
        "bnpo": {"advantage": "group_normalised", "loss": "ppo", "aggregation": "token-mean"},
        "cispo": {"algorithm": "cispo", "aggregation": "token-mean"},
        "dapo": {"advantage": "group_normalised", "loss": "ppo", "aggregation": "token-mean"},
        "dr_grpo": {"algorithm": "dr_grpo", "aggregation": "seq-mean-token-sum-norm"},
        "grpo": {"algorithm": "grpo", "aggregation": "seq-mean-token-mean"},
    },
    "adv_estimator": {
        "gae": {"advantage": "gae"},
        "grpo": {"advantage": "group_normalised"},
        "reinforce_plus_plus": {"advantage": "batch_whitened"},
        "reinforce_plus_plus_baseline": {"advantage": "group_batch_whitened"},
        "rloo": {"advantage": "leave_one_out"},
    },
    "loss_mode": {
        "cispo": {"loss": "cispo"},
        "gspo": {"loss": "gspo"},
        "vanilla": {"loss": "ppo"},
    },
    "loss_agg_mode": {name: {"aggregation": name} for name in get_args(Aggregation)},
}


def with_our_names(stage: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a stage with TRL's and verl's names replaced by ours.

    Raises ValueError for a value that has no counterpart here, and where two names disagree.
    """
    found = {name: value for name, value in stage.items() if name not in PEERS}
    said: dict[str, str] = {name: name for name in found}
    for peer, values in PEERS.items():
        if peer not in stage:
            continue
        if not isinstance(stage[peer], str) or stage[peer] not in values:
            known = ", ".join(values)
            raise ValueError(f"{peer} {stage[peer]!r} has no counterpart here: there are {known}.")
        for name, value in values[stage[peer]].items():
            if found.setdefault(name, value) != value:
                raise ValueError(
                    f"{peer} {stage[peer]!r} means {name} {value!r}, and {said[name]} says "
                    f"{found[name]!r}: keep one of them."
                )
            said.setdefault(name, f"{peer} {stage[peer]!r}")
    return found
