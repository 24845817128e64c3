"""Policy losses: a function in a file of its own, and a line in LOSSES."""

from collections.abc import Callable

from engine.algorithms.losses.cispo import cispo
from engine.algorithms.losses.gspo import gspo
from engine.algorithms.losses.ppo import ppo
from engine.algorithms.losses.reinforce import reinforce
from engine.algorithms.tokens import Terms, Tokens
from engine.spec.algorithms import Loss

LOSSES: dict[Loss, Callable[[Tokens], Terms]] = {
    "cispo": cispo,
    "gspo": gspo,
    "ppo": ppo,
    "reinforce": reinforce,
}
