"""Evaluation: outcomes of trials, rates with intervals, pass@k, funnels, paired comparisons."""
