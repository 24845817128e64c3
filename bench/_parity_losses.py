"""Policy losses, preferences and divergences of a peer's cases, as Caravan computes them.

Each function takes a case's inputs and returns what `bench._parity_cases` compares with the peer's
outputs of the same names. Responses are rows; tokens are those where the mask is 1.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from engine.algorithms.aggregation import token_weights
from engine.algorithms.corrections import (
    correction_weights,
    negative_drift_mask,
    sequence_mean,
)
from engine.algorithms.distillation import divergence
from engine.algorithms.divergence import kl_estimate
from engine.algorithms.losses import LOSSES
from engine.algorithms.preference import Side, pair_figures, pair_loss
from engine.algorithms.tokens import Tokens
from engine.algorithms.values import value_losses
from engine.spec import RlStage
from engine.spec.algorithms import KlKind, with_our_names
from engine.spec.dpo import PairLoss

Inputs = Mapping[str, Any]
Found = dict[str, Any]


def tensor(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)


def trl(inputs: Inputs, loss_type: str, kl_kind: KlKind = "k3_unbiased") -> Found:
    """A loss under TRL's name for it, with the bounds that TRL was given."""
    return policy_loss(inputs, {"loss_type": loss_type, **inputs["bounds"]}, kl_kind)


def trl_cispo(inputs: Inputs) -> Found:
    """TRL's epsilon_high of CISPO is the absolute largest weight."""
    cap = inputs["bounds"]["eps_high"]
    return policy_loss(inputs, {"loss_type": "cispo", "weight_max": cap})


def trl_dual(inputs: Inputs) -> Found:
    """TRL's delta bounds every ratio; above the clip that matters for negative advantages only,
    and TRL does not count those as clipped (verl and we do)."""
    bounds = dict(inputs["bounds"])
    fields = {"loss_type": "grpo", "dual_clip": bounds.pop("dual"), **bounds}
    return _of_loss(policy_loss(inputs, fields))


def trl_gspo(inputs: Inputs) -> Found:
    """TRL's sequence-level ratio; its share of clipped is over responses, ours over tokens."""
    return _of_loss(policy_loss(inputs, {"algorithm": "gspo", **inputs["bounds"]}))


def trl_rloo(inputs: Inputs) -> Found:
    """TRL's loss on policy is minus the mean advantage, ours weighs log-probabilities: the same
    gradient."""
    found = policy_loss({**inputs, "longest": 1}, {"algorithm": "rloo"})
    return {"gradient": found["gradient"]}


def verl(inputs: Inputs, loss_mode: str) -> Found:
    """A loss under verl's names for it and for its aggregation."""
    bounds = dict(inputs["bounds"])
    if loss_mode == "vanilla":
        bounds["dual_clip"] = bounds.pop("dual")
    if loss_mode == "cispo":  # an eps_low of 1 is no lower bound
        del bounds["eps_low"]
    names = {"loss_mode": loss_mode, "loss_agg_mode": inputs["aggregation"]}
    return policy_loss(inputs, names | bounds, counted_more=1e-8)


def decoupled(inputs: Inputs) -> Found:
    """verl's vanilla loss against the proximal policy, weighed from the behaviour policy to it."""
    mask = tensor(inputs["mask"]).bool()
    log_rho = tensor(inputs["behaviour"]) - tensor(inputs["sampled"])
    weights = torch.zeros_like(log_rho)
    weights[mask], _ = correction_weights(
        "truncated", log_rho[mask], mask.nonzero()[:, 0], {"weight_max": 2.0}
    )
    return verl({**inputs, "weights": weights.tolist()}, "vanilla")


def policy_loss(
    inputs: Inputs,
    fields: Mapping[str, Any],
    kl_kind: KlKind = "k3_unbiased",
    counted_more: float = 0.0,
) -> Found:
    """The loss of a batch and its gradient, as the trainer puts it together.

    counted_more: what verl adds to a response's tokens before it divides by them.
    """
    how = RlStage.model_validate(with_our_names(fields)).resolved()
    mask = tensor(inputs["mask"]).bool()
    logprobs = tensor(inputs["logprobs"]).requires_grad_()
    anchor = tensor(inputs["behaviour"])
    row = mask.nonzero()[:, 0]
    log_ratio = (logprobs - anchor)[mask]
    tokens = Tokens(
        logprobs[mask],
        anchor[mask],
        tensor(inputs["advantages"])[row],
        sequence_mean(log_ratio.detach(), row),
        how.bounds,
    )
    lengths = mask.sum(1).double()
    weights = tensor(token_weights(how.aggregation, mask.sum(1).tolist(), inputs["longest"]))
    if how.aggregation == "seq-mean-token-mean":
        weights = weights * lengths / (lengths + counted_more)
    terms = LOSSES[how.loss](tokens)
    losses = terms.losses
    if how.correction != "none":
        factor, _ = correction_weights(how.correction, log_ratio, row, how.correction_bounds)
        losses = losses * factor
    if "weights" in inputs:
        losses = losses * tensor(inputs["weights"])[mask]
    if "opsm" in inputs:
        losses = losses * negative_drift_mask(-log_ratio, tokens.advantages, row, inputs["opsm"])
    found: Found = {}
    if "beta" in inputs:
        reference = tensor(inputs["reference"])[mask]
        kl = kl_estimate(tokens.logprobs, reference, kl_kind, tokens.anchor)
        losses = losses + inputs["beta"] * kl
        found["kl"] = kl.mean()
    loss = (weights[row] * losses).sum()
    (gradient,) = torch.autograd.grad(loss, logprobs)
    share = float((terms.clipped != 0).double().mean())
    return found | {
        "loss": loss,
        "gradient": gradient,
        "clipped": share,
        "clip_ratio/region_mean": share,
    }


def _of_loss(found: Found) -> Found:
    return {name: found[name] for name in ("loss", "gradient")}


def value_loss(inputs: Inputs) -> Found:
    mask = tensor(inputs["mask"]).bool()
    predicted = tensor(inputs["predicted"]).requires_grad_()
    returns, old = tensor(inputs["returns"]), tensor(inputs["old"])
    terms = value_losses(predicted[mask], returns[mask], old[mask], inputs["clip"])
    loss = terms.losses.mean()
    (gradient,) = torch.autograd.grad(loss, predicted)
    share = float((terms.clipped != 0).double().mean())
    return {"loss": loss, "gradient": gradient, "clipped": share}


def kl(inputs: Inputs, kind: KlKind) -> Found:
    mask = tensor(inputs["mask"]).bool()
    logprobs = tensor(inputs["logprobs"]).requires_grad_()
    values = torch.zeros_like(logprobs)
    values[mask] = kl_estimate(logprobs[mask], tensor(inputs["reference"])[mask], kind)
    (gradient,) = torch.autograd.grad(values.sum(), logprobs)
    return {"values": values, "gradient": gradient}


def preference(inputs: Inputs, kind: PairLoss, rpo_weight: float = 0.0) -> Found:
    mask = tensor(inputs["mask"])
    logprobs = tensor(inputs["logprobs"]).requires_grad_()
    sums, references = (logprobs * mask).sum(1), tensor(inputs["reference"]).sum(1)
    halves = zip(*(one.chunk(2) for one in (sums, references, mask.sum(1))), strict=True)
    chosen, rejected = (Side(*half) for half in halves)
    beta = inputs["beta"]
    loss = pair_loss(
        kind,
        chosen,
        rejected,
        beta=beta,
        label_smoothing=inputs["smoothing"],
        rpo_weight=rpo_weight,
    )
    (gradient,) = torch.autograd.grad(loss, logprobs)
    figures = pair_figures(chosen, rejected, beta)
    return {
        "loss": loss,
        "gradient": gradient,
        "rewards/chosen": figures["rewards_chosen"],
        "rewards/rejected": figures["rewards_rejected"],
        "rewards/margins": figures["margin"],
        "rewards/accuracies": figures["accuracy"],
    }


def distillation(inputs: Inputs) -> Found:
    mask = tensor(inputs["mask"]).bool()
    hidden = tensor(inputs["hidden"]).requires_grad_()
    values = divergence(
        hidden[mask],
        tensor(inputs["head"]),
        tensor(inputs["teacher_hidden"])[mask],
        tensor(inputs["teacher_head"]),
        beta=inputs["beta"],
        temperature=inputs["temperature"],
    ).values
    loss = values.mean()
    (gradient,) = torch.autograd.grad(loss, hidden)
    return {"loss": loss, "gradient": gradient}
