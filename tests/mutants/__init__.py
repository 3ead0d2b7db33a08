"""Single faults, planted one at a time, that `make test` has to notice; `python -m tests.mutants` plants them.

Each TOML file here is an area with entries of this form:

    [[mutant]]
    id = "T1"
    file = "verl_video_tools/rollout/tokens.py"
    old = "[1] * len(token_ids)"    # occurs exactly once in the file
    new = "[0] * len(token_ids)"
    why = "What the policy sampled is not trained on."
    tests = ["tests/rollout/test_tokens.py::test_mask"]    # files or tests, without Ray, that notice it

Code that moves takes its entry with it. An entry goes only with the behaviour that it breaks.
"""
