"""Tables of images and of Ulysses in docs/memory.md: `python -m verl_video_tools.planner.memory_page` prints them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from verl_video_tools.core.types import VideoInfo
from verl_video_tools.methods import get_method
from verl_video_tools.planner.constants import GB
from verl_video_tools.planner.gpu_memory import actor_memory
from verl_video_tools.planner.host_memory import mm_cache_gb, queue_image_bytes
from verl_video_tools.planner.models import ModelShape, find_model
from verl_video_tools.planner.recipes import RECIPES, RunOptions, recipe_options
from verl_video_tools.planner.workload import Workload, estimated_tokens, plan_workload

SERVERS = 8
ULYSSES = (1, 2, 4, 8)
METHODS = tuple(method for method in RECIPES if method != "compose")  # whose work is its file's


def recipes() -> Iterator[tuple[str, str, ModelShape, RunOptions, Workload]]:
    """Method, name of the model, and the recipe's options and work on eight GPUs, for an hour of 1920x1080."""
    info = VideoInfo(3600.0, 108_000, 30.0, 1920, 1080)
    for method in METHODS:
        name = "qwen3-vl-8b" if method == "videobrain" else "qwen2.5-vl-7b"
        model, options = find_model(name), recipe_options(method)
        yield (
            method,
            name,
            model,
            options,
            plan_workload(get_method(method), info, estimated_tokens(model.factor, options), options),
        )


def images_table() -> str:
    """Images of a step, as Markdown."""
    lines = [
        "| | questions x rollouts | initial frames, a rollout | calls, a rollout | a step, all nodes "
        f"| `MM_CACHE_GB`, {SERVERS} GPUs |",
        "|---|---|---|---|---|---|",
    ]
    for method, name, model, options, work in recipes():
        each = model.stored_bytes_per_image_token / 1e6
        lines.append(
            f"| `{method}`, {name} | {work.groups} x {work.rollouts} | {work.mean_initial_image_tokens * each:.0f} MB "
            f"| {work.max_calls} x {work.call_image_tokens * each:.0f} MB "
            f"| {queue_image_bytes(work, model) / GB:.1f} GB | {mm_cache_gb(work, model, SERVERS // options.tp)} |"
        )
    return "\n".join(lines)


def ulysses_table() -> str:
    """Memory of the actor on a GPU, by the number of GPUs that share a sequence; the recipe's in bold. Markdown.

    "-" where the model's heads cannot be shared among so many.
    """
    lines = [
        "| | longest rollout, by its limits, x `MICRO_BATCH_SIZE` | "
        + " | ".join(f"Ulysses {size}" for size in ULYSSES)
        + " |",
        "|---|---|" + "---|" * len(ULYSSES),
    ]
    for method, name, model, options, work in recipes():
        cells = []
        for size in ULYSSES:
            memory = actor_memory(model, replace(options, ulysses=size), work, SERVERS, work.longest_tokens)
            cells.append(f"{memory.total / 1e9:.0f} GB" if model.shares_heads(size) else "-")
            if size == options.ulysses:
                cells[-1] = f"**{cells[-1]}**"
        lines.append(
            f"| `{method}`, {name} | {work.longest_tokens:,} x {options.micro_batch_size} | {' | '.join(cells)} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(f"{images_table()}\n\n{ulysses_table()}")
