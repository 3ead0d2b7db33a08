"""The grammar begins a turn with `<thinking>`, and `thought_tag` is still the base class's `think`.

With a model that reasons natively between `<think>` and `</think>`, that reasoning is taken for the method's thought.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods.videobrain import VideoBrain

Clean = VideoBrain


@dataclass(frozen=True, kw_only=True)
class Planted(VideoBrain):
    name: ClassVar[str] = "thought_tag_left"
    thought_tag: ClassVar[str | None] = "think"
