"""Rows and training data: scripted experts, trajectories for the cold start, converters."""
