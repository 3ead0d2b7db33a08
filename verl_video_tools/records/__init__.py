"""The record of a run: trajectories as JSON lines (`records`), `metrics`, the table at its end
(`summary`), the page that draws it (`view`, `html`, `thumbnails`), and learning curves (`report`)."""
