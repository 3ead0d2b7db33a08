"""Which frames are shown with the question: the method's, or those that a selector chooses in its place."""

from __future__ import annotations

from collections.abc import Sequence

from verl_video_tools.core.errors import RetrievalError, VideoError
from verl_video_tools.core.tool import load_selector
from verl_video_tools.core.types import FrameRequest, ImagePart, Message, Method, PixelEnvelope, Sample
from verl_video_tools.rollout.special_tokens import escape_special_tokens, prompt_messages
from verl_video_tools.rollout.tool_contexts import ToolContexts
from verl_video_tools.video import Video


async def initial_requests(
    method: Method, sample: Sample, envelope: PixelEnvelope, videos: Sequence[Video], contexts: ToolContexts
) -> list[FrameRequest]:
    """One request for each video.

    Raises:
        RetrievalError: a selector failed, or chose what it may not.
        UsageError: the method does not ask about several videos.
    """
    if len(videos) > 1:
        return method.plan_videos([video.info for video in videos], sample, envelope)
    planned = method.plan_initial_frames(videos[0].info, sample, envelope)
    if method.initial_frames_selector is None:
        return [planned]
    context = contexts.of_selector(videos[0])
    select = load_selector(method.initial_frames_selector)
    try:
        chosen = await select(planned, context, method.tool_deadline_seconds)
    except (RetrievalError, VideoError):
        raise
    except Exception as error:  # a user's own code: raised further, it would cost the whole group its records
        raise RetrievalError(f"{method.initial_frames_selector} failed: {error!r}") from error
    same_form = (chosen.width, chosen.height, chosen.grid) == (planned.width, planned.height, planned.grid)
    if not same_form or not 0 < chosen.num_frames <= planned.num_frames:
        raise RetrievalError(
            f"{method.initial_frames_selector} chose {chosen.num_frames} frames of {chosen.width}x{chosen.height}; it "
            f"may choose 1 to {planned.num_frames} of {planned.width}x{planned.height}"
            f"{'' if chosen.grid == planned.grid else ', in the same grid'}"
        )
    return [chosen]


def initial_messages(
    method: Method, sample: Sample, videos: Sequence[Video], images: Sequence[ImagePart]
) -> list[Message]:
    """The prompt with these images. Subtitles, whose times are of one video, stand in it where there is one."""
    if len(videos) == 1:
        return prompt_messages(method, sample, videos[0].info, images)
    messages = method.videos_prompt(sample, [video.info for video in videos], images)
    return [Message(message.role, escape_special_tokens(message.content)) for message in messages]


def group_prefetch(
    group: Sequence[Method], requests: Sequence[FrameRequest], sample: Sample, envelope: PixelEnvelope, video: Video
) -> tuple[FrameRequest, ...]:
    """Initial frames of the group that differ from a rollout's `requests`, in a row with one video."""
    different = {id(method): method for method in group}.values()
    return tuple({method.plan_initial_frames(video.info, sample, envelope) for method in different} - set(requests))
