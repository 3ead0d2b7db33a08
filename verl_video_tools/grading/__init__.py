"""Grade answers: multiple choice, numbers, segments, open answers (by a judge), and overlaps in time and space."""
