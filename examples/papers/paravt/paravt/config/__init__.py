"""Config groups of the runs, for `hydra.searchpath=[pkg://paravt.config]`."""
