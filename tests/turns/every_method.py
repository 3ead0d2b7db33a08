"""One rollout of each method with tools: its turns on 20 seconds at 10 frames per second, and a retriever for them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Case:
    """The turns of one rollout: some with calls, then the answer."""

    method: str
    looks: tuple[str, ...]
    answer: str
    fields: dict[str, Any] = field(default_factory=dict)


def tool_call(name: str, **arguments: Any) -> str:
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


CASES = [
    Case("direct", (), "<answer>B</answer>", {"initial_frames": 6}),
    Case(
        "framethinker",
        (
            "<think>a</think><action>choose frames between 40 and 90</action>",
            "<think>a</think><action>get frame number at time 0:07</action>",
        ),
        "<think>a</think><action>output answer: B</action>",
        {"initial_frames_long": 8, "call_frames_long": 8},
    ),
    Case(
        "videozoomer",
        ('<think>a</think><video_zoom>{"segment": [2.0, 4.0], "fps": 2}</video_zoom>',),
        "<think>a</think><answer>B</answer>",
        {"initial_frames": 4},
    ),
    Case(
        "longvt",
        (f"<think>a</think>\n{tool_call('crop_video', start_time=5.0, end_time=9.0)}",),
        "<think>a</think><answer>B</answer>",
        {"initial_frames": 8, "max_pixels": 3136},
    ),
    Case(
        "framemind",
        (
            "<think>a</think><tool_call>VideoClip(5, 9)</tool_call><turn_sum>b</turn_sum>",
            "<think>a</think><tool_call>FrameAt(7.26)</tool_call><turn_sum>b</turn_sum>",
        ),
        "<think>a</think><answer>B</answer>",
        {"low": [8, 28], "high": [4, 84], "tool_side_pixels": 28, "initial_frames": 5},
    ),
    Case(
        "videobrain",
        (
            f"<thinking>a</thinking>{tool_call('uniform_sample', start_frame=40, end_frame=90)}",
            f"<thinking>a</thinking>{tool_call('clip_sample', start_frame=20, end_frame=150, prompt='a blue square')}",
        ),
        "<thinking>a</thinking><answer>B</answer>",
        {"initial_frames": 4},
    ),
]


class Scattered:
    """A retriever that finds frames far apart, in no order of time, by the text's length alone."""

    def __init__(self) -> None:
        self.queries: list[tuple[Any, ...]] = []

    async def best_frames(self, video_path: str, candidates: Sequence[int], *query: Any) -> list[int]:
        self.queries.append((video_path, list(candidates), *query))
        text, num_frames, _ = query
        return sorted(candidates, key=lambda index: (index * len(text) * 37) % 199)[:num_frames]
