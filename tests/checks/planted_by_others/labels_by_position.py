"""The label of a frame is computed from its place among the frames of the call, and not from the frame's own time.

The author takes the frames of a crop to be spread over the whole video, as the initial frames are. So the times beside
the frames of a crop are wrong, and a policy learns to distrust them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from verl_video_tools.methods import toolkit as vt
from verl_video_tools.methods.videobrain import VideoBrain

Clean = VideoBrain


@dataclass(frozen=True, kw_only=True)
class Planted(VideoBrain):
    name: ClassVar[str] = "labels_by_position"

    def observe(self, outcomes: Sequence[vt.ToolOutcome], turns_left: int) -> vt.Content:
        outcome = outcomes[0]
        if not outcome.record.ok or outcome.video is None:
            return super().observe(outcomes, turns_left)
        step = outcome.video.num_frames // max(1, len(outcome.images))
        content: list[str | vt.ImagePart] = ["The frames of your call."]
        for position, image in enumerate(outcome.images):
            content += [f"\nframe {position * step}: ", image]
        return tuple(content)
