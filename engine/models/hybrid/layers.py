"""One block of the hybrid model: a mixer over tokens, then an MLP."""

import torch
from torch import Tensor
from transformers.modeling_layers import GradientCheckpointingLayer

from engine.models.hybrid.cache import LayerCache
from engine.models.hybrid.config import LIGHTNING, HybridConfig
from engine.models.hybrid.mixers import LightningMixer, Mixer, Place, SoftmaxMixer
from engine.models.hybrid.moe import MixtureOfExperts, Routing, SwiGlu
from engine.models.hybrid.ops import RmsNorm


class Block(GradientCheckpointingLayer):
    """h = alpha * x + beta * f(x) with x = norm(h): the residual is the normed input (MiniMax)."""

    def __init__(self, config: HybridConfig, layer: int) -> None:
        super().__init__()
        width, eps = config.hidden_size, config.rms_norm_eps
        self.mixer_norm = RmsNorm(width, eps)
        self.mixer: Mixer
        if (config.layer_types or [])[layer] == LIGHTNING:
            self.mixer = LightningMixer(config, layer)
            alpha, self.mixer_beta = config.linear_attn_alpha_factor, config.linear_attn_beta_factor
        else:
            self.mixer = SoftmaxMixer(config)
            alpha, self.mixer_beta = config.full_attn_alpha_factor, config.full_attn_beta_factor
        self.mixer_alpha = alpha or 0.0
        self.mlp_norm = RmsNorm(width, eps)
        self.mlp: SwiGlu | MixtureOfExperts
        if config.num_local_experts == 1:
            self.mlp = SwiGlu(width, config.intermediate_size)
        else:
            self.mlp = MixtureOfExperts(config)
        self.mlp_alpha, self.mlp_beta = config.mlp_alpha_factor or 0.0, config.mlp_beta_factor

    def forward(
        self,
        h: Tensor,
        cache: LayerCache | None,
        place: Place,
        chosen: Tensor | None = None,
    ) -> tuple[Tensor, Routing | None]:
        """The next hidden states [batch, tokens, width], as `h`, and what the router decided.

        `chosen` replays a decision; a block without experts decides nothing (None).
        """
        x = self.mixer_norm(h)
        h = _residual(self.mixer(x, cache, place), x, self.mixer_alpha, self.mixer_beta)
        x = self.mlp_norm(h)
        routing = None
        if isinstance(self.mlp, MixtureOfExperts):
            branch, routing = self.mlp(x, chosen)
        else:
            branch = self.mlp(x)
        return _residual(branch, x, self.mlp_alpha, self.mlp_beta), routing


def _residual(branch: Tensor, x: Tensor, alpha: float, beta: float) -> Tensor:
    return torch.add(branch if beta == 1.0 else beta * branch, x, alpha=alpha)
