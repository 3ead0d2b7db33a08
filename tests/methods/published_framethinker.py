"""FrameThinker's published rules a second time: read from the specification alone, sharing nothing with the package.

Straightforward and slow on purpose, with the regular expressions that the rules name. `test_published_rules` holds
`compat="reference"` against it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

NOTHING = (0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class Environment:
    """What answers a turn. Exactly 300 seconds are short."""

    total_frames: int
    fps: float

    @property
    def frames_per_look(self) -> int:
        return 12 if self.total_frames / self.fps > 300 else 8

    def plan_initial_frames(self) -> list[int]:
        return spread(0, self.total_frames - 1, self.frames_per_look)

    def reply(self, turn: str) -> str | None:
        """The observation, with a mark for each picture; None where the rollout ends."""
        blocks = re.findall(r"<action>(.*?)</action>", turn, re.DOTALL)
        if not blocks:
            return None
        if clock := re.match(r"get frame number at time\s+(\S+)", blocks[-1].strip()):
            return self._clock(clock[1])
        if segment := re.search(r"choose frames between (\d+) and (\d+)", blocks[-1]):
            start, end = int(segment[1]), min(int(segment[2]), self.total_frames)
            if start <= self.total_frames and end - start >= self.frames_per_look + 1:
                return "\n".join(
                    f"frame {index}: <image>" for index in spread(start + 1, end - 1, self.frames_per_look)
                )
        return None

    def _clock(self, time: str) -> str | None:
        parts = time.split(":")
        try:
            seconds = 60 * int(parts[0]) + int(parts[1])
        except (ValueError, IndexError):
            return None
        return None if len(parts) != 2 else f"Frame number at time {time} is: {int(seconds * self.fps)}."


def spread(first: int, last: int, count: int) -> list[int]:
    """`count` numbers from `first` to `last` at equal distances, truncated, each once."""
    step = (last - first) / (count - 1)
    numbers = [first + number * step for number in range(count - 1)]
    return sorted({int(number) for number in numbers} | {last})


def score(transcript: str, truth: str, question: str, total_frames: int) -> tuple[float, float, float, float]:
    """Total, accuracy, format and bonuses of turns and observations in one text.

    Raises:
        IndexError: a clock that no text up to a next thought follows.
    """
    thoughts = re.findall(r"<think>(.*?)</think>", transcript, re.DOTALL)
    actions = [action.strip() for action in re.findall(r"<action>(.*?)</action>", transcript, re.DOTALL)]
    replies = re.findall(r"</action>(.*?)<think>", transcript, re.DOTALL)
    if not thoughts or len(thoughts) != len(actions):
        return NOTHING
    answer = re.match(r"output answer:\s*(\S+)", actions[-1])
    if answer is None:
        return NOTHING
    seen: list[tuple[int, int]] = [(0, total_frames - 1)]
    times: list[str] = []
    waiting: int | None = None
    found_time = False
    for number, action in enumerate(actions[:-1]):
        segment = re.match(r"choose frames between (\d+) and (\d+)", action)
        clock = re.match(r"get frame number at time\s+(\d{1,3}:\d{2})", action)
        if segment:
            pair = int(segment[1]), int(segment[2])
            if waiting is not None and not pair[0] <= waiting <= pair[1]:
                return NOTHING
            waiting = None
            if pair in seen or pair[0] >= pair[1] - 8:
                return NOTHING
            seen += [pair, (pair[0] + 1, pair[1] - 1)]
            said = [int(word) for word in re.findall(r"(?<!:)\b(\d+)\b(?!:)", thoughts[number])]
            if tuple(said[-2:]) != pair:
                return NOTHING
        elif clock:
            told = re.search(r"is:\s*(\d+)", replies[number])
            if clock[1] in times or told is None:
                return NOTHING
            times.append(clock[1])
            waiting = int(told[1])
            found_time = found_time or waiting > 0
        else:
            return NOTHING
    if waiting is not None:
        return NOTHING
    if answer[1] != truth:
        return 0.0, 0.0, 1.0, 0.0
    bonus = 0.5 if found_time and re.search(r"\d+:\d+(:\d+)?", question) else 0.0
    bonus += 0.02 if len(seen) > 1 else 0.0
    return 1.0 + bonus, 1.0, 1.0, bonus
