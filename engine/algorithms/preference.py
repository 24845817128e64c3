"""Preference losses: what a step of pairs comes to, from the log-probabilities of its tokens.

Log-probabilities are sums over a side's own tokens, those from the first on that differ; the
prefix that both sides share cancels in every difference and counts in no length.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from engine.spec.dpo import PairLoss


@dataclass(frozen=True, eq=False)
class Side:
    """One side of all pairs of a step, [pairs] each.

    logprobs: sums under the current policy; reference: the same under the policy at the start of
    the stage; tokens: how many tokens each sum has, at least 1.
    """

    logprobs: Tensor
    reference: Tensor
    tokens: Tensor

    def __post_init__(self) -> None:
        sizes = {self.logprobs.shape, self.reference.shape, self.tokens.shape}
        if len(sizes) > 1 or self.logprobs.ndim != 1:
            raise ValueError(
                "logprobs, reference and tokens have one number a pair; their shapes are "
                f"{[list(size.shape) for size in (self.logprobs, self.reference, self.tokens)]}."
            )
        for name in ("logprobs", "reference"):
            finite = torch.isfinite(getattr(self, name))
            if not bool(finite.all()):
                bad = int((~finite).nonzero()[0, 0])
                raise ValueError(
                    f"{name} of pair {bad} is {float(getattr(self, name)[bad])}: a preference "
                    "needs finite log-probabilities of both sides."
                )
        if bool((self.tokens < 1).any()):
            raise ValueError("A side of a pair has no token of its own: everything is masked.")

    @property
    def log_ratio(self) -> Tensor:
        """log pi / ref of the whole side."""
        return self.logprobs - self.reference


def dpo(chosen: Side, rejected: Side, beta: float, label_smoothing: float = 0.0) -> Tensor:
    """-(1 - eps) log s(beta h) - eps log s(-beta h), [pairs] (2305.18290, eq. 7).

    h is the difference of the sides' log-ratios, s the logistic function; eps is the share of pairs
    that are thought to stand the wrong way round (conservative DPO). At the start it is ln 2.
    """
    margin = beta * (chosen.log_ratio - rejected.log_ratio)
    return -(1 - label_smoothing) * logsigmoid(margin) - label_smoothing * logsigmoid(-margin)


def ipo(chosen: Side, rejected: Side, beta: float) -> Tensor:
    """(h - 1 / (2 beta))^2, [pairs] (2310.12036, eq. 17), h with the mean log-ratio of each side.

    The paper sums over tokens, and OpenRLHF with it; means are TRL's side, taken here because
    1 / (2 beta) is one target for all pairs, which long sides would pass by their length alone.
    """
    difference = chosen.log_ratio / chosen.tokens - rejected.log_ratio / rejected.tokens
    return (difference - 1 / (2 * beta)) ** 2


def sigmoid_norm(chosen: Side, rejected: Side, beta: float) -> Tensor:
    """-log s(beta h), [pairs], h with the mean log-ratio of each side (TRL's sigmoid_norm)."""
    difference = chosen.log_ratio / chosen.tokens - rejected.log_ratio / rejected.tokens
    return -logsigmoid(beta * difference)


def likelihood(chosen: Side) -> Tensor:
    """Minus the mean log-probability of all chosen tokens of the step: the rpo term (2404.19733),
    and all there is where the repairs are learned as demonstrations (sft)."""
    return -chosen.logprobs.sum() / chosen.tokens.sum()


PAIR_LOSSES: dict[PairLoss, Callable[[Side, Side, float], Tensor]] = {
    "sigmoid": dpo,
    "ipo": ipo,
    "sigmoid_norm": sigmoid_norm,
}


def pair_loss(
    kind: PairLoss,
    chosen: Side,
    rejected: Side,
    *,
    beta: float,
    label_smoothing: float = 0.0,
    rpo_weight: float = 0.0,
) -> Tensor:
    """The loss of a step: a mean over its pairs, and the likelihood of what was chosen."""
    if kind == "sft":
        return likelihood(chosen)
    if kind == "sigmoid":
        losses = dpo(chosen, rejected, beta, label_smoothing)
    else:
        losses = PAIR_LOSSES[kind](chosen, rejected, beta)
    return losses.mean() + rpo_weight * likelihood(chosen) if rpo_weight else losses.mean()


def pair_figures(chosen: Side, rejected: Side, beta: float) -> dict[str, float]:
    """Means over pairs; rewards are beta log-ratios. chosen_change, in nats a token against the
    start of the stage, must not fall: a growing margin can hide that both sides become unlikely."""
    better, worse = beta * chosen.log_ratio.detach(), beta * rejected.log_ratio.detach()
    return {
        "rewards_chosen": float(better.mean()),
        "rewards_rejected": float(worse.mean()),
        "margin": float((better - worse).mean()),
        "accuracy": float((better > worse).double().mean()),
        "logps_chosen": float(chosen.logprobs.detach().mean()),
        "logps_rejected": float(rejected.logprobs.detach().mean()),
        "chosen_change": float(chosen.log_ratio.detach().sum() / chosen.tokens.sum()),
    }
