"""`vvt budget`: what it counts is what rollouts take, and no call shows more than the most expensive one."""

from __future__ import annotations

import asyncio
import random
import re
import shlex
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import pytest

from tests.methods.frame_index import awaited
from tests.verl_plugin.harness import model_dir, video
from verl_video_tools.cli.main import run
from verl_video_tools.core.errors import CallRejected
from verl_video_tools.core.types import PixelEnvelope, RolloutLimits, Sample, ToolContext, VideoInfo
from verl_video_tools.methods import METHOD_NAMES, get_method
from verl_video_tools.rollout.cost import CostEstimate, FramesCost, estimate_cost, max_cost_call, serving_limits
from verl_video_tools.rollout.episode import Episode
from verl_video_tools.synthetic import base_model_dir
from verl_video_tools.verl_plugin.model_tokens import load_model_tokens
from verl_video_tools.video import Video

ASKING = tuple(name for name in METHOD_NAMES if name != "direct")
QUESTION = "What happens?\nA. nothing\nB. something"
LARGE = PixelEnvelope(28, 3136, 12_845_056)


class FirstFrames:
    async def best_frames(self, path: str, candidates: Sequence[int], text: str, num: int, seconds: float) -> list[int]:
        return list(candidates[:num])


def arguments(tool: str, info: VideoInfo, rng: random.Random) -> dict[str, Any]:
    """Of a call that is mostly in order."""
    start, end = sorted(rng.uniform(0, info.duration_seconds) for _ in range(2))
    first, last = (int(seconds * info.average_fps) for seconds in (start, end))
    return {
        "get_frame_number": {"time": "00:01"},
        "video_zoom": {"segment": [start, end], "fps": rng.choice([1.0, 4.0, 16.0 / max(1.0, end - start)])},
        "crop_video": {"video_path": "video.mp4", "start_time": start, "end_time": end},
        "FrameAt": {"t": start},
        "VideoClip": {"t_start": start, "t_end": end},
    }.get(tool, {"start_frame": first, "end_frame": last, "prompt": "a lamp"})


@pytest.mark.parametrize("compat", ["strict", "reference"])
@pytest.mark.parametrize("name", ASKING)
async def test_no_call_shows_more_than_the_most_expensive_one(name: str, compat: str) -> None:
    rng = random.Random(0)
    method = get_method(name) if name in ("framemind", "compose") else get_method(name, compat=compat)
    sample = Sample(QUESTION, "A", "video.mp4", "mc")
    is_reached = False
    for _ in range(300):
        fps = rng.choice([10.0, 24.0, 30.0])
        num_frames = rng.randint(2, 4000)
        info = VideoInfo(num_frames / fps, num_frames, fps, rng.randint(64, 1920), rng.randint(64, 1920))
        envelope = PixelEnvelope(28, 784, rng.choice([50_176, 1 << 20]))
        largest = max_cost_call(method, info, envelope)
        assert largest is not None
        context = ToolContext(
            info, sample, envelope, awaited(lambda seconds, fps=fps: int(seconds * fps)), FirstFrames()
        )
        for tool in method.tools(info).values():
            try:
                plan = await tool.plan(arguments(tool.name, info, rng), context)
            except CallRejected:
                continue
            if plan.frames is not None:
                is_reached |= len(plan.frames) == len(largest)
                size, largest_size = ((each.width, each.height) for each in (plan.frames, largest))
                assert len(plan.frames) <= len(largest)
                assert len(plan.frames) * prod(size) <= len(largest) * prod(largest_size)
                # The tools of VideoBrain's published code have two rules for sizes.
                assert size == largest_size or (name, compat) == ("videobrain", "reference")
    assert is_reached


def test_the_prompt_is_a_rollouts_own() -> None:
    """On a real file the initial frames cost what the prompt does, to the token."""
    path, model = video(), load_model_tokens(model_dir())
    for name in METHOD_NAMES:
        settings = {"rung": 8} if name == "framemind" else {}
        method, sample = get_method(name, **settings), Sample(QUESTION, "A", path, "mc")
        messages = asyncio.run(Episode(method, sample, model.envelope).start())
        assert messages is not None
        budget = estimate_cost(get_method(name, **settings), Video(path).info, model, question=QUESTION, turn_tokens=10)
        assert budget.initial_frames.tokens == budget.needed.prompt_tokens == model.counter.prompt(messages)


def test_calls_that_fit() -> None:
    look, call = FramesCost(8, 56, 56, 4, 100), FramesCost(4, 56, 56, 4, 50)
    budget = CostEstimate("framethinker", look, call, 5, 10, RolloutLimits(100, 250, 24), RolloutLimits(100, 250, 24))
    assert budget.calls_that_fit(budget.needed) == 4
    assert budget.calls_that_fit(RolloutLimits(100, 249, 24)) == 3
    assert budget.calls_that_fit(RolloutLimits(100, 250, 23)) == 3
    assert budget.calls_that_fit(RolloutLimits(99, 250, 24)) == 0
    assert budget.calls_that_fit(RolloutLimits(100, 5, 24)) == 0


@pytest.mark.parametrize("name", METHOD_NAMES)
def test_a_server_of_the_defaults_is_the_recipes(name: str) -> None:
    assert serving_limits(get_method(name), get_method(name), LARGE) == get_method(name).recipe_budget


@pytest.mark.parametrize("num_frames", [8, 64, 200])
def test_a_server_has_room_for_more_initial_frames(num_frames: int) -> None:
    budget = serving_limits(get_method("direct", initial_frames=num_frames), get_method("direct"), LARGE)
    assert budget.prompt_tokens >= max(8192, num_frames * 299 + 20 * num_frames), "pictures of 640x360 and their labels"
    assert budget.images == 128 + max(0, num_frames - 16)


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    command = [
        "budget",
        "--method",
        "videozoomer",
        "--processor",
        model_dir(),
        "--min-pixels",
        "784",
        "--max-pixels",
        "100352",
    ]
    assert run([*command, "--turn-tokens", "100", "--set", "max_turns=3"]) == 0
    out = capsys.readouterr().out
    rows = {line[:22].strip(): line[22:].split() for line in out.splitlines() if line}
    look, call = rows["initial frames"], rows["a call, at most"]
    assert look[0] == "64" and call[0] == "16" and look[1:3] == call[1:3]
    needed, reserved = (int(text.replace(",", "")) for text in rows["max_response_length"])
    assert needed == 3 * 100 + 2 * int(call[3].replace(",", ""))
    assert reserved == get_method("videozoomer").recipe_budget.response_tokens
    assert rows["images"] == [str(64 + 2 * 16), "128"]
    assert "2 of 2 such calls" in out

    infinite = (["--duration=inf"], ["--duration=nan"], ["--duration=1e308"])
    for wrong in (["--size", "big"], ["--set", "turns=3"], ["--method", "none"], *infinite):
        assert run([*command, *wrong]) == 2
        captured = capsys.readouterr()
        assert captured.out == "" and captured.err.count("\n") == 1


def test_rows_that_exceed_the_budget_are_marked(capsys: pytest.CaptureFixture[str]) -> None:
    """More written per turn than the recipe's response holds, and so more than its context."""
    command = ["budget", "--method", "videozoomer", "--processor", model_dir(), "--turn-tokens", "30000"]
    assert run(command) == 0
    found = re.findall(
        r"^(\w+) +([\d,]+) +([\d,]+)(?:    exceeded by ([\d,]+))?$", capsys.readouterr().out, re.MULTILINE
    )
    rows = {name: [int(cell.replace(",", "")) for cell in cells if cell] for name, *cells in found}
    assert rows.keys() == {"max_prompt_length", "max_response_length", "max_model_len", "images"}
    for name, (needed, reserved, *excess) in rows.items():
        assert excess == ([needed - reserved] if needed > reserved else []), name
    assert len(rows["max_response_length"]) == len(rows["max_model_len"]) == 3 and len(rows["images"]) == 2


def test_a_method_without_calls(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["budget", "--method", "direct", "--processor", model_dir()]) == 0
    out = capsys.readouterr().out
    assert "initial frames" in out and "call" not in out


def test_the_page_shows_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "budgets.md").read_text()
    blocks = re.search(r"```bash\n(vvt budget .*?)```\n\n```text\n(.*?)```", page, re.DOTALL)
    assert blocks is not None
    words = shlex.split(blocks[1].replace("\\\n", " ").replace("demo/base", str(base_model_dir("qwen2_5_vl"))))
    assert run(words[1:]) == 0
    assert capsys.readouterr().out == blocks[2]
