"""The hybrid causal language model, loadable by transformers."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import GenerationMixin, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

from engine.models.hybrid.cache import HybridCache
from engine.models.hybrid.config import HybridConfig
from engine.models.hybrid.layers import Block, Mixer, RmsNorm, Span


class HybridForCausalLM(PreTrainedModel, GenerationMixin):  # type: ignore[no-untyped-call]
    """Embedding, blocks, final norm, and a head that is the embedding again, always in fp32."""

    config: HybridConfig
    config_class = HybridConfig
    base_model_prefix = ""
    _supports_sdpa = True
    main_input_name = "input_ids"

    def __init__(self, config: HybridConfig) -> None:
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            Block(config, layer) for layer in range(config.num_hidden_layers)
        )
        self.norm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.post_init()  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=self.config.embedding_std)
        elif isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=self.config.initializer_range)
        elif isinstance(module, RmsNorm):
            nn.init.ones_(module.weight)
        elif isinstance(module, Mixer) and module.conv is not None:
            nn.init.normal_(module.conv, std=self.config.initializer_range)
            module.conv[0] += 1

    def get_input_embeddings(self) -> nn.Embedding:
        return self.embedding

    def fused_matrices(self) -> dict[str, tuple[int, int]]:
        """Matrices that hold several: parameter name -> (groups, parts), rows group by group."""
        fused = {}
        for layer in range(self.config.num_hidden_layers):
            heads = self.config.num_attention_heads
            fused[f"layers.{layer}.mixer.qkv_proj.weight"] = (heads, 3)
            fused[f"layers.{layer}.mlp.gate_up_proj.weight"] = (1, 2)
        return fused

    def body_(self, dtype: torch.dtype) -> "HybridForCausalLM":
        """Moves the blocks to `dtype` in place; embedding and head stay in fp32."""
        self.layers.to(dtype)
        self.norm.to(dtype)
        return self

    def hidden(
        self,
        ids: Tensor,
        cache: HybridCache | None = None,
        slots: slice | Tensor | None = None,
        lengths: Tensor | None = None,
        live: Tensor | None = None,
    ) -> Tensor:
        """Hidden states [batch, tokens, width] after the final norm; ids: [batch, tokens].

        Without a cache rows stand alone, right padding is harmless. With one, row i continues
        `slots[i]` (all slots by default) by its first `lengths[i]` ids, and the cache grows.
        With `live` [batch] (one token a row) only rows that are True grow; others give rubbish.
        """
        h = self.embedding(ids).to(self.norm.weight.dtype)
        span = None
        if cache is not None:
            slots = slice(None) if slots is None else slots
            start = cache.lengths[slots]
            if live is not None:
                lengths = live.long()
            elif lengths is None:
                lengths = torch.full_like(start, ids.shape[1])
            span = Span(slots, start, lengths, live)
            if span.context > cache.capacity:
                raise ValueError(
                    f"A slot would hold {span.context} tokens; the cache has room for "
                    f"{cache.capacity}."
                )
        for index, layer in enumerate(self.layers):
            h = layer(h, None if cache is None else cache.layers[index], span)
        if cache is not None and span is not None:
            cache.lengths[span.slots] = span.start + span.lengths
        return self.norm(h)  # type: ignore[no-any-return]

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits [..., vocab] in fp32: sampler and trainer disagree with a coarser head."""
        return functional.linear(hidden.float(), self.embedding.weight.float())

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        **_: Any,
    ) -> CausalLMOutput:
        """transformers' interface. Only right padding can be honoured, left padding is refused."""
        if attention_mask is not None and not attention_mask[:, 0].all():
            raise ValueError("Rows are padded on the left; this model needs them padded right.")
        logits = self.logits(self.hidden(input_ids))
        loss = None
        if labels is not None:
            loss = functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return CausalLMOutput(loss=loss, logits=logits)  # type: ignore[arg-type]

    def prepare_inputs_for_generation(  # type: ignore[override]
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: Any
    ) -> dict[str, Tensor]:
        """`generate` works without a cache; fast decoding is the rollout sampler's."""
        if attention_mask is not None and not attention_mask.all():
            raise ValueError("Prompts of different lengths: generate for each length alone.")
        return {"input_ids": input_ids}
