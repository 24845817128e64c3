"""Softmax attention over prefix trees: shared prefixes are stored and computed once."""

from engine.kernels.tree.attention import tree_attention
from engine.kernels.tree.layout import TreeLayout

__all__ = ["TreeLayout", "tree_attention"]
