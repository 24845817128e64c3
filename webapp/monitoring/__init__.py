"""Series, points, roll-ups, pool snapshots, phase spans, logs: ingest, queries, consumers."""
