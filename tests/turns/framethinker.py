"""Turns of a policy in FrameThinker's grammar."""

from __future__ import annotations

from typing import Any


def turn(thought: str, action: str) -> str:
    return f"<think>{thought}</think><action>{action}</action>"


def choose(start: Any, end: Any, thought: str | None = None) -> str:
    """The thought names the segment, as the consistency checks ask, unless another is given."""
    thought = f"between {start} and {end}" if thought is None else thought
    return turn(thought, f"choose frames between {start} and {end}")


def get(time: str) -> str:
    return turn("when is that", f"get frame number at time {time}")


def answer(text: str) -> str:
    return turn("done", f"output answer: {text}")
