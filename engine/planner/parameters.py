"""How many parameters a model has, and how many of them one token passes through."""

from dataclasses import dataclass

from engine.planner.architecture import Architecture, Latent, Lightning, Mixer, Mlp, Softmax


@dataclass(frozen=True)
class Parameters:
    """Counts. A tied head counts once, as embedding.

    active: of the layers, those that one token passes (without embedding and head, as MiniMax
    counts); in_products: those that enter a matrix product for each token, the head among them.
    """

    total: int
    embedding: int
    head: int
    active: int
    in_products: int


def parameters(model: Architecture) -> Parameters:
    """Parameters of the model; multi-token-prediction modules beside it are not counted."""
    embedding = model.width * model.vocab_size
    head = 0 if model.tied_head else embedding
    total = active = products = 0
    for layer, number in model.counted:
        mixer = mixer_products(layer.mixer, model.width)
        beside = layer.mixer.extra + 2 * model.width  # and the two norms
        routed = mlp_products(layer.mlp, model.width)
        total += number * (mixer + beside + _mlp_total(layer.mlp, model.width))
        active += number * (mixer + beside + routed)
        products += number * (mixer + routed)
    final_norm = model.width
    return Parameters(
        total=total + final_norm + embedding + head,
        embedding=embedding,
        head=head,
        active=active + final_norm,
        in_products=products + embedding,
    )


def mixer_products(mixer: Mixer, width: int) -> int:
    """Parameters of one layer's attention that enter a matrix product for each token."""
    match mixer:
        case Softmax():  # q, k, v, out
            return 2 * width * mixer.head_dim * (mixer.heads + mixer.kv_heads)
        case Lightning():  # q, k, v, gate, out
            return 5 * width * mixer.head_dim * mixer.heads
        case Latent():
            queries = mixer.heads * (mixer.nope_dim + mixer.rope_dim)
            query = mixer.q_rank * (width + queries) if mixer.q_rank else width * queries
            down = width * (mixer.kv_rank + mixer.rope_dim)
            up = mixer.kv_rank * mixer.heads * (mixer.nope_dim + mixer.v_dim)
            return query + down + up + mixer.heads * mixer.v_dim * width


def mlp_products(mlp: Mlp, width: int) -> int:
    """Parameters of one MLP that one token passes: its experts', the shared ones', the router's."""
    if not mlp.experts:
        return 3 * width * mlp.width
    return 3 * width * (mlp.active * mlp.width + mlp.shared_width) + width * mlp.experts


def _mlp_total(mlp: Mlp, width: int) -> int:
    return mlp_products(mlp, width) + 3 * width * mlp.width * max(0, mlp.experts - mlp.active)
