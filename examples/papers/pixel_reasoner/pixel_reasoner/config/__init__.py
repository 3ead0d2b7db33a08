"""Config groups of the runs, for `hydra.searchpath=[pkg://pixel_reasoner.config]`."""
