"""What the loss saw of each token that a step trained on, gathered over passes and ranks."""

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.records.trained import COLUMNS, LeftOut, TrainedTokens
from engine.training.learner import Ranks
from engine.training.passes import Place


class TokenRecord:
    """One step's. Where a token is trained on several times, the last one stays, and the count.

    Every rank fills one; after `settle` all of them hold the same. wanted: of which trajectories
    (ids) something is to be kept; left_out: why others of the batch are not trained on.
    """

    def __init__(self, wanted: Callable[[str], bool]) -> None:
        self.wanted = wanted
        self.left_out: dict[str, LeftOut] = {}
        self._rows: Sequence[tuple[str, int]] = ()
        self._columns: tuple[str, ...] = ()

    def begin(
        self, rows: Sequence[tuple[str, int]], loss_mask: Tensor, columns: Sequence[str]
    ) -> None:
        """rows: trajectory and number of the segment of each row of the batch; loss_mask: [rows,
        tokens]; columns: what will be noted, of `COLUMNS`, the same on every rank."""
        self._rows, self._mask, self._columns = rows, loss_mask, tuple(columns)
        shape = (1 + len(self._columns), *loss_mask.shape)
        self._values, self._pass = torch.zeros(shape), torch.zeros(shape)

    def note(self, place: Place, values: Mapping[str, Tensor]) -> None:
        """Values [N] of the tokens at `place` [N], of this rank's passes since `settle`."""
        self._pass[0][place] = 1.0
        for number, name in enumerate(self._columns, start=1):
            self._pass[number][place] = values[name].detach().float()

    def settle(self, ranks: Ranks) -> None:
        """After an update: what the ranks noted in it takes the place of what was there."""
        ranks.sum(self._pass)
        trained = self._pass[0] > 0
        self._values[0] += self._pass[0]
        self._values[1:] = torch.where(trained, self._pass[1:], self._values[1:])
        self._pass.zero_()

    def trained(self, step: int, version: int) -> list[TrainedTokens]:
        """Of each wanted trajectory that was trained on, then of those left out.

        step: trainer step of the run; version: of the policy before the step.
        """
        found: list[TrainedTokens] = []
        numbered = enumerate(self._rows)
        for trajectory, rows in groupby(numbered, key=lambda row: row[1][0]):
            if self.wanted(trajectory):
                found.append(self._of_one(trajectory, list(rows), step, version))
        used = {trajectory for trajectory, _ in self._rows}
        for trajectory, why in self.left_out.items():
            if trajectory not in used and self.wanted(trajectory):
                found.append(TrainedTokens(trajectory, step, version, left_out=why))
        return found

    def _of_one(
        self, trajectory: str, rows: list[tuple[int, tuple[str, int]]], step: int, version: int
    ) -> TrainedTokens:
        spans: list[tuple[int, int, int]] = []
        parts = []
        for row, (_, segment) in rows:
            mask = self._mask[row].numpy()
            spans += [(segment, *run) for run in _runs(mask)]
            parts.append(self._values[:, row].numpy()[:, mask])
        values = np.concatenate(parts, axis=1)
        columns = {
            name: values[number].astype(COLUMNS[name]).tobytes()
            for number, name in enumerate(("passes", *self._columns))
        }
        return TrainedTokens(trajectory, step, version, spans, columns)


def _runs(mask: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Ranges of consecutive places where the mask [tokens] is true."""
    padded = np.zeros(len(mask) + 2, dtype=np.int8)
    padded[1:-1] = mask
    edges = np.flatnonzero(np.diff(padded)).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))
