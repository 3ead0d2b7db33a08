"""A package outside this repository has config groups of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("verl", reason="recipes configure verl")

from tests.recipes.options import CACHED, plan_in
from verl_video_tools.launch.train import Request

GROUP = """# @package _global_
defaults:
  - grpo
  - _self_

data:
  train_batch_size: 4
  max_prompt_length: 512
  max_response_length: 512

actor_rollout_ref:
  actor:
    ppo_micro_batch_size_per_gpu: 2
  rollout:
    agent:
      agent_loop_config_path: /package/agent_loops.yaml
      default_agent_loop: frugal

video_tools:
  frugal:
    frame_price: 0.3

trainer:
  experiment_name: frugal_grpo
"""


@pytest.mark.slow
def test_fields_and_agent_loops_are_those_of_the_package(tmp_path: Path) -> None:
    groups = tmp_path / "config" / "video_tools"
    groups.mkdir(parents=True)
    (groups / "frugal_grpo.yaml").write_text(GROUP)
    overrides = (f"hydra.searchpath=['file://{tmp_path}/config']", "+video_tools=frugal_grpo", CACHED)
    request = Request("grpo", (*overrides, "video_tools.frugal.frame_price=0.5"))
    config = plan_in(tmp_path, request, DEVICE="gpu", TRAIN_FILES="train.parquet").config
    rollout = config.actor_rollout_ref.rollout
    assert rollout.custom.video_tools.frugal.frame_price == 0.5
    assert (rollout.agent.default_agent_loop, rollout.max_model_len) == ("frugal", 1024)
    assert rollout.agent.agent_loop_config_path == "/package/agent_loops.yaml"
    assert config.trainer.default_local_dir == str(tmp_path / "frugal_grpo")
