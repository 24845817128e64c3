"""Policy losses: each in a file of its name, with a function of its name."""

from collections.abc import Callable
from importlib import import_module
from typing import get_args

from engine.algorithms.tokens import Terms, Tokens
from engine.spec.algorithms import Loss

LOSSES: dict[Loss, Callable[[Tokens], Terms]] = {
    name: getattr(import_module(f"{__name__}.{name}"), name) for name in get_args(Loss)
}
