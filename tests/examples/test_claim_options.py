"""What the two choices of a claim hand to verl: configurations that differ in what is claimed."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("verl", reason="its configuration is composed")
import yaml
from omegaconf import DictConfig, OmegaConf

from examples.learning_curve.claims.claim import CLAIMS, sampling
from examples.learning_curve.claims.trial import Trial
from verl_video_tools.core.config import read_assignments
from verl_video_tools.launch.train import Request, plan_run
from verl_video_tools.verl_plugin.settings import is_validation

pytestmark = pytest.mark.long

Options = Mapping[str, Any]
"""Of a configuration, by dotted name."""


class Composed:
    """Stands for `run_program`: keeps the configuration that verl would make of a run, by folder."""

    def __init__(self) -> None:
        self.configs: dict[str, Options] = {}
        self.whole: dict[str, DictConfig] = {}

    def __call__(self, *command: Any, **variables: Any) -> None:
        _, train, stage, *overrides = [str(part) for part in command]
        assert train == "train"
        with mock.patch.dict(os.environ, {name: str(value) for name, value in variables.items()}):
            config = plan_run(Request(stage, tuple(overrides))).config  # type: ignore[arg-type]  # a stage
        name = Path(config.trainer.default_local_dir).name
        self.whole.setdefault(name, config)
        options = by_name(OmegaConf.to_container(config))
        copies = ("actor_rollout_ref.rollout.custom.video_tools.", "data.video_tools.")
        self.configs.setdefault(
            name, {option: value for option, value in options.items() if not option.startswith(copies)}
        )


def by_name(config: Any, prefix: str = "") -> dict[str, Any]:
    if not isinstance(config, dict) or not config:
        return {prefix: config}
    return {
        name: value
        for key, part in config.items()
        for name, value in by_name(part, f"{prefix}.{key}".strip(".")).items()
    }


def of_measurement(config: Options) -> Options:
    return {option: value for option, value in config.items() if "video_tools" in option or "val_kwargs" in option}


@pytest.mark.parametrize("name", CLAIMS)
def test_the_choices_differ_in_what_is_claimed_alone(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = CLAIMS[name]
    trial = Trial(name, claim, 3, tmp_path)
    composed = Composed()
    monkeypatch.setattr("examples.learning_curve.run.run_program", composed)
    for run in ("rl", "ablation"):  # as if training had left it
        trial.measured(run, claim.plan.rl_steps).parent.mkdir(parents=True)
        trial.measured(run, claim.plan.rl_steps).touch()
    for stage in ("sft", "rl", "ablation"):
        trial.stages[stage]()
    prefix = f"video_tools.{claim.method}"
    chosen = [
        {f"{prefix}.{field}": value for field, value in read_assignments([*arm.fields]).items()}
        | {key: yaml.safe_load(value) for key, _, value in (option.partition("=") for option in arm.options)}
        for arm in (claim.paper, claim.other)
    ]
    paper, other = composed.configs["rl"], composed.configs["ablation"]
    for config, own in ((paper, chosen[0]), (other, chosen[1])):
        assert {option: config[option] for option in own} == own
    differing = {option for option in paper.keys() | other.keys() if paper.get(option) != other.get(option)}
    # The start is measured once, before the first run.
    differing -= {"trainer.default_local_dir", "trainer.val_before_train"}
    assert differing and differing <= {*chosen[0], *chosen[1]}

    sampled_with = [paper[f"actor_rollout_ref.rollout.{option}"] for option in ("temperature", "top_p")]
    assert tuple(sampled_with) == sampling(claim.method)

    common = read_assignments([*claim.common])
    for run in ("sft", "rl", "ablation"):
        assert {field: composed.configs[run][f"{prefix}.{field}"] for field in common} == common
    assert paper["actor_rollout_ref.model.path"] == str(tmp_path / "sft" / "huggingface")
    assert (paper["data.seed"], composed.configs["sft"]["trainer.seed"]) == (4, 4)
    assert paper["trainer.total_training_steps"] == claim.plan.rl_steps
    assert paper["actor_rollout_ref.actor.freeze_vision_tower"] is True
    views = [f"{run}_metric_{number}" for run in ("rl", "ablation") for number, metric in enumerate(claim.metrics)
             if metric.fields is not None]  # fmt: skip
    assert composed.configs.keys() == {"sft", "rl", "ablation", *views}
    for view in views:  # by the same rules, whatever was trained by
        run, _, number = view.partition("_metric_")
        fields = read_assignments([*(claim.metrics[int(number)].fields or ())])
        assert {field: composed.configs[view][f"{prefix}.{field}"] for field in fields} == fields
        assert composed.configs[view]["actor_rollout_ref.model.path"] == str(tmp_path / run / "huggingface")
        assert of_measurement(composed.configs[view]) == of_measurement(composed.configs[f"rl_metric_{number}"])
    for run in ("rl", "ablation", *views):
        rollout = composed.whole[run].actor_rollout_ref.rollout
        assert is_validation(rollout.val_kwargs, rollout), "else its rollouts would count as those of training"
        wanted = rollout.temperature if claim.samples_answers else 0.0
        assert rollout.val_kwargs.temperature == pytest.approx(wanted, abs=0.02)
