"""The MLP of a block: one SwiGLU, or several behind a router that sends each token to a few."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from engine.models.hybrid.config import HybridConfig


class Routing(NamedTuple):
    """What a router decided about the tokens of a batch, in their flat order.

    probabilities [tokens, experts]: fp32, over all experts; chosen [tokens, experts a token].
    """

    probabilities: Tensor
    chosen: Tensor


class SwiGlu(nn.Module):
    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_up_proj = nn.Linear(width, 2 * inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up_proj(x).chunk(2, dim=-1)
        return self.down_proj(functional.silu(gate) * up)  # type: ignore[no-any-return]


class Router(nn.Module):
    """Its weight stays in fp32 beside bf16 blocks, so that rounding sends no token elsewhere."""

    def __init__(self, width: int, experts: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, width))

    def forward(self, x: Tensor) -> Tensor:
        """Probabilities [tokens, experts] of all experts; x: [tokens, width]."""
        return torch.softmax(functional.linear(x.to(self.weight.dtype), self.weight), dim=-1)


class Experts(nn.Module):
    """gate_up_proj: [experts, 2 inner, width], gate first; down_proj: [experts, width, inner]."""

    def __init__(self, width: int, inner: int, experts: int) -> None:
        super().__init__()
        self.gate_up_proj = nn.Parameter(torch.empty(experts, 2 * inner, width))
        self.down_proj = nn.Parameter(torch.empty(experts, width, inner))

    def forward(self, x: Tensor, chosen: Tensor) -> Tensor:
        """[tokens, k, width]: what each token's k experts make of it; x: [tokens, width]."""
        places = chosen.flatten()
        order = places.argsort(stable=True)
        rows = x[order // chosen.shape[1]]
        counts: list[int] = torch.bincount(places, minlength=len(self.gate_up_proj)).tolist()
        parts = [
            self._one(part, expert)
            for expert, part in enumerate(torch.split(rows, counts))
            if len(part)
        ]
        return torch.cat(parts)[order.argsort()].view(*chosen.shape, -1)

    def _one(self, x: Tensor, expert: int) -> Tensor:
        gate, up = functional.linear(x, self.gate_up_proj[expert]).chunk(2, dim=-1)
        return functional.linear(functional.silu(gate) * up, self.down_proj[expert])


class MixtureOfExperts(nn.Module):
    """Softmax over all experts in fp32, the best few, their weights made to sum to 1 (MiniMax).

    No token is ever dropped, so that what a token gives does not depend on its batch.
    """

    def __init__(self, config: HybridConfig) -> None:
        super().__init__()
        width, experts = config.hidden_size, config.num_local_experts
        self.router = Router(width, experts)
        self.experts = Experts(width, config.intermediate_size, experts)
        self._each = config.num_experts_per_tok

    def forward(self, x: Tensor, chosen: Tensor | None = None) -> tuple[Tensor, Routing]:
        """x: [..., width]; `chosen` [tokens, k] replays an earlier choice of experts."""
        flat = x.reshape(-1, x.shape[-1])
        probabilities = self.router(flat)
        if chosen is None:
            chosen = probabilities.topk(self._each, dim=-1).indices
        weights = probabilities.gather(1, chosen)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        mixed = (self.experts(flat, chosen) * weights.to(x.dtype)[..., None]).sum(dim=1)
        return mixed.view_as(x), Routing(probabilities, chosen)


def balancing_loss(routings: Sequence[Routing], weights: Tensor | None = None) -> Tensor:
    """How unevenly the experts are used: experts * sum over experts of share * probability.

    Switch Transformers (2101.03961), equations 4-6, for each layer alone, then their mean; the
    least is the number of experts a token. `weights` [tokens] counts tokens: 0 for padding, and
    in a prefix tree the number of samples that go through the token.
    """
    if weights is None:
        weights = torch.ones(len(routings[0][0]), device=routings[0][0].device)
    return imbalance(routings, weights, expert_loads(routings, weights) / weights.sum())


def expert_loads(routings: Sequence[Routing], weights: Tensor) -> Tensor:
    """[layers, experts]: how many tokens went to each expert, counted as `weights` says."""
    loads = []
    for probabilities, chosen in routings:
        count = weights.to(probabilities)
        load = count.new_zeros(probabilities.shape[1])
        loads.append(load.index_add_(0, chosen.flatten(), count.repeat_interleave(chosen.shape[1])))
    return torch.stack(loads)


def imbalance(routings: Sequence[Routing], weights: Tensor, shares: Tensor) -> Tensor:
    """The balancing loss with the shares [layers, experts] of more tokens than these.

    Shares carry no gradient, so that with those of all tokens the losses of the parts of a batch,
    each times its part of the tokens, add up to the loss of the whole.
    """
    layers = []
    for (probabilities, _), share in zip(routings, shares, strict=True):
        count = weights.to(probabilities)
        layers.append(len(share) * share @ ((count / count.sum()) @ probabilities))
    return torch.stack(layers).mean()
