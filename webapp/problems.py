"""What a user can cause, as exceptions: pages show them, the API answers problem+json."""

from dataclasses import dataclass


@dataclass(frozen=True)
class FieldProblem:
    """One thing wrong with what was given. `path` is dotted; empty: the whole of it."""

    path: str
    message: str


class RefusedError(Exception):
    """What was asked for cannot be done. `detail` is a sentence for the person who asked."""

    def __init__(
        self, detail: str, errors: list[FieldProblem] | None = None, status: int = 422
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.errors = errors or []
        self.status = status


def conflict(detail: str) -> RefusedError:
    """It disagrees with the present state: asking again later may succeed."""
    return RefusedError(detail, status=409)


def invalid_field(path: str, message: str) -> RefusedError:
    return RefusedError(message, [FieldProblem(path, message)])
