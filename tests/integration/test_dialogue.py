"""Engine, actor and plain transformers give the same log-probabilities, for every family of models."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.integration.conftest import MAX_PROBS_DIFF, REPO
from tests.integration.parity import Fault
from tests.verl_plugin.harness import model_dir
from verl_video_tools.config import VLLM_CPU_ENVIRONMENT
from verl_video_tools.synthetic import Family, base_model_dir

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]


def run_dialogue(folder: Path, mm_processor_kwargs: dict[str, int] | None = None, dtype: str = "float32") -> Any:
    """What the program found."""
    variables = VLLM_CPU_ENVIRONMENT | {"VERL_PLATFORM": "cpu", "PYTHONPATH": str(REPO)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.dialogue", str(folder), json.dumps(mm_processor_kwargs or {}), dtype],
        cwd=REPO,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert min(found["tokens"]) > 10, found
    return found


def hold_dialogue(folder: Path, mm_processor_kwargs: dict[str, int] | None = None) -> dict[str, Any]:
    """What the program found; engine and actor must agree, and planted faults must show."""
    found: dict[str, Any] = run_dialogue(folder, mm_processor_kwargs)
    assert max(found["engine"] + found["actor"]) <= MAX_PROBS_DIFF, found
    for fault in get_args(Fault):
        assert found[fault][1] > 10 * MAX_PROBS_DIFF, (fault, found)
    return found


# A whole run compares engine and actor of Qwen2.5-VL in `test_grpo`.
@pytest.mark.parametrize("family", [pytest.param("qwen2_5_vl", marks=pytest.mark.long), "qwen3_vl"])
def test_two_sampled_turns_with_pictures_between_them(family: Family) -> None:
    """Before and after the first observation picture."""
    assert hold_dialogue(base_model_dir(family))["pixels"] == ([64, 64] if family == "qwen3_vl" else [56, 56])


@pytest.mark.long
def test_a_mixture_of_experts() -> None:
    """From a folder in the layout of released models."""
    hold_dialogue(Path(model_dir("qwen3_vl_moe")))


@pytest.mark.long
def test_linear_attention_in_bfloat16() -> None:
    """vLLM's kernels for CPUs take no other precision, so that the engine differs from float32 by rounding. Each fault
    makes more of a difference in the turn after the observation."""
    found = run_dialogue(Path(model_dir("qwen3_5")), dtype="bfloat16")
    assert max(found["actor"]) <= MAX_PROBS_DIFF, found
    means = found["means"]
    assert all(means["engine"][1] < means[fault][1] for fault in get_args(Fault)), found


@pytest.mark.long
def test_pixel_limits_of_a_run_reach_engine_and_actor(tmp_path: Path) -> None:
    """The least area of released Qwen3-VL processors would enlarge a small frame to 256 x 256 pixels."""
    folder = tmp_path / "model"
    shutil.copytree(base_model_dir("qwen3_vl"), folder)
    config = json.loads((folder / "processor_config.json").read_text())
    config["image_processor"]["size"] = {"shortest_edge": 65_536, "longest_edge": 262_144}
    (folder / "processor_config.json").write_text(json.dumps(config))
    assert hold_dialogue(folder, {"min_pixels": 1024, "max_pixels": 65_536})["pixels"] == [64, 64]
