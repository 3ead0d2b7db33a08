"""Frames by number where the method speaks of numbers, by time elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.records.conftest import Browse
from tests.records.test_html import texts_of
from tests.videos.files import MakeVideo
from tests.viewer_page import line, written
from verl_video_tools.core.types import Trajectory
from verl_video_tools.records.thumbnails import decode_thumbnails
from verl_video_tools.records.view import speaks_frame_numbers


@pytest.mark.parametrize(
    ("method", "provenance", "in_numbers"),
    [
        ("framethinker", None, True),
        ("videobrain", None, True),
        ("longvt", None, False),
        ("framemind", None, False),
        ("videozoomer", None, False),
        ("direct", None, False),
        ("of another version", None, False),
        ("compose", {"tools": ["crop_video"]}, False),
        ("compose", {"tools": ["zoom", "choose_frames"]}, True),
        ("compose", {}, False),
    ],
)
def test_which_methods_speak_of_numbers(method: str, provenance: dict[str, Any] | None, in_numbers: bool) -> None:
    assert speaks_frame_numbers(Trajectory(method, "q", provenance=provenance)) is in_numbers


def test_chromium_names_frames_by_number(tmp_path: Path, browse: Browse, make_video: MakeVideo) -> None:
    path = make_video(num_frames=50, width=64, height=36)
    recorded = line(path=path, method="framethinker")
    written(tmp_path, [recorded], thumbnails=decode_thumbnails([(path, recorded["trajectory"])]))
    page = browse(tmp_path / "view.html", "rollout=0")
    captions = [(text, own["title"]) for tag, own, text in page.elements if tag == "figcaption"]
    assert [text for text, _ in captions] == ["frame 0", "frame 25", "frame 49", "frame 10", "frame 12"]
    assert captions[1][1] == "frame 25, 0:05.00, shown at 64\u00d736 pixels"
    axis = [text for text in texts_of(page, "text") if text[:1].isdigit() or text.startswith("frame")]
    numbers = [int(text.removeprefix("frame ")) for text in axis]  # as many as there is room for
    assert axis[0] == "frame 0" and numbers == [*range(0, 51, numbers[1])]
    assert "annotated segment, frames 10 to 20, 0:02.0 to 0:04.0  " in page.texts

    written(tmp_path, [line(method="framethinker")])  # without thumbnails
    assert "2 frames: 10 12" in browse(tmp_path / "view.html", "rollout=0").texts
