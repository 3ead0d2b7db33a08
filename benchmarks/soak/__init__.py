"""A run that goes on for hours, watched from outside: what grows from step to step?

A soak is a row of segments. Each is one run of the recipe for all methods, resumed from the checkpoint of the one
before; faults happen at random meanwhile. Memory, open handles, threads, shared memory and folders are sampled after
every step.
"""
