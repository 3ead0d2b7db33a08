"""Device platforms that verl does not bring. `cpu` runs every recipe without a GPU; elsewhere it is not active."""
