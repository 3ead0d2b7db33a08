"""A run before its start, as its checks see it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from verl_video_tools.core.machine import list_gpus

if TYPE_CHECKING:
    from verl_video_tools.verl_plugin.planned_run import Kind, RunModel

ROWS_OF_A_START = 8
"""Rows of each split that the start of a run looks at, in a second or two."""


@dataclass
class PlannedRun:
    """What is checked, and what checks have found for those behind them.

    Attributes:
        program: of verl.
        config: its whole configuration.
        device: `cpu` or `gpu`.
        thorough: everything is checked that needs neither Ray nor an engine nor weights, in a minute; else only what
            takes no longer than a second or two.
        num_rows: rows of each split that are looked at, spread evenly over its files.
        stand_in: folder of the model whose tokenizer and processor stand for those of one that is trained first.
        uses_other_nodes: the run has processes on other machines.
        model: tokenizer and processor, once they are loaded.
    """

    program: Kind
    config: DictConfig
    device: str
    thorough: bool
    num_rows: int = ROWS_OF_A_START
    stand_in: str | None = None
    uses_other_nodes: bool = False
    model: RunModel | None = None

    @cached_property
    def gpus(self) -> list[str]:
        """Names of those that are here, where the run takes any."""
        return list_gpus() if self.device == "gpu" else []

    @property
    def model_section(self) -> Any:
        """The section `model` of the configuration."""
        return self.config.actor_rollout_ref.model if self.program == "grpo" else self.config.model
