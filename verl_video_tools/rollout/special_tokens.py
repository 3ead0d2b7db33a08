"""Texts that a chat template leaves as texts.

A tokenizer makes a special token of its spelling wherever that stands: in a question, or in an error that repeats what
the policy wrote. `<|image_pad|>` would be an image that is not there, `<|im_end|>` the end of the message.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from verl_video_tools.core.subtitles import with_subtitles
from verl_video_tools.core.types import Content, ImagePart, Message, Method, Sample, VideoInfo

_OPENING = re.compile(r"<\|(?=\w+\|>)", re.ASCII)


def escape_text(text: str) -> str:
    """The text with a space in every special token that it spells (`< |im_end|>`)."""
    return _OPENING.sub("< |", text)


def escape_special_tokens(content: Content) -> Content:
    """The content with every text so."""
    return tuple(escape_text(part) if isinstance(part, str) else part for part in content)


def picture_prompt_messages(method: Method, question: str, images: Sequence[ImagePart]) -> list[Message]:
    """What starts a rollout on a row without a video: the method's prompt, whatever the question spells.

    Raises:
        UsageError: the method does not ask without a video.
    """
    messages = method.picture_prompt(question, images)
    return [Message(message.role, escape_special_tokens(message.content)) for message in messages]


def prompt_messages(method: Method, sample: Sample, info: VideoInfo, images: Sequence[ImagePart]) -> list[Message]:
    """What starts a rollout: the method's prompt with the subtitles between its frames, whatever they and the question
    spell."""
    return [
        Message(message.role, escape_special_tokens(message.content))
        for message in with_subtitles(method.prompt(sample, info, images), method.prompt_subtitles(sample))
    ]
