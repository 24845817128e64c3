"""Lightning attention token by token in fp64: the oracle of the faster implementations."""

import torch
from torch import Tensor

from engine.kernels.lightning import arguments
from engine.kernels.lightning.packing import Packing


def lightning_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    slopes: Tensor,
    *,
    initial_state: Tensor | None = None,
    lengths: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    parents: Tensor | None = None,
    packing: Packing | None = None,
) -> tuple[Tensor, Tensor]:
    """S_t = exp(-slope) S_{t-1} + k_t v_t^T and o_t = q_t^T S_t (MiniMax-01, 2501.08313).

    Arguments and refusals are those of `operation.lightning_attention`; both results are fp64.
    """
    pack = arguments.check(q, k, v, slopes, initial_state, lengths, cu_seqlens, parents, packing)
    q, k, v, slopes = q.double(), k.double(), v.double(), slopes.double()
    rows = q.shape[0] if pack is None else pack.nodes
    if initial_state is None:
        initial_state = q.new_zeros(rows, q.shape[1], q.shape[3], v.shape[3])
    initial_state = initial_state.double()
    if pack is None:
        return _recurrence(q, k, v, slopes, initial_state, lengths)
    outputs: list[Tensor] = []
    states: list[Tensor] = []
    borders = pack.cu_seqlens.tolist()
    for node, parent in enumerate(pack.parents.tolist()):
        state = initial_state[node : node + 1] if parent < 0 else states[parent]
        own = slice(borders[node], borders[node + 1])
        output, state = _recurrence(q[:, :, own], k[:, :, own], v[:, :, own], slopes, state, None)
        outputs.append(output)
        states.append(state)
    return torch.cat(outputs, dim=2), torch.cat(states)


def _recurrence(
    q: Tensor, k: Tensor, v: Tensor, slopes: Tensor, state: Tensor, lengths: Tensor | None
) -> tuple[Tensor, Tensor]:
    batch, _, tokens, _ = q.shape
    if lengths is None:
        lengths = torch.full((batch,), tokens, device=q.device)
    live = torch.arange(tokens, device=q.device) < lengths[:, None]
    q, k, v = (torch.where(live[:, None, :, None], x, 0.0) for x in (q, k, v))
    decay = torch.exp(-slopes)[:, None, None]
    outputs = []
    for t in range(tokens):
        update = decay * state + k[:, :, t, :, None] * v[:, :, t, None, :]
        outputs.append(torch.einsum("bhd,bhde->bhe", q[:, :, t], update))
        state = torch.where(live[:, t, None, None, None], update, state)
    return torch.stack(outputs, dim=2), state
