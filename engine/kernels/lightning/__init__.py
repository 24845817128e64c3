"""Lightning attention: linear attention with a constant decay per head, in two implementations."""

from engine.kernels.lightning.chunked import lightning_attention, lightning_step
from engine.kernels.lightning.slopes import SlopeSchedule, head_slopes

__all__ = ["SlopeSchedule", "head_slopes", "lightning_attention", "lightning_step"]
