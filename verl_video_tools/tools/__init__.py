"""What the environment can do: one tool per file, each planning a call on the bound video before pixels are decoded."""
