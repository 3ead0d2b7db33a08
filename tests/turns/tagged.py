"""Turns of policies that think and then call or answer in tags: VideoZoomer, LongVT, FrameMind."""

from __future__ import annotations

import json
from typing import Any


def think(action: str, thought: str = "so") -> str:
    return f"<think>{thought}</think>{action}"


def answer(text: str) -> str:
    return think(f"<answer>{text}</answer>")


def tool_call(name: str, **arguments: Any) -> str:
    """A call alone, as Hermes wrote them."""
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def video_zoom(body: str) -> str:
    """A turn of VideoZoomer with any text for its arguments."""
    return think(f"<video_zoom>{body}</video_zoom>")


def zoom(start: Any, end: Any, fps: Any = 2) -> str:
    return video_zoom(json.dumps({"segment": [start, end], "fps": fps}))
