"""What the planner says of the steps that `benchmarks.scale` measured (`after.json`).

    python -m benchmarks.scale.planned          # the table of docs/planning.md

The video, the recipe's options, the number of calls and what the policy writes are given. The memory of a worker is
fitted to LongVT and FrameThinker; nothing else is fitted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from benchmarks.scale.cases import CASES, VIDEO_FPS, VIDEO_SECONDS, VIDEO_SIZE
from benchmarks.scale.summary import Measured, num_rollouts, queue_bytes_per_rollout
from verl_video_tools.core.types import VideoInfo
from verl_video_tools.methods import get_method
from verl_video_tools.planner.memory import queue_image_bytes, worker_bytes
from verl_video_tools.planner.models import find_model
from verl_video_tools.planner.options import recipe_options
from verl_video_tools.planner.workload import PIECE, QUESTION, TURN_TOKENS, estimated_tokens, plan_workload
from verl_video_tools.rollout.cost import estimate_cost

MEASURED = Path(__file__).with_name("after.json")
MODELS = {"qwen2_5_vl": "qwen2.5-vl-7b", "qwen3_vl": "qwen3-vl-8b"}
CALL_FRAMES = {"longvt": 60}
"""Frames that a scripted call shows, where it does not ask for as many as it may."""


@dataclass(frozen=True)
class Comparison:
    """One figure of one method, per rollout unless its name says otherwise."""

    method: str
    name: str
    planned: float
    measured: float

    @property
    def error(self) -> float:
        return self.planned / self.measured - 1


def compare(measured: Measured) -> Iterator[Comparison]:
    """One method: a group whose policy acts as the script has it."""
    case = CASES[measured["method"]]
    model, method = find_model(MODELS[case.family]), get_method(case.method)
    options = replace(
        recipe_options(case.method),
        batch_size=1,
        rollouts=case.group_size,
        prompt_length=case.prompt_length,
        response_length=case.response_length,
    )
    info = VideoInfo(float(VIDEO_SECONDS), VIDEO_SECONDS * VIDEO_FPS, float(VIDEO_FPS), *VIDEO_SIZE)
    tokens = estimated_tokens(model.factor, options)
    work = plan_workload(method, info, tokens, options)
    share = CALL_FRAMES.get(case.method, work.call_frames) / work.call_frames
    work = replace(work, max_calls=case.num_calls, call_image_tokens=round(work.call_image_tokens * share))
    initial = estimate_cost(
        method, info, tokens, question=QUESTION, turn_tokens=TURN_TOKENS, group_size=case.group_size
    ).group
    turns = [turn for variant in range(case.group_size) for turn in case.turns(variant)]
    turn_tokens = fmean(len(PIECE.findall(turn)) + 1 for turn in turns)
    queue = measured["queue"]
    pairs = {
        "tokens of the prompt": (fmean(frames.tokens for frames in initial), queue["prompt_tokens"]),
        "tokens of the response": (
            case.num_calls * int(work.call_tokens * share) + (case.num_calls + 1) * turn_tokens,
            queue["response_tokens"],
        ),
        "images": (
            fmean(frames.num_frames for frames in initial) + case.num_calls * work.call_frames * share,
            fmean(queue["images_per_row"]),
        ),
        "bytes in the queue": (
            queue_image_bytes(work, model) / num_rollouts(measured),
            queue_bytes_per_rollout(measured),
        ),
        "peak memory of the worker, one group": (
            worker_bytes(work, model, 1),
            measured["worker"]["peak_memory_bytes"],
        ),
    }
    for name, (planned, found) in pairs.items():
        yield Comparison(case.method, name, planned, found)


def comparisons() -> list[Comparison]:
    """Of all methods that were measured."""
    methods = json.loads(MEASURED.read_text("utf-8"))["methods"]
    return [line for measured in methods.values() for line in compare(measured)]


def _number(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:,.2f} MB" if value < 1e9 else f"{value / 1e9:,.2f} GB"
    return f"{value:,.0f}"


def table(lines: list[Comparison]) -> str:
    """Markdown: a row for a method, planned/measured and the error in each cell."""
    names = list(dict.fromkeys(line.name for line in lines))
    rows = [f"| planned / measured, a rollout | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
    for method in dict.fromkeys(line.method for line in lines):
        cells = [
            f"{_number(line.planned)} / {_number(line.measured)} ({line.error:+.1%})"
            for line in lines
            if line.method == method
        ]
        rows.append(f"| {method} | {' | '.join(cells)} |")
    return "\n".join(rows)


if __name__ == "__main__":
    print(table(comparisons()))
