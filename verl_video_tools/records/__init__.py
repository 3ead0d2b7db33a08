"""The record of a run: trajectories as JSON lines (`records`), their `metrics`, the page that draws rollouts (`view`,
`thumbnails`), the picture for trackers (`rollout_picture`), and learning curves (`report`)."""
