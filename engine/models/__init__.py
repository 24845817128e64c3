"""Policies: the hybrid lightning model, and the head that turns hidden states to log-probs."""
