"""What decoding remembers of each slot: length, lightning states, conv tails, keys and values."""

from dataclasses import dataclass

import torch
from torch import Tensor

from engine.models.hybrid.config import LIGHTNING, HybridConfig


@dataclass
class LayerCache:
    """One layer's memory of all slots; what a layer has no use for is None.

    state: [slots, heads, dim, dim], always fp32; tail: [slots, conv_width - 1, heads, 2 dim], the
    last inputs of the convolution; keys, values: [slots, heads, capacity, dim].
    """

    state: Tensor | None = None
    tail: Tensor | None = None
    keys: Tensor | None = None
    values: Tensor | None = None

    def tensors(self) -> list[Tensor]:
        return [x for x in (self.state, self.tail, self.keys, self.values) if x is not None]


@dataclass
class HybridCache:
    """Slots are rows; `lengths` [slots] counts the tokens of each and belongs to no layer."""

    lengths: Tensor
    layers: list[LayerCache]
    capacity: int

    @staticmethod
    def empty(
        config: HybridConfig,
        slots: int,
        capacity: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> "HybridCache":
        """Room for `slots` sequences of up to `capacity` tokens, keys and values in `dtype`."""
        heads, dim, tail = config.num_attention_heads, config.head_dim, config.conv_width - 1
        layers = []
        for kind in config.layer_types or ():
            layer = LayerCache()
            if config.conv_width > 0:
                layer.tail = torch.zeros(slots, tail, heads, 2 * dim, dtype=dtype, device=device)
            if kind == LIGHTNING:
                layer.state = torch.zeros(slots, heads, dim, dim, device=device)
            else:
                shape = (slots, heads, capacity, dim)
                layer.keys = torch.zeros(shape, dtype=dtype, device=device)
                layer.values = torch.zeros(shape, dtype=dtype, device=device)
            layers.append(layer)
        return HybridCache(torch.zeros(slots, dtype=torch.long, device=device), layers, capacity)

    @property
    def slots(self) -> int:
        return len(self.lengths)

    def tensors(self) -> list[Tensor]:
        return [self.lengths, *(tensor for layer in self.layers for tensor in layer.tensors())]

    def _index(self, slots: list[int]) -> Tensor:
        return torch.tensor(slots, dtype=torch.long, device=self.lengths.device)

    def copy(self, source: int, targets: list[int]) -> None:
        """Makes the target slots forks of the source slot."""
        index = self._index(targets)
        for tensor in self.tensors():
            tensor[index] = tensor[source].clone()

    def reset(self, slots: list[int]) -> None:
        """Empties slots. Keys and values stay: no query reads past a slot's length."""
        index = self._index(slots)
        self.lengths[index] = 0
        for layer in self.layers:
            for tensor in (layer.state, layer.tail):
                if tensor is not None:
                    tensor[index] = 0

    def select(self, slots: list[int]) -> "HybridCache":
        """A new cache whose slot i is this one's slots[i]: select, reorder and repeat in one."""
        index = self._index(slots)

        def pick(tensor: Tensor | None) -> Tensor | None:
            return None if tensor is None else tensor[index]

        layers = [
            LayerCache(pick(x.state), pick(x.tail), pick(x.keys), pick(x.values))
            for x in self.layers
        ]
        return HybridCache(self.lengths[index], layers, self.capacity)
