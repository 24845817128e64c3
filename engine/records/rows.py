"""Rows of stored datasets as what a policy learns from: token ids of the run's own tokenizer.

A trajectory with token ids is taken as it was recorded, where the ids spell in this tokenizer what
the text beside them says. Rows of text alone are laid out and encoded as demonstrations are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine.records.trajectory import Segment, StopReason

LOST = "\ufffd"  # stands in text where bytes were no UTF-8
SHOWN = 60  # characters of a text in a message
NO_CATEGORY = "none"  # of a task whose row names none

R = TypeVar("R", bound="_Part")


class RowError(ValueError):
    """A row that nothing can be learned from. `reason`: the kind, by which refusals are counted."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class RowTokenizer(Protocol):
    @property
    def vocab_size(self) -> int: ...

    user_id: int
    agent_id: int

    def encode_text(self, text: str) -> list[int]: ...

    def encode_turn(self, text: str) -> list[int]: ...

    def encode_observation(self, text: str) -> list[int]: ...

    def decode_turn(self, ids: Sequence[int]) -> str: ...

    def token_bytes(self, ids: Sequence[int]) -> list[bytes]: ...


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)


class RowCall(_Part):
    result: str


class RowStep(_Part):
    """A turn, and what the tools said to it; `start:stop` are its tokens in the segment's ids."""

    text: str
    call: RowCall | None = None
    detour: bool = False
    segment: Annotated[int, Field(ge=0)] = 0
    start: Annotated[int, Field(ge=0)] = 0
    stop: Annotated[int, Field(ge=0)] = 0


class RowSegment(_Part):
    ids: list[Annotated[int, Field(ge=0)]]
    loss_mask: list[bool]


class Row(_Part):
    prompt: str
    category: str = ""


class TrajectoryRow(Row):
    steps: Annotated[list[RowStep], Field(min_length=1)]
    segments: list[RowSegment] = []
    stop_reason: str = ""


class TaskRow(_Part):
    """A question with its only right answer, and how many hops it takes where somebody counted."""

    prompt: Annotated[str, Field(min_length=1)]
    answer: Annotated[str, Field(min_length=1)] | int
    category: str = ""
    hops: Annotated[int, Field(ge=1, le=9)] | None = None


class PairRow(Row):
    """Two turns after the same `steps`, each of which has its call's result."""

    steps: list[RowStep] = []
    chosen: str
    rejected: str


@dataclass(frozen=True)
class Learned:
    """A trajectory's tokens, and of which category its task was."""

    category: str
    segments: list[Segment]


_FORMS: dict[str, type[_Part]] = {
    "tasks": TaskRow,
    "trajectories": TrajectoryRow,
    "pairs": PairRow,
}


def check_row(kind: str, row: Mapping[str, Any]) -> None:
    """Raises RowError where a row of this kind of dataset has not the fields that a stage needs."""
    _read(_FORMS[kind], row)


def asked(row: Mapping[str, Any], tokenizer: RowTokenizer, longest: int) -> TaskRow:
    """A row of tasks. longest: tokens of its prompt in the run's layout, at most.

    Raises RowError.
    """
    found = _read(TaskRow, row)
    ids, _ = _layout(found.prompt, (), tokenizer, observed=0)
    if len(ids) > longest:
        raise RowError(
            "too long",
            f"Its prompt has {len(ids)} tokens, and {longest} leave room for a turn "
            "(environment.max_tokens without environment.max_turn_tokens).",
        )
    return found


def learned(row: Mapping[str, Any], tokenizer: RowTokenizer, longest: int) -> Learned:
    """The tokens of a row of trajectories. longest: tokens of an episode, at most.

    Raises RowError.
    """
    found = _read(TrajectoryRow, row)
    segments = _recorded(found, tokenizer) if found.segments else [_encoded(found, tokenizer)]
    for segment in segments:
        _check_length(segment.ids, longest)
    if not any(any(segment.loss_mask) for segment in segments):
        raise RowError("nothing to learn", "No token of it was sampled by a policy.")
    return Learned(found.category, segments)


def sides(
    row: Mapping[str, Any], tokenizer: RowTokenizer, longest: int
) -> tuple[str, list[int], list[int]]:
    """The category of a row of pairs, and the token ids of its chosen and its rejected side.

    Raises RowError.
    """
    found = _read(PairRow, row)
    context, _ = _layout(found.prompt, found.steps, tokenizer, observed=len(found.steps))
    both = []
    for name, text in (("chosen", found.chosen), ("rejected", found.rejected)):
        both.append([*context, *_turn(text, name, tokenizer)])
        _check_length(both[-1], longest)
    return found.category, both[0], both[1]


def _read(kind: type[R], row: Mapping[str, Any]) -> R:
    try:
        return kind.model_validate(row)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise RowError("not of this form", f"{place}: {first['msg']}.") from None


def _recorded(row: TrajectoryRow, tokenizer: RowTokenizer) -> list[Segment]:
    for place, segment in enumerate(row.segments):
        path = f"segments.{place}"
        if len(segment.ids) != len(segment.loss_mask):
            raise RowError(
                "not of this form",
                f"{path} has {len(segment.ids)} ids and {len(segment.loss_mask)} entries in "
                "loss_mask: one each is expected.",
            )
        if not segment.ids or segment.loss_mask[0]:
            raise RowError(
                "not of this form",
                f"{path} has no token before the first one that is to be learned: a segment holds "
                "all that its tokens followed.",
            )
        if (highest := max(segment.ids)) >= tokenizer.vocab_size:
            raise RowError(
                "another tokenizer",
                f"{path}.ids holds {highest}, and this run's tokenizer ends at "
                f"{tokenizer.vocab_size - 1}.",
            )
    _check_prompt(row, tokenizer)
    turns = [set[int]() for _ in row.segments]
    for place, step in enumerate(row.steps):
        if step.segment >= len(row.segments):
            raise RowError("not of this form", f"steps.{place} is of no segment of the row.")
        ids = row.segments[step.segment].ids
        if not step.start < step.stop <= len(ids):
            raise RowError(
                "not of this form",
                f"steps.{place} is said to be tokens {step.start} to {step.stop} of {len(ids)}.",
            )
        spelt = tokenizer.decode_turn(ids[step.start : step.stop])
        _check_spelling(f"steps.{place}.text", step.text, spelt)
        turns[step.segment].update(range(step.start, step.stop))
    for place, segment in enumerate(row.segments):
        loose = [n for n, kept in enumerate(segment.loss_mask) if kept and n not in turns[place]]
        if loose:
            raise RowError(
                "not of this form",
                f"segments.{place}.loss_mask has token {loose[0]}, which is of no turn in steps.",
            )
    return [_segment(segment.ids, segment.loss_mask) for segment in row.segments]


def _check_prompt(row: TrajectoryRow, tokenizer: RowTokenizer) -> None:
    """The first turn follows the question, laid out as this program does."""
    first = row.steps[0]
    head = row.segments[0].ids[: first.start] if first.segment == 0 else []
    if len(head) < 2 or head[0] != tokenizer.user_id or head[-1] != tokenizer.agent_id:
        raise RowError(
            "another tokenizer",
            "Its ids do not begin with the question in this run's layout: the mark of the user, "
            "the prompt, the mark of the agent, then the first turn.",
        )
    spelt = b"".join(tokenizer.token_bytes(head[1:-1])).decode(errors="replace")
    _check_spelling("prompt", row.prompt, spelt)


def _check_spelling(path: str, said: str, spelt: str) -> None:
    if said != spelt:
        raise RowError(
            "another tokenizer",
            f"{path} says {said[:SHOWN]!r}, and its ids spell {spelt[:SHOWN]!r} in this run's "
            "tokenizer: they are another one's. A run with the same first stage, model.vocab_size "
            "and seed, or one that starts from a checkpoint of that run, has the same tokenizer; "
            "rows without segments are encoded anew.",
        )


def _encoded(row: TrajectoryRow, tokenizer: RowTokenizer) -> Segment:
    if row.stop_reason in (StopReason.MAX_TURN_TOKENS, StopReason.MAX_TOKENS):
        raise RowError(
            "cut short",
            f"It ended by {row.stop_reason}, and where its last turn was cut stands in no ids.",
        )
    ids, mask = _layout(row.prompt, row.steps, tokenizer, observed=len(row.steps) - 1)
    return _segment(ids, mask)


def _layout(
    prompt: str, steps: Sequence[RowStep], tokenizer: RowTokenizer, observed: int
) -> tuple[list[int], list[bool]]:
    """Ids and loss mask of a question and turns, the first `observed` with what came back."""
    ids = [tokenizer.user_id, *_text(prompt, "prompt", tokenizer), tokenizer.agent_id]
    mask = [False] * len(ids)
    for place, step in enumerate(steps):
        ids += _turn(step.text, f"steps.{place}.text", tokenizer)
        mask += [not step.detour] * (len(ids) - len(mask))
        if place >= observed:
            continue
        if step.call is None:
            raise RowError(
                "not of this form",
                f"steps.{place} is followed by a turn and has no call.result to follow.",
            )
        _text(step.call.result, f"steps.{place}.call.result", tokenizer)
        ids += tokenizer.encode_observation(step.call.result)
        mask += [False] * (len(ids) - len(mask))
    return ids, mask


def _turn(text: str, path: str, tokenizer: RowTokenizer) -> list[int]:
    _text(text, path, tokenizer)
    return tokenizer.encode_turn(text)


def _text(text: str, path: str, tokenizer: RowTokenizer) -> list[int]:
    """The ids of a text of which nothing is lost."""
    whole = text.encode(errors="replace")  # half a character that JSON may hold becomes "?"
    ids = tokenizer.encode_text(whole.decode())
    if LOST in text or whole.decode() != text or b"".join(tokenizer.token_bytes(ids)) != whole:
        raise RowError(
            "lossy text",
            f"{path} cannot be encoded without loss: {text[:SHOWN]!r} lacks parts of characters.",
        )
    return ids


def _check_length(ids: Sequence[int], longest: int) -> None:
    if len(ids) > longest:
        raise RowError(
            "too long",
            f"It has {len(ids)} tokens; an episode of this run has {longest} at most "
            "(environment.max_tokens).",
        )


def _segment(ids: list[int], mask: list[bool]) -> Segment:
    return Segment(ids, mask, [0.0] * len(ids), [-1] * len(ids))
