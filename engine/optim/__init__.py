"""Optimizers and their schedule, built from a spec."""
