"""What decoding remembers of each slot: length, lightning states, conv tails, keys and values."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from engine.models.hybrid.config import LIGHTNING, HybridConfig


@dataclass
class LayerCache:
    """One layer's memory of all slots; what a layer has no use for is None.

    state: [slots, heads, dim, dim], fp32 (fp64 beside fp64 keys); tail: [slots, conv_width - 1,
    kv heads, channels], the last inputs of the convolution; keys, values: [slots, kv heads,
    capacity, dim].
    """

    state: Tensor | None = None
    tail: Tensor | None = None
    keys: Tensor | None = None
    values: Tensor | None = None

    def named(self) -> dict[str, Tensor]:
        return {name: tensor for name, tensor in vars(self).items() if tensor is not None}

    def map(self, function: Callable[[Tensor], Tensor]) -> "LayerCache":
        return LayerCache(**{name: function(tensor) for name, tensor in self.named().items()})

    def of_slot(self, slot: int, length: int) -> "LayerCache":
        """Views of what a slot that holds `length` tokens remembers."""
        one = self.map(lambda tensor: tensor[slot])
        if one.keys is not None and one.values is not None:
            one.keys, one.values = one.keys[:, :length], one.values[:, :length]
        return one

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {name: tuple(tensor.shape) for name, tensor in self.named().items()}


@dataclass(frozen=True)
class SlotSnapshot:
    """What a slot held after `length` tokens: a state to go on from, at a branch point."""

    length: int
    layers: list[LayerCache]  # tensors without the slots' dimension; keys and values of length


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
        heads, dim = config.num_attention_heads, config.head_dim or 0
        layers = []
        for kind in config.layer_types or ():
            layer = LayerCache()
            kv_heads = heads if kind == LIGHTNING else config.num_key_value_heads or heads
            if config.conv_width > 0:
                channels = (heads // kv_heads + 1) * dim
                shape = (slots, config.conv_width - 1, kv_heads, channels)
                layer.tail = torch.zeros(shape, dtype=dtype, device=device)
            if kind == LIGHTNING:
                state_dtype = torch.promote_types(dtype, torch.float32)
                layer.state = torch.zeros(slots, heads, dim, dim, dtype=state_dtype, device=device)
            else:
                shape = (slots, kv_heads, capacity, dim)
                layer.keys = torch.zeros(shape, dtype=dtype, device=device)
                layer.values = torch.zeros(shape, dtype=dtype, device=device)
            layers.append(layer)
        return HybridCache(torch.zeros(slots, dtype=torch.long, device=device), layers, capacity)

    @property
    def slots(self) -> int:
        return len(self.lengths)

    def tensors(self) -> list[Tensor]:
        return [self.lengths, *(x for layer in self.layers for x in layer.named().values())]

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

    def select(self, slots: list[int] | Tensor) -> "HybridCache":
        """A new cache whose slot i is this one's slots[i]: select, reorder and repeat in one."""
        index = slots if isinstance(slots, Tensor) else self._index(slots)
        layers = [layer.map(lambda tensor: tensor[index]) for layer in self.layers]
        return HybridCache(self.lengths[index], layers, self.capacity)

    def grow(self, capacity: int) -> None:
        """Gives every slot room for `capacity` tokens."""
        more = max(0, capacity - self.capacity)
        for layer in self.layers:
            if layer.keys is not None and layer.values is not None:
                layer.keys = functional.pad(layer.keys, (0, 0, 0, more))
                layer.values = functional.pad(layer.values, (0, 0, 0, more))
        self.capacity += more

    def snapshot(self, slot: int) -> SlotSnapshot:
        """A copy of what the slot holds now, to `restore` it later into any slot."""
        length = int(self.lengths[slot])
        layers = [layer.of_slot(slot, length).map(torch.clone) for layer in self.layers]
        return SlotSnapshot(length, layers)

    def restore(self, slot: int, snapshot: SlotSnapshot) -> None:
        """Makes the slot go on from the snapshot.

        Raises ValueError where the snapshot is of a model with other layers or shapes, or longer
        than a slot; the slot then is unchanged.
        """
        if snapshot.length > self.capacity:
            raise ValueError(
                f"The snapshot holds {snapshot.length} tokens; a slot of this cache has room for "
                f"{self.capacity}."
            )
        ours = [layer.of_slot(slot, snapshot.length) for layer in self.layers]
        expected = [layer.shapes() for layer in ours]
        given = [layer.shapes() for layer in snapshot.layers]
        if given != expected:
            raise ValueError(
                f"The snapshot is of another model: its layers hold {given}, those here {expected}."
            )
        for target, source in zip(ours, snapshot.layers, strict=True):
            for name, tensor in source.named().items():
                target.named()[name].copy_(tensor)
        self.lengths[slot] = snapshot.length

    def crop(self, length: int) -> None:
        """Always refused: what a lightning state has taken in cannot be taken out."""
        raise NotImplementedError(
            f"A lightning state cannot be cut back to {length} tokens: take a snapshot at the "
            "branch point and restore it, or read the tokens again."
        )
