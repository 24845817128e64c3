"""From a knowledge graph to tasks, a tokenizer and demonstrations. Imports no torch."""

from engine.synthesis.stage import Synthesis, synthesise
from engine.synthesis.tokenizer import Tokenizer

__all__ = ["Synthesis", "Tokenizer", "synthesise"]
