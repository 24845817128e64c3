"""Made-up runs to look at: real rows, stored by the same functions as a driver's events."""
