"""docs/regions.md: its programs run, and show what they say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.videos.files import write_video
from verl_video_tools.core.errors import CallError, CallErrorCode
from verl_video_tools.core.types import (
    CallRecord,
    FrameRecord,
    ImagePart,
    PixelBox,
    Sample,
    Tile,
    ToolOutcome,
    Trajectory,
    Turn,
    VideoInfo,
    content_text,
)
from verl_video_tools.methods import toolkit as vt

PAGE = (Path(__file__).parents[1] / "docs" / "regions.md").read_text(encoding="utf-8")
REQUESTS, METHOD, REWARD = re.findall(r"^```python\n(.*?)^```", PAGE, flags=re.MULTILINE | re.DOTALL)
INFO = VideoInfo(100.0, 3000, 30.0, 1280, 720)
PART = FrameRecord(375, 12.5, 448, 224, PixelBox(793, 72, 1024, 180))


def test_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_video(tmp_path / "video.mp4", num_frames=16, fps=1, width=1280, height=720)
    monkeypatch.chdir(tmp_path)
    first, second = REQUESTS.split("\n\ngrid = ")
    names: dict[str, Any] = {}
    exec(first, names)
    assert names["batch"].frames_THWC.shape == (1, 224, 448, 3)
    (told,) = re.findall(r"PixelBox\(.*?\)", first)
    assert str(names["batch"].region) == told
    exec(f"grid = {second}", names)
    assert names["batch"].frames_THWC.shape == (1, 252, 672, 3)
    assert [tile.timestamp_seconds for tile in names["batch"].tiles[0]] == [10.0, 11.0, 12.0, 13.0, 14.0, 15.0]


def test_method() -> None:
    names: dict[str, Any] = {}
    exec(METHOD, names)
    looking = names["Looking"]
    zoom, _ = looking.tools(None, INFO).values()
    tiles = tuple(Tile(30 * seconds, float(seconds)) for seconds in range(10, 16))
    shown = ImagePart(PART), ImagePart(FrameRecord(300, 10.0, 672, 252, tiles=tiles))
    outcomes = [ToolOutcome(CallRecord("zoom", {}, ok=True), (image,), INFO) for image in shown]
    refused = CallRecord("zoom", {}, ok=False, error=CallError(CallErrorCode.BOX_OUTSIDE, "leaves the frame"))
    text = content_text(looking.observe(None, [*outcomes, ToolOutcome(refused, (), INFO)], 2))
    reads = re.findall(r"^12\.50 s.*?^```", PAGE, flags=re.MULTILINE | re.DOTALL)[0].removesuffix("```")
    assert text == f"\n{reads}box_outside: leaves the frame\nTurns left: 2"
    assert "thousandths" in zoom.description.parameters["box"][1]


def test_reward() -> None:
    names: dict[str, Any] = {}
    exec(REWARD, names)
    trajectory = Trajectory("m", "?", turns=[Turn("", [CallRecord("zoom", {}, ok=True, frames=[PART])])])
    sample = Sample("?", "B", "v.mp4", "mc", extra_info={"box": [793, 72, 1024, 126]})
    assert names["box_reward"](trajectory, sample) == 0.5
    assert names["box_reward"](Trajectory("m", "?"), sample) == 0.0
    call = trajectory.turns[0].calls[0]
    for point, reward in (([800.0, 100.5], 1.0), ([800.0, 126.0], 0.0)):
        call.result = {"box": list(PART.region or ()), "point": point}
        assert names["point_reward"](trajectory, sample) == reward
    assert names["point_reward"](Trajectory("m", "?"), sample) == 0.0


def test_fields_and_codes() -> None:
    defaults = {**vars(vt.Zoom()), **{f"grid_{name}": value for name, value in vars(vt.Grid()).items()}}
    for name in ("max_pixels", "min_pixels", "min_side_pixels"):
        assert f"`{name}` {defaults[name]:,}" in PAGE
    for name in ("columns", "max_frames", "max_pixels"):
        assert f"`{name}` {defaults[f'grid_{name}']:,}" in PAGE
    told = set(re.findall(r"^\| `(\w+)` \| ", PAGE.split("| code |")[1].split("A method with both")[0], re.MULTILINE))
    assert told <= {code.value for code in CallErrorCode}
    assert {"reversed_box", "box_outside", "box_too_small", "point_outside"} <= told
