"""examples/motion_map: a picture that a tool draws, from the call to the record."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from examples.motion_map.motion_map import heat_map
from tests.examples.conftest import EXAMPLES, failed_properties
from tests.examples.test_own_methods import undocumented
from verl_video_tools.cli.main import run

FOLDER = EXAMPLES / "motion_map"
METHOD = "examples.motion_map.motion_map:LongVTMotionMap"


def write_film(folder: Path) -> str:
    """Ten frames, two a second: a white square that falls on the right half of a grey picture."""
    folder.mkdir()
    for number in range(10):
        picture = np.full((56, 112, 3), 100, np.uint8)
        picture[number * 4 : number * 4 + 8, 80:88] = 255
        Image.fromarray(picture).save(folder / f"{number}.png")
    return f"{folder}#fps=2"


def test_the_command_draws_where_something_moves(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "motion.html"
    arguments = ["--video", write_film(tmp_path / "film"), "--question", "Where is it?\nA. left\nB. right"]
    files = ["--turns", str(FOLDER / "turns.json"), "--html", str(page)]
    assert run(["replay", "--method", METHOD, *arguments, "--answer", "B", *files]) == 0
    result = json.loads(capfd.readouterr().out)
    (call,) = result["turns"][0]["calls"]
    assert call["ok"] and call["frames"] == [] and result["reward"]["accuracy"] == 1.0
    assert "Red is what moves from 0 s to 4 s:\n<image>" in result["turns"][0]["observation"]
    (picture,) = call["pictures"]
    pixels_HWC = np.asarray(Image.open(io.BytesIO(base64.b64decode(picture["png"]))))
    red, green = pixels_HWC[..., 0].astype(int), pixels_HWC[..., 1].astype(int)
    left, right = np.split(red - green, 2, axis=1)
    assert left.max() < 20 < 150 < right.max()
    assert picture["png"] in page.read_text()


def test_the_same_frames_give_the_same_picture() -> None:
    frames_THWC = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3), dtype=np.uint8)
    picture = heat_map(frames_THWC)
    assert picture.dtype == np.uint8 and (picture == heat_map(frames_THWC.copy())).all()
    assert (heat_map(frames_THWC[:1].repeat(3, axis=0))[..., 0] == frames_THWC[0].astype(int).sum(axis=-1) // 3).all()


def test_it_passes_the_checks_of_methods() -> None:
    assert failed_properties(METHOD) == {}
    assert undocumented(FOLDER / "motion_map.py") == []
