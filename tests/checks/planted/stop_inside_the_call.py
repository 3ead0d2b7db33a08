"""A stop string that cuts every call before its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods.longvt import LongVT

CAUGHT_BY = "stop_strings_end_a_call"


@dataclass(frozen=True, kw_only=True)
class Planted(LongVT):
    name: ClassVar[str] = "planted"

    stop: tuple[str, ...] = ("}",)
