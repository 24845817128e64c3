"""What a peer's script draws and writes: random ragged batches in float64, and cases as JSON.

Runs inside a peer's environment: it imports torch and nothing of Caravan.
"""

import argparse
import importlib.metadata
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

GROUP = 3
Case = dict[str, Any]


class Draw:
    """Random tensors of one seed; rows are responses, of which GROUP answer one prompt."""

    def __init__(self, seed: int, rows: int = 6, width: int = 9) -> None:
        self.rows, self.width = rows, width
        self._source = torch.Generator().manual_seed(seed)
        self.mask = self._mask()
        self.groups = [row // GROUP for row in range(rows)]

    def normal(self, *shape: int, spread: float = 1.0) -> Tensor:
        return torch.randn(*shape, generator=self._source, dtype=torch.float64) * spread

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self._source, dtype=torch.float64)

    def tokens(self, spread: float = 1.0) -> Tensor:
        return self.normal(self.rows, self.width, spread=spread)

    def logprobs(self) -> Tensor:
        return -0.05 - 4 * self.uniform(self.rows, self.width)

    def _mask(self) -> Tensor:
        """Rows of unlike length with observations inside; each has at least one trained token."""
        mask = torch.zeros(self.rows, self.width, dtype=torch.float64)
        for row in range(self.rows):
            length = int(self.uniform(1) * (self.width - 2)) + 2
            mask[row, :length] = (self.uniform(length) < 0.7).double()
            mask[row, 0] = 1.0
        return mask


def plain(value: Any) -> Any:
    """Tensors as nested lists; numbers keep every digit; NaN, a missing reward, becomes null."""
    if isinstance(value, Tensor):
        return plain(value.detach().tolist())
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, float) and math.isnan(value):
        return None
    return value


def case(name: str, inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> Case:
    return {
        "name": name,
        "inputs": {key: plain(value) for key, value in inputs.items()},
        "outputs": {key: plain(value) for key, value in outputs.items()},
    }


def gradient(loss: Tensor, of: Tensor) -> Tensor:
    (found,) = torch.autograd.grad(loss, of, allow_unused=True, retain_graph=True)
    return torch.zeros_like(of) if found is None else found


def main(package: str, make: Callable[[int], list[Case]]) -> None:
    """Writes the cases of the seeds asked for, with the versions that made them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    written = {
        "peer": f"{package} {importlib.metadata.version(package)}",
        "torch": torch.__version__,
        "seeds": asked.seeds,
        "cases": [one for seed in asked.seeds for one in make(seed)],
    }
    asked.out.write_text(json.dumps(written, separators=(",", ":"), allow_nan=False) + "\n")
