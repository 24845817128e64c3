"""Trajectories, replay, comments, rubrics, queues, labels that become datasets."""
