"""The temperature of a rollout rises with its number in the group, and a group of one divides by zero.

Training has groups of eight. A run with one rollout of a row, or a validation whose options of sampling are those of
training, has groups of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods.videozoomer import VideoZoomer


@dataclass(frozen=True, kw_only=True)
class Clean(VideoZoomer):
    name: ClassVar[str] = "temperature_ladder"

    def sampling_options(self, session_id: int, group_size: int, validate: bool) -> Mapping[str, float]:
        return {"temperature": 0.7 + 0.6 * session_id / max(1, group_size - 1)}


@dataclass(frozen=True, kw_only=True)
class Planted(VideoZoomer):
    name: ClassVar[str] = "ladder_of_one"

    def sampling_options(self, session_id: int, group_size: int, validate: bool) -> Mapping[str, float]:
        return {"temperature": 0.7 + 0.6 * session_id / (group_size - 1)}
