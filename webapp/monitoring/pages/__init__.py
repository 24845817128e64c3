"""HTML of what runs reported: charts, pool, devices, logs, the cluster."""
