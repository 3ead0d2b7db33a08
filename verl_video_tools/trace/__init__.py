"""The record of a run: trajectories as JSON lines (`records`), `metrics`, and the table at its end (`summary`)."""
