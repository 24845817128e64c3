"""Which of Caravan's functions answers which case of a peer, and where the two differ knowingly."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from bench import _parity_losses as losses
from bench import _parity_returns as returns
from bench._parity_losses import Found, Inputs, tensor

BAR = 1e-10


@dataclass(frozen=True)
class Comparison:
    """Our side of a case.

    aligned: a constant of the peer's that was put in the place of ours; differs: why the two are
    not meant to agree, and whose side is taken; such a case has no bar. bar: another than 1e-10.
    """

    ours: Callable[[Inputs], Found]
    aligned: str = ""
    differs: str = ""
    bar: float = BAR


_COUNTED = "verl divides by a response's tokens + 1e-8"
_MEAN = "verl's means divide by the tokens + 1e-8, taken as 0 on its side here"
_ABSOLUTE = "TRL's epsilon_high is the largest weight itself: our weight_max"
_RELATIVE = "verl's clip_ratio_high is the paper's eps_high; its lower bound set to none"
_EPS = f"verl divides by sqrt(variance + 1e-8), we by the deviation + 1e-6; {_MEAN}"
_ALONE = (
    "verl gives a group of one its raw reward as advantage; without a peer there is nothing to "
    "compare, and ours is 0 as TRL's"
)
_DIVERGENCES = ("forward_kl", "reverse_kl", "jsd", "jsd_skew")

TRL: dict[str, Comparison] = {
    **{
        f"loss.{kind}": Comparison(partial(losses.trl, loss_type=kind))
        for kind in ("grpo", "bnpo", "dr_grpo", "dapo")
    },
    "loss.grpo.dual": Comparison(losses.trl_dual, "TRL's delta is our dual_clip"),
    "loss.grpo.kl": Comparison(partial(losses.trl, loss_type="grpo")),
    "loss.grpo.k3": Comparison(partial(losses.trl, loss_type="grpo", kl_kind="k3")),
    "loss.grpo.opsm": Comparison(partial(losses.trl, loss_type="grpo")),
    "loss.dapo.tis": Comparison(partial(losses.trl, loss_type="dapo")),
    "loss.cispo": Comparison(losses.trl_cispo, _ABSOLUTE),
    "loss.grpo.gspo": Comparison(losses.trl_gspo),
    "loss.rloo.on_policy": Comparison(losses.trl_rloo),
    "loss.rloo.off_policy": Comparison(
        losses.trl_rloo,
        differs="TRL clips the product of a response's ratios, ours are weights of single tokens, "
        "at most weight_max: a product leaves any band on long trajectories",
    ),
    "advantage.scale_group": Comparison(
        partial(returns.scaled_advantage, kind="group_normalised"),
        "TRL adds 1e-4 to the deviation, we 1e-6",
    ),
    "advantage.scale_none": Comparison(partial(returns.scaled_advantage, kind="group_centred")),
    "advantage.scale_batch": Comparison(
        returns.batch_advantage,
        differs="TRL takes the deviation of rewards over responses and adds 1e-4; our "
        "group_batch_whitened that of centred rewards over tokens (2501.03262)",
    ),
    "advantage.rloo": Comparison(partial(returns.scaled_advantage, kind="leave_one_out")),
    "preference.sigmoid": Comparison(partial(losses.preference, kind="sigmoid")),
    "preference.ipo": Comparison(partial(losses.preference, kind="ipo")),
    "preference.sigmoid_norm": Comparison(partial(losses.preference, kind="sigmoid_norm")),
    "preference.conservative": Comparison(
        partial(losses.preference, kind="sigmoid"), "TRL's aot on one pair"
    ),
    "preference.rpo": Comparison(partial(losses.preference, kind="sigmoid", rpo_weight=1.0)),
    **{f"distillation.{kind}": Comparison(losses.distillation) for kind in _DIVERGENCES},
    **{
        f"distillation.{kind}.chunked": Comparison(
            losses.distillation, "TRL's chunked loss works in float32", bar=1e-5
        )
        for kind in _DIVERGENCES
    },
    "logprobs": Comparison(returns.logprobs),
    "overlong": Comparison(returns.overlong),
}

VERL: dict[str, Comparison] = {
    "loss.vanilla": Comparison(partial(losses.verl, loss_mode="vanilla"), _COUNTED),
    "loss.gspo": Comparison(partial(losses.verl, loss_mode="gspo"), _COUNTED),
    "loss.cispo": Comparison(partial(losses.verl, loss_mode="cispo"), f"{_RELATIVE}; {_COUNTED}"),
    "loss.decoupled": Comparison(losses.decoupled),
    "value_loss": Comparison(losses.value_loss),
    **{
        f"kl.{kind}": Comparison(partial(losses.kl, kind=kind))
        for kind in ("k1", "k2", "k3", "abs")
    },
    "kl.k3+": Comparison(partial(losses.kl, kind="k3_unbiased")),
    **{
        f"advantage.{kind}": Comparison(partial(returns.advantage, kind=kind))
        for kind in ("group_normalised", "group_centred", "leave_one_out")
    },
    **{
        f"advantage.{kind}": Comparison(partial(returns.whitened_advantage, kind=kind), _EPS)
        for kind in ("batch_whitened", "group_batch_whitened")
    },
    "advantage.group_of_one": Comparison(returns.group_of_one, differs=_ALONE),
    "advantage.whiten": Comparison(returns.whitening, _MEAN),
    "returns.reinforce_plus_plus": Comparison(returns.reinforce_plus_plus, _MEAN),
    "returns.gae": Comparison(returns.gae, _MEAN),
    "aggregation": Comparison(returns.aggregation, _COUNTED),
    "correction.truncated": Comparison(partial(returns.correction, kind="truncated")),
    "correction.icepop": Comparison(partial(returns.correction, kind="icepop")),
    "correction.geometric_mask": Comparison(
        partial(returns.correction, kind="geometric"), "verl's band is of mu / pi, ours of pi / mu"
    ),
    "correction.ess": Comparison(
        partial(returns.correction, kind="truncated"),
        "verl divides the weights by their mean + 1e-8",
        bar=1e-7,
    ),
}


@dataclass(frozen=True)
class Difference:
    """How far we are from a peer on the cases of one name, at the most."""

    name: str
    peer: str
    largest: float
    cases: int
    comparison: Comparison


def compare(written: Mapping[str, Any], table: Mapping[str, Comparison]) -> list[Difference]:
    """One difference a name, over all that a peer's script wrote.

    Raises ValueError where the peer wrote no case of a name, or nothing of it can be compared.
    """
    found: dict[str, list[float]] = {name: [] for name in table}
    if missing := table.keys() - {one["name"] for one in written["cases"]}:
        raise ValueError(f"no case of {', '.join(sorted(missing))}")
    for one in written["cases"]:
        if one["name"] not in table:
            continue
        ours = table[one["name"]].ours(one["inputs"])
        shared = ours.keys() & one["outputs"].keys()
        if not shared:
            raise ValueError(f"{one['name']}: nothing of it is compared")
        found[one["name"]].append(
            max(difference(ours[name], one["outputs"][name]) for name in shared)
        )
    return [
        Difference(name, written["peer"], max(values), len(values), table[name])
        for name, values in found.items()
    ]


def difference(ours: Any, theirs: Any) -> float:
    """The largest absolute difference; infinite where shapes differ or a number is missing."""
    left, right = tensor(_plain(ours)), tensor(_plain(theirs))
    if left.shape != right.shape:
        return math.inf
    found = float((left - right).abs().max()) if left.numel() else 0.0
    return math.inf if math.isnan(found) else found


def _plain(values: Any) -> Any:
    return values.detach().tolist() if isinstance(values, Tensor) else values
