"""From per-token losses to the number that is minimised."""

from torch import Tensor


def token_mean(losses: Tensor, loss_tokens: int) -> Tensor:
    """This piece's part of the mean over all tokens of the step.

    `loss_tokens` counts the tokens of the whole step, over all micro-batches and ranks: the parts
    then add up to the same loss and gradient however the step was cut.
    """
    if loss_tokens < 1:
        raise ValueError("A step without a single token in the loss has no mean.")
    return losses.sum() / loss_tokens
