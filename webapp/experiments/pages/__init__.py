"""HTML of experiments, runs, reward schemes and datasets."""
