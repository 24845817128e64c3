"""Lightning attention token by token in fp64: the oracle of the faster implementations."""

import torch
from torch import Tensor


def lightning_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    slopes: Tensor,
    *,
    initial_state: Tensor | None = None,
    lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """S_t = exp(-slope) S_{t-1} + k_t v_t^T and o_t = q_t^T S_t (MiniMax-01, 2501.08313).

    The current token is not decayed; there is no scale and no normaliser.

    q, k, v: [batch, heads, tokens, dim]; slopes: [heads]; initial_state: [batch, heads, dim, dim]
    (key dim first), zero if absent; lengths: [batch], true lengths under right padding.
    Returns the output (zero on pads) and the state after each row's last true token, in fp64.
    """
    q, k, v = q.double(), k.double(), v.double()
    batch, heads, tokens, dim = q.shape
    if lengths is None:
        lengths = torch.full((batch,), tokens, device=q.device)
    live = torch.arange(tokens, device=q.device) < lengths[:, None]
    q, k, v = (torch.where(live[:, None, :, None], x, 0.0) for x in (q, k, v))
    state = q.new_zeros(batch, heads, dim, dim) if initial_state is None else initial_state.double()
    decay = torch.exp(-slopes.double())[:, None, None]
    outputs = []
    for t in range(tokens):
        update = decay * state + k[:, :, t, :, None] * v[:, :, t, None, :]
        outputs.append(torch.einsum("bhd,bhde->bhe", q[:, :, t], update))
        state = torch.where(live[:, t, None, None, None], update, state)
    return torch.stack(outputs, dim=2), state
