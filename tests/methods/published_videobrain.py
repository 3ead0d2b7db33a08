"""VideoBrain's published rules a second time: read from the specification alone, sharing nothing with the package.

Straightforward on purpose. `test_published_rules` holds `compat="reference"` against it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tests.methods.published_framethinker import spread

Search = Callable[[list[int], str], list[int]]
"""The candidates most like a text, in any order."""


@dataclass
class Environment:
    """What answers a turn."""

    total_frames: int
    search: Search

    def reply(self, turn: str) -> list[int] | None:
        """Frames that are shown; None where the rollout ends.

        Raises:
            AttributeError, TypeError: where the published environment fails as well.
        """
        blocks = re.findall(r"<tool_call>(.*?)</tool_call>", turn, re.DOTALL)
        if not blocks:
            return None
        try:
            call = json.loads(blocks[-1].strip())
        except json.JSONDecodeError:
            return None
        if "name" in call:
            return self._call(call)
        return self._zoom(call) if call.get("action") == "choose_frames" else None

    def _call(self, call: dict[str, Any]) -> list[int] | None:
        arguments = call.get("arguments")
        name = call.get("name")
        if name not in ("uniform_sample", "clip_sample") or not isinstance(arguments, dict):
            return None
        try:
            start, end = (int(arguments[name]) for name in ("start_frame", "end_frame"))
        except (KeyError, TypeError, ValueError):
            return None
        end = min(end, self.total_frames)
        if start < 0 or start >= self.total_frames or start >= end:
            return None
        if name == "uniform_sample":
            return spread(start, end - 1, 8) if end - start >= 8 else None
        prompt = "" if arguments.get("prompt") is None else str(arguments["prompt"]).strip()
        if not prompt:
            return None
        count = min(256 if end - start >= 20_000 else 128, end - start)
        candidates = spread(start, end - 1, count) if count > 1 else [start]
        return sorted(self.search(candidates, prompt))

    def _zoom(self, call: dict[str, Any]) -> list[int] | None:
        ends = call.get("frame_range")
        if not isinstance(ends, list) or len(ends) != 2:
            return None
        start, end = int(ends[0]), min(int(ends[1]), self.total_frames)
        return spread(start + 1, end - 1, 8) if start <= self.total_frames and end - start >= 9 else None


def gate(transcript: str) -> tuple[str, int] | None:
    """Answer and number of calls of turns and observations (without their own tags) in one text; None if it fails.

    Raises:
        AttributeError, TypeError: where the published gate fails as well.
    """
    numbers = {}
    for tag in ("thinking", "answer", "tool_call"):
        numbers[tag] = transcript.count(f"<{tag}>")
        if numbers[tag] != transcript.count(f"</{tag}>"):
            return None
    if numbers["thinking"] != numbers["tool_call"] + numbers["answer"]:
        return None
    thoughts, answers, calls = (
        re.findall(rf"<{tag}>(.*?)</{tag}>", transcript, re.DOTALL) for tag in ("thinking", "answer", "tool_call")
    )
    if any(not thought.strip() for thought in thoughts) or any(not call.strip() for call in calls):
        return None
    if not answers or not answers[-1].strip():
        return None
    ranges: list[tuple[int, int]] = []
    prompts: list[str] = []
    for text in calls:
        try:
            call = json.loads(text.strip())
        except json.JSONDecodeError:
            return None
        name = call.get("name")
        if name not in ("uniform_sample", "clip_sample"):
            return None
        arguments = call.get("arguments", {})
        try:
            start, end = (int(arguments.get(bound)) for bound in ("start_frame", "end_frame"))
        except (TypeError, ValueError):
            return None
        if start >= end:
            return None
        if name == "uniform_sample":
            if any(abs(start - other) <= 1 and abs(end - end_of) <= 1 for other, end_of in ranges):
                return None
            ranges.append((start, end))
            continue
        prompt = arguments.get("prompt")
        if not isinstance(prompt, str) or not prompt.strip() or prompt.strip() in prompts:
            return None
        prompts.append(prompt.strip())
    return answers[-1].strip(), len(calls)


def score(transcript: str, worth: Callable[[str], float], classification: str | None) -> Sequence[float]:
    """Total, format, accuracy and behaviour; `worth` is what the judge makes of an answer, from 0 to 1."""
    passed = gate(transcript)
    if passed is None:
        return 0.0, 0.0, 0.0, 0.0
    answer, num_calls = passed
    accuracy = worth(answer)
    letter = (classification or "").lower().strip()
    behaviour = 0.0
    if accuracy >= 1.0:
        if letter == "e" or (letter in ("a", "b") and not num_calls) or (letter in ("f", "g", "h") and num_calls):
            behaviour = 0.5
    elif letter in ("f", "g", "h") and num_calls:
        behaviour = 0.2
    return 0.05 + accuracy + behaviour, 0.05, accuracy, behaviour
