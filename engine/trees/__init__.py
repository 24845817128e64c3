"""Prefix trees of a batch: shared prefixes are computed once, every sample keeps its own loss."""
