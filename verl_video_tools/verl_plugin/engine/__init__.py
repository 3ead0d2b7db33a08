"""verl's training engine with what its options do not reach."""
