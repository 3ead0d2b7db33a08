"""How the engine core's process is told what to say."""

SCRIPT_VARIABLE = "VVT_BENCH_SCRIPT"
"""Path of a JSON file: `turns`, token ids by variant and turn; `num_initial`, images of a rollout's first prompt."""
