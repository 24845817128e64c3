"""What can go wrong when Caravan is asked: each error is a sentence for the person who asked."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One thing wrong with what was given. `path` is dotted; empty: the whole of it."""

    path: str
    message: str


class CaravanError(Exception):
    """Base of all errors of this package. `exit_code` is what the command line ends with."""

    exit_code = 2


class RefusedError(CaravanError):
    """The server, or the client before it asked, does not take what was given.

    `status` is the HTTP status, 0 where the server was not asked.
    """

    def __init__(self, sentence: str, problems: tuple[Problem, ...] = (), status: int = 0) -> None:
        super().__init__(sentence)
        self.problems = problems
        self.status = status


class AccessError(CaravanError):
    """The server was not reached, did not answer as Caravan, or does not let this token in."""

    exit_code = 3
