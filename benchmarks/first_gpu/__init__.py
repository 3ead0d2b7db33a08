"""The first hour on a GPU as one command: `make first-gpu` (docs/gpu.md)."""
