"""LongVT's published rollout and reward, written anew from the specification, sharing no code with the package.

Sections b (protocol), b.6 (limits), c (turns written anew) and d (reward) of the facts that the project started from.
"""

from __future__ import annotations

import ast
import json
import math
import re
from dataclasses import dataclass
from typing import Any

import numpy as np

PATH, NUM_FRAMES, FPS = "/data/yard.mp4", 3000, 30.0
MAX_TURNS = MAX_CALLS = CALLS_PER_TURN = 5
WORTH = {"yes": 1.0, "half": 0.5}
"""What the judge of the test thinks of answers; of others nothing."""


@dataclass
class Rollout:
    """The text that is scored, and frame numbers or an error (None) for each call that was answered."""

    text: str
    shown: list[list[int] | None]


def rollout(script: list[str]) -> Rollout:
    """Run a script to the end of the rollout, or of the script."""
    result, num_calls = Rollout("", []), 0
    for number, turn in enumerate(script):
        calls = _calls(turn)
        if not calls:
            result.text += turn
            break
        result.text += turn[: turn.find("<tool_call>")].strip()
        for arguments in calls:
            written = json.dumps(arguments, ensure_ascii=False)
            result.text += f'<tool_call>{{"name":"crop_video","arguments":{written}}}</tool_call>'
        if number == MAX_TURNS - 1:
            break
        result.text += "user"
        for arguments in calls[:CALLS_PER_TURN]:
            result.shown.append(_crop(arguments))
            told = "Tool execution failed: no" if result.shown[-1] is None else "The tool executed successfully."
            result.text += f"<tool_response>\n{told}</tool_response>"
        result.text += "assistant\n"
        num_calls += len(calls[:CALLS_PER_TURN])
        if num_calls >= MAX_CALLS:
            break
    return result


def _calls(turn: str) -> list[dict[str, Any]]:
    calls = []
    for block in re.findall(r"<tool_call>(.*?)</tool_call>", turn, re.DOTALL):
        try:
            call = json.loads(block)
        except json.JSONDecodeError:
            return []
        if not isinstance(call, dict):
            return []
        arguments = call.get("parameters") or call.get("arguments", {})
        if call.get("name") == "crop_video" and isinstance(arguments, dict):
            calls.append(arguments)
    return calls


def _crop(arguments: dict[str, Any]) -> list[int] | None:
    """The checks of b.3 in order, then the frames of b.4."""
    path = arguments.get("video_path")
    given: list[Any] = [arguments.get(name) for name in ("start_time", "end_time")]
    try:
        start, end = map(float, given)
    except (TypeError, ValueError):
        return None
    duration = NUM_FRAMES / FPS
    if path != PATH or start < 0 or end <= start or start >= duration or end > duration:
        return None
    first, last = math.ceil(start * FPS), min(math.floor(end * FPS), NUM_FRAMES - 1)
    if first >= last:
        return None
    total = last - first + 1
    count = min(max(total / FPS, 2), min(128, total) // 2 * 2) // 2 * 2
    return [round(position) for position in np.linspace(first, last, int(count), dtype=np.float32).tolist()]


def reward(text: str, truth: tuple[float, float], grounding: bool) -> tuple[float, float, float]:
    """Accuracy, format and overlap of the last call; of a grounding row that of the answer, and nothing for a call."""
    if grounding:
        return _grounded(text, truth), float(_form_of_grounding(text)), 0.0
    answer = text.split("<answer>")[-1].split("</answer>")[0].strip() if _has_answer(text) else ""
    too_long = len(answer) >= 1000
    worth = 0.0 if too_long else WORTH.get(answer, 0.0)
    return worth, float(_form(text) and not too_long), _overlap_of_last_call(text, truth)


def _has_answer(text: str) -> bool:
    return text.count("<answer>") > 0 and text.count("</answer>") > 0


def _form(text: str) -> bool:
    if text.count("<think>") != text.count("</think>") or text.count("<think>") == 0:
        return False
    if text.count("<tool_call>") != text.count("</tool_call>"):
        return False
    if text.count("<answer>") != 1 or text.count("</answer>") != 1:
        return False
    if "<tool_call>" not in text:
        return _answers(text)
    expected = ["think"] + ["tool_call", "think"] * text.count("<tool_call>") + ["answer"]
    return _enclosed(text) and re.findall(r"<(think|tool_call|answer)>", text.strip()) == expected


def _form_of_grounding(text: str) -> bool:
    after = text.split("</think>")[-1]
    if text.count("<think>") != text.count("</think>") or text.count("<think>") == 0:
        return False
    if text.count("<tool_call>") != text.count("</tool_call>"):
        return False
    if after.count("<answer>") != after.count("</answer>") or after.count("<answer>") == 0:
        return False
    return _enclosed(text) if "<tool_call>" in text else _answers(text)


def _answers(text: str) -> bool:
    return re.match(r"^\s*<think>.*?</think>\s*<answer>.*?</answer>\s*$", text, re.DOTALL) is not None


def _enclosed(text: str) -> bool:
    return text.strip().startswith("<think>") and text.strip().endswith("</answer>")


def _overlap_of_last_call(text: str, truth: tuple[float, float]) -> float:
    if "<tool_response>" not in text:
        return 0.0
    for block in reversed(re.findall(r"<tool_call>(.*?)</tool_call>", text, re.DOTALL)):
        try:
            call = ast.literal_eval(block.strip())
            if isinstance(call, dict) and call.get("name") == "crop_video":
                arguments = call.get("arguments", {})
                if "start_time" in arguments and "end_time" in arguments:
                    return _iou((float(arguments["start_time"]), float(arguments["end_time"])), truth)
        except (ValueError, SyntaxError, KeyError):
            continue
        except TypeError:
            return 0.0
    return 0.0


def _grounded(text: str, truth: tuple[float, float]) -> float:
    after = text.split("</think>")[-1]
    if "<answer>" not in after or "</answer>" not in after:
        return 0.0
    try:
        named = ast.literal_eval(text.split("<answer>")[-1].split("</answer>")[0].strip())
        return _iou((float(named[0]), float(named[1])), truth) if isinstance(named, list) and len(named) == 2 else 0.0
    except (ValueError, SyntaxError, TypeError):
        return 0.0


def _iou(named: tuple[float, float], truth: tuple[float, float]) -> float:
    shared = max(0.0, min(named[1], truth[1]) - max(named[0], truth[0]))
    union = max(named[1], truth[1]) - min(named[0], truth[0])
    return shared / union if union > 0 else 0.0
