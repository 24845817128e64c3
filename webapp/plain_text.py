"""Text that PostgreSQL can store."""

from typing import Any


def storable(text: str) -> str:
    """PostgreSQL stores neither NUL nor half of a surrogate pair."""
    return text.replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def storable_json(data: Any) -> Any:
    """JSON data with all its texts so."""
    if isinstance(data, str):
        return storable(data)
    if isinstance(data, dict):
        return {storable(name): storable_json(value) for name, value in data.items()}
    return [storable_json(one) for one in data] if isinstance(data, list | tuple) else data
