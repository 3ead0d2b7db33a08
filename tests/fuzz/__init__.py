"""Random hostile inputs for everything that reads what others wrote; `python -m tests.fuzz` runs rounds of them."""
