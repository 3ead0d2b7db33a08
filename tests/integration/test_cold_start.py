"""The cold start of all methods, killed after its first checkpoint and started again with the same command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from safetensors.torch import load_file

from tests.integration.conftest import SFT_SAVE_FREQ
from verl_video_tools.records.report import LOG_NAMES, read_log

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1500)]

Steps = dict[int, dict[str, float]]


@pytest.fixture(scope="module")
def parts(sft_model: Path) -> tuple[Steps, Steps]:
    """What the run logged by step before it was killed, and after it was started again."""
    first, second = sorted(sft_model.parent.glob(LOG_NAMES))
    return read_log(first), read_log(second)


def test_the_second_start_goes_on_after_the_checkpoint(parts: tuple[Steps, Steps]) -> None:
    first, second = parts
    assert sorted(first)[:SFT_SAVE_FREQ] == list(range(1, SFT_SAVE_FREQ + 1))
    assert sorted(second) == list(range(SFT_SAVE_FREQ + 1, max(second) + 1))
    assert max(second) > max(first)


def test_schedule_and_weights_are_those_of_the_checkpoint(parts: tuple[Steps, Steps]) -> None:
    first, second = parts
    before, after = first[SFT_SAVE_FREQ], second[SFT_SAVE_FREQ + 1]
    assert 0.9 * before["train/lr"] < after["train/lr"] < before["train/lr"], "the cosine goes on falling"
    # A first step from the base model loses several times as much.
    assert after["train/loss"] < 1.5 * before["train/loss"] < 0.5 * first[1]["train/loss"]


def test_the_end_says_what_the_model_has_learnt(sft_model: Path) -> None:
    log = (sft_model.parent / "run.log").read_text(errors="replace")
    (found,) = re.findall(r"of the last (\d+) dialogues .* would write (\d+) word for word; (\d+)% of their token", log)
    num_dialogues, num_reproduced, percent = map(int, found)
    assert num_dialogues >= max(1, num_reproduced)
    assert percent >= 50, "the demo's cold start teaches its grammar"


def test_the_exported_model_is_the_last_checkpoint(sft_model: Path, parts: tuple[Steps, Steps]) -> None:
    checkpoint = sft_model.parent / f"global_step_{max(parts[1])}" / "huggingface"
    exported, saved = (load_file(folder / "model.safetensors") for folder in (sft_model, checkpoint))
    assert exported.keys() == saved.keys() and all(exported[name].equal(saved[name]) for name in saved)


def test_a_frozen_tower_does_not_move(sft_model: Path, output_dir: Path) -> None:
    """The run's FREEZE_VISION_TOWER=1: its optimiser's weight decay and momentum leave the tower alone, too."""
    base, tuned = (
        load_file(folder / "model.safetensors") for folder in (output_dir / "demo_mixed" / "base", sft_model)
    )
    tower = {name for name in base if ".visual." in f".{name}"}
    assert tower and all(base[name].equal(tuned[name]) for name in tower)
    assert not any(
        base[name].equal(tuned[name]) for name in base if name.endswith("mlp.down_proj.weight") and name not in tower
    )
