"""A list as a field: one rollout changes it for all."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from verl_video_tools.methods.direct import Direct

CAUGHT_BY = "config_is_frozen"


@dataclass(frozen=True, kw_only=True)
class Planted(Direct):
    name: ClassVar[str] = "planted"

    words: list[str] = field(default_factory=list)
