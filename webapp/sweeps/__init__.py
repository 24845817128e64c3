"""Sweeps: many runs of one spec with some fields varied, by grid, random search or TPE."""
