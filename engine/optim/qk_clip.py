"""QK-Clip (Kimi K2, 2507.20534): scales down the queries and keys of heads whose logits explode.

After an optimizer step that saw a logit S > tau in a head, the head's logits are multiplied by
gamma = tau / S, by scaling rows of its projections. S is the signed maximum, as in the paper's
algorithm: only large positive logits saturate softmax. What lies between projection and logit must
be linear: rotations, and a depthwise convolution over tokens, are. It is not where queries or keys
are normalised, or where adapters add to the projection; those models are refused.
"""

import re
from collections.abc import Mapping

import torch
from torch import Tensor, nn

NORMALISED = re.compile(r"(^|[._])[qk]_?(layer)?norm([._]|$)")


def clip_gamma(largest: Tensor, tau: float) -> Tensor:
    """What each head's logits are to be multiplied by: tau / S where S > tau, else 1.

    largest: of any shape, which is the result's. A maximum that is not positive is no reason to
    clip (-inf: the head saw nothing). Raises ValueError where a maximum is NaN or infinite.
    """
    if torch.isnan(largest).any() or torch.isposinf(largest).any():
        raise ValueError(
            f"The largest logits of the heads are {largest.flatten().tolist()}: nothing can be "
            "scaled by what is not finite. The step should have been left out."
        )
    return torch.where(largest > tau, tau / largest.clamp(min=tau), 1.0)


def head_factors(gamma: Tensor, shared_keys: bool = False) -> tuple[Tensor, Tensor]:
    """Factors of the queries [kv heads, shared] and of the keys [kv heads].

    gamma: [kv heads, shared], of the queries that share a key. A key of one query (MHA) takes half
    of the scaling, sqrt(gamma) on both sides. A key of several is left alone and each query takes
    all of its own, which changes no other head; with `shared_keys` the key is scaled by the root
    of the largest gamma of its queries, the least that any of them needs, and they by the rest.
    """
    if gamma.shape[1] == 1:
        return gamma.sqrt(), gamma[:, 0].sqrt()
    keys = gamma.amax(1).sqrt() if shared_keys else torch.ones_like(gamma[:, 0])
    return gamma / keys[:, None], keys


@torch.no_grad()
def scale_heads(projection: Tensor, queries: Tensor, keys: Tensor) -> None:
    """Scales the rows of a fused projection, or of its bias, in place.

    projection: [rows, ...], for each key its queries, the key, its value, all of one size;
    queries: [kv heads, shared]; keys: [kv heads]. Values stay as they are.
    """
    kv_heads, shared = queries.shape
    heads = projection.view(kv_heads, shared + 2, -1)
    heads[:, :shared] *= queries[..., None].to(projection)
    heads[:, shared] *= keys[:, None].to(projection)


@torch.no_grad()
def scale_latent_heads(queries: Tensor, keys_values: Tensor, gamma: Tensor, rotary: int) -> None:
    """The rule for multi-head latent attention (MLA), in place; gamma: [heads].

    queries: [heads, nope + rotary rows, ...], the up-projection of queries; keys_values: [heads,
    nope + value rows, ...], that of keys and values. Where a head has its own rows on both sides
    each takes sqrt(gamma); the rotary key is shared by all heads, so the rotary query takes all.
    """
    nope = queries.shape[1] - rotary
    factor = gamma.view(-1, *[1] * (queries.dim() - 1)).to(queries)
    queries[:, :nope] *= factor.sqrt()
    queries[:, nope:] *= factor
    keys_values[:, :nope] *= factor.sqrt()


class QkClip:
    """Clips the softmax layers of one model; `clip` is to follow each optimizer step.

    projections: name of each softmax layer's fused projection -> (kv heads, queries a key), in the
    order of the rows of maxima. Raises ValueError for models that cannot be clipped.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        projections: Mapping[str, tuple[int, int]],
        tau: float,
        shared_keys: bool = False,
    ) -> None:
        _refuse(parameters, projections)
        self.tau, self.shared_keys = tau, shared_keys
        self._layers = []
        for name, heads in projections.items():
            bias = parameters.get(name.removesuffix("weight") + "bias")
            rows = [parameters[name], *([] if bias is None else [bias])]
            self._layers.append((heads, rows))

    def nothing_seen(self) -> Tensor:
        """Maxima [softmax layers, heads] before the first pass of a step."""
        (kv_heads, shared), rows = self._layers[0]
        return torch.full((len(self._layers), kv_heads * shared), -torch.inf, device=rows[0].device)

    def clip(self, largest: Tensor) -> dict[str, float]:
        """Scales what saw more than tau; how many heads that were, as a figure of the step.

        largest: [softmax layers, heads], over all passes and ranks of the step.
        """
        gammas = clip_gamma(largest, self.tau)
        for gamma, ((kv_heads, shared), rows) in zip(gammas, self._layers, strict=True):
            if bool((gamma < 1).any()):
                factors = head_factors(gamma.view(kv_heads, shared), self.shared_keys)
                for one in rows:
                    scale_heads(one, *factors)
        return {"qk_clipped_heads": float((gammas < 1).sum())}


def _refuse(
    parameters: Mapping[str, nn.Parameter], projections: Mapping[str, tuple[int, int]]
) -> None:
    if not projections:
        raise ValueError(
            "qk_clip bounds the logits of softmax attention, and this model has no such layer: "
            "lightning layers have none."
        )
    if adapters := [name for name in parameters if "lora_" in name]:
        raise ValueError(
            f"qk_clip scales rows of projections, and {adapters[0]} adds to one: the frozen "
            "weights would have to change. Leave qk_clip empty for adapters."
        )
    if normalised := [name for name in parameters if NORMALISED.search(name)]:
        raise ValueError(
            f"qk_clip scales rows of projections, and {normalised[0]} normalises what comes of "
            "them: the logits would stay as they are, bounded by its gains. Leave qk_clip empty."
        )
