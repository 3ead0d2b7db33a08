"""examples/papers/video_mtr by its README's command: its own cold start, then two steps; `make test-recipes`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.papers import two_steps

pytestmark = [pytest.mark.recipes, pytest.mark.timeout(2400)]


def test_two_steps_that_credit_turns(output_dir: Path) -> None:
    records = two_steps("video_mtr", output_dir)
    assert all(record["reward"]["retrieval"] >= 0 for record in records)
    paid = [
        record
        for record in records
        if any(turn.get("rewards", {}).get("retrieval") for turn in record["trajectory"]["turns"])
    ]
    assert paid, "no turn of two steps earned anything, so the run shows nothing"
    for record in paid:
        turns = record["trajectory"]["turns"]
        assert sum(turn["rewards"]["retrieval"] for turn in turns) == record["reward"]["retrieval"]
