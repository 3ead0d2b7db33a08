"""examples/papers: runs that `vvt train` makes of the config groups of each package."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import pytest

pytest.importorskip("verl", reason="its configuration is composed")
from hydra.utils import get_class
from omegaconf import OmegaConf

from tests.examples.conftest import EXAMPLES
from verl_video_tools.config import agent_loop_targets
from verl_video_tools.launch import train
from verl_video_tools.launch.train import Plan, Request, plan_run
from verl_video_tools.methods import get_method
from verl_video_tools.verl_plugin.settings import configured_methods

Install = Callable[[str], Path]
PAPERS = sorted(path.name for path in (EXAMPLES / "papers").iterdir() if (path / "pyproject.toml").is_file())
SETTINGS = {
    "cpu": {"DEVICE": "cpu"},
    "gpu": {"DEVICE": "gpu", "TRAIN_FILES": "rows.parquet", "VAL_FILES": "val.parquet"},
}
FIELDS: dict[str, dict[str, dict[str, Any]]] = {
    "paravt": {"cpu": {"frame_choices": (4, 8), "max_turn_tokens": 160}, "gpu": {"max_turn_tokens": 2048}},
    "pixel_reasoner": {"cpu": {"initial_frames": 29, "max_turn_tokens": 96}, "gpu": {"max_turn_tokens": 2048}},
    "timesearch_r": {"cpu": {"initial_frames": 8, "max_turn_tokens": 128}, "gpu": {}},
    "video_mtr": {"cpu": {"max_turn_tokens": 128}, "gpu": {"max_turn_tokens": 1024}},
}
"""Of the method, as runs of each setting have them."""

pytestmark = pytest.mark.slow


def planned(paper: str, stage: Literal["grpo", "sft"], setting: str, folder: Path) -> Plan:
    groups = (f"hydra.searchpath=[pkg://{paper}.config]", f"+video_tools={paper}_{stage}")
    cache = ("+actor_rollout_ref.rollout.engine_kwargs.vllm.mm_processor_cache_gb=4",) if stage == "grpo" else ()
    with mock.patch.dict(os.environ, {"OUTPUT_DIR": str(folder), **SETTINGS[setting]}):
        return plan_run(Request(stage, (*groups, *cache)))


@pytest.mark.parametrize("paper", PAPERS)
def test_a_file_has_each_field_of_the_method_with_the_default(paper: str, install: Install) -> None:
    path = install(f"papers/{paper}") / paper / "config" / "video_tools" / "fields" / f"{paper}.yaml"
    values: Any = OmegaConf.to_container(OmegaConf.load(path))
    method = get_method(paper)
    assert list(values) == [field.name for field in fields(method)]
    assert get_method(paper, **values) == method


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("paper", PAPERS)
def test_a_run_trains_the_method_of_the_package(paper: str, setting: str, install: Install, tmp_path: Path) -> None:
    install(f"papers/{paper}")
    run = planned(paper, "grpo", setting, tmp_path).config
    rollout = run.actor_rollout_ref.rollout
    assert rollout.agent.default_agent_loop == paper
    (target,) = agent_loop_targets(rollout.agent.agent_loop_config_path).values()
    assert get_class(target).__name__ == "VideoAgentLoop"
    prompt = {"prompt_file": f"{tmp_path}/demo_{paper}/prompts/{paper}.txt"} if setting == "cpu" else {}
    for path in prompt.values():
        Path(path).parent.mkdir(parents=True)
        Path(path).write_text("Answer.")
    (method,) = configured_methods(rollout)
    assert method == get_method(paper, **prompt, **FIELDS[paper][setting])
    assert rollout.max_model_len == run.data.max_prompt_length + run.data.max_response_length
    assert run.trainer.nnodes == 1
    if setting == "gpu":
        budget = get_method(paper).recipe_budget
        assert (run.data.max_prompt_length, run.data.max_response_length) == (
            budget.prompt_tokens,
            budget.response_tokens,
        )
        assert run.video_tools.max_images == budget.images


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("paper", PAPERS)
def test_a_cold_start_sees_frames_as_the_run_that_follows(
    paper: str, setting: str, install: Install, tmp_path: Path
) -> None:
    install(f"papers/{paper}")
    sft, grpo = (planned(paper, stage, setting, tmp_path).config for stage in ("sft", "grpo"))  # type: ignore[arg-type]  # stages
    assert sft.data.mm_processor_kwargs == grpo.data.mm_processor_kwargs
    assert sft.trainer.default_local_dir == f"{tmp_path}/{paper}_sft"


@pytest.mark.parametrize("paper", PAPERS)
def test_a_run_on_synthetic_videos_makes_the_cold_start_of_the_package(
    paper: str, install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(f"papers/{paper}")
    requests: list[Request] = []
    monkeypatch.setattr(train, "train", lambda request: requests.append(request) or 0)
    assert train._cold_start(planned(paper, "grpo", "cpu", tmp_path)) == 0
    (request,) = requests
    with mock.patch.dict(os.environ, {"OUTPUT_DIR": str(tmp_path), "DEVICE": "cpu"}):
        cold = plan_run(request)
    assert cold.config.trainer.experiment_name == f"{paper}_sft" and cold.is_synthetic
    assert cold.folder == tmp_path / f"{paper}_sft"


@pytest.mark.parametrize("paper", PAPERS)
@pytest.mark.parametrize("stage", ["sft", "grpo"])
def test_scripts_name_the_groups_of_the_package(paper: str, stage: str) -> None:
    script = (EXAMPLES / "papers" / paper / f"{paper}_{stage}.sh").read_text()
    assert f"train {stage} 'hydra.searchpath=[pkg://{paper}.config]' +video_tools={paper}_{stage} \"$@\"" in script
