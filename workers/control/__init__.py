"""Celery's side: short, idempotent commands that connect the database with Ray."""
