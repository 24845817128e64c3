"""Small pure functions from token-level records to losses: advantages, losses, aggregation."""
