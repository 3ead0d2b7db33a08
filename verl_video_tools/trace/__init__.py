"""The record of a run: trajectories as JSON lines (`records`), metrics (`metrics`), the table at its end (`summary`)."""
