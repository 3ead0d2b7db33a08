"""Config groups: what they hold, and that a run composed of them is the run that its recipe starts."""

from __future__ import annotations

import json
import os
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args
from unittest import mock

import pytest
from omegaconf import DictConfig, OmegaConf

pytest.importorskip("verl", reason="the groups complete verl's configuration")

from hydra import compose, initialize_config_module
from hydra.errors import ConfigCompositionException

from tests.recipes.options import verl_config
from tests.recorded.configurations import _by_key, changes, read
from verl_video_tools import config
from verl_video_tools.core.config import checked_fields
from verl_video_tools.launch.train import Plan, Request, Stage, plan_run
from verl_video_tools.methods import METHOD_NAMES, get_method
from verl_video_tools.services.judge.config import JudgeConfig
from verl_video_tools.services.retrieval import RetrievalConfig
from verl_video_tools.services.tool_model import ToolModelConfig
from verl_video_tools.verl_plugin.hydra_groups import register
from verl_video_tools.verl_plugin.settings import configured_methods
from verl_video_tools.verl_plugin.trainer_options import TrainerOptions

REPO = Path(__file__).parents[2]
GROUPS = Path(config.__file__).parent / "video_tools"
METHODS = ("framethinker", "videozoomer", "longvt", "videobrain", "framemind", "mixed", "compose")
STAGES: list[tuple[str, Stage]] = [
    *((method, stage) for method in METHODS for stage in get_args(Stage)[:2]),
    ("longvt", "rft"),
]

MODEL = "Qwen/Qwen2.5-VL-7B-Instruct"
ROWS = {"TRAIN_FILES": "train.parquet", "VAL_FILES": "val.parquet"}


def composed(stage: str, *overrides: str) -> DictConfig:
    register()
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose(verl_config(f"_{stage}"), overrides=list(overrides))


def planned(
    request: Request, folder: Path, monkeypatch: pytest.MonkeyPatch, **variables: str
) -> tuple[Plan, dict[str, Any]]:
    """The run that the request makes in `folder`, and its values, by key as in `tests.recorded.configurations`."""
    monkeypatch.chdir(folder)
    for name in ("HF_HUB_OFFLINE", "OMP_NUM_THREADS"):  # set for all tests
        monkeypatch.delenv(name, raising=False)
    with mock.patch.dict(os.environ, {"OUTPUT_DIR": str(folder), **variables}):
        given = dict(os.environ)
        plan = plan_run(request)
    values = _by_key(OmegaConf.to_container(plan.config, resolve=True))
    values |= {
        f"environment.{name}": value
        for name, value in plan.environment.items()
        if given.get(name) != value and name != "PATH"
    }
    text = json.dumps(values).replace(str(folder), "FOLDER").replace(str(REPO), "REPOSITORY")
    return plan, json.loads(re.sub(r"\d{8}_\d{6}", "TIME", text))


def differences(recipe: str, device: str, preset: str, values: dict[str, Any]) -> dict[str, Any]:
    """Values of a run, by key, where the recorded one of the recipe has others. Our own node is not in verl's."""
    recorded = read(recipe)[recipe, device, preset]
    return {
        key: value
        for key, value in changes(recorded, values).items()
        if key not in ("command", "data", "environment.PATH", "environment.COMPOSE")
        and not key.startswith("video_tools.")
        and ".video_tools." not in key
    }


@pytest.mark.slow
@pytest.mark.parametrize(("method", "stage"), STAGES)
def test_a_run_on_the_usual_machine_is_the_recipes(
    method: str, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = {"DEVICE": "gpu"} | (ROWS if stage != "rft" else {})
    request = Request(stage, (f"+video_tools={method}_{stage}", *(RFT if stage == "rft" else ())))
    _, values = planned(request, tmp_path, monkeypatch, **given)
    expected: dict[str, Any] = {}
    if stage == "sft":
        expected = {"data.val_files": "val.parquet"}  # the recipes took VAL_FILES in reinforcement learning alone
    if stage == "rft":
        expected = {"data.train_files": "FOLDER/longvt_rft/train.parquet"}
    assert differences(f"{method}_{stage}", "gpu", "none", values) == expected


RFT = ("video_tools.rft.records_dir=trajectories", "video_tools.rft.cold_start=[cold.parquet]")


@pytest.mark.slow
@pytest.mark.parametrize(("method", "stage"), [(method, stage) for method, stage in STAGES if method != "mixed"])
def test_a_run_on_a_small_machine_is_the_recipes(
    method: str, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = "grpo" if stage == "grpo" else "sft"
    names = (f"4x48gb_lora_{method}_{program}", f"4x48gb_lora_{program}")
    machine = next(name for name in names if (GROUPS / "machine" / f"{name}.yaml").exists())
    groups = (f"+video_tools={method}_{stage}", f"+video_tools/machine={machine}")
    given = {"DEVICE": "gpu", "TRAIN_FILES": "train.parquet"}
    given |= {"VAL_FILES": "val.parquet"} if stage == "grpo" else {}
    given |= {"MODEL_PATH": MODEL} if stage != "rft" else {}
    request = Request(stage, (*groups, *(RFT if stage == "rft" else ())))
    _, values = planned(request, tmp_path, monkeypatch, **given)
    expected = {"data.train_files": "train.parquet"} if stage == "rft" else {}
    assert differences(f"{method}_{stage}", "gpu", "7b_4x48gb_lora", values) == expected


SIZES = {"data.mm_processor_kwargs.min_pixels": 3136, "data.mm_processor_kwargs.max_pixels": 12544}
"""In the synthetic world, whose frames have these sizes already."""


@pytest.mark.slow
@pytest.mark.parametrize(("method", "stage"), STAGES)
def test_a_run_without_a_gpu_is_the_recipes(
    method: str, stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = Request(stage, (f"+video_tools={method}_{stage}",))
    plan, values = planned(request, tmp_path, monkeypatch, DEVICE="cpu")
    expected: dict[str, Any] = dict(SIZES)
    if stage != "grpo":
        expected["trainer.device"] = "cpu"  # as the program for a CPU sets it
        expected["environment.OMP_WAIT_POLICY"] = "PASSIVE"  # which was part of the command
    if method == "longvt" and stage != "grpo":
        expected["data.max_token_len_per_gpu"] = 1280  # read where use_dynamic_bsz=True alone
    if stage == "rft":
        expected["data.train_files"] = "FOLDER/longvt_rft/train.parquet"
    assert differences(f"{method}_{stage}", "cpu", "none", values) == expected
    assert plan.is_synthetic


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_smoke_test_is_the_recipes(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    request = Request("grpo", (f"+video_tools={method}_grpo",), smoke_test=True)
    _, values = planned(request, tmp_path, monkeypatch, DEVICE="cpu")
    found = differences(f"{method}_grpo", "cpu_smoke_test", "none", values)
    in_folder = {key for key, value in found.items() if f"FOLDER/{method}_smoke_test/TIME" in str(value)}
    expected: dict[str, Any] = dict(SIZES)
    if method == "framemind":
        expected["actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu"] = 8  # that of the synthetic world
    assert {key: value for key, value in found.items() if key not in in_folder} == expected
    assert "trainer.default_local_dir" in in_folder


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_a_file_has_each_field_of_its_method_with_the_default(method: str) -> None:
    path = GROUPS / "fields" / f"{method}.yaml"
    values = OmegaConf.to_container(OmegaConf.load(path))
    method_config = get_method(method)
    assert isinstance(values, dict)
    if method == "compose":
        assert list(values) == ["file"]  # the others follow from that file
    else:
        assert list(values) == [field.name for field in fields(method_config)]
    assert get_method(method, **values) == method_config


def test_services_and_trainer_options_are_listed_with_their_defaults() -> None:
    values: Any = OmegaConf.to_container(OmegaConf.load(GROUPS / "services.yaml"))
    classes = {
        "judge": JudgeConfig,
        "retrieval": RetrievalConfig,
        "tool_model": ToolModelConfig,
        "trainer": TrainerOptions,
    }
    assert list(values) == list(classes)
    assert values["retrieval"].pop("model") is None  # none is the default of a run, not of the class
    for name, options in classes.items():
        listed = [field.name for field in fields(options) if (name, field.name) != ("retrieval", "model")]
        assert list(values[name]) == listed
        assert options(**checked_fields(options, values[name])) == options()


def test_a_run_configures_its_methods() -> None:
    run = composed("grpo", "+video_tools=mixed_grpo", "video_tools.longvt.initial_frames=64")
    configured = {method.name: method for method in configured_methods(run.actor_rollout_ref.rollout)}
    assert set(configured) == {"framethinker", "videozoomer", "longvt", "videobrain", "framemind"}
    assert configured["longvt"] == get_method("longvt", initial_frames=64)
    assert configured["framemind"] == get_method("framemind")


def test_a_field_that_a_method_lacks_is_refused() -> None:
    with pytest.raises(ConfigCompositionException, match=r"video_tools\.longvt\.inital_frames"):
        composed("grpo", "+video_tools=longvt_grpo", "video_tools.longvt.inital_frames=64")
