"""What a run has done, step by step, in a form in which two runs can be compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from verl_video_tools.records.records import read_records

_EXACT = ("prompts", "responses", "response_mask")
_OF_THE_PROCESS = {"latency_ms", "judge_latency_ms", "cache"}
"""What depends on the clock, and on which rollout of a process has asked for a frame first."""


def rollouts(folder: Path) -> dict[tuple[int, int, int], dict[str, Any]]:
    """What is recorded of each rollout, by step, row and session.

    Left out are random ids, times, counts of the frame cache, and log-probabilities, which depend on what else was in a
    batch.

    Raises:
        AssertionError: a rollout stands there twice.
    """
    found: dict[tuple[int, int, int], dict[str, Any]] = {}
    for line in read_records(folder / "trajectories"):
        key = line["step"], line["extra_info"]["index"], line["session_id"]
        assert key not in found, f"step, row and session {key} were recorded twice"
        sequences = [{name: sequence[name] for name in _EXACT} for sequence in line["sequences"]]
        content = {name: line[name] for name in ("reward", "advantage", "extra_info")}
        content["trajectory"] = line["trajectory"].to_dict()
        found[key] = _without_the_process({**content, "sequences": sequences})
    return found


def weights(folder: Path, step: int) -> dict[str, torch.Tensor]:
    """Those of the checkpoint of a step, in float32."""
    files = (folder / f"global_step_{step}" / "actor" / "huggingface").glob("*.safetensors")
    return {name: weight for file in files for name, weight in load_file(file).items()}


def different_weights(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> list[str]:
    """Names of those that are not bit for bit equal."""
    assert first and first.keys() == second.keys()
    assert {weight.dtype for weight in [*first.values(), *second.values()]} == {torch.float32}
    return [name for name in first if not torch.equal(first[name], second[name])]


def _without_the_process(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_the_process(member) for name, member in value.items() if name not in _OF_THE_PROCESS}
    return [_without_the_process(member) for member in value] if isinstance(value, list) else value
