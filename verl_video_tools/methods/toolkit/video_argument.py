"""Which of several videos a call means: `video`, a number from 1, as labels and prompts count them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from verl_video_tools.core.errors import CallErrorCode, CallRejected
from verl_video_tools.core.types import ToolContext, VideoInfo


def video_argument(arguments: Mapping[str, Any], context: ToolContext) -> tuple[int, VideoInfo]:
    """The place of the video in `ToolContext.videos`, from 0, and its facts. A call that names none means the first.

    Raises:
        CallRejected: `malformed_call` for what is no whole number, `wrong_video` for one that no video has.
    """
    videos = context.videos or (context.info,)
    number = arguments.get("video")
    if number is None:
        return 0, context.info
    if isinstance(number, bool) or not isinstance(number, int):
        raise CallRejected(CallErrorCode.MALFORMED_CALL, f"video must be a whole number from 1, got {number!r:.80}")
    if not 1 <= number <= len(videos):
        raise CallRejected(CallErrorCode.WRONG_VIDEO, f"video {number} does not exist; there are 1 to {len(videos)}")
    return number - 1, videos[number - 1]
