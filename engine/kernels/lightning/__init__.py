"""Lightning attention: linear attention with a constant decay per head, one operation for all."""

from engine.kernels.lightning.operation import lightning_attention
from engine.kernels.lightning.packing import Packing, packing
from engine.kernels.lightning.slopes import SlopeSchedule, head_slopes
from engine.kernels.lightning.step import lightning_step

__all__ = [
    "Packing",
    "SlopeSchedule",
    "head_slopes",
    "lightning_attention",
    "lightning_step",
    "packing",
]
