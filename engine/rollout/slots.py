"""What is held of every open sequence: rows of one cache, and prompts that rows share."""

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from engine.models.hybrid import HybridCache, HybridForCausalLM
from engine.models.hybrid.cache import LayerCache, SlotSnapshot
from engine.models.hybrid.decode import Decoder, SharedPrefix

READ_TOKENS = 8192  # tokens read at once, padding included
READ_SCORES = 2**22  # their scores against what they follow, for each head
SHAPE_STEP = 8  # batches are filled up to few shapes: oneDNN compiles kernels for each
FIRST_ROOM = 64  # tokens that every row has room for at first


@dataclass(eq=False)
class Prompt:
    """What the sequences of a group begin with: their prompt but its last token.

    `shared`: its keys and values are kept once and all rows attend to them, instead of a copy in
    every row. `snapshot` is then what the present weights make of the ids, None until they did.
    """

    ids: list[int]
    shared: bool
    snapshot: SlotSnapshot | None = None


@dataclass(frozen=True)
class Boundary:
    """Where a row can go on from again as long as its own keys and values stay in place."""

    held: int
    own: int
    prompt: Prompt | None
    layers: list[LayerCache]  # lightning states and convolution tails alone

    @property
    def bytes(self) -> int:
        return sum(x.nbytes for layer in self.layers for x in layer.named().values())


class Slots:
    """Rows grow by ids that are read, many at once, or decoded, one for many rows.

    `held` counts the tokens that each row's state stands for, those of a shared prompt included.
    Keys and values have room for the longest row so far.
    """

    def __init__(self, model: HybridForCausalLM, rows: int, max_tokens: int) -> None:
        self._model = model
        self._decoder = Decoder(model)
        self._max_tokens = max_tokens
        self._device = model.embedding.weight.device
        # One row more: it takes what only fills a batch up.
        self._cache = HybridCache.empty(
            model.config, rows + 1, min(FIRST_ROOM, max_tokens), device=self._device
        )
        self._prompts: list[Prompt | None] = [None] * (rows + 1)
        self.held = [0] * (rows + 1)

    def clear(self, rows: Sequence[int]) -> None:
        """Empties rows."""
        self._cache.reset(list(rows))
        for row in rows:
            self.leave(row)

    def leave(self, row: int) -> None:
        """Lets go of a prompt whose row is not used any more, until it is cleared or copied to."""
        self.held[row], self._prompts[row] = 0, None

    def copy(self, source: int, targets: Sequence[int]) -> None:
        """Makes the target rows forks of the source row."""
        self._cache.copy(source, list(targets))
        for row in targets:
            self.held[row], self._prompts[row] = self.held[source], self._prompts[source]

    def snapshot(self, row: int) -> SlotSnapshot:
        return self._cache.snapshot(row)

    def begin(self, prompt: Prompt, rows: Sequence[int]) -> None:
        """Lets rows go on from a shared prompt that has been read."""
        snapshot, index = prompt.snapshot, self._index(rows)
        assert snapshot is not None
        self._set_states(index, snapshot.layers)
        self._cache.lengths[index] = 0
        for row in rows:
            self.held[row], self._prompts[row] = snapshot.length, prompt

    def boundary(self, row: int) -> Boundary:
        layers = [
            LayerCache(
                None if layer.state is None else layer.state[row].clone(),
                None if layer.tail is None else layer.tail[row].clone(),
            )
            for layer in self._cache.layers
        ]
        return Boundary(self.held[row], self._own(row), self._prompts[row], layers)

    def resume(self, row: int, boundary: Boundary) -> None:
        """Sets a row, or a copy of it, back to a boundary that it went through."""
        index = self._index([row])
        self._set_states(index, boundary.layers)
        self._cache.lengths[index] = boundary.own
        self.held[row], self._prompts[row] = boundary.held, boundary.prompt

    def read(self, readings: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Takes ids in after what each of the (distinct) rows holds."""
        readings = [(row, ids) for row, ids in readings if ids]
        while readings:
            sizes = [self._piece(row) for row, _ in readings]
            by_prompt: dict[Prompt | None, list[tuple[int, Sequence[int]]]] = defaultdict(list)
            for (row, ids), size in zip(readings, sizes, strict=True):
                by_prompt[self._prompts[row]].append((row, ids[:size]))
            for prompt, pieces in by_prompt.items():
                for batch in self._batches(pieces):
                    self._read(batch, prompt)
            readings = [
                (row, ids[size:])
                for (row, ids), size in zip(readings, sizes, strict=True)
                if len(ids) > size
            ]

    @torch.no_grad()
    def decode(self, rows: Sequence[int], ids: Sequence[int]) -> Tensor:
        """Hidden states [rows, width] after one more id of each of the rows, in rising order."""
        span = min(len(self.held) - 1, _round_up(rows[-1] + 1))
        index = self._index(rows)
        batch = torch.zeros(span, dtype=torch.long, device=self._device)
        batch[index] = self._index(ids)
        live = None
        if len(rows) < span:
            live = torch.zeros(span, dtype=torch.bool, device=self._device)
            live[index] = True
        sharing: dict[Prompt, list[int]] = defaultdict(list)
        for row in rows:
            if (prompt := self._prompts[row]) is not None:
                sharing[prompt].append(row)
        prefixes = [
            SharedPrefix(self._index(group), prompt.snapshot)
            for prompt, group in sharing.items()
            if prompt.snapshot is not None
        ]
        self._make_room(max(map(self._own, rows)) + 1)
        hidden = self._decoder.step(batch, self._cache, live, prefixes)
        for row in rows:
            self.held[row] += 1
        return hidden if live is None else hidden[index]

    def _own(self, row: int) -> int:
        """Tokens whose keys and values are in the row itself."""
        prompt = self._prompts[row]
        return self.held[row] - (0 if prompt is None else len(prompt.ids))

    def _make_room(self, tokens: int) -> None:
        if tokens > self._cache.capacity:
            room = max(tokens, self._cache.capacity * 3 // 2)
            self._cache.grow(min(_round_up(room), self._max_tokens))

    def _index(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.long, device=self._device)

    def _set_states(self, index: Tensor, layers: Sequence[LayerCache]) -> None:
        for target, source in zip(self._cache.layers, layers, strict=True):
            if target.state is not None and source.state is not None:
                target.state[index] = source.state
            if target.tail is not None and source.tail is not None:
                target.tail[index] = source.tail

    def _piece(self, row: int) -> int:
        """How many more tokens a row may read at once, by their scores against all before them."""
        held = self.held[row]
        if held == 0:  # causal attention from the first token on keeps no scores
            return READ_TOKENS
        return max(SHAPE_STEP, int((math.sqrt(held**2 + 4 * READ_SCORES) - held) / 2))

    def _batches(
        self, pieces: list[tuple[int, Sequence[int]]]
    ) -> Iterator[list[tuple[int, Sequence[int]]]]:
        """Pieces of like length together."""
        pieces = sorted(pieces, key=lambda piece: len(piece[1]))
        while pieces:
            longest = len(pieces[-1][1])
            context = longest + max(self.held[row] for row, _ in pieces)
            count = max(1, min(READ_TOKENS // longest, READ_SCORES // (longest * context)))
            yield pieces[-count:]
            del pieces[-count:]

    @torch.no_grad()
    def _read(self, batch: list[tuple[int, Sequence[int]]], prompt: Prompt | None) -> None:
        count = _few_counts(len(batch))
        ids = torch.zeros(count, _round_up(max(len(one) for _, one in batch)), dtype=torch.long)
        lengths = torch.zeros(count, dtype=torch.long)
        rows = torch.full((count,), len(self.held) - 1)
        for place, (row, piece) in enumerate(batch):
            ids[place, : len(piece)] = torch.tensor(piece)
            lengths[place], rows[place] = len(piece), row
        ids, lengths, rows = (x.to(self._device) for x in (ids, lengths, rows))
        self._make_room(max(self._own(row) + len(piece) for row, piece in batch))
        if prompt is None:
            self._model.hidden(ids, self._cache, rows, lengths)
        else:
            self._read_after(prompt, ids, rows, lengths)
        for row, piece in batch:
            self.held[row] += len(piece)

    def _read_after(self, prompt: Prompt, ids: Tensor, rows: Tensor, lengths: Tensor) -> None:
        """Reads ids of rows that share a prompt, in a cache where the prompt precedes each row."""
        assert prompt.snapshot is not None
        cache, before = self._cache, prompt.snapshot.length
        own = int((cache.lengths[rows] + lengths).max())
        whole = HybridCache(
            cache.lengths[rows] + before,
            [
                _behind(layer, prefix, rows, own)
                for layer, prefix in zip(cache.layers, prompt.snapshot.layers, strict=True)
            ],
            before + own,
        )
        self._model.hidden(ids, whole, None, lengths)
        self._set_states(rows, whole.layers)
        for layer, read in zip(cache.layers, whole.layers, strict=True):
            if layer.keys is not None and read.keys is not None:
                layer.keys[rows, :, :own] = read.keys[:, :, before:]
            if layer.values is not None and read.values is not None:
                layer.values[rows, :, :own] = read.values[:, :, before:]
        cache.lengths[rows] += lengths


def _behind(layer: LayerCache, prefix: LayerCache, rows: Tensor, own: int) -> LayerCache:
    """Copies of rows of a layer, with the keys and values of a prefix before the `own` first."""

    def join(before: Tensor | None, after: Tensor | None) -> Tensor | None:
        if before is None or after is None:
            return None
        return torch.cat([before.expand(len(rows), -1, -1, -1), after[:, :, :own][rows]], dim=2)

    return LayerCache(
        state=None if layer.state is None else layer.state[rows],
        tail=None if layer.tail is None else layer.tail[rows],
        keys=join(prefix.keys, layer.keys),
        values=join(prefix.values, layer.values),
    )


def _few_counts(count: int) -> int:
    """The next of 1 to 8, 10, 12, 14, 16, 20, 24, 28, 32, 40...: a long row has costly fillers."""
    step = max(1, 1 << (count.bit_length() - 1) >> 2)
    return -(-count // step) * step


def _round_up(count: int) -> int:
    return -(-count // SHAPE_STEP) * SHAPE_STEP
