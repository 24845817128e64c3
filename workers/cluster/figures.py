"""The names under which figures of a training step are series of the run."""

TREE_FIGURES = {
    "tree_token_ratio": "train/tree_token_ratio",
    "tree_saved_flops_share": "train/tree_saved_flops_share",
    "tree_saved_memory_share": "train/tree_saved_memory_share",
}
OPTIMIZER_FIGURES = {
    "grad_norm": "train/grad_norm",
    "lr": "train/lr",
    "max_logit": "train/max_logit",
    "qk_clipped_heads": "train/qk_clipped_heads",
    "balancing_loss": "train/balancing_loss",
}
RL_FIGURES = {
    "loss": "train/loss",
    **OPTIMIZER_FIGURES,
    "entropy": "train/entropy",
    "clip_fraction": "train/clip_fraction",
    "clip_fraction_high": "train/clip_fraction_high",
    "clip_fraction_low": "train/clip_fraction_low",
    "masked_share": "train/masked_share",
    "advantage_mean": "train/advantage_mean",
    "advantage_std": "train/advantage_std",
    "kl_reference": "train/kl_reference",
    "value_loss": "train/value_loss",
    "value_clip_fraction": "train/value_clip_fraction",
    "explained_variance": "train/explained_variance",
    "weight_mean": "train/importance_weight_mean",
    "weight_p99": "train/importance_weight_p99",
    "weight_max": "train/importance_weight_max",
    "ess": "train/ess",
    "sampler_kl": "train/kl_sampler",
    "step_s": "train/step_s",
    "loss_tokens": "train/tokens",
    **TREE_FIGURES,
}
SUPERVISED_FIGURES = {
    **OPTIMIZER_FIGURES,
    "step_s": "train/step_s",
    "loss_tokens": "train/tokens",
    **TREE_FIGURES,
}
SFT_FIGURES = {
    "loss": "sft/loss",
    "token_accuracy": "sft/token_accuracy",
    **SUPERVISED_FIGURES,
}
DPO_FIGURES = {
    "loss": "dpo/loss",
    "margin": "dpo/margin",
    "accuracy": "dpo/accuracy",
    "rewards_chosen": "dpo/rewards_chosen",
    "rewards_rejected": "dpo/rewards_rejected",
    "logps_chosen": "dpo/logps_chosen",
    "logps_rejected": "dpo/logps_rejected",
    "chosen_change": "dpo/chosen_change",
    **SUPERVISED_FIGURES,
}


def named(figures: dict[str, float], names: dict[str, str]) -> dict[str, float]:
    """The figures that have a name, under it."""
    return {name: figures[key] for key, name in names.items() if key in figures}
