"""Parts of frames on the viewer's page."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from PIL import Image

from tests.records.conftest import Browse
from tests.videos.files import MakeVideo
from tests.viewer_page import Page, line, written
from verl_video_tools.core.types import FrameRecord, PixelBox
from verl_video_tools.records.thumbnails import decode_thumbnails


def with_parts(path: str) -> dict[str, Any]:
    """The call shows two parts of frame 10."""
    recorded = line(path=path)
    parts = [FrameRecord(10, 2.0, 56, 28, PixelBox(*box)) for box in ((0, 0, 32, 18), (32, 9, 64, 36))]
    recorded["trajectory"].turns[0].calls[0].frames = list(parts)
    return recorded


def test_parts_of_frames_have_thumbnails(tmp_path: Path, make_video: MakeVideo) -> None:
    path = make_video(num_frames=50, width=64, height=36)
    recorded = with_parts(path)
    thumbnails = decode_thumbnails([(path, recorded["trajectory"])])
    jpegs = thumbnails.jpeg_of[path]
    parts = [(10, (0, 0, 32, 18)), (10, (32, 9, 64, 36))]
    assert list(jpegs) == [*((index, None) for index in (0, 10, 25, 49)), *parts]
    assert [Image.open(io.BytesIO(jpegs[part])).size for part in parts] == [(32, 18), (32, 27)]
    page = Page(written(tmp_path, [recorded], thumbnails=thumbnails))
    assert set(page.blocks["video-0"]) == {"0", "10", "25", "49", "10,0,0,32,18", "10,32,9,64,36"}
    none_left = decode_thumbnails([(path, recorded["trajectory"])], max_thumbnails=2)
    assert not none_left.jpeg_of


def test_chromium_draws_boxes_on_whole_frames_beside_their_parts(
    tmp_path: Path, browse: Browse, make_video: MakeVideo
) -> None:
    path = make_video(num_frames=50, width=64, height=36)
    recorded = with_parts(path)
    written(tmp_path, [recorded], thumbnails=decode_thumbnails([(path, recorded["trajectory"])]))
    page = browse(tmp_path / "view.html", "rollout=0")
    boxes = [attributes for tag, attributes in page.tags if tag == "rect" and attributes["class"] == "box"]
    assert [[box[name] for name in ("x", "y", "width", "height")] for box in boxes] == [
        ["0", "0", "32", "18"],
        ["32", "9", "32", "27"],
    ]
    names = [attributes["alt"] for tag, attributes in page.tags if tag == "img"]
    shown = ["frame 10", "part of frame 10"] * 2
    assert names == ["frame 0", "frame 25", "frame 49", *shown]
    marks = [attributes.get("class") for tag, attributes in page.tags if tag == "line"]
    assert marks.count("tool") == 2


def test_chromium_tells_times_where_there_are_no_thumbnails(tmp_path: Path, browse: Browse) -> None:
    written(tmp_path, [with_parts("/no/video.mp4")])
    page = browse(tmp_path / "view.html", "rollout=0")
    assert "2 frames: 10, 0:02.0; 10, 0:02.0" in page.texts
