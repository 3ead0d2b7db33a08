"""Device platforms that verl does not bring. `cpu` runs every recipe without a GPU; off the CPU nothing of it is active."""
