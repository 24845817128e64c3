"""Client of Caravan: `Client` asks the server, `Run` reports from a trainer of your own."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from caravan.client import Client

__version__ = "0.1.0"
__all__ = ["Client"]


def __getattr__(name: str) -> Any:
    """Loaded on first use: the command line starts faster without them."""
    if name == "Client":
        from caravan.client import Client

        return Client
    raise AttributeError(f"module 'caravan' has no attribute {name!r}")
