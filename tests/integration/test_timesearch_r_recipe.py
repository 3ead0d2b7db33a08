"""examples/papers/timesearch_r by its own recipe: a cold start, then two steps of GRPO."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.papers import two_steps

pytestmark = [pytest.mark.recipes, pytest.mark.timeout(2400)]


def test_two_steps_with_verification(output_dir: Path) -> None:
    trajectories = [record["trajectory"] for record in two_steps("timesearch_r", output_dir)]
    asked = [each["verification"] for each in trajectories if "verification" in each]
    assert {each["method"] for each in trajectories} == {"timesearch_r"}
    assert asked and any(each["text"] is not None and each["frames"] for each in asked)
