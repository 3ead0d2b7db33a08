"""Video-MTR: turns are paid for what they retrieve."""
