"""Advantages in the lines that a run has recorded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest


def assert_advantages_of_groups(lines: Sequence[dict[str, Any]]) -> None:
    """Each is the rollout's score less its group's mean, divided by the group's deviation."""
    groups = defaultdict(list)
    for line in lines:
        groups[line["step"], line["uid"]].append(line)
    for members in groups.values():
        scores = np.array([line["reward"]["score"] for line in members])
        expected = (scores - scores.mean()) / (scores.std(ddof=1) + 1e-6)
        assert [line["advantage"] for line in members] == pytest.approx(list(expected), abs=1e-4)
