"""A field of a subclass that is no dataclass: options set it, and nothing reads it."""

from __future__ import annotations

from typing import ClassVar

from verl_video_tools.methods.longvt import LongVT

CAUGHT_BY = "config_fields_are_declared"


class Planted(LongVT):
    name: ClassVar[str] = "planted"

    reach_seconds: float = 2.0
