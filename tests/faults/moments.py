"""The moments of a step, as a run writes them into a file and the test outside of it reads them."""

from __future__ import annotations

import os
from pathlib import Path

MOMENTS = ("generation", "reward", "update", "checkpoint", "weight_sync", "validation")
VARIABLE = "VVT_TEST_MOMENTS"
"""Environment variable with the path of the file; a line is "<step> <moment>"."""


def mark(step: int, moment: str) -> None:
    """Say that this moment of the step has begun; several processes write, each line at once."""
    with open(os.environ[VARIABLE], "a") as file:
        file.write(f"{step} {moment}\n")


def marks(path: Path) -> list[str]:
    """What has been said so far, in order."""
    return path.read_text().splitlines() if path.exists() else []
