"""The data pool between rollout and training: pure rules and their state. No Ray, no torch."""
