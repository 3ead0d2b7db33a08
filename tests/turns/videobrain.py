"""Turns of a policy in VideoBrain's grammar."""

from __future__ import annotations

from typing import Any

from tests.turns.tagged import tool_call


def think(action: str = "", thought: str = "so") -> str:
    return f"<thinking>{thought}</thinking>{action}"


def uniform(start: Any, end: Any, **arguments: Any) -> str:
    return think(tool_call("uniform_sample", start_frame=start, end_frame=end, **arguments))


def clip(start: Any, end: Any, prompt: Any = "a goal") -> str:
    return think(tool_call("clip_sample", start_frame=start, end_frame=end, prompt=prompt))


def answer(text: str = "B") -> str:
    return think(f"<answer>{text}</answer>")
