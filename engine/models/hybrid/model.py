"""The hybrid causal language model behind transformers' interface: `forward` and `generate`."""

from typing import Any

from torch import Tensor
from transformers import GenerationMixin
from transformers.modeling_outputs import MoeCausalLMOutputWithPast
from transformers.utils.generic import can_return_tuple

from engine.models.hybrid.body import HybridModel, Routed
from engine.models.hybrid.generation import (
    GenerationCache,
    Padding,
    check_positions,
    packed_layout,
    refuse_unknown,
)
from engine.models.hybrid.moe import balancing_loss


class HybridForCausalLM(HybridModel, GenerationMixin):  # type: ignore[no-untyped-call]
    """The model as `AutoModelForCausalLM` loads it."""

    @can_return_tuple  # type: ignore[untyped-decorator]
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: GenerationCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        num_items_in_batch: int | Tensor | None = None,
        **others: Any,
    ) -> MoeCausalLMOutputWithPast:
        """transformers' interface; rows may be padded on either side, under an attention_mask.

        position_ids that start again at 0 pack several sequences into a row. A cache is made for
        `use_cache=True`, as `generate` asks. Raises ValueError for what cannot be honoured.
        """
        refuse_unknown(others)
        if past_key_values is None and use_cache:
            past_key_values = GenerationCache()
        padding = None
        if attention_mask is not None:
            padding = Padding.of(attention_mask, input_ids.shape[1])
        if past_key_values is None:
            routed = self._whole(input_ids, padding, position_ids)
        else:
            routed = self._continued(input_ids, padding, position_ids, past_key_values)
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.logits(routed.hidden[:, kept])
        loss = auxiliary = None
        if labels is not None:
            loss = self.loss_function(
                logits, labels, self.config.vocab_size, num_items_in_batch=num_items_in_batch
            )
        if self.config.router_aux_loss_coef and routed.routings:
            weights = None
            if attention_mask is not None:
                weights = attention_mask[:, -input_ids.shape[1] :]
                weights = (weights if padding is None else padding.to_front(weights)).flatten()
            auxiliary = balancing_loss(routed.routings, weights)
            if loss is not None:
                loss = loss + self.config.router_aux_loss_coef * auxiliary
        return MoeCausalLMOutputWithPast(
            loss=loss,
            aux_loss=auxiliary,  # type: ignore[arg-type]
            logits=logits,  # type: ignore[arg-type]
            past_key_values=past_key_values,
        )

    def _whole(self, ids: Tensor, padding: Padding | None, positions: Tensor | None) -> Routed:
        """Rows from their first token."""
        if positions is not None and padding is None:
            positions = positions.expand_as(ids)
            if (layout := packed_layout(positions)) is not None:
                hidden, routings = self.routed(ids.reshape(1, -1), layout=layout)
                return Routed(hidden.view(*ids.shape, -1), routings)
        elif positions is not None:
            check_positions(positions, ids.new_zeros(len(ids)), padding)
        if padding is None:
            return self.routed(ids)
        hidden, routings = self.routed(padding.to_front(ids))
        return Routed(padding.back(hidden), routings)

    def _continued(
        self,
        ids: Tensor,
        padding: Padding | None,
        positions: Tensor | None,
        past: GenerationCache,
    ) -> Routed:
        """Rows that go on where the cache ends."""
        if not isinstance(past, GenerationCache):
            raise ValueError(
                f"past_key_values is a {type(past).__name__}, which cannot hold lightning states; "
                "leave it out, or give a GenerationCache."
            )
        memory = past.room(self.config, ids, self.norm.weight.dtype)
        if positions is not None:
            check_positions(positions, memory.lengths, padding)
        past.columns += ids.shape[1]
        if padding is None:
            return self.routed(ids, memory)
        routed = self.routed(padding.to_front(ids), memory, lengths=padding.lengths)
        return Routed(padding.back(routed.hidden), routed.routings)

    def _prepare_cache_for_generation(  # type: ignore[override]
        self, generation_config: Any, model_kwargs: dict[str, Any], *_: Any
    ) -> None:
        if generation_config.cache_implementation is not None:
            raise ValueError(
                f"cache_implementation is {generation_config.cache_implementation!r}; this model "
                "has a cache of its own: leave it out."
            )
        if generation_config.use_cache is not False:
            model_kwargs.setdefault("past_key_values", GenerationCache())
