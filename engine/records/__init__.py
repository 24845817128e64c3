"""What travels between the parts: trajectories, events, metrics. Imports no torch."""
