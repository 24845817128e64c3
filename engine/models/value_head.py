"""A value head: what return the policy expects after each token, read from its hidden states."""

import torch
from torch import Tensor, nn
from torch.nn import functional


class ValueHead(nn.Module):
    """One fp32 linear unit; it begins at 0, so that the first advantages are the returns."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1, width))
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, hidden: Tensor) -> Tensor:
        """Values [...] in fp32 of hidden states [..., width], after the final norm."""
        return functional.linear(hidden.to(self.weight.dtype), self.weight, self.bias)[..., 0]
