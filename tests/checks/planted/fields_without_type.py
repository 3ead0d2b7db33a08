"""Fields that are assigned without their type: the dataclass does not see them, and their defaults stay."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods.longvt import LongVT

CAUGHT_BY = "config_fields_are_declared"


@dataclass(frozen=True, kw_only=True)
class Planted(LongVT):
    name: ClassVar[str] = "planted"

    stop = ("</tool_call>",)
    end_on_call_error = False
