"""Typed reading of the environment: a missing or malformed value stops the process, saying why."""

import os
from pathlib import Path

from django.core.exceptions import ImproperlyConfigured

TRUE = {"1", "true", "yes", "on"}
FALSE = {"", "0", "false", "no", "off"}


def text(name: str, default: str | None = None) -> str:
    """The variable's value. Raises ImproperlyConfigured where it is needed and missing."""
    value = os.environ.get(name, "").strip()
    if value:
        return value
    if default is None:
        raise ImproperlyConfigured(
            f"The environment variable {name} is not set. `./caravan up` sets it; in production "
            "set it yourself (docs/architecture.md lists all)."
        )
    return default


def boolean(name: str, default: bool = False) -> bool:
    value = os.environ.get(name)
    if value is None:
        return default
    if value.strip().lower() in TRUE | FALSE:
        return value.strip().lower() in TRUE
    raise ImproperlyConfigured(f"{name}={value!r} is no boolean: use 1 or 0.")


def integer(name: str, default: int) -> int:
    value = os.environ.get(name, "").strip()
    if not value:
        return default
    try:
        return int(value)
    except ValueError:
        raise ImproperlyConfigured(f"{name}={value!r} is no whole number.") from None


def items(name: str, default: str) -> list[str]:
    """A comma-separated list."""
    return [part.strip() for part in text(name, default).split(",") if part.strip()]


def secret(name: str) -> str:
    """The value of NAME, or the content of the file that NAME_FILE names."""
    if path := os.environ.get(f"{name}_FILE"):
        try:
            value = Path(path).read_text().strip()
        except OSError as error:
            raise ImproperlyConfigured(f"{name}_FILE={path!r} cannot be read: {error}") from None
    else:
        value = text(name)
    if len(value) < 32:
        raise ImproperlyConfigured(f"{name} must have at least 32 characters, it has {len(value)}.")
    return value
