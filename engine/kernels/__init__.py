"""Numeric kernels: pure tensor functions, each with an oracle that has the same signature."""
