"""A rollout that was shown no image: verl 0.9.1 fails on a micro-batch without any, and with it a whole step."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.methods.compose.test_composition import GOOD
from tests.turns.tagged import answer
from tests.verl_plugin.harness import run_loop
from verl_video_tools.core.types import FrameRequest, PixelEnvelope, VideoInfo
from verl_video_tools.methods.compose.composition import FramePlan


@dataclass(frozen=True, kw_only=True)
class NoFrames(FramePlan):
    """A composition's plan that shows nothing with the question."""

    def request(self, info: VideoInfo, envelope: PixelEnvelope, rung: int | None, num_rungs: int) -> FrameRequest:
        return FrameRequest(width=1, height=1, indices=())


@pytest.mark.parametrize("temperature", [1.0, 0.0], ids=["training", "validation"])
async def test_a_rollout_without_an_image_is_not_trained_on(temperature: float, tmp_path: Path) -> None:
    """Validation goes by the answer alone."""
    file = tmp_path / "blind.yaml"
    uniform = "plan: uniform, num_frames: 4, min_pixels: 784, max_pixels: 2304"
    file.write_text(GOOD.replace(uniform, f"plan: '{__name__}:NoFrames'"))
    options = {"n": 2, "temperature": 1.0, "val_kwargs": {"n": 1, "temperature": 0.0}}
    rollout = await run_loop(
        [answer("B")],
        method="compose",
        method_fields={"file": str(file)},
        rollout_options=options,
        sampling_params={"temperature": temperature},
    )
    assert rollout.trajectory.answer == "B"
    if temperature:
        assert rollout.trajectory.flags == ["invariant"] and "no image" in (rollout.trajectory.error or "")
        assert rollout.output.response_mask == [0] and len(rollout.images) == 1, "a blank one"
    else:
        assert rollout.trajectory.flags == []
