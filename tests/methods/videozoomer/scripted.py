"""Replays of VideoZoomer under scripted policies, on a question of three options."""

from typing import Any

from tests.turns.tagged import answer, zoom
from verl_video_tools.replay import replay

QUESTION = "What happens?\nA. nothing\nB. a goal\nC. a foul"


GOOD = zoom(4, 6)
RIGHT = answer("B")
WRONG = answer("C")


def run(video: str, turns: list[str], compat: str = "strict", **settings: Any) -> dict[str, Any]:
    return replay("videozoomer", video, QUESTION, "B", turns, settings={"compat": compat, **settings})


def times(frames: list[dict[str, Any]]) -> list[float]:
    return [round(frame["timestamp_seconds"], 2) for frame in frames]


def labels(frames: list[dict[str, Any]]) -> str:
    return "".join(f"<frame{i}_time{frame['timestamp_seconds']:.2f}s><image>" for i, frame in enumerate(frames))
