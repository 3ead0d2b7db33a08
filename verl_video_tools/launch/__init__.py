"""Starts training runs: their data, environment, program and what follows a run that has ended."""
