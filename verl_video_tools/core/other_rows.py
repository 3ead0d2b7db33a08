"""What a method may be asked beside a question about one video: about pictures, about nothing shown, about several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from verl_video_tools.core.errors import UsageError
from verl_video_tools.core.frames import FrameRequest, PixelEnvelope, VideoInfo
from verl_video_tools.core.messages import ImagePart, Message
from verl_video_tools.core.sample import Sample
from verl_video_tools.core.subtitles import Subtitle


class OtherRows:
    """The part of `core.method.Method` that few methods override."""

    name: ClassVar[str]

    def prompt_subtitles(self, sample: Sample) -> Sequence[Subtitle]:
        """The row's subtitles that stand between the frames shown with the question: all. A method whose tools look
        them up shows none."""
        return sample.subtitles

    def picture_prompt(self, question: str, images: Sequence[ImagePart]) -> list[Message]:
        """Messages that ask on a row without a video: about its pictures, which come without pixels before they are
        decoded, or where there are none about nothing but the question. No video: no tools.

        Raises:
            UsageError: the method has none.
        """
        raise UsageError(f"{self.name} does not ask about pictures; such rows are for methods with a `picture_prompt`")

    @property
    def asks_about_several_videos(self) -> bool:
        """Whether it has `plan_videos` and `videos_prompt`."""
        return False

    def plan_videos(self, infos: Sequence[VideoInfo], sample: Sample, envelope: PixelEnvelope) -> list[FrameRequest]:
        """Frames shown with the question in a row with several videos: requests with their `video`, from 0.

        Raises:
            UsageError: the method does not ask about several.
        """
        raise UsageError(f"{self.name} does not ask about several videos")

    def videos_prompt(self, sample: Sample, infos: Sequence[VideoInfo], images: Sequence[ImagePart]) -> list[Message]:
        """Messages that start a rollout on several videos; as `Method.prompt`. The images are those of `plan_videos` in
        their order, and each record has its `video`.

        Raises:
            UsageError: the method does not ask about several.
        """
        raise UsageError(f"{self.name} does not ask about several videos")
