"""examples/papers/paravt by its README's command: its own cold start, then two steps; `make test-recipes`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.papers import two_steps

pytestmark = [pytest.mark.recipes, pytest.mark.timeout(2400)]


def test_two_steps_with_several_calls_in_a_turn(output_dir: Path) -> None:
    records = two_steps("paravt", output_dir)
    drawn = {(record["step"], record["uid"], len(record["trajectory"]["initial_frames"])) for record in records}
    assert {number for *_, number in drawn} <= {4, 8}
    assert len(drawn) == len({(step, uid) for step, uid, _ in drawn}), "a group shares its number of frames"
    turns = [turn for record in records for turn in record["trajectory"]["turns"]]
    assert max(sum(call["ok"] for call in turn["calls"]) for turn in turns) >= 2
