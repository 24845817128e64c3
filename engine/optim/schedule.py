"""The learning rate over the steps of a stage."""


def learning_rate_factor(step: int, steps: int, warmup_steps: int, decay_share: float) -> float:
    """Factor in [0, 1] for the update that follows `step` finished ones, of `steps` in all.

    Linear warm-up, constant, then linear decay over the last `decay_share` of the steps, reaching
    zero only after the last update.
    """
    if not 0 <= step < steps:
        raise ValueError(f"step {step} is not among 0..{steps - 1} of this stage")
    warm = 1.0 if warmup_steps == 0 else min(1.0, (step + 1) / warmup_steps)
    decay_steps = decay_share * steps
    return min(warm, 1.0 if decay_steps == 0 else min(1.0, (steps - step) / decay_steps))
