"""Rollout: samplers, and the agent loop that turns tasks into trajectories."""
