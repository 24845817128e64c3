"""Experiments, runs, attempts, jobs, reward schemes, datasets, checkpoints."""
