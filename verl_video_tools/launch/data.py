"""Rows of a run that no file holds yet: those of the synthetic world, and a policy's own good rollouts."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_video_tools.core.errors import SetupError, UsageError
from verl_video_tools.launch.supervise import supervise
from verl_video_tools.methods import get_method, method_names

VVT = str(Path(sys.executable).with_name("vvt"))
"""The command. It runs in another process, so that its imports take no memory beside the training run."""


def run_methods(config: DictConfig) -> list[str]:
    """Names of the methods that the run configures, in the order of its groups."""
    return [name for name in config.video_tools if name in method_names()]


def make_demo(config: DictConfig) -> None:
    """Videos, rows and a tiny base model in `video_tools.demo_dir`; what is there already stays."""
    demo = config.video_tools.demo
    command = ["demo", "--out", str(config.video_tools.demo_dir)]
    command += [f"--agent-name={name}" for name in run_methods(config)]
    command += ["--family", demo.family]
    command += [
        option for option, is_enabled in (("--open-ended", demo.open_ended), ("--spatial", demo.spatial)) if is_enabled
    ]
    _vvt(*command)


def export_expert(config: DictConfig, rows: Path) -> None:
    """Write what the scripted expert of the synthetic world answers as rows for fine-tuning."""
    settings = config.video_tools.demo
    command = ["data", "export-sft", f"{config.video_tools.demo_dir}/train.parquet", str(rows), "--overwrite"]
    # Answers are texts of options: a model of a million parameters copies them, but looks up letters poorly.
    command += ["--in-words", "--questions-per-video", str(settings.questions_per_video)]
    command += ["--imperfection", str(settings.imperfection)]
    for name in run_methods(config):
        command += [f"--set={name}.{field}={value}" for field, value in changed_fields(name, config).items()]
    if any(get_method(name).searches for name in run_methods(config)):
        # Rows keep what the encoder found, so training itself loads none.
        command += ["--retrieval", f"model={config.video_tools.demo_dir}/clip"]
    rows.parent.mkdir(parents=True, exist_ok=True)
    _vvt(*command)


def export_rollouts(config: DictConfig, rows: Path) -> None:
    """Write a policy's good rollouts, with rows of its cold start, as rows for fine-tuning (`video_tools.rft`).

    Raises:
        UsageError: `cold_share` is above 0, and `cold_start` names no rows.
    """
    rft = config.video_tools.rft
    command = ["data", "export-sft", str(rft.records_dir), str(rows), "--overwrite", "--min-iou", str(rft.min_iou)]
    for option, value in (("--min-step", rft.min_step), ("--max-step", rft.max_step)):
        command += [] if value is None else [option, str(value)]
    if rft.cold_share:
        if not rft.cold_start:
            raise UsageError(
                "rollouts alone let the policy forget what none of them shows: set "
                "video_tools.rft.cold_start=[FILE,...] to rows of the cold start, or video_tools.rft.cold_share=0"
            )
        command += [f"--cold-start={file}" for file in rft.cold_start]
        command += ["--cold-share", str(rft.cold_share)]
    rows.parent.mkdir(parents=True, exist_ok=True)
    _vvt(*command)


def changed_fields(name: str, config: DictConfig) -> dict[str, str]:
    """Fields that differ from the method's defaults, as `--set` takes them."""
    defaults = get_method(name)
    configured: Any = OmegaConf.to_container(config.video_tools[name], resolve=True)
    changed = {field: value for field, value in configured.items() if value != _plain(getattr(defaults, field))}
    return {field: value if isinstance(value, str) else json.dumps(value) for field, value in changed.items()}


def _plain(value: Any) -> Any:
    return [_plain(part) for part in value] if isinstance(value, tuple) else value


def _vvt(*arguments: str) -> None:
    """Run a command of `vvt` to its end; its messages are the user's."""
    status = supervise([VVT, *arguments])
    if status > 128:  # a signal that was meant for this process, too
        raise SystemExit(status)
    if status:
        raise SetupError(f"`vvt {' '.join(arguments[:2])}` ended with exit code {status}")
