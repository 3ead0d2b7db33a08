"""A method that can take any context policy, and what makes it known to `get_method`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.core.types import ContextPolicy
from verl_video_tools.methods.framethinker import FrameThinker

NAME = "framethinker_context"


@dataclass(frozen=True, kw_only=True)
class FrameThinkerWithContext(FrameThinker):
    """FrameThinker, except for what later turns see."""

    name: ClassVar[str] = NAME

    context: ContextPolicy = "last_evidence"

    def context_policy(self) -> ContextPolicy:
        return self.context


PATH = f"{__name__}:FrameThinkerWithContext"
