"""examples/papers/pixel_reasoner by its README's command: its own cold start, then two steps; `make test-recipes`."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.integration.papers import two_steps

pytestmark = [pytest.mark.recipes, pytest.mark.timeout(2400)]


def test_two_steps_with_a_reward_of_the_group(output_dir: Path) -> None:
    records = two_steps(
        "pixel_reasoner",
        output_dir,
        # Above that of every group but one in which all look: what is paid then tells the rate.
        "video_tools.pixel_reasoner.wanted_rate=1.0",
    )
    groups: dict[tuple[int, str], list[dict[str, Any]]] = defaultdict(list)
    for record in records:
        if record["trajectory"].get("flags"):  # no rollout that its siblings are compared with
            continue
        groups[record["step"], record["uid"]].append(record)
    looked = 0
    for group in groups.values():
        used = [any(call["ok"] for turn in each["trajectory"]["turns"] for call in turn["calls"]) for each in group]
        looked += sum(used)
        for each, own in zip(group, used, strict=True):
            expected = 0.5 * (1.0 - sum(used) / len(used)) * own
            assert each["reward"]["curiosity"] == pytest.approx(expected)
    assert looked > 0
