"""The actor's work on one GPU, from a model's configuration alone: part of `make bench-gpu` (docs/gpu.md)."""
