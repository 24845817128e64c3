"""The few metrics that lists show and filters name by a short word."""

# Short word -> metric. A run's `headline` holds the newest finite value of each metric.
HEADLINE = {
    "success": "eval/completion_rate",
    "reward": "rollout/reward_mean",
    "train_success": "rollout/success",
    "tool_success": "rollout/tool_success",
    "turns": "rollout/turns",
    "tokens": "rollout/length",
    "loss": "train/loss",
    "sft_loss": "sft/loss",
    "entropy": "train/entropy",
    "clip_fraction": "train/clip_fraction",
    "importance_weight": "train/importance_weight_mean",
    "staleness": "pool/staleness_mean",
}
METRICS = frozenset(HEADLINE.values())


def metric_named(word: str) -> str:
    """The metric behind a short word; any other text is a metric's own name."""
    return HEADLINE.get(word, word)
