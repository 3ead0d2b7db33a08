"""Context policies: what of a rollout's images its next turn sees. Training, evaluation and exports share this.

Texts stay under every policy: system prompt, question, assistant turns, labels and facts of observations.
"""

from __future__ import annotations

from collections.abc import Sequence

from verl_video_tools.core.types import ContextPolicy, Message, content_images

DROPPED_MARK = "[dropped]"
"""Stands where an image was shown to an earlier turn, so that its label does not seem to belong to what follows."""


def visible_messages(policy: ContextPolicy, messages: Sequence[Message]) -> list[Message]:
    """The messages so far as the next turn sees them; one that loses nothing is returned as the same object.

    The last observation is the last message that shows images: after a refused call, or one that is answered in words
    alone, a policy still sees the evidence before it. The initial frames are in the first one.
    """
    if policy == "append":
        return list(messages)
    showing = [number for number, message in enumerate(messages) if content_images(message.content)]
    kept = {*showing[-1:], *(showing[:1] if policy == "initial_plus_last" else ())}
    return [
        _without_images(message) if number in showing and number not in kept else message
        for number, message in enumerate(messages)
    ]


def _without_images(message: Message) -> Message:
    return Message(message.role, tuple(part if isinstance(part, str) else DROPPED_MARK for part in message.content))
