"""Pixel Reasoner: frames and crops by number, and a reward that compares the group."""
