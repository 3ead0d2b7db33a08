"""Fine-tuning, then GRPO, of a small model with the 151,936 ids of Qwen2.5-VL. The recipes are told nothing of that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from transformers import AutoProcessor

from tests.integration.conftest import MAX_PROBS_DIFF, Run, assert_succeeded, run_recipe
from tests.released_models import VOCABULARY_SIZE, add_random_weights, make_released_model
from verl_video_tools.records.records import read_records
from verl_video_tools.records.report import LOG_NAMES, read_log

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(1500)]

NUM_SFT_STEPS, NUM_GRPO_STEPS, BATCH_SIZE, GROUP_SIZE = 4, 2, 2, 4
MAX_BANNED_SHARE = 3e-3
"""271 ids beyond the tokenizer's, and placeholders of images and videos, are 1.8e-3 of all."""


@pytest.fixture(scope="module")
def base(output_dir: Path) -> Path:
    folder = output_dir / "released_base"
    make_released_model("qwen2_5_vl", folder)
    add_random_weights(folder)
    return folder


@pytest.fixture(scope="module")
def sft_run(output_dir: Path, base: Path) -> Run:
    run = run_recipe(
        "released_sft",
        "framethinker_sft",
        output_dir,
        f"model.path={base}",
        f"trainer.total_training_steps={NUM_SFT_STEPS}",
        "data.train_batch_size=4",  # the logits of a token take 0.6 MB, several times over
    )
    assert_succeeded(run)
    return run


@pytest.fixture(scope="module")
def grpo_run(output_dir: Path, sft_run: Run) -> Run:
    run = run_recipe(
        "released_grpo",
        "framethinker_grpo",
        output_dir,
        f"trainer.total_training_steps={NUM_GRPO_STEPS}",
        "video_tools.trainer.record_tokens=True",
        f"data.train_batch_size={BATCH_SIZE}",
        f"actor_rollout_ref.rollout.n={GROUP_SIZE}",
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1",
        MODEL_PATH=str(sft_run.folder / "huggingface"),
    )
    assert_succeeded(run)
    return run


def processor_of(folder: Path) -> Any:
    return AutoProcessor.from_pretrained(folder)


@pytest.mark.parametrize("run", ["sft_run", "grpo_run"])
def test_the_model_that_a_run_exports_has_vocabulary_and_template(
    run: str, base: Path, request: pytest.FixtureRequest
) -> None:
    folder = request.getfixturevalue(run).folder / "huggingface"
    ours, exported = processor_of(base), processor_of(folder)
    assert exported.chat_template == ours.chat_template
    assert exported.tokenizer.get_vocab() == ours.tokenizer.get_vocab()
    with safe_open(folder / "model.safetensors", "pt") as weights:
        (embedding,) = (name for name in weights.keys() if name.endswith("embed_tokens.weight"))  # noqa: SIM118  (no dict)
        assert weights.get_slice(embedding).get_shape()[0] == VOCABULARY_SIZE


def test_fine_tuning_learns(sft_run: Run) -> None:
    (log,) = sft_run.folder.glob(LOG_NAMES)
    steps = read_log(log)
    assert sorted(steps) == list(range(1, NUM_SFT_STEPS + 1))
    assert steps[NUM_SFT_STEPS]["train/loss"] < steps[1]["train/loss"]


def test_engine_and_actor_agree_before_and_after_an_update(grpo_run: Run) -> None:
    """But for a constant: the engine never samples ids that the tokenizer lacks, and an untrained actor would."""
    steps = set()
    for line in read_records(grpo_run.folder / "trajectories"):
        (sequence,) = line["sequences"]
        sampled = np.array(sequence["response_mask"], dtype=bool)
        of_engine, of_actor = (np.array(sequence[name])[sampled] for name in ("rollout_log_probs", "old_log_probs"))
        excess = of_engine - of_actor
        assert excess.min() >= 0 and excess.max() <= MAX_BANNED_SHARE
        assert np.ptp(excess) <= MAX_PROBS_DIFF
        steps.add(line["step"])
    assert steps == set(range(1, NUM_GRPO_STEPS + 1))


def test_rollouts_are_whole_and_begin_with_the_prompt_of_the_model(grpo_run: Run, base: Path) -> None:
    lines = list(read_records(grpo_run.folder / "trajectories"))
    assert len(lines) == NUM_GRPO_STEPS * BATCH_SIZE * GROUP_SIZE
    tokenizer = processor_of(base).tokenizer
    for line in lines:
        assert line["trajectory"].flags == []
        (sequence,) = line["sequences"]
        text = tokenizer.decode(sequence["prompts"])
        assert text.startswith("<|im_start|>system\n") and text.endswith("<|im_end|>\n<|im_start|>assistant\n")
        assert tokenizer.encode(text) == list(sequence["prompts"])
