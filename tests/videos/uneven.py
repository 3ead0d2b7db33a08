"""Times in seconds of the frames of videos whose rate varies: their average rate says nothing about either part."""

SLIDES = [*(0.1 * number for number in range(20)), *(2 + 8.0 * number for number in range(6))]
"""Two seconds of motion, then slides of 8 s: at 2, 10, 18, 26, 34 and 42 s."""
BURST = [*(8.0 * number for number in range(6)), *(46 + 0.1 * number for number in range(20))]
"""Slides of 8 s, the last one from 40 s, then two seconds of motion."""
LECTURE = [*(0.5 * number for number in range(10)), *(5 + 30.0 * number for number in range(10))]
"""Five seconds of two frames each, then slides of 30 s."""
