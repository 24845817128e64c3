"""What a policy loss sees of a step, and what it gives back."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from engine.spec.algorithms import Bound, Correction


@dataclass(frozen=True, eq=False)
class Tokens:
    """Tokens that the policy sampled and that are trained on; tensors are [tokens].

    logprobs: under the current policy, the only one with a gradient; behaviour: under whatever
    distribution sampled the token, temperature and staleness included; advantages: one number a
    token; sequence: the number of the token's trajectory, of which all tokens are here.
    """

    logprobs: Tensor
    behaviour: Tensor
    advantages: Tensor
    sequence: Tensor
    bounds: Mapping[Bound, float]
    correction: Correction

    @property
    def log_ratio(self) -> Tensor:
        """log pi / mu."""
        return self.logprobs - self.behaviour


class Terms(NamedTuple):
    """Both [tokens]: the loss of each token, and whether a bound changed what it contributes."""

    losses: Tensor
    clipped: Tensor
