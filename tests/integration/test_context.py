"""Real GRPO steps in which every turn is a training sequence of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

from tests.context_method import NAME
from tests.integration.advantages import assert_advantages_of_groups
from tests.integration.conftest import MAX_PROBS_DIFF, Run
from tests.integration.method_runs import lines_of
from verl_video_tools.rollout.tokens import placeholder_runs

pytestmark = [
    pytest.mark.integration,
    pytest.mark.long,
    pytest.mark.timeout(1500),
    pytest.mark.usefixtures("context_method", "group_method"),
]


@pytest.fixture
def lines(methods_run: Run) -> list[dict]:
    """Of two steps of four groups of four."""
    return lines_of(methods_run, NAME)


def test_a_line_per_rollout_and_a_sequence_per_turn(methods_run: Run, lines: list[dict]) -> None:
    assert [line["step"] for line in lines] == [1] * 16 + [2] * 16
    assert all(line["num_sequences"] == len(line["trajectory"].turns) for line in lines)
    assert sum(line["num_sequences"] > 1 for line in lines) >= 5
    assert not any(line["trajectory"].flags for line in lines)
    assert "rollout/sequences/mean:" in methods_run.log
    assert (methods_run.folder / "huggingface" / "config.json").exists()


def test_each_sequence_holds_the_latest_pictures(lines: list[dict], sft_model: Path) -> None:
    image_token = AutoTokenizer.from_pretrained(sft_model).convert_tokens_to_ids("<|image_pad|>")
    for line in lines:
        evidence = len(line["trajectory"].initial_frames)
        for sequence, turn in zip(line["sequences"], line["trajectory"].turns, strict=True):
            assert len(placeholder_runs(sequence["prompts"], image_token)) == evidence
            assert all(sequence["response_mask"])
            evidence = sum(len(call.frames) for call in turn.calls) or evidence


def test_engine_and_actor_agree_on_every_turn(lines: list[dict]) -> None:
    for number in range(2):  # first turns, and turns that lost pictures
        sequences = [line["sequences"][number] for line in lines if line["num_sequences"] > number]
        pairs = [(sequence["rollout_log_probs"], sequence["old_log_probs"]) for sequence in sequences]
        differences = np.concatenate([np.abs(np.subtract(*pair)) for pair in pairs])
        assert len(differences) > 50 and differences.mean() <= MAX_PROBS_DIFF


def test_the_advantage_is_the_rollouts(lines: list[dict]) -> None:
    assert_advantages_of_groups(lines)
    for line in lines:
        values = {value for sequence in line["sequences"] for value in sequence["advantages"]}
        assert values == {line["advantage"]}
