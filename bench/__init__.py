"""What `caravan bench` runs: each module is one benchmark, a `run(options) -> list[Figure]`."""
