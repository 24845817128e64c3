"""What the agent acts in. Imports no torch."""
