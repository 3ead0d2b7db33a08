"""What the model writes and reads: one module per text grammar (parse a turn, render an observation)."""
