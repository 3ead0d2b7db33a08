"""What agent loop, reward manager and trainer agree on: where a method's config stands and where the record travels."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

from verl_video_tools.errors import SetupError, UsageError
from verl_video_tools.methods import get_method
from verl_video_tools.types import Method, Trajectory

_RECORD_FIELD = "video_tools_trajectory"


def method_from_config(name: str, rollout_config: DictConfig) -> Method:
    """The frozen config of a method with the fields that `rollout.custom.video_tools.<name>` overrides."""
    return get_method(name, **plain_dict(OmegaConf.select(rollout_config, f"custom.video_tools.{name}")))


def plain_dict(config: DictConfig | None) -> dict[str, Any]:
    """A section of a Hydra config as a dict with string keys; empty where the section is absent.

    Raises:
        UsageError: the section is not a mapping.
    """
    values = {} if config is None else OmegaConf.to_container(config, resolve=True)
    if not isinstance(values, dict):
        raise UsageError(f"expected field=value pairs in the configuration, got {values!r}")
    return {str(key): value for key, value in values.items()}


def pack_record(trajectory: Trajectory) -> dict[str, str]:
    """The record as an entry of `AgentLoopOutput.extra_fields` (JSON text: survives every serialiser on the way)."""
    return {_RECORD_FIELD: json.dumps(trajectory.to_dict())}


def unpack_record(extra_fields: Mapping[str, Any]) -> Trajectory:
    """Inverse of `pack_record`.

    Raises:
        SetupError: the rollout was made by an agent loop that is not ours.
    """
    if _RECORD_FIELD not in extra_fields:
        raise SetupError(
            "a rollout carries no record: reward manager and trainer of verl_video_tools take only rollouts of its own "
            "agent loops; point rollout.agent.agent_loop_config_path at the file that `vvt path agent-loops` prints"
        )
    return Trajectory.from_dict(json.loads(extra_fields[_RECORD_FIELD]))
