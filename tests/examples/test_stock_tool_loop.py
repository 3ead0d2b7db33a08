"""examples/stock_tool_loop: the script that makes one call, and the reward of decoded responses."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.examples.conftest import EXAMPLES
from tests.videos.files import read_number, write_video

EXAMPLE = EXAMPLES / "stock_tool_loop"
CALL = '<tool_call>{"name": "get_frame_number", "arguments": {"time": "0:05"}}</tool_call>'
ANSWER = "<answer>A</answer>"


def load_example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"stock_tool_loop_{name}", EXAMPLE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


async def test_the_script_shows_one_call(tmp_path: Path) -> None:
    video = write_video(tmp_path / "clip.mp4", num_frames=300, fps=30)
    pictures_dir = tmp_path / "pictures"
    arguments = {"start_frame": 100, "end_frame": 200}
    call_tool = load_example("call_tool").call
    text = await call_tool(EXAMPLE / "tools.yaml", str(video), "choose_frames", arguments, pictures_dir)
    assert (
        text == "Shown above, in order: frame 101 (3.37 s), frame 133 (4.43 s), frame 166 (5.53 s), frame 199 (6.63 s)"
    )
    pictures = [Image.open(path) for path in sorted(pictures_dir.iterdir())]
    assert [read_number(np.asarray(picture)) for picture in pictures] == [101, 133, 166, 199]


@pytest.mark.parametrize(
    ("response", "score"),
    [
        (f"{CALL}tool\nFrame number ...\nassistant\n{ANSWER}", 1.0),
        ("<answer>B</answer> no: <answer> (A) </answer>", 1.0),
        ("<answer>B</answer>", 0.0),
        ("A", 0.0),
        ("<answer>A", 0.0),
    ],
)
def test_the_reward_grades_the_last_answer(response: str, score: float) -> None:
    compute_score = load_example("reward").compute_score
    graded = compute_score(data_source="test", solution_str=response, ground_truth="A", extra_info={})
    assert graded == {"score": score, "acc": score}
