"""A rollout of a group has a prompt file of its own: a record could then name files."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from verl_video_tools.methods.direct import Direct

CAUGHT_BY = "rollouts_of_a_group_differ_in_rollout_fields"


@dataclass(frozen=True, kw_only=True)
class Planted(Direct):
    name: ClassVar[str] = "planted"

    def for_session(self, session_id: int, group_size: int, validate: bool) -> Planted:
        return replace(self, initial_frames_selector="most_similar") if session_id == 2 else self
