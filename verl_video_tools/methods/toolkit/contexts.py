"""What later turns of a rollout see: functions that `Method.context_policy` may return, beside `append`."""

from __future__ import annotations

from collections.abc import Sequence

from verl_video_tools.core.types import Message, content_images

DROPPED_MARK = "[dropped]"
"""Stands where an image was shown to an earlier turn, so that its label does not seem to belong to what follows."""


def last_evidence(dialogue: Sequence[Message]) -> list[Message]:
    """All texts, and of the images those of the last message that shows any.

    After a refused call, or one that is answered in words alone, a turn still sees the evidence before it.
    """
    return _without_images(dialogue, _showing(dialogue)[:-1])


def initial_plus_last(dialogue: Sequence[Message]) -> list[Message]:
    """As `last_evidence`, and the initial frames."""
    return _without_images(dialogue, _showing(dialogue)[1:-1])


def _showing(dialogue: Sequence[Message]) -> list[int]:
    return [number for number, message in enumerate(dialogue) if content_images(message.content)]


def _without_images(dialogue: Sequence[Message], dropped: Sequence[int]) -> list[Message]:
    return [
        Message(message.role, tuple(part if isinstance(part, str) else DROPPED_MARK for part in message.content))
        if number in dropped
        else message
        for number, message in enumerate(dialogue)
    ]
