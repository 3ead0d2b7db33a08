"""What a frame's label costs, for tests of recipes' budgets and of the documentation."""

LABEL_TOKENS = {"framethinker": 10, "videozoomer": 20, "longvt": 11, "framemind": 18, "videobrain": 10}
"""Of a frame's label beside its picture: number or time, line end, vision start and end."""
