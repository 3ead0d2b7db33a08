"""Messages in the form in which they travel to an OpenAI-compatible endpoint, and stop strings that come back."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from typing import Any

from verl_video_tools.core.image_files import encode_image
from verl_video_tools.core.types import ImagePart, Message, content_images
from verl_video_tools.services.endpoint import Completion


def restore_stop(completion: Completion, stop: Sequence[str]) -> str:
    """The text with the stop string that ended it, where the endpoint left it out.

    One that never names stop strings is taken to have left out a closing tag whose opening tag stands unclosed in the
    text; what native reasoning names does not count. Where one does, and names none, the model itself ended its turn
    there, and nothing is added.
    """
    text = completion.text
    if completion.reasoning is not None and not text.strip():
        return text  # it ended the reasoning
    if completion.finish_reason != "stop" or text.endswith(tuple(stop)):
        return text
    if completion.stop_reason in stop:
        return text + str(completion.stop_reason)
    if completion.reports_stop:
        return text
    after_reasoning = text.rpartition("</think>")[2]
    for string in stop:
        closing = re.fullmatch(r"</(\w+)>", string)
        if closing is not None and after_reasoning.count(f"<{closing[1]}>") > after_reasoning.count(string):
            return text + string
    return text


VIDEO_JPEG_QUALITY = 95
"""Of the frames of a video, which travel as JPEG by default."""


def to_chat_message(message: Message, jpeg_quality: int | None = None, *, as_video: bool = False) -> dict[str, Any]:
    """A message with its texts and images in reading order.

    Args:
        jpeg_quality: 1 to 95; None sends PNG, which is lossless.
        as_video: all its images are one video, which stands at the place of the first.

    Raises:
        ValueError: an image has no pixels.
    """
    if all(isinstance(part, str) for part in message.content):
        return {"role": message.role, "content": "".join(map(str, message.content))}
    parts: list[dict[str, Any]] = []
    for part in message.content:
        if isinstance(part, ImagePart) and as_video:
            if not any(other["type"] == "video_url" for other in parts):
                parts.append({"type": "video_url", "video_url": {"url": video_url(message, jpeg_quality)}})
        elif isinstance(part, ImagePart):
            parts.append({"type": "image_url", "image_url": {"url": data_url(part, jpeg_quality)}})
        elif parts and parts[-1]["type"] == "text":
            parts[-1]["text"] += part
        else:
            parts.append({"type": "text", "text": part})
    return {"role": message.role, "content": parts}


def video_url(message: Message, jpeg_quality: int | None = None) -> str:
    """The images of a message as the `data:` URL of one video: frames as JPEG, as vLLM takes them decoded and sampled.

    Raises:
        ValueError: one has no pixels.
    """
    images = content_images(message.content)
    frames = (data_url(image, jpeg_quality or VIDEO_JPEG_QUALITY).rpartition(",")[2] for image in images)
    return f"data:video/jpeg;base64,{','.join(frames)}"


def data_url(image: ImagePart, jpeg_quality: int | None = None) -> str:
    """One image as a `data:` URL. Raises ValueError if it has no pixels."""
    if image.pixels_HWC is None:
        raise ValueError(f"an image without pixels cannot be sent: {image.record}")
    kind, data = encode_image(image.pixels_HWC, jpeg_quality)
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"
