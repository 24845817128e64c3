"""Numbers in JSON: the three non-finite values travel as strings, as the events bring them."""

from typing import Any

from engine.records.events import encode_number

__all__ = ["encode_number", "encode_optional"]


def encode_optional(value: float | None) -> Any:
    """Missing stays missing (null); see `encode_number`."""
    return None if value is None else encode_number(value)
