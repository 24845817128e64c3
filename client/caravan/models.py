"""Import this to make transformers know Caravan's models: AutoModelForCausalLM then loads them.

Needs the extra `caravan[models]` (torch and transformers); nothing else of the client does.
"""

from engine.models.hybrid import HybridConfig, HybridForCausalLM

__all__ = ["HybridConfig", "HybridForCausalLM"]
