"""What a policy loss sees of a step, and what it gives back."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from engine.spec.algorithms import Bound


@dataclass(frozen=True, eq=False)
class Tokens:
    """Tokens that the policy sampled and that are trained on; tensors are [tokens].

    logprobs: under the current policy, the only one with a gradient; anchor: under what ratios are
    taken against, the distribution that sampled the token (temperature and staleness included) or
    the policy before the step's first update; advantages: one number a token; mean_log_ratio: of
    the trajectory that the token belongs to, without gradient (`corrections.sequence_mean`);
    bounds: those that the loss reads (`LOSS_BOUNDS`).

    Raises ValueError where the tensors are not of one shape: broadcasting would mix tokens.
    """

    logprobs: Tensor
    anchor: Tensor
    advantages: Tensor
    mean_log_ratio: Tensor
    bounds: Mapping[Bound, float]

    def __post_init__(self) -> None:
        given = self.logprobs, self.anchor, self.advantages, self.mean_log_ratio
        shapes = [list(tensor.shape) for tensor in given]
        if any(shape != shapes[0] for shape in shapes) or len(shapes[0]) != 1:
            raise ValueError(
                f"logprobs, anchor, advantages and mean_log_ratio are {shapes}; expected is "
                "one number a token, [tokens]. Of padded rows take what is under the mask, x[mask]."
            )

    @property
    def log_ratio(self) -> Tensor:
        """log pi / anchor."""
        return self.logprobs - self.anchor


class Terms(NamedTuple):
    """All [tokens]: the loss of each token, and whether a bound changed what it contributes.

    clipped: int8, +1 for an upper bound, -1 for a lower one, 0 for none; ratio: the importance
    weight that a bound was held against, None where the loss has none.
    """

    losses: Tensor
    clipped: Tensor
    ratio: Tensor | None = None
