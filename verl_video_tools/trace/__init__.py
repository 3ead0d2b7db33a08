"""The record of a run: trajectories as JSON lines (`records`), `metrics`, the table at its end
(`summary`), and the page that draws it (`html`, `thumbnails`)."""
