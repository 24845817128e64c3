"""Our own sampler: decodes many sequences of a hybrid model at once, on the CPU."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from engine.models.hybrid import HybridCache, HybridForCausalLM
from engine.rollout.sampler import SampledTurn

READ_TOKENS = 8192  # tokens read at once, padding included
READ_SHARE = 8  # reading waits until one of so many sequences has something to read
SHAPE_STEP = 8  # rows and tokens are filled up to multiples: kernels are compiled per shape


@dataclass(eq=False)
class _Sequence:
    handle: int
    row: int
    temperature: float
    room: int  # tokens that this turn may have
    read: list[int] = field(default_factory=list)  # ids whose state is in the cache
    ids: list[int] = field(default_factory=list)  # this turn's; the last one is not read yet
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    sampling: bool = False


@dataclass(eq=False)
class _Reading:
    """Ids to read before sampling goes on. A prompt is read once for all its sequences."""

    ids: list[int]
    sequences: list[_Sequence]


class TorchSampler:
    """Sequences are rows of one cache. A step reads what is pending in one ragged batch, once
    enough is pending, and decodes one token for every sequence that is inside a turn.

    New weights take effect between steps. The state of every open sequence is then computed again,
    so that each token's log-prob is exactly that of the version recorded with it, whatever
    versions wrote the tokens before it.
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
    ) -> None:
        """max_tokens: of the longest sequence. The model computes in the type that it has."""
        self._model = model
        self._end_id = end_id
        self._version = version
        # One row more than sequences: it takes what only fills a batch up.
        self._cache = HybridCache.empty(model.config, capacity + 1, max_tokens)
        self._generator = torch.Generator().manual_seed(seed)
        self._sequences: dict[int, _Sequence] = {}
        self._owners: list[_Sequence | None] = [None] * capacity  # by row
        self._readings: list[_Reading] = []
        self._opened = 0

    @property
    def capacity(self) -> int:
        return len(self._owners)

    @property
    def version(self) -> int:
        return self._version

    def open(
        self, ids: Sequence[int], copies: int, max_tokens: int, temperature: float
    ) -> list[int]:
        free = [row for row, owner in enumerate(self._owners) if owner is None][:copies]
        if len(free) < copies:
            raise RuntimeError(
                f"{copies} sequences do not fit: {len(self._sequences)} of {self.capacity} are open"
            )
        opened = []
        for row in free:
            sequence = _Sequence(self._opened, row, temperature, max_tokens)
            self._opened += 1
            self._owners[row] = self._sequences[sequence.handle] = sequence
            opened.append(sequence)
        self._cache.reset(free)
        self._readings.append(_Reading(list(ids), opened))
        return [sequence.handle for sequence in opened]

    def extend(self, sequence: int, ids: Sequence[int], max_tokens: int) -> None:
        one = self._sequences[sequence]
        if one.sampling or not one.ids:
            raise RuntimeError(f"sequence {sequence} is inside a turn and cannot be extended")
        self._readings.append(_Reading([one.ids[-1], *ids], [one]))
        one.room = max_tokens
        one.ids, one.logprobs, one.versions = [], [], []

    def close(self, sequence: int) -> None:
        one = self._sequences.pop(sequence)
        self._owners[one.row] = None
        for reading in self._readings:
            if one in reading.sequences:
                reading.sequences.remove(one)
        self._readings = [reading for reading in self._readings if reading.sequences]

    @torch.no_grad()
    def load_weights(self, version: int, weights: Mapping[str, Tensor]) -> None:
        self._model.load_state_dict(weights)
        self._version = version
        filled = [one for one in self._sequences.values() if one.read]
        self._cache.reset([one.row for one in filled])
        for batch in _batches([_Reading(one.read, [one]) for one in filled]):
            self._hidden(batch)

    @torch.no_grad()
    def step(self) -> list[SampledTurn]:
        self._close_gaps()
        finished: list[SampledTurn] = []
        sampling = sum(one.sampling for one in self._sequences.values())
        if len(self._readings) * READ_SHARE > sampling:
            readings, self._readings = self._readings, []
            for batch in _batches(readings):
                finished += self._read(batch)
        return finished + self._decode()

    def _read(self, batch: list[_Reading]) -> list[SampledTurn]:
        """Reads prompts and observations and samples the first token after each."""
        logits = self._model.logits(self._hidden(batch))
        sequences: list[_Sequence] = []
        source: list[int] = []
        for index, reading in enumerate(batch):
            leader, *forks = reading.sequences
            if forks:
                self._cache.copy(leader.row, [fork.row for fork in forks])
            for one in reading.sequences:
                one.read += reading.ids
                one.sampling = True
            sequences += reading.sequences
            source += [index] * len(reading.sequences)
        return self._sample(sequences, logits[source])

    def _hidden(self, batch: list[_Reading]) -> Tensor:
        """Hidden states [batch, width] after each last id; the row of each first sequence grows."""
        count = _round_up(len(batch))
        longest = max(len(reading.ids) for reading in batch)
        ids = torch.zeros(count, _round_up(longest), dtype=torch.long)
        lengths = torch.zeros(count, dtype=torch.long)
        rows = torch.full((count,), self.capacity)
        for index, reading in enumerate(batch):
            lengths[index] = len(reading.ids)
            ids[index, : lengths[index]] = torch.tensor(reading.ids)
            rows[index] = reading.sequences[0].row
        hidden = self._model.hidden(ids, self._cache, rows, lengths)
        last: Tensor = hidden[torch.arange(len(batch)), lengths[: len(batch)] - 1]
        return last

    def _decode(self) -> list[SampledTurn]:
        """One more token for each sequence that is inside a turn."""
        sequences = [one for one in self._owners if one is not None and one.sampling]
        if not sequences:
            return []
        rows = torch.tensor([one.row for one in sequences])
        span = min(self.capacity + 1, _round_up(int(rows[-1]) + 1))
        ids = torch.zeros(span, 1, dtype=torch.long)
        live = torch.zeros(span, dtype=torch.bool)
        ids[rows, 0] = torch.tensor([one.ids[-1] for one in sequences])
        live[rows] = True
        hidden = self._model.hidden(ids, self._cache, slice(0, span), live=live)
        for one in sequences:
            one.read.append(one.ids[-1])
        return self._sample(sequences, self._model.logits(hidden[rows, 0]))

    def _sample(self, sequences: list[_Sequence], logits: Tensor) -> list[SampledTurn]:
        """Draws a token a row by inverting the distribution function, and ends full turns."""
        temperature = torch.tensor([one.temperature for one in sequences])[:, None]
        greedy = temperature == 0
        log_p = torch.log_softmax(logits / torch.where(greedy, 1.0, temperature), dim=-1)
        cumulated = torch.cumsum(log_p.double().exp(), dim=-1)
        draw = torch.rand(len(sequences), 1, generator=self._generator, dtype=torch.float64)
        drawn = torch.searchsorted(cumulated, draw * cumulated[:, -1:], right=True)
        tokens = torch.where(greedy, log_p.argmax(-1, keepdim=True), drawn)
        chosen = log_p.gather(1, tokens)
        finished = []
        for one, token, logprob in zip(
            sequences, tokens[:, 0].tolist(), chosen[:, 0].tolist(), strict=True
        ):
            one.ids.append(token)
            one.logprobs.append(logprob)
            one.versions.append(self._version)
            if token == self._end_id or len(one.ids) >= one.room:
                one.sampling = False
                finished.append(
                    SampledTurn(
                        one.handle, one.ids, one.logprobs, one.versions, token == self._end_id
                    )
                )
        return finished

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
            self._cache.copy(source, [target])
            owner.row = target
            self._owners[target], self._owners[source] = owner, None


def _round_up(count: int) -> int:
    return -(-count // SHAPE_STEP) * SHAPE_STEP


def _batches(readings: list[_Reading]) -> Iterator[list[_Reading]]:
    """Readings of like length together, at most READ_TOKENS with the padding."""
    waiting = sorted(readings, key=lambda reading: len(reading.ids))
    while waiting:
        count = max(1, READ_TOKENS // len(waiting[-1].ids))
        yield waiting[-count:]
        del waiting[-count:]
