"""examples/compose: 30 lines of YAML are a method with LongVT's crop, VideoBrain's search and FrameMind's ladder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.examples.conftest import EXAMPLES
from tests.methods.doubles import ScoringRetriever
from tests.videos.files import MakeVideo
from verl_video_tools.cli.main import run
from verl_video_tools.core.types import PixelEnvelope, Sample, VideoInfo
from verl_video_tools.methods import get_method
from verl_video_tools.methods.framemind import resolution_ladder
from verl_video_tools.replay import areplay

FOLDER = EXAMPLES / "compose"
FILE = str(FOLDER / "longvt_search_ladder.yaml")
QUESTION = "What runs through the yard?\nA. a cat\nB. a dog"


async def replayed(video: str, turns: list[str], **extra: Any) -> dict[str, Any]:
    retriever = ScoringRetriever()
    return await areplay(
        "compose", video, QUESTION, "B", turns, extra=extra, settings={"file": FILE}, retriever=retriever
    )


async def test_the_example_is_replayed(make_video: MakeVideo) -> None:
    turns = json.loads((FOLDER / "turns.json").read_text())
    result = await replayed(make_video(300), turns, video_segment=[4.0, 7.0])
    search, crop = (turn["calls"][0] for turn in result["turns"][:2])
    assert search["ok"] and len(search["frames"]) == 4
    assert crop["ok"] and [frame["timestamp_seconds"] for frame in crop["frames"]][::3] == [4.0, pytest.approx(8.0)]
    assert result["turns"][0]["observation"].startswith("<tool_response>\nframe ")
    assert result["reward"] == pytest.approx(
        {
            "score": 0.1 + 1.0 + 0.2 + 0.5 * 3 / 4 - 0.04,
            "format": 0.1,
            "accuracy": 1.0,
            "tool": 0.2,
            "temporal_iou": 0.5 * 3 / 4,
            "calls": -0.04,
        }
    )


async def test_its_gates(make_video: MakeVideo) -> None:
    search, crop, answer = json.loads((FOLDER / "turns.json").read_text())
    wrong = await replayed(make_video(300), [search, crop, answer.replace("<answer>B", "<answer>A")])
    assert wrong["reward"] == pytest.approx(
        {"score": 0.06, "format": 0.1, "accuracy": 0.0, "tool": 0.0, "temporal_iou": 0.0, "calls": -0.04}
    )
    repeated = await replayed(make_video(300), [crop, crop, answer])
    assert set(repeated["reward"].values()) == {0.0}, "the format decides on everything"


def test_its_ladder_is_framemind_s() -> None:
    info = VideoInfo(duration_seconds=600.0, num_frames=18_000, average_fps=30.0, width=1280, height=720)
    sample = Sample(QUESTION, "B", "v.mp4", "mc", ("a cat", "a dog"))
    method = get_method("compose", file=FILE)
    looks = [
        method.for_session(number, 4, validate=False).plan_initial_frames(info, sample, PixelEnvelope())
        for number in range(4)
    ]
    assert [(len(look), look.width) for look in looks] == resolution_ladder(4)
    assert method.searches


def test_the_check_of_the_readme(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    turns = ["--turns", str(FOLDER / "turns.json")]
    assert run(["check-method", "compose", "--set", f"file={FILE}", *turns]) == 0
    assert " 0 fail" in capsys.readouterr().out
    broken = tmp_path / "broken.yaml"
    broken.write_text(Path(FILE).read_text().replace("name: clip_sample", "name: clip_sampel"))
    assert run(["check-method", "compose", "--set", f"file={broken}"]) == 2
    told = capsys.readouterr().err
    assert f"{broken}: tools[1].name: there is no tool 'clip_sampel'" in told and "mean 'clip_sample'?" in told


async def test_a_tool_of_ones_own_in_a_composition(tmp_path: Path, make_video: MakeVideo) -> None:
    """docs/compose.md names this one."""
    tool = (
        "  - {name: 'examples.add_a_tool.look_around:LookAround', num_frames: 4, reach_seconds: 1, min_pixels: 784, "
        "max_pixels: 3136}\n"
    )
    text = Path(FILE).read_text().replace("prompt.txt", str(FOLDER / "prompt.txt"))
    (tmp_path / "own.yaml").write_text(text.replace("\ntools:\n", f"\ntools:\n{tool}", 1))
    look = '<think>there</think><tool_call>{"name": "look_around", "arguments": {"time": 5}}</tool_call>'
    answer = json.loads((FOLDER / "turns.json").read_text())[-1]
    result = await areplay(
        "compose",
        make_video(300),
        QUESTION,
        "B",
        [look, answer],
        settings={"file": str(tmp_path / "own.yaml")},
        retriever=ScoringRetriever(),
    )
    (call,) = result["turns"][0]["calls"]
    assert (call["name"], call["ok"], len(call["frames"])) == ("look_around", True, 4)
