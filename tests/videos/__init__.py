"""Makers of the videos that tests and benchmarks read."""
