"""Bytes that a pass of a model takes beside its weights: activations, logits, gathered weights.

Numbers are bf16, tokens are those of one micro-batch on one device.
"""

from engine.planner.architecture import Architecture, Latent, Layer, Lightning, Softmax
from engine.planner.parameters import parameters

BF16, FP32 = 2, 4


def layer_bytes(layer: Layer, width: int) -> float:
    """What one layer keeps of a token for its backward pass, with fused attention.

    2205.05198, section 4.1, without the scores (5as^2b), which fused kernels compute again: 34h
    bytes a token are norms 4h, attention 11h (input and dropout 3h, q, k, v 6h, its result 2h)
    and an MLP 19h (input and dropout 3h, two inner tensors of 4h: 16h). A SwiGLU has three inner
    tensors of its width m (gate, up, their product): 6m, the same 16h at m = 8h/3. Experts: of
    those that a token is sent to, and of the router.
    """
    mlp = layer.mlp
    inner = mlp.width * max(1, mlp.active) + mlp.shared_width
    routed = BF16 * mlp.experts + 3.0 * width * max(1, mlp.active)
    return 4 * width + 3 * width + BF16 * _mixed(layer) + routed + 3 * BF16 * inner


def saved_bytes(model: Architecture, tokens: float, *, checkpointing: bool) -> dict[str, float]:
    """What a forward pass with gradients keeps until the backward pass, at its peak.

    With checkpointing, the input of every layer (2h) and, while it is computed again, all of one
    layer; without, all of every layer.
    """
    largest = max(layer_bytes(layer, model.width) for layer, _ in model.counted)
    if checkpointing:
        kept = BF16 * model.width * len(model.layers)
        return {"checkpoints": kept * tokens, "layer": largest * tokens}
    every = sum(number * layer_bytes(layer, model.width) for layer, number in model.counted)
    return {"layers": every * tokens}


def passing_bytes(model: Architecture, tokens: float) -> float:
    """A pass without gradients: what the largest layer holds at once, at the most."""
    return max(layer_bytes(layer, model.width) for layer, _ in model.counted) * tokens


def logits_bytes(model: Architecture, rows: float, *, gradients: bool) -> float:
    """Logits of `rows` tokens: bf16 from the head, fp32 for the softmax, and their gradient."""
    return rows * model.vocab_size * (BF16 + FP32 + (FP32 if gradients else 0))


def gathered_bytes(model: Architecture) -> float:
    """bf16 weights that a device holds whole for a moment where they are sharded.

    The largest block twice, since the next one is fetched ahead, and the embedding or the head.
    """
    count = parameters(model)
    in_layers = count.total - count.embedding - count.head
    mean = in_layers / len(model.layers)
    return 2 * BF16 * mean + BF16 * count.embedding


def _mixed(layer: Layer) -> float:
    """Numbers that attention keeps of a token: q, k, v (and a gate), and its result."""
    match layer.mixer:
        case Softmax() as mixer:
            return 2.0 * (mixer.heads + mixer.kv_heads) * mixer.head_dim
        case Lightning() as mixer:
            return 5.0 * mixer.heads * mixer.head_dim
        case Latent() as mixer:
            keys = 2 * mixer.heads * (mixer.nope_dim + mixer.rope_dim)
            return float(keys + 2 * mixer.heads * mixer.v_dim + mixer.q_rank + mixer.kv_rank)
