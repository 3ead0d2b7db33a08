"""Replays of FrameThinker under scripted policies, on a question of two options."""

from fractions import Fraction
from typing import Any

from tests.turns.framethinker import answer
from verl_video_tools.replay import replay

QUESTION = "What happens?\nA. nothing\nB. a goal"
TIMED_QUESTION = "What happens at 0:34?\nA. nothing\nB. a goal"
ANSWER = answer("B")
WRONG = answer("C")
VIDEOS = {"100 s": (3000, Fraction(30)), "125 s": (3000, Fraction(24000, 1001))}


def run(video: str, turns: list[str], compat: str = "strict", **settings: Any) -> dict[str, Any]:
    return replay("framethinker", video, QUESTION, "B", turns, settings={"compat": compat, **settings})


def indices(frames: list[dict[str, Any]]) -> list[int]:
    return [frame["index"] for frame in frames]


def size(frame: dict[str, Any]) -> tuple[int, int]:
    return frame["width"], frame["height"]
