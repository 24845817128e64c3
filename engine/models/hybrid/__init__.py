"""A MiniMax-style hybrid of lightning and softmax attention.

Importing this package registers the model, so that `AutoModelForCausalLM.from_pretrained` loads
a checkpoint folder.
"""

from transformers import AutoConfig, AutoModelForCausalLM

from engine.models.hybrid.cache import HybridCache, SlotSnapshot
from engine.models.hybrid.config import HybridConfig
from engine.models.hybrid.generation import GenerationCache
from engine.models.hybrid.model import HybridForCausalLM

AutoConfig.register(HybridConfig.model_type, HybridConfig, exist_ok=True)
AutoModelForCausalLM.register(HybridConfig, HybridForCausalLM, exist_ok=True)

__all__ = ["GenerationCache", "HybridCache", "HybridConfig", "HybridForCausalLM", "SlotSnapshot"]
