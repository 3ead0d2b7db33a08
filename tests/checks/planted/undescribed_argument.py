"""A description that says that a needed argument may be left out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.videobrain import VideoBrain

_UNIFORM, _CLIP = VideoBrain.tool_descriptions

CAUGHT_BY = "descriptions_are_what_tools_accept"


@dataclass(frozen=True, kw_only=True)
class Planted(VideoBrain):
    name: ClassVar[str] = "planted"

    tool_descriptions: ClassVar[tuple[vt.ToolDescription, ...]] = (
        _UNIFORM,
        replace(_CLIP, optional=("prompt",)),
    )
