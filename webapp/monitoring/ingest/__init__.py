"""Storing what runs report: idempotent, item by item, under the run's row lock."""
