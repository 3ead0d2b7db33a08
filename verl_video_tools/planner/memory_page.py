"""The table of images in docs/memory.md: `python -m verl_video_tools.planner.memory_page` prints it."""

from __future__ import annotations

from verl_video_tools.core.types import VideoInfo
from verl_video_tools.methods import get_method
from verl_video_tools.planner.constants import GB
from verl_video_tools.planner.host_memory import mm_cache_gb, queue_image_bytes
from verl_video_tools.planner.models import find_model
from verl_video_tools.planner.recipes import RECIPES, recipe_options
from verl_video_tools.planner.workload import estimated_tokens, plan_workload

SERVERS = 8


def table() -> str:
    """Markdown, for an hour of 1920x1080."""
    info = VideoInfo(3600.0, 108_000, 30.0, 1920, 1080)
    lines = [
        "| | questions x rollouts | initial frames, a rollout | calls, a rollout | a step, all nodes "
        f"| `mm_processor_cache_gb`, {SERVERS} GPUs |",
        "|---|---|---|---|---|---|",
    ]
    for method in RECIPES:
        name = "qwen3-vl-8b" if method == "videobrain" else "qwen2.5-vl-7b"
        model, options = find_model(name), recipe_options(method)
        work = plan_workload(get_method(method), info, estimated_tokens(model.factor, options), options)
        each = model.stored_bytes_per_image_token / 1e6
        lines.append(
            f"| `{method}`, {name} | {work.groups} x {work.rollouts} | {work.initial_image_tokens * each:.0f} MB "
            f"| {work.max_calls} x {work.call_image_tokens * each:.0f} MB "
            f"| {queue_image_bytes(work, model) / GB:.1f} GB | {mm_cache_gb(work, model, SERVERS // options.tp)} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
