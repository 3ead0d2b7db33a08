"""Config groups of the runs, for `hydra.searchpath=[pkg://video_mtr.config]`."""
