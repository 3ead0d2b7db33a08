"""Predicted beside published: `python -m verl_video_tools.planner.published` prints the table of docs/planning.md.

Where a paper does not say what a prediction needs (batches, lengths), `assumed` says what was taken. An error is stated
only against a published step: against a whole run the number of steps would be free to choose.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from verl_video_tools.core.types import VideoInfo
from verl_video_tools.methods import get_method
from verl_video_tools.planner.constants import constant, find_gpu
from verl_video_tools.planner.models import find_model
from verl_video_tools.planner.plan import Cluster, make_plan
from verl_video_tools.planner.recipes import RunOptions, recipe_options
from verl_video_tools.planner.workload import estimated_tokens


@dataclass(frozen=True)
class PublishedRun:
    """A published duration, and the run that we take it for. `seconds` is of the whole run, or of a step where
    `is_step`: how many steps a run had is not published."""

    name: str
    published: str
    seconds: float
    is_step: bool
    method: str
    model: str
    gpu: str
    num_gpus: int
    video_seconds: float
    options: RunOptions
    assumed: str


_ASSUMED_GROUPS = replace(RunOptions(), batch_size=32, rollouts=8)
RUNS = (
    PublishedRun(
        "VideoZoomer, RL",
        "45 h on 16 H100",
        45 * 3600,
        False,
        "videozoomer",
        "qwen2.5-vl-7b",
        "h100",
        16,
        900.0,
        recipe_options("videozoomer"),
        "videos of 15 minutes",
    ),
    PublishedRun(
        "ParaVT, a step",
        "about 250 s on 8 x 80 GB",
        250,
        True,
        "framethinker",
        "qwen2.5-vl-7b",
        "h100",
        8,
        900.0,
        replace(_ASSUMED_GROUPS, prompt_length=16_384),
        "H100; our FrameThinker stands for its method, with 32 x 8 rollouts",
    ),
    PublishedRun(
        "VideoBrain, all",
        "472 H20-hours",
        472 * 3600 / 8,
        False,
        "videobrain",
        "qwen3-vl-8b",
        "h20",
        8,
        900.0,
        recipe_options("videobrain"),
        "all of it reinforcement learning; 8 GPUs",
    ),
    PublishedRun(
        "Video-o3, a step",
        "900 to 1,800 s",
        1350,
        True,
        "videozoomer",
        "qwen2.5-vl-7b",
        "h100",
        8,
        900.0,
        replace(recipe_options("videozoomer"), batch_size=32, mini_batch_size=32, rollouts=8),
        "8 H100; our VideoZoomer stands for its method, with 32 x 8 rollouts; against the middle",
    ),
    PublishedRun(
        "VideoChat-R1, all",
        "10 h on 8 A100",
        10 * 3600,
        False,
        "framethinker",
        "qwen2.5-vl-7b",
        "a100-80gb",
        8,
        120.0,
        replace(_ASSUMED_GROUPS, batch_size=8, mini_batch_size=8),
        "80 GB; our FrameThinker, which calls, stands for its method, with 8 x 8 rollouts and videos of 2 minutes",
    ),
)
WITHOUT_PREDICTION = (
    (
        "DeepEyes, reported by users",
        "15,000 s a step",
        "it zooms into pictures, which no method of ours does; their GPUs and lengths are not known",
    ),
    ("verl, reported by users", "7 h a step", "neither model nor batch nor GPUs are known"),
)
"""Name, what is published, and why nothing is predicted."""


def predicted_step_seconds(run: PublishedRun) -> float:
    """Of one step, modelled."""
    model = find_model(run.model)
    cluster = Cluster(
        find_gpu(run.gpu), run.num_gpus, 8, constant("host_bytes"), cores_per_node=int(constant("host_cores"))
    )
    info = VideoInfo(run.video_seconds, round(run.video_seconds * 30), 30.0, 1920, 1080)
    tokens = estimated_tokens(model.factor, run.options)
    return make_plan(get_method(run.method), info, model, tokens, run.options, cluster).step_seconds


def table() -> str:
    """Markdown."""
    lines = ["| run | published | a step, modelled | error | assumed |", "|---|---|---|---|---|"]
    for run in RUNS:
        predicted = predicted_step_seconds(run)
        num_steps = run.seconds / predicted
        error = f"{predicted / run.seconds - 1:+.0%}" if run.is_step else f"none: {num_steps:.0f} such steps"
        lines.append(f"| {run.name} | {run.published} | {predicted:.0f} s | {error} | {run.assumed} |")
    lines += [f"| {name} | {published} | none | none | {why} |" for name, published, why in WITHOUT_PREDICTION]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
