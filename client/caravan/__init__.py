"""Client of Caravan: `Client` asks the server, `Run` reports from a trainer of your own."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from caravan.client import Client
    from caravan.errors import AccessError, CaravanError, RefusedError
    from caravan.run import Run
    from caravan.trained import Trained
    from caravan.trajectories import Episode, Turn

__version__ = "0.1.0"
__all__ = [
    "AccessError",
    "CaravanError",
    "Client",
    "Episode",
    "RefusedError",
    "Run",
    "Trained",
    "Turn",
]

_HOMES = {
    "AccessError": "errors",
    "CaravanError": "errors",
    "Client": "client",
    "Episode": "trajectories",
    "RefusedError": "errors",
    "Run": "run",
    "Trained": "trained",
    "Turn": "trajectories",
}


def __getattr__(name: str) -> Any:
    """Loaded on first use: the command line starts faster without them."""
    if name in _HOMES:
        return getattr(import_module(f"caravan.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'caravan' has no attribute {name!r}")
