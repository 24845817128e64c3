"""Losses, advantages and corrections as verl computes them; run inside verl's environment."""

from types import SimpleNamespace

import numpy as np
import torch
import verl.utils.torch_functional as verl_functional
from cases import Case, Draw, case, gradient, main
from torch import Tensor
from verl.trainer.ppo import core_algos
from verl.trainer.ppo.rollout_corr_helper import (
    compute_rollout_correction_weights,
    compute_rollout_rejection_mask,
)
from verl.workers.config import ActorConfig

AGGREGATIONS = (
    "token-mean",
    "token-sum",
    "seq-mean-token-sum",
    "seq-mean-token-mean",
    "seq-mean-token-sum-norm",
)
LONGEST = 16


def _exact_mean(values: Tensor, mask: Tensor, axis: int | None = None) -> Tensor:
    """verl's masked_mean without the 1e-8 that it adds to the number of tokens."""
    return (values * mask).sum(axis) / mask.sum(axis)


def make(seed: int) -> list[Case]:
    verl_functional.masked_mean = _exact_mean
    draw = Draw(seed)
    return [
        *_advantages(draw),
        *_whole_returns(draw),
        *_critic(draw),
        *_policy_losses(draw),
        *_decoupled(draw),
        *_aggregations(draw),
        *_divergences(draw),
        *_corrections(draw),
    ]


def _advantages(draw: Draw) -> list[Case]:
    """One reward a response, at its last trained token."""
    rewards = draw.normal(draw.rows)
    scores = _at_last_token(rewards, draw.mask)
    index = np.array(draw.groups)
    inputs = {"rewards": rewards, "groups": draw.groups, "mask": draw.mask}
    calls = {
        "group_normalised": core_algos.compute_grpo_outcome_advantage,
        "group_centred": lambda *a: core_algos.compute_grpo_outcome_advantage(
            *a, norm_adv_by_std_in_grpo=False
        ),
        "leave_one_out": core_algos.compute_rloo_outcome_advantage,
        "group_batch_whitened": (core_algos.compute_reinforce_plus_plus_baseline_outcome_advantage),
    }
    found = {
        name: call(scores.clone(), draw.mask, index)[0] * draw.mask for name, call in calls.items()
    }
    found["batch_whitened"], _ = core_algos.compute_reinforce_plus_plus_outcome_advantage(
        scores.clone(), draw.mask, config=SimpleNamespace(gamma=1.0)
    )
    alone, _ = core_algos.compute_grpo_outcome_advantage(
        scores.clone(), draw.mask, np.arange(draw.rows)
    )
    return [
        *(case(f"advantage.{name}", inputs, {"advantages": one}) for name, one in found.items()),
        case("advantage.group_of_one", inputs, {"advantages": alone}),
        case(
            "advantage.whiten",
            {"values": rewards[:, None] * draw.mask, "mask": draw.mask},
            {
                "whitened": verl_functional.masked_whiten(rewards[:, None] * draw.mask, draw.mask)
                * draw.mask
            },
        ),
    ]


def _whitened(values: Tensor, mask: Tensor) -> Tensor:
    found: Tensor = verl_functional.masked_whiten(values, mask) * mask
    return found


def _whole_returns(draw: Draw) -> list[Case]:
    """REINFORCE++ on rewards at every token, as a KL penalty makes them."""
    rewards, gamma = draw.tokens(0.1) * draw.mask, 0.9
    rewards = rewards + _at_last_token(draw.normal(draw.rows), draw.mask)
    found, returns = core_algos.compute_reinforce_plus_plus_outcome_advantage(
        rewards, draw.mask, config=SimpleNamespace(gamma=gamma)
    )
    return [
        case(
            "returns.reinforce_plus_plus",
            {"rewards": rewards, "mask": draw.mask, "gamma": gamma},
            {"returns": returns, "advantages": found},
        )
    ]


def _critic(draw: Draw) -> list[Case]:
    rewards = draw.tokens(0.1) * draw.mask + _at_last_token(draw.normal(draw.rows), draw.mask)
    values, gamma, lam = draw.tokens(), 0.95, 0.8
    found, returns = core_algos.compute_gae_advantage_return(rewards, values, draw.mask, gamma, lam)
    raw = (returns - values) * draw.mask
    predicted = draw.tokens().requires_grad_()
    old, targets, clip = draw.tokens(), draw.tokens(), 0.5
    loss, clipped = core_algos.compute_value_loss(predicted, targets, old, draw.mask, clip)
    return [
        case(
            "returns.gae",
            {"rewards": rewards, "values": values, "mask": draw.mask, "gamma": gamma, "lam": lam},
            {"raw": raw, "returns": returns * draw.mask, "advantages": found * draw.mask},
        ),
        case(
            "value_loss",
            {
                "predicted": predicted,
                "old": old,
                "returns": targets,
                "mask": draw.mask,
                "clip": clip,
            },
            {"loss": loss, "gradient": gradient(loss, predicted), "clipped": float(clipped)},
        ),
    ]


def _policy_losses(draw: Draw) -> list[Case]:
    old = draw.logprobs()
    made = []
    kinds = (
        ("vanilla", {"eps_low": 0.2, "eps_high": 0.28, "dual": 3.0}, 0.8),
        ("gspo", {"eps_low": 0.1, "eps_high": 0.15}, 0.3),
        ("cispo", {"eps_low": 1.0, "eps_high": 0.7}, 0.8),
    )
    for mode, bounds, spread in kinds:
        logprobs = (old + draw.tokens(spread)).requires_grad_()
        advantages = draw.normal(draw.rows)[:, None].expand_as(old)
        for how in AGGREGATIONS:
            loss, figures = core_algos.get_policy_loss_fn(mode)(
                old_log_prob=old,
                log_prob=logprobs,
                advantages=advantages,
                response_mask=draw.mask,
                loss_agg_mode=how,
                config=_config(bounds, how),
            )
            inputs = {
                "logprobs": logprobs,
                "behaviour": old,
                "advantages": advantages[:, 0],
                "mask": draw.mask,
                "bounds": bounds,
                "aggregation": how,
                "longest": LONGEST,
            }
            outputs = {
                "loss": loss,
                "gradient": gradient(loss, logprobs),
                "clipped": figures["actor/pg_clipfrac"] + figures["actor/pg_clipfrac_lower"],
            }
            made.append(case(f"loss.{mode}", inputs, outputs))
    return made


def _decoupled(draw: Draw) -> list[Case]:
    """The proximal policy is the anchor; a weight corrects from the behaviour policy to it."""
    behaviour, advantages = draw.logprobs(), draw.normal(draw.rows)
    old = behaviour + draw.tokens(0.8)
    logprobs = (old + draw.tokens(0.3)).requires_grad_()
    weights, _ = compute_rollout_correction_weights(old - behaviour, draw.mask, "token", 2.0)
    bounds = {"eps_low": 0.2, "eps_high": 0.28, "dual": 3.0}
    loss, _ = core_algos.get_policy_loss_fn("vanilla")(
        old_log_prob=old,
        log_prob=logprobs,
        advantages=advantages[:, None].expand_as(old),
        response_mask=draw.mask,
        loss_agg_mode="token-mean",
        config=_config(bounds, "token-mean"),
        rollout_is_weights=weights,
    )
    inputs = {
        "logprobs": logprobs,
        "behaviour": old,
        "sampled": behaviour,
        "advantages": advantages,
        "mask": draw.mask,
        "bounds": bounds,
        "aggregation": "token-mean",
        "longest": LONGEST,
    }
    outputs = {"loss": loss, "gradient": gradient(loss, logprobs)}
    return [case("loss.decoupled", inputs, outputs)]


def _config(bounds: dict[str, float], aggregation: str) -> ActorConfig:
    return ActorConfig(
        strategy="fsdp",
        rollout_n=1,
        use_dynamic_bsz=True,
        clip_ratio_low=bounds["eps_low"],
        clip_ratio_high=bounds["eps_high"],
        clip_ratio_c=bounds.get("dual", 3.0),
        loss_agg_mode=aggregation,
        global_batch_info={"loss_scale_factor": LONGEST},
    )


def _aggregations(draw: Draw) -> list[Case]:
    losses = draw.tokens()
    inputs = {"losses": losses, "mask": draw.mask, "longest": LONGEST}
    found = {
        how: core_algos.agg_loss(losses, draw.mask, how, loss_scale_factor=LONGEST)
        for how in AGGREGATIONS
    }
    return [case("aggregation", inputs, found)]


def _divergences(draw: Draw) -> list[Case]:
    logprobs = draw.logprobs().requires_grad_()
    reference = logprobs.detach() + draw.tokens(0.5)
    made = []
    for kind in ("k1", "k2", "k3", "abs", "k3+"):
        found = core_algos.kl_penalty(logprobs, reference, kind)
        made.append(
            case(
                f"kl.{kind}",
                {"logprobs": logprobs, "reference": reference, "mask": draw.mask},
                {
                    "values": found * draw.mask,
                    "gradient": gradient((found * draw.mask).sum(), logprobs),
                },
            )
        )
    return made


def _corrections(draw: Draw) -> list[Case]:
    log_rho = draw.tokens(0.8)
    inputs = {"log_rho": log_rho, "mask": draw.mask}
    truncated, figures = compute_rollout_correction_weights(log_rho, draw.mask, "token", 2.0)
    icepop, _ = compute_rollout_correction_weights(log_rho, draw.mask, "token", "0.5_5.0")
    kept, _ = compute_rollout_rejection_mask(log_rho, draw.mask, "seq_mean_k1", "0.7_1.4")
    return [
        case(
            "correction.truncated",
            {**inputs, "cap": 2.0},
            {"weights": truncated},
        ),
        case(
            "correction.ess",
            {**inputs, "cap": 2.0},
            {"ess": figures["rollout_is_eff_sample_size"]},
        ),
        case("correction.icepop", {**inputs, "low": 0.5, "high": 5.0}, {"weights": icepop}),
        case("correction.geometric_mask", {**inputs, "low": 0.7, "high": 1.4}, {"kept": kept}),
    ]


def _at_last_token(rewards: Tensor, mask: Tensor) -> Tensor:
    scores = torch.zeros_like(mask)
    last = mask.shape[1] - 1 - mask.flip(1).argmax(1)
    scores[torch.arange(len(mask)), last] = rewards
    return scores


if __name__ == "__main__":
    main("verl", make)
