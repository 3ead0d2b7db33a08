"""What a step costs at the papers' sizes, without a GPU: `make bench-scale` (docs/scale.md)."""
