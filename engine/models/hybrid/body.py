"""The hybrid model itself: embedding, blocks, norm and head, over rows, slots or prefix trees."""

import copy
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel

from engine.kernels.tree import TreeLayout
from engine.models.hybrid.cache import HybridCache
from engine.models.hybrid.config import HybridConfig
from engine.models.hybrid.layers import Block
from engine.models.hybrid.mixers import Mixer, SoftmaxMixer
from engine.models.hybrid.moe import Experts, MixtureOfExperts, Router, Routing
from engine.models.hybrid.ops import RmsNorm, at_least_fp32
from engine.models.hybrid.places import Branches, Span


class Routed(NamedTuple):
    """Hidden states, and what the router of each layer decided (empty for a dense model)."""

    hidden: Tensor
    routings: list[Routing]


class HybridModel(PreTrainedModel):  # type: ignore[no-untyped-call]
    """Embedding, blocks, final norm, and a head that always computes in fp32."""

    config: HybridConfig
    config_class = HybridConfig
    base_model_prefix = ""
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _no_split_modules = ["Block"]
    _input_embed_layer = "embedding"
    _keep_in_fp32_modules_strict = ["embedding", "lm_head", "router"]

    def __init__(self, config: HybridConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            Block(config, layer) for layer in range(config.num_hidden_layers or 0)
        )
        self.norm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        if not config.tie_word_embeddings:
            self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        std = self.config.initializer_range
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=self.config.embedding_std)
        elif isinstance(module, nn.Linear | Router):
            nn.init.normal_(module.weight, std=std)
        elif isinstance(module, Experts):
            nn.init.normal_(module.gate_up_proj, std=std)
            nn.init.normal_(module.down_proj, std=std)
        elif isinstance(module, RmsNorm):
            nn.init.ones_(module.weight)
        elif isinstance(module, Mixer) and module.conv is not None:
            nn.init.normal_(module.conv, std=std)
            module.conv[0] += 1

    @property
    def head_weight(self) -> Tensor:
        """The head [vocab, width] that turns hidden states to logits, in fp32 (M1, 2506.13585)."""
        return self.embedding.weight if self.config.tie_word_embeddings else self.lm_head.weight

    def fused_matrices(self) -> dict[str, tuple[int, tuple[int, ...]]]:
        """Parameters that hold several matrices: name -> (groups, rows of each part in a group).

        Rows come group by group, and inside a group part by part; only ratios of rows count.
        """
        fused: dict[str, tuple[int, tuple[int, ...]]] = {}
        experts = self.config.num_local_experts
        for layer, block in enumerate(self.layers):
            assert isinstance(block, Block)
            mixer, mlp = block.mixer, f"layers.{layer}.mlp"
            fused[f"layers.{layer}.mixer.qkv_proj.weight"] = mixer.kv_heads, (mixer.shared, 1, 1)
            if isinstance(block.mlp, MixtureOfExperts):
                fused[f"{mlp}.experts.gate_up_proj"] = 1, (1, 1) * experts
                fused[f"{mlp}.experts.down_proj"] = 1, (1,) * experts
            else:
                fused[f"{mlp}.gate_up_proj.weight"] = 1, (1, 1)
        return fused

    def softmax_layers(self) -> dict[int, SoftmaxMixer]:
        """The mixers of the layers with softmax attention, by the number of the layer."""
        mixers = {number: block.mixer for number, block in enumerate(self.layers)}
        return {at: mixer for at, mixer in mixers.items() if isinstance(mixer, SoftmaxMixer)}

    def softmax_projections(self) -> dict[str, tuple[int, int]]:
        """Fused projections of the softmax layers: name -> (kv heads, queries that share each)."""
        return {
            f"layers.{number}.mixer.qkv_proj.weight": (mixer.kv_heads, mixer.shared)
            for number, mixer in self.softmax_layers().items()
        }

    def tables(self) -> frozenset[str]:
        """Names of matrices whose rows are looked up or scored one by one: tokens, experts."""
        endings = ("embedding.weight", "lm_head.weight", "router.weight")
        return frozenset(name for name, _ in self.named_parameters() if name.endswith(endings))

    def body_(self, dtype: torch.dtype) -> Self:
        """Moves the blocks to `dtype` in place; embedding, head and routers stay in fp32."""
        for module in [*self.layers.modules(), self.norm]:
            if not isinstance(module, Router):
                for parameter in module.parameters(recurse=False):
                    parameter.data = parameter.data.to(dtype)
        return self

    def copy_in(self, dtype: torch.dtype) -> Self:
        """A copy whose blocks compute in `dtype`, and whose embedding and head are this model's."""
        copied = copy.deepcopy(self).body_(dtype)
        copied.embedding = self.embedding
        if not self.config.tie_word_embeddings:
            copied.lm_head = self.lm_head
        return copied

    def hidden(
        self,
        ids: Tensor,
        cache: HybridCache | None = None,
        slots: slice | Tensor | None = None,
        lengths: Tensor | None = None,
        layout: TreeLayout | None = None,
    ) -> Tensor:
        """Hidden states [batch, tokens, width] after the final norm; ids: [batch, tokens].

        Without a cache rows stand alone, right padding is harmless. With one, row i continues
        `slots[i]` (all slots by default) by its first `lengths[i]` ids, and the cache grows.
        With a `layout` (batch 1, no cache) the ids are the nodes of prefix trees, or sequences
        packed one after the other.
        """
        return self.routed(ids, cache, slots, lengths, layout).hidden

    def routed(
        self,
        ids: Tensor,
        cache: HybridCache | None = None,
        slots: slice | Tensor | None = None,
        lengths: Tensor | None = None,
        layout: TreeLayout | None = None,
        chosen: Tensor | None = None,
    ) -> Routed:
        """As `hidden`, with the routing of each layer.

        `chosen` [layers, batch * tokens, experts a token] replays the experts of an earlier pass.
        """
        place: Span | Branches | None = None
        if layout is not None:
            place = self._branches(ids, cache, layout)
        elif cache is not None:
            place = self._span(ids, cache, slots, lengths)
        h = self.embedding(ids).to(self.norm.weight.dtype)
        routings = []
        for index, layer in enumerate(self.layers):
            memory = None if cache is None else cache.layers[index]
            h, routing = layer(h, memory, place, None if chosen is None else chosen[index])
            if routing is not None:
                routings.append(routing)
        if cache is not None and isinstance(place, Span):
            cache.lengths[place.slots] = place.start + place.lengths
        return Routed(self.norm(h), routings)

    def _span(
        self,
        ids: Tensor,
        cache: HybridCache,
        slots: slice | Tensor | None,
        lengths: Tensor | None,
    ) -> Span:
        if self.training and self.is_gradient_checkpointing and torch.is_grad_enabled():
            raise ValueError(
                "Gradient checkpointing runs each block twice, which would write the cache twice: "
                "use the cache under torch.no_grad, or in eval mode."
            )
        slots = slice(None) if slots is None else slots
        start = cache.lengths[slots]
        if lengths is None:
            lengths = torch.full_like(start, ids.shape[1])
        span = Span(slots, start, lengths)
        if span.context > cache.capacity:
            raise ValueError(
                f"A slot would hold {span.context} tokens; the cache has room for {cache.capacity}."
            )
        return span

    def _branches(self, ids: Tensor, cache: HybridCache | None, layout: TreeLayout) -> Branches:
        if cache is not None:
            raise ValueError("A layout and a cache were given: a layout's sequences start anew.")
        if ids.shape != (1, layout.tokens):
            raise ValueError(
                f"ids have shape {list(ids.shape)}; a layout of {layout.tokens} tokens needs "
                f"[1, {layout.tokens}]"
            )
        lags = max(0, self.config.conv_width - 1)
        return Branches(layout.to(ids.device), self.config.head_dim or 0, lags)

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits [..., vocab] in fp32: sampler and trainer disagree with a coarser head."""
        dtype = at_least_fp32(hidden.dtype)
        return functional.linear(hidden.to(dtype), self.head_weight.to(dtype))
