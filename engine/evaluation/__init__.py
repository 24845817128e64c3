"""Evaluation: rates with intervals, paired comparisons, funnels and lengths."""
