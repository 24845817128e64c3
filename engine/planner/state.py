"""Bytes that a model's training state takes: weights, gradients, moments, by optimizer.

A parameter takes, on the devices that it is sharded over (ZeRO, 1910.02054, section 3.1):
- adamw: fp32 weight 4, gradient 4, two moments 8: 16. Weights and gradients may be kept as bf16
  beside the master as well; the sum stays.
- adamw8: bf16 weight 2, gradient 2, two moments of 8 bits 2: 6. adamw8_master: and an fp32
  master 4: 10.
- adamw_cpu: bf16 weight 2, gradient 2: 4; fp32 master and moments, 12, in the host's RAM.
- muon: weight 4, gradient 4, momentum 4: 12 for the layers' matrices; 16 for the rest, which
  AdamW updates.
- lora: frozen bf16 weight 2, and 16 for each parameter of an adapter.
"""

from dataclasses import dataclass
from typing import Literal, get_args

from engine.planner.sizes import Size

OptimizerKind = Literal["adamw", "adamw8", "adamw8_master", "adamw_cpu", "muon", "lora"]
OPTIMIZERS: tuple[OptimizerKind, ...] = get_args(OptimizerKind)
FROZEN = 2  # bytes of a parameter that only computes: bf16


@dataclass(frozen=True)
class State:
    """Bytes over all shards; `host`: those in RAM."""

    weights: float
    gradients: float
    moments: float
    host: float = 0.0

    @property
    def device(self) -> float:
        """Bytes on devices."""
        return self.weights + self.gradients + self.moments


def trained(size: Size, optimizer: OptimizerKind, *, shared_base: bool = False) -> State:
    """State of a model that is trained.

    shared_base: under lora, the frozen weights are another model's, which holds them already.
    """
    n = size.total
    match optimizer:
        case "adamw":
            return State(4 * n, 4 * n, 8 * n)
        case "adamw8":
            return State(2 * n, 2 * n, 2 * n)
        case "adamw8_master":
            return State(6 * n, 2 * n, 2 * n)
        case "adamw_cpu":
            return State(2 * n, 2 * n, 0, host=12 * n)
        case "muon":
            return State(4 * n, 4 * n, 4 * size.matrices + 8 * (n - size.matrices))
        case "lora":
            base = 0 if shared_base else FROZEN * n
            return State(base + 4 * size.adapters, 4 * size.adapters, 8 * size.adapters)


def frozen(size: Size, *, adapter: bool = False) -> float:
    """Bytes of a model that only computes; adapter: on a base that another model holds."""
    return FROZEN * (size.adapters if adapter else size.total)
