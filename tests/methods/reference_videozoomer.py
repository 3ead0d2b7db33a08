"""VideoZoomer's published rollout and reward, written anew from the specification, sharing no code with the package.

Sections b (protocol), d.1 to d.3 (reward) of the facts that the project started from; regular expressions as quoted.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

MAX_ROUNDS, MAX_FRAMES = 5, 16
NUM_FRAMES, FPS = 3000, 30.0


@dataclass
class Rollout:
    """What the environment made of a script: its turns, and frame numbers or an error (None) for each request."""

    turns: list[str]
    shown: list[list[int] | None]


def rollout(script: list[str]) -> Rollout:
    """Run a script to the end of the rollout, or of the script."""
    result = Rollout([], [])
    for number, text in enumerate(script):
        result.turns.append(text)
        requests = re.findall(r"<video_zoom>(.*?)</video_zoom>", text, re.DOTALL)
        if not requests or number == MAX_ROUNDS - 1:
            break
        try:
            result.shown.append(_frames(requests))
        except (AssertionError, ValueError, KeyError, TypeError, IndexError, OverflowError):
            result.shown.append(None)
    return result


def _frames(requests: list[str]) -> list[int]:
    objects = [json.loads(found) for request in requests for found in re.findall(r"\{.*?\}", request)]
    assert len(objects) == 1
    start, end = float(objects[0]["segment"][0]), float(objects[0]["segment"][1])
    fps = float(objects[0]["fps"])
    count = int(fps * (end - start))
    if count > MAX_FRAMES:
        raise ValueError(count)
    first = max(0, min(int(start * FPS), NUM_FRAMES - 1))
    last = max(first, min(int(end * FPS), NUM_FRAMES - 1))
    return [int(index) for index in np.linspace(first, last, count).astype(int)]


def reward(turns: list[str], truth: str) -> tuple[float, float, float]:
    """Accuracy, format and bonus with the paper's weights."""
    form, calls = _form(turns)
    right = _letter(" ".join(turns), truth)
    return 0.9 * right, 0.1 * form, 0.5 * (right and calls > 0)


def _form(turns: list[str]) -> tuple[bool, int]:
    tag = re.compile(r"<video_zoom>.*</video_zoom>", re.DOTALL)
    if len(turns) == 1:
        return _answers(turns[0].strip()), int(bool(tag.search(turns[0])))
    calls = 0
    for turn in turns[:-1]:
        calls += bool(tag.search(turn))
        if not _zooms(turn.strip()):
            return False, calls
    return _answers(turns[-1]), calls


def _answers(turn: str) -> bool:
    return (
        re.match(r"^<think>.*</think>.*<answer>.*</answer>$", turn, re.DOTALL) is not None
        and (turn.count("<answer>"), turn.count("</answer>"), turn.count("<video_zoom>")) == (1, 1, 0)
    )  # fmt: skip


def _zooms(turn: str) -> bool:
    tags = ("<video_zoom>", "</video_zoom>", "<answer>", "</answer>")
    if re.match(r"^<think>.*</think>.*<video_zoom>.*</video_zoom>", turn, re.DOTALL) is None:
        return False
    if [turn.count(tag) for tag in tags] != [1, 1, 0, 0]:
        return False
    try:
        body: Any = json.loads(turn.split("<video_zoom>")[1].split("</video_zoom>")[0])
        length = float(body["segment"][1]) - float(body["segment"][0])
        return int(float(body["fps"]) * length) <= MAX_FRAMES
    except (ValueError, KeyError, TypeError, IndexError, OverflowError):
        return False


def _letter(text: str, truth: str) -> bool:
    answer = text.split("<answer>")[-1].split("</answer>")[0].strip()
    letters = re.findall(r"([A-Z])\.", answer)
    boxed = re.findall(r"\\boxed\{([^{}]*)\}", answer)
    return answer == truth or [text.strip() for text in boxed[-1:]] == [truth] or letters[-1:] == [truth]
