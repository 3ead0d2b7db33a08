"""How a rollout starts on a row without a video: with its images, or with neither."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from verl_video_tools.core.types import Message, Method, PixelEnvelope, Sample, content_images, with_pixels
from verl_video_tools.rollout.special_tokens import picture_prompt_messages
from verl_video_tools.video.pictures import planned_picture, read_picture


async def planned_messages(method: Method, sample: Sample, envelope: PixelEnvelope) -> list[Message]:
    """The prompt with images whose sizes are final and that have no pixels yet.

    Raises:
        RowError: an image cannot be read.
        UsageError: the method does not ask without a video.
    """
    numbered = enumerate(sample.image_paths)
    planned = [await asyncio.to_thread(planned_picture, path, number, envelope) for number, path in numbered]
    return picture_prompt_messages(method, sample.question, planned)


async def decoded_messages(messages: Sequence[Message], sample: Sample, envelope: PixelEnvelope) -> list[Message]:
    """The planned messages with their pixels. Raises RowError: an image cannot be read."""
    shown = {image.record.index for message in messages for image in content_images(message.content)}
    numbered = [(number, sample.image_paths[number]) for number in sorted(shown)]
    images = [await asyncio.to_thread(read_picture, path, number, envelope) for number, path in numbered]
    return [Message(message.role, with_pixels(message.content, images)) for message in messages]
