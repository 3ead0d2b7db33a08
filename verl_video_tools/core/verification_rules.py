"""A method may have the policy answer once more from frames alone, after its answer and apart from its dialogue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from verl_video_tools.core.frames import FrameRequest, VideoInfo
from verl_video_tools.core.messages import ImagePart, Message
from verl_video_tools.core.sample import Sample
from verl_video_tools.core.trajectory import Trajectory


class VerificationRules:
    """Part of `Method`. Most methods verify nothing.

    The request has a prompt of its own: no text of the rollout is in it, so that the reply rests on the frames alone.
    It is sampled from the same weights, and is part of no training sequence. Its record is `Trajectory.verification`,
    which `components` may pay for.
    """

    name: ClassVar[str]

    def verification_frames(self, trajectory: Trajectory) -> FrameRequest | None:
        """The frames to answer from, once the rollout has answered; None: do not ask."""
        return None

    def verification_prompt(self, sample: Sample, info: VideoInfo, images: Sequence[ImagePart]) -> list[Message]:
        """The whole request. Called before images are decoded, as `Method.prompt` is."""
        raise NotImplementedError(f"{self.name} has verification_frames, and no verification_prompt")
