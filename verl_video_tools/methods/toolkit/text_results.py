"""What a call answered in words, where a method shows its frames."""

from __future__ import annotations

from verl_video_tools.core.types import Content, ToolOutcome


def with_text(outcome: ToolOutcome, frames: Content) -> Content:
    """The words of a call, then its frames as the method labels them; of a call without words its frames as they are.

    A method's `observe` passes what it shows of a call through here, so that it can show any tool's answer.
    """
    text = outcome.record.text
    if text is None:
        return frames
    return (f"{text}\n", *frames) if frames else (text,)
