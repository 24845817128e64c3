"""The `./caravan` command of a checkout."""
