"""What `temporal_iou` pays for tools that take frame numbers, where the rate varies: the frames' own times count."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.methods.doubles import ScoringRetriever
from tests.turns.tagged import answer, think, tool_call
from tests.videos.files import write_video
from tests.videos.uneven import SLIDES
from verl_video_tools.replay import replay

FILE = """
initial_frames: {plan: uniform, num_frames: 4, min_pixels: 784, max_pixels: 784}
tools:
  - {name: choose_frames, num_frames: 3}
  - {name: uniform_sample, num_frames: 3}
  - {name: clip_sample, num_frames: 3}
turns: {max_turns: 2}
reward: [{name: accuracy}, {name: temporal_iou}]
limits: {prompt_tokens: 8192, response_tokens: 16384, images: 160}
"""


@pytest.mark.parametrize(
    ("tool", "frames", "truth", "seconds"),
    [
        pytest.param("choose_frames", (0, 20), (0.0, 32.33), (0.1, 1.9), id="motion, not the average's half minute"),
        pytest.param("choose_frames", (20, 25), (10.0, 34.0), (10.0, 34.0), id="slides"),
        pytest.param("uniform_sample", (21, 25), (10.0, 34.0), (10.0, 34.0), id="an included start"),
        pytest.param("clip_sample", (21, 25), (10.0, 34.0), (10.0, 34.0), id="a searched range"),
    ],
)
def test_a_range_of_frame_numbers_is_paid_by_its_own_times(
    tool: str, frames: tuple[int, int], truth: tuple[float, float], seconds: tuple[float, float], tmp_path: Path
) -> None:
    video = write_video(tmp_path / "slides.mp4", times_seconds=SLIDES)
    (tmp_path / "mine.yaml").write_text(FILE)
    arguments: dict[str, Any] = {"start_frame": frames[0], "end_frame": frames[1]}
    if tool == "clip_sample":
        arguments["prompt"] = "a hat"
    result = replay(
        "compose",
        str(video),
        "What?\nA. a hat\nB. a scarf",
        "B",
        [think(tool_call(tool, **arguments)), answer("B")],
        {"video_segment": list(truth)},
        {"file": str(tmp_path / "mine.yaml")},
        retriever=ScoringRetriever(),
    )
    (call,) = result["turns"][0]["calls"]
    assert call["error"] is None
    shown = [frame["timestamp_seconds"] for frame in call["frames"]]
    assert seconds[0] <= min(shown) and max(shown) <= seconds[1]
    overlap = max(0.0, min(truth[1], seconds[1]) - max(truth[0], seconds[0]))
    hull = max(truth[1], seconds[1]) - min(truth[0], seconds[0])
    assert result["reward"]["temporal_iou"] == pytest.approx(overlap / hull)
    assert overlap / hull < 0.1 or overlap / hull > 0.9
