"""Reward schemes as data, and the terms they are made of. Imports no torch."""
