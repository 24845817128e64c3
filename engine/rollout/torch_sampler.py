"""Our own sampler: decodes many sequences of a hybrid model at once."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine.models.hybrid import HybridForCausalLM
from engine.rollout.draw import draw
from engine.rollout.sampler import SampledTurn
from engine.rollout.slots import Boundary, Prompt, Slots

READ_SHARE = 8  # reading waits until one of so many sequences has something to read
SHARE_FROM = 256  # tokens from which on the keys and values of a group's prompt are kept once
MARK_BYTES = 2**30


@dataclass(eq=False)
class _Sequence:
    handle: int
    row: int
    temperature: float
    prompt: Prompt
    ids: list[int]  # the whole context
    room: int  # tokens that this turn may have
    turn: int = 0  # where in ids this turn's begin
    logprobs: list[float] = field(default_factory=list)  # this turn's
    versions: list[int] = field(default_factory=list)
    sampling: bool = True


@dataclass(eq=False)
class _Mark:
    sequence: _Sequence
    ids: list[int]
    boundary: Boundary | None  # None: the ids have to be read again


class TorchSampler:
    """Sequences are rows of one cache. A step reads what is pending in ragged batches, once enough
    is pending, and decodes one token for every sequence whose last id alone is not read.

    New weights take effect between steps. Whatever older ones computed, the states of open
    sequences, shared prompts and marks, is then dropped and computed again where it is needed, so
    that each token's log-prob is exactly that of the version recorded with it.
    """

    def __init__(
        self,
        model: HybridForCausalLM,
        *,
        end_id: int,
        capacity: int,
        max_tokens: int,
        seed: int,
        version: int = 0,
        mark_bytes: int = MARK_BYTES,
    ) -> None:
        """max_tokens: of the longest sequence. The model computes in the type that it has.

        mark_bytes: of the states of marks; beyond, the oldest are computed again when used.
        """
        self._model = model
        self._end_id = end_id
        self._max_tokens = max_tokens
        self._version = version
        self._slots = Slots(model, capacity, max_tokens)
        self._generator = torch.Generator(model.embedding.weight.device).manual_seed(seed)
        self._sequences: dict[int, _Sequence] = {}
        self._owners: list[_Sequence | None] = [None] * capacity  # by row
        self._marks: dict[int, _Mark] = {}  # oldest first
        self._mark_bytes = mark_bytes
        self._opened = self._marked = 0

    @property
    def capacity(self) -> int:
        return len(self._owners)

    @property
    def version(self) -> int:
        return self._version

    def open(
        self, ids: Sequence[int], copies: int, max_tokens: int, temperature: float
    ) -> list[int]:
        self._check([], ids, max_tokens)
        free = self._free_rows(copies)
        prompt = Prompt(list(ids[:-1]), shared=copies > 1 and len(ids) > SHARE_FROM)
        self._slots.clear(free)
        return [self._add(row, list(ids), prompt, max_tokens, temperature) for row in free]

    def extend(self, sequence: int, ids: Sequence[int], max_tokens: int) -> None:
        one = self._between_turns(sequence)
        self._begin_turn(one, one.ids, ids, max_tokens)

    def mark(self, sequence: int) -> int:
        one = self._find(sequence)
        if one.sampling and len(one.ids) > one.turn:
            raise RuntimeError(
                f"sequence {sequence} is {len(one.ids) - one.turn} tokens inside a turn: only the "
                "boundary of a turn can be marked"
            )
        held = self._slots.held[one.row]
        boundary = self._slots.boundary(one.row) if 0 < held == len(one.ids) - 1 else None
        self._marked += 1
        self._marks[self._marked] = _Mark(one, list(one.ids), boundary)
        self._bound_marks()
        return self._marked

    def rewind(self, sequence: int, mark: int, ids: Sequence[int], max_tokens: int) -> None:
        one = self._between_turns(sequence)
        found = self._find_mark(one, mark)
        self._begin_turn(one, found.ids, ids, max_tokens)
        if found.boundary is None:
            self._slots.clear([one.row])
        else:
            self._slots.resume(one.row, found.boundary)
        for other in self._marks.values():
            if other.sequence is one and len(other.ids) > len(found.ids):
                other.boundary = None  # its keys and values will be overwritten

    def fork(
        self, sequence: int, mark: int, ids: Sequence[int], max_tokens: int, temperature: float
    ) -> int:
        one = self._find(sequence)
        found = self._find_mark(one, mark)
        self._check(found.ids, ids, max_tokens)
        (row,) = self._free_rows(1)
        if found.boundary is None:
            self._slots.clear([row])
        else:
            self._slots.copy(one.row, [row])
            self._slots.resume(row, found.boundary)
        return self._add(row, [*found.ids, *ids], one.prompt, max_tokens, temperature)

    def release(self, mark: int) -> None:
        if self._marks.pop(mark, None) is None:
            raise RuntimeError(f"mark {mark} does not exist or was released")

    def close(self, sequence: int) -> None:
        one = self._find(sequence)
        del self._sequences[sequence]
        self._owners[one.row] = None
        self._slots.leave(one.row)
        self._marks = {n: mark for n, mark in self._marks.items() if mark.sequence is not one}

    @contextmanager
    def seeded(self, seed: int) -> Iterator[None]:
        """Draw from this seed meanwhile; later draws go on as if nothing had been."""
        own = self._generator
        self._generator = torch.Generator(own.device).manual_seed(seed)
        try:
            yield
        finally:
            self._generator = own

    @torch.no_grad()
    def load_weights(self, version: int, weights: Mapping[str, Tensor]) -> None:
        self._model.load_state_dict(weights)
        self._version = version
        for one in self._sequences.values():
            one.prompt.snapshot = None
        for mark in self._marks.values():
            mark.boundary = None
        self._slots.clear([one.row for one in self._sequences.values()])

    @torch.no_grad()
    def step(self) -> list[SampledTurn]:
        self._close_gaps()
        waiting, ready = self._in_turns()
        if len(waiting) * READ_SHARE > len(ready):
            self._read(waiting)
            _, ready = self._in_turns()
        if not ready:
            return []
        hidden = self._slots.decode([one.row for one in ready], [one.ids[-1] for one in ready])
        tokens, logprobs = draw(
            self._model.logits(hidden), [one.temperature for one in ready], self._generator
        )
        for one, token, logprob in zip(ready, tokens, logprobs, strict=True):
            one.ids.append(token)
            one.logprobs.append(logprob)
            one.versions.append(self._version)
        return [turn for one in ready if (turn := self._end_turn(one)) is not None]

    def _in_turns(self) -> tuple[list[_Sequence], list[_Sequence]]:
        """Sequences inside a turn, by rising rows: with ids to read, and with one to decode."""
        inside = [one for one in self._owners if one is not None and one.sampling]
        held = self._slots.held
        waiting = [one for one in inside if len(one.ids) - held[one.row] > 1]
        if not waiting:
            return waiting, inside
        return waiting, [one for one in inside if len(one.ids) - held[one.row] == 1]

    def _read(self, waiting: list[_Sequence]) -> None:
        """Reads all ids but the last of each sequence; what a group has in common once."""
        groups: dict[Prompt, list[int]] = defaultdict(list)
        for one in waiting:
            if one.prompt.ids and not self._slots.held[one.row]:
                groups[one.prompt].append(one.row)
        self._slots.read(
            [
                (rows[0], prompt.ids)
                for prompt, rows in groups.items()
                if (prompt.snapshot is None if prompt.shared else len(rows) > 1)
            ]
        )
        for prompt, rows in groups.items():
            if prompt.shared:
                if prompt.snapshot is None:
                    prompt.snapshot = self._slots.snapshot(rows[0])
                self._slots.begin(prompt, rows)
            elif len(rows) > 1:
                self._slots.copy(rows[0], rows[1:])
        held = self._slots.held
        self._slots.read([(one.row, one.ids[held[one.row] : -1]) for one in waiting])

    def _end_turn(self, one: _Sequence) -> SampledTurn | None:
        """The turn of a sequence if its last token ended it."""
        ended = one.ids[-1] == self._end_id
        if not ended and len(one.logprobs) < one.room:
            return None
        one.sampling = False
        return SampledTurn(one.handle, one.ids[one.turn :], one.logprobs, one.versions, ended)

    def _begin_turn(
        self, one: _Sequence, context: list[int], ids: Sequence[int], max_tokens: int
    ) -> None:
        self._check(context, ids, max_tokens)
        one.ids = [*context, *ids]
        one.turn, one.room = len(one.ids), max_tokens
        one.logprobs, one.versions, one.sampling = [], [], True

    def _add(
        self, row: int, ids: list[int], prompt: Prompt, max_tokens: int, temperature: float
    ) -> int:
        one = _Sequence(self._opened, row, temperature, prompt, ids, max_tokens, len(ids))
        self._opened += 1
        self._owners[row] = self._sequences[one.handle] = one
        return one.handle

    def _check(self, context: Sequence[int], ids: Sequence[int], max_tokens: int) -> None:
        length, vocabulary = len(context) + len(ids), len(self._model.embedding.weight)
        if not length:
            raise ValueError("the prompt is empty: a sequence needs at least one token")
        if ids and not 0 <= min(ids) <= max(ids) < vocabulary:
            raise ValueError(
                f"token ids from {min(ids)} to {max(ids)}; the model knows 0 to {vocabulary - 1}"
            )
        if max_tokens < 1 or length + max_tokens > self._max_tokens:
            raise ValueError(
                f"a context of {length} tokens and a turn of up to {max_tokens}; a sequence "
                f"holds at most {self._max_tokens}, and a turn has at least one"
            )

    def _free_rows(self, count: int) -> list[int]:
        if count < 1:
            raise ValueError(f"{count} sequences of a prompt; expected at least 1")
        free = [row for row, owner in enumerate(self._owners) if owner is None][:count]
        if len(free) < count:
            raise RuntimeError(
                f"{count} sequences do not fit: {len(self._sequences)} of {self.capacity} are open"
            )
        return free

    def _find(self, sequence: int) -> _Sequence:
        one = self._sequences.get(sequence)
        if one is None:
            raise RuntimeError(
                f"sequence {sequence} is not open: {self._opened} were opened, "
                f"{self._opened - len(self._sequences)} of them are closed"
            )
        return one

    def _between_turns(self, sequence: int) -> _Sequence:
        one = self._find(sequence)
        if one.sampling:
            raise RuntimeError(f"sequence {sequence} is inside a turn and cannot go on to another")
        return one

    def _find_mark(self, one: _Sequence, mark: int) -> _Mark:
        found = self._marks.get(mark)
        if found is None:
            raise RuntimeError(f"mark {mark} does not exist or was released")
        if found.sequence is not one:
            raise RuntimeError(
                f"mark {mark} is of sequence {found.sequence.handle}: sequence {one.handle} has "
                "not been there"
            )
        return found

    def _bound_marks(self) -> None:
        """Drops the oldest states beyond the bytes that marks may have."""
        total = 0
        for mark in reversed(self._marks.values()):
            if mark.boundary is not None:
                total += mark.boundary.bytes
                if total > self._mark_bytes:
                    mark.boundary = None

    def _close_gaps(self) -> None:
        """Moves the last rows into free ones where decoding would cover too many of the latter."""
        used = [row for row, owner in enumerate(self._owners) if owner is not None]
        if not used or used[-1] + 1 - len(used) <= max(8, len(used) // 4):
            return
        free = [row for row in range(len(used)) if self._owners[row] is None]
        for target, source in zip(free, reversed(used), strict=False):
            owner = self._owners[source]
            if source < len(used) or owner is None:
                break
            self._slots.copy(source, [target])
            self._slots.leave(source)
            owner.row = target
            self._owners[target], self._owners[source] = owner, None
