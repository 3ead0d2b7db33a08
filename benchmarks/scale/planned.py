"""What the planner says of the steps that `benchmarks.scale` measured (`after.json`).

    python -m benchmarks.scale.planned          # the tables of docs/planning.md

Given are the video, the recipe's options, the number of calls and what the policy writes. Tokens, images and their
bytes were fitted to nothing. Constants of hosts were fitted to LongVT's figures, and one to FrameThinker's as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from benchmarks.scale.cases import CASES, VIDEO_FPS, VIDEO_SECONDS, VIDEO_SIZE, Case
from benchmarks.scale.summary import Measured, num_rollouts, queue_bytes_per_rollout
from verl_video_tools.core.types import VideoInfo
from verl_video_tools.methods import get_method
from verl_video_tools.planner.host_memory import queue_image_bytes, worker_bytes
from verl_video_tools.planner.models import ModelShape, find_model
from verl_video_tools.planner.recipes import recipe_options
from verl_video_tools.planner.seconds import decoding_seconds, front_end_seconds
from verl_video_tools.planner.workload import PIECE, Workload, estimated_tokens, plan_workload

MEASURED = Path(__file__).with_name("after.json")
WORKER_SECONDS, SERVER_SECONDS = "CPU seconds of the worker", "CPU seconds of the servers"
WORKER_BYTES = "peak memory of the worker, one group"
FITTED = (WORKER_SECONDS, SERVER_SECONDS, WORKER_BYTES)
"""Names of figures with constants that were fitted to a part of what is compared."""
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


def scripted_workload(case: Case) -> tuple[Workload, ModelShape]:
    """One group, as the script has its policy act."""
    model = find_model(MODELS[case.family])
    options = replace(
        recipe_options(case.method), prompt_length=case.prompt_length, response_length=case.response_length
    )
    info = VideoInfo(float(VIDEO_SECONDS), VIDEO_SECONDS * VIDEO_FPS, float(VIDEO_FPS), *VIDEO_SIZE)
    work = plan_workload(get_method(case.method), info, estimated_tokens(model.factor, options), options)
    frames = CALL_FRAMES.get(case.method, work.call_frames)
    turns = [turn for variant in range(case.group_size) for turn in case.turns(variant)]
    scripted = replace(
        work,
        groups=1,
        rollouts=case.group_size,
        max_calls=case.num_calls,
        mean_calls=case.num_calls,
        call_frames=frames,
        call_tokens=work.call_tokens * frames // work.call_frames,
        call_image_tokens=work.call_image_tokens * frames // work.call_frames,
        turn_tokens=fmean(len(PIECE.findall(turn)) + 1 for turn in turns),
    )
    return scripted, model


def compare(measured: Measured) -> Iterator[Comparison]:
    """One method."""
    case = CASES[measured["method"]]
    work, model = scripted_workload(case)
    queue = measured["queue"]
    response = work.mean_tokens - work.mean_initial_tokens
    images = work.mean_initial_frames + work.mean_calls * work.call_frames
    pairs = {
        "tokens of the prompt": (work.mean_initial_tokens, queue["prompt_tokens"]),
        "tokens of the response": (response, queue["response_tokens"]),
        "images": (images, fmean(queue["images_per_row"])),
        "bytes in the queue": (
            queue_image_bytes(work, model) / num_rollouts(measured),
            queue_bytes_per_rollout(measured),
        ),
        WORKER_SECONDS: (
            decoding_seconds(work, VIDEO_SIZE[0] * VIDEO_SIZE[1]) / work.rollouts,
            measured["worker"]["cpu_seconds"] / num_rollouts(measured),
        ),
        SERVER_SECONDS: (
            front_end_seconds(model, work, 1, work.rollouts) / work.rollouts,
            sum(server["cpu_seconds"] for server in measured["servers"]) / num_rollouts(measured),
        ),
        WORKER_BYTES: (worker_bytes(work, model, 1), measured["worker"]["peak_memory_bytes"]),
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
    return f"{value:,.0f}" if value >= 10 else f"{value:.3f} s"


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
    found = comparisons()
    for is_fitted in (False, True):
        print(table([line for line in found if (line.name in FITTED) == is_fitted]), end="\n\n")
