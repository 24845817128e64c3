"""Every write of sweeps. People make, pause, continue and stop them; a worker steps them."""

from webapp.sweeps.services.control import continue_sweep, pause_sweep, stop_sweep
from webapp.sweeps.services.create import Preview, SweepWish, create_sweep, preview
from webapp.sweeps.services.stepping import step_sweep

__all__ = [
    "Preview",
    "SweepWish",
    "continue_sweep",
    "create_sweep",
    "pause_sweep",
    "preview",
    "step_sweep",
    "stop_sweep",
]
