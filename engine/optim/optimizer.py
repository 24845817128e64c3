"""The optimizer of one stage: AdamW, or Muon for matrices beside AdamW for the rest (Moonlight)."""

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from engine.optim.schedule import learning_rate_factor
from engine.spec import OptimizerSpec


class FusedMatrix:
    """A parameter that holds several matrices, which Muon must see alone.

    Its rows (all dimensions but the last) come in groups, each with the same parts: q, k and v
    interleaved per head are 4 groups of (1, 1, 1), gate and up one after the other a group of
    (1, 1); four queries that share a key and a value (4, 1, 1). Only ratios of rows are given.
    Orthogonalised together the matrices would be mixed (Moonlight, 2502.16982).
    """

    def __init__(self, parameter: nn.Parameter, groups: int, rows: Sequence[int]) -> None:
        self._parameter = parameter
        columns = parameter.shape[-1]
        unit = parameter.numel() // (columns * groups * sum(rows))
        self._shape = (groups, unit * sum(rows), columns)
        self._rows = [unit * count for count in rows]
        self.pieces = [
            nn.Parameter(part.flatten(0, 1).clone()) for part in self._parts(parameter.detach())
        ]

    def _parts(self, tensor: Tensor) -> tuple[Tensor, ...]:
        """Views [groups, rows, columns] of a tensor that is laid out like the parameter."""
        return torch.split(tensor.view(self._shape), self._rows, dim=1)

    @torch.no_grad()
    def pull(self) -> None:
        """Copies values and gradient of the parameter into its pieces."""
        gradient = self._parameter.grad
        for piece, part in zip(self.pieces, self._parts(self._parameter), strict=True):
            piece.copy_(part.flatten(0, 1))
            piece.grad = None
        if gradient is not None:
            for piece, part in zip(self.pieces, self._parts(gradient), strict=True):
                piece.grad = part.flatten(0, 1)

    @torch.no_grad()
    def push(self) -> None:
        """Copies the values of the pieces back."""
        for piece, part in zip(self.pieces, self._parts(self._parameter), strict=True):
            part.copy_(piece.view(part.shape))


class StageOptimizer:
    """Clips, sets the learning rate of this step and updates the parameters.

    fused: name -> (groups, rows of each part), see FusedMatrix; tables: names of 2-D parameters
    that stay with AdamW, as gains, biases and convolutions do.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        spec: OptimizerSpec,
        steps: int,
        fused: Mapping[str, tuple[int, Sequence[int]]],
        tables: frozenset[str],
    ) -> None:
        self.spec = spec
        self.steps = steps
        self.finished_steps = 0
        self._parameters = list(parameters.values())
        matrices: dict[str, nn.Parameter] = {}
        if spec.kind == "muon":
            matrices = {
                name: parameter
                for name, parameter in parameters.items()
                if (parameter.ndim == 2 or name in fused) and name not in tables
            }
        self._fused = [
            FusedMatrix(matrices[name], *layout)
            for name, layout in fused.items()
            if name in matrices
        ]
        rest = [parameter for name, parameter in parameters.items() if name not in matrices]
        groups = [
            {"params": [p for p in rest if p.ndim > 1], "weight_decay": spec.weight_decay},
            {"params": [p for p in rest if p.ndim == 1], "weight_decay": 0.0},
        ]
        adamw = torch.optim.AdamW(groups, lr=spec.lr, betas=spec.betas, foreach=True)
        self._optimizers: list[tuple[torch.optim.Optimizer, float]] = [(adamw, spec.lr)]
        if matrices:
            whole = [parameter for name, parameter in matrices.items() if name not in fused]
            pieces = [piece for matrix in self._fused for piece in matrix.pieces]
            muon = torch.optim.Muon(
                whole + pieces,
                lr=spec.matrix_lr,
                weight_decay=spec.weight_decay,
                adjust_lr_fn=spec.muon_scale,
            )
            self._optimizers.append((muon, spec.matrix_lr))

    def step(self) -> dict[str, float]:
        """One update from the gradients in place; returns the norm before clipping and the rate.

        A gradient that is not finite changes nothing, and says so; the step counts all the same.
        """
        factor = learning_rate_factor(
            self.finished_steps, self.steps, self.spec.warmup_steps, self.spec.decay_share
        )
        self.finished_steps += 1
        norm = float(nn.utils.clip_grad_norm_(self._parameters, self.spec.clip_norm))
        figures = {"grad_norm": norm, "lr": factor * self.spec.lr}
        if not math.isfinite(norm):
            return figures | {"skipped_update": 1.0}
        for matrix in self._fused:
            matrix.pull()
        for optimizer, rate in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = factor * rate
            optimizer.step()
        for matrix in self._fused:
            matrix.push()
        return figures

    def tensors(self) -> dict[str, Tensor]:
        """The whole state as named tensors, for a file without pickle."""
        state = {"finished_steps": torch.tensor(self.finished_steps)}
        for number, (optimizer, _) in enumerate(self._optimizers):
            for index, values in optimizer.state_dict()["state"].items():
                for key, value in values.items():
                    state[f"{number}.{index}.{key}"] = torch.as_tensor(value).contiguous()
        return state

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """The inverse of `tensors`, for the same spec and parameters."""
        self.finished_steps = int(tensors["finished_steps"])
        states: list[dict[int, dict[str, Tensor]]] = [{} for _ in self._optimizers]
        for name, tensor in tensors.items():
            if name != "finished_steps":
                number, index, key = name.split(".")
                states[int(number)].setdefault(int(index), {})[key] = tensor
        for (optimizer, _), state in zip(self._optimizers, states, strict=True):
            groups = optimizer.state_dict()["param_groups"]
            optimizer.load_state_dict({"state": state, "param_groups": groups})
