"""Advantages, returns, aggregation and corrections of a peer's cases, as Caravan computes them.

As in `bench._parity_losses`: from a case's inputs to what is compared with the peer's outputs.
"""

import math
from typing import get_args

import torch
from torch import Tensor

from bench._parity_losses import Found, Inputs, tensor
from engine.algorithms.advantages import EPS, advantages
from engine.algorithms.aggregation import token_weights
from engine.algorithms.corrections import correction_weights
from engine.algorithms.returns import (
    discounted_returns,
    generalised_advantages,
    place_outcomes,
    whitened,
)
from engine.algorithms.statistics import off_policy_statistics
from engine.models.logprobs import token_logprobs
from engine.records.trajectory import Reward, Step, StopReason, Trajectory
from engine.rewards.scheme import RewardTerm
from engine.rewards.terms import TERMS
from engine.spec.algorithms import Advantage, Aggregation, Bound, Correction


def advantage(inputs: Inputs, kind: Advantage) -> Found:
    """One number a response, at each of its tokens."""
    mask = tensor(inputs["mask"])
    found = tensor(_of_groups(kind, inputs, mask.sum(1).long().tolist()))
    return {"advantages": found[:, None] * mask}


def batch_advantage(inputs: Inputs) -> Found:
    return {"advantages": _of_groups("group_batch_whitened", inputs, [1] * len(inputs["rewards"]))}


def whitened_advantage(inputs: Inputs, kind: Advantage) -> Found:
    """As `advantage`, divided by sqrt(variance + 1e-8) as verl does, not by deviation + EPS."""
    mask = tensor(inputs["mask"])
    (found,) = advantage(inputs, kind).values()
    counted = found[mask.bool()]  # x / (s + EPS) for values x of deviation s
    ratio = float(counted.std())
    deviation = EPS * ratio / (1 - ratio)
    return {"advantages": found * (deviation + EPS) / math.sqrt(deviation**2 + 1e-8)}


def group_of_one(inputs: Inputs) -> Found:
    """What a response without peers gets, where verl gives it its raw reward."""
    mask = tensor(inputs["mask"])
    alone = [advantages("group_normalised", [[one]], [[1]])[0][0] for one in inputs["rewards"]]
    return {"advantages": tensor(alone)[:, None] * mask}


def scaled_advantage(inputs: Inputs, kind: Advantage) -> Found:
    """As `advantage`, with the peer's constant beside the standard deviation in place of ours."""
    found = _of_groups(kind, inputs, [1] * len(inputs["rewards"]))
    if "eps" not in inputs or kind != "group_normalised":
        return {"advantages": tensor(found)}
    for start in range(0, len(found), 3):
        group = inputs["rewards"][start : start + 3]
        known = [one for one in group if one is not None]
        deviation = float(tensor(known).std())
        for place in range(start, start + 3):
            found[place] *= (deviation + EPS) / (deviation + inputs["eps"])
    return {"advantages": tensor(found)}


def _of_groups(kind: Advantage, inputs: Inputs, lengths: list[int]) -> list[float]:
    rewards, numbers = inputs["rewards"], inputs["groups"]
    places = [[i for i, n in enumerate(numbers) if n == group] for group in sorted(set(numbers))]
    grouped = [[rewards[i] for i in group] for group in places]
    found = advantages(kind, grouped, [[lengths[i] for i in group] for group in places])
    return [value for group in found for value in group]


def whitening(inputs: Inputs) -> Found:
    mask = tensor(inputs["mask"]).bool()
    return {"whitened": _filled(mask, whitened(tensor(inputs["values"])[mask]))}


def reinforce_plus_plus(inputs: Inputs) -> Found:
    """Rewards at every token, discounted over trained tokens, whitened over the batch."""
    mask = tensor(inputs["mask"]).bool()
    row = mask.nonzero()[:, 0]
    returns = discounted_returns(tensor(inputs["rewards"])[mask], row, inputs["gamma"])
    return {
        "returns": _filled(mask, returns),
        "advantages": _filled(mask, whitened(returns)),
    }


def gae(inputs: Inputs) -> Found:
    mask = tensor(inputs["mask"]).bool()
    row = mask.nonzero()[:, 0]
    found = generalised_advantages(
        tensor(inputs["rewards"])[mask],
        tensor(inputs["values"])[mask],
        row,
        inputs["gamma"],
        inputs["lam"],
    )
    return {
        "raw": _filled(mask, found.advantages),
        "returns": _filled(mask, found.returns),
        "advantages": _filled(mask, whitened(found.advantages)),
    }


def outcome(inputs: Inputs) -> Found:
    """Where a response's reward stands: on its last trained token."""
    mask = tensor(inputs["mask"]).bool()
    row = mask.nonzero()[:, 0]
    return {"scores": _filled(mask, place_outcomes(tensor(inputs["rewards"]), row))}


def aggregation(inputs: Inputs) -> Found:
    """Each mode; verl divides by a response's tokens + 1e-8."""
    mask, losses = tensor(inputs["mask"]), tensor(inputs["losses"])
    lengths = mask.sum(1)
    found = {}
    for how in get_args(Aggregation):
        weights = tensor(token_weights(how, lengths.long().tolist(), inputs["longest"]))
        if how == "seq-mean-token-mean":
            weights = weights * lengths / (lengths + 1e-8)
        found[how] = (weights[:, None] * mask * losses).sum()
    return found


def correction(inputs: Inputs, kind: Correction) -> Found:
    mask, log_rho = tensor(inputs["mask"]).bool(), tensor(inputs["log_rho"])
    bounds: dict[Bound, float] = {"weight_max": inputs.get("cap", inputs.get("high"))}
    if "low" in inputs:
        bounds["weight_min"] = inputs["low"]
    if kind == "geometric":  # verl's band is of mu / pi
        bounds = {"weight_min": 1 / inputs["high"], "weight_max": 1 / inputs["low"]}
    weights, _ = correction_weights(kind, log_rho[mask], mask.nonzero()[:, 0], bounds)
    figures = off_policy_statistics(
        log_rho[mask], torch.zeros_like(log_rho[mask]), bounds["weight_max"]
    )
    name = "kept" if kind == "geometric" else "weights"
    return {name: _filled(mask, weights), "ess": figures["ess"]}


def logprobs(inputs: Inputs) -> Found:
    """Of given logits: their head is the identity."""
    logits = tensor(inputs["logits"])
    head = torch.eye(logits.shape[1], dtype=logits.dtype)
    found = token_logprobs(logits, head, torch.tensor(inputs["ids"]), 1.0)
    return {"logprobs": found.logprobs, "entropy": found.entropies}


def overlong(inputs: Inputs) -> Found:
    term = RewardTerm(kind="overlong", budget=inputs["longest"], cache=inputs["cache"])
    return {"penalty": [math.fsum(TERMS["overlong"](_turn(n), term)) for n in inputs["lengths"]]}


def _turn(tokens: int) -> Trajectory:
    """A trajectory of one turn of so many sampled tokens."""
    return Trajectory(
        id="",
        task_id="",
        group_id="",
        category="",
        prompt="",
        answer="",
        segments=[],
        steps=[Step(index=0, segment=0, start=0, stop=tokens, text="")],
        stop_reason=StopReason.ANSWERED,
        reward=Reward(None, False),
        success=False,
        worker="",
        started_at="",
        duration_s=0.0,
        sampled_tokens=tokens,
    )


def _filled(mask: Tensor, values: Tensor) -> Tensor:
    filled = torch.zeros(mask.shape, dtype=values.dtype)
    filled[mask] = values
    return filled
