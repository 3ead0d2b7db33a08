"""Does an agent loop train on what the engine was given and has sampled? A conformance run for any loop of verl 0.9.1.

A run of the user's own loop is tapped in two places, row by row with faults planted there; then its files are audited.

    worker.py     the agent loop worker with the taps, and its managers for verl's option `agent_loop_manager_class`
    client.py     the tap between a loop and the inference server: what the engine was given, and what it returned
    callback.py   the tap on what a step has trained on, for verl's option `checkpoint_callback_class`
    faults.py     the faults, each planted at these taps, so that they fit any loop
    stale_*.py    the fault of a whole run: weights that never reach the engine
    plant.py      rows of a run, with the faults to plant
    records.py    what the taps write
    checks.py     what must hold of it, check by check; advantages.py: of a group
    reference.py  the same model by plain transformers
    audit.py      the verdict on each fault; table.py prints it

Nothing here is loaded in a normal run.
"""
