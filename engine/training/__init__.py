"""The trainer: batches to gradients to steps to checkpoints, on one process or many."""
