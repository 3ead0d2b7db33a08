"""Measured comparisons. Each program here is one command: `python -m benchmarks.<name>`."""
