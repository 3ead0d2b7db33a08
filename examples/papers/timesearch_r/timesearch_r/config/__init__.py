"""Config groups of the runs, for `hydra.searchpath=[pkg://timesearch_r.config]`."""
