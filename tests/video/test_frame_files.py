"""Videos whose frames are image files, in a folder at a rate or in a list: exact in time, as any other video."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.videos.files import draw_number, read_number, write_video
from verl_video_tools.core.errors import UnreadableVideoError, VideoNotFoundError
from verl_video_tools.core.sample import Clip, clip_path, read_clip
from verl_video_tools.core.types import Box, FrameRequest, Region
from verl_video_tools.replay import replay
from verl_video_tools.video import Video, decode_frames, open_video
from verl_video_tools.video.source import LostFileError
from verl_video_tools.video.video import file_identity


def write_frames(folder: Path, names: list[str]) -> list[Path]:
    """Images, each of which shows its place in the list."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / name for name in names]
    for number, path in enumerate(paths):
        Image.fromarray(draw_number(number)).save(path)
    return paths


def write_list(path: Path, **content: Any) -> str:
    path.write_text(json.dumps(content), encoding="utf-8")
    return str(path)


@pytest.fixture
def kitchen(tmp_path: Path) -> Path:
    """12 frames, named 1 to 12 without zeros before."""
    folder = tmp_path / "kitchen"
    write_frames(folder, [f"frame_{number}.png" for number in range(1, 13)])
    return folder


def test_names() -> None:
    assert read_clip("/d/k#fps=2.5") == Clip("/d/k", None, "2.5")
    assert read_clip("/d/k#fps=2&t=1,2.5") == Clip("/d/k", (1.0, 2.5), "2")
    assert clip_path("/d/k#fps=2", 1, 2.5) == "/d/k#fps=2&t=1,2.5"
    for other in ("/d/k#fps=", "/d/k#fps=-2", "/d/k#fps=2&", "/d/k#fps=two", "/d/k#t=1,2&fps=2"):
        assert read_clip(other) == Clip(other, None)


def test_a_folder_is_ordered_by_number_and_timed_by_its_rate(kitchen: Path) -> None:
    (kitchen / "notes.txt").touch()
    (kitchen / "._frame_1.png").touch()
    with Video(f"{kitchen}#fps=2") as video:
        info = video.info
        assert (info.num_frames, info.average_fps, info.duration_seconds) == (12, 2.0, 6.0)
        assert (info.width, info.height, info.uneven_last_seconds) == (96, 64, None)
        assert video.timestamps_seconds().tolist() == [number / 2 for number in range(12)]
        batch = video.frames_at([0, 0.4, 0.5, 4.9, 6.0])
        assert [read_number(frame) for frame in batch.frames_THWC] == [0, 0, 1, 9, 11]
        assert not batch.corrupt.any() and batch.indices.tolist() == [0, 0, 1, 9, 11]
        np.testing.assert_array_equal(batch.frames_THWC[2], draw_number(1))
    with Video(f"{kitchen}#fps=2&t=1,2.5") as part:
        assert [read_number(frame) for frame in part.frames_at_indices(range(3)).frames_THWC] == [2, 3, 4]
        assert (part.info.num_frames, part.info.duration_seconds) == (3, 1.5)


@pytest.mark.parametrize("rate", ["29.97", "0.5", "1"])
def test_times_of_a_rate_are_exact(kitchen: Path, rate: str) -> None:
    with Video(f"{kitchen}#fps={rate}") as video:
        times = video.timestamps_seconds()
        assert times == pytest.approx(np.arange(12) / float(rate), abs=1e-12)
        assert video.frames_at(times.tolist()).indices.tolist() == list(range(12))
        assert video.info.average_fps == float(rate)


def test_a_list_has_the_times_that_it_says(tmp_path: Path, kitchen: Path) -> None:
    names = [f"kitchen/frame_{number}.png" for number in (1, 3, 7, 12)]
    path = write_list(tmp_path / "l.json", frames=[*names[:3], str(tmp_path / names[3])], times=[0, 0.1, 0.7, 2.3])
    with Video(path) as video:
        assert video.timestamps_seconds().tolist() == [0.0, 0.1, 0.7, 2.3]
        batch = video.frames_at([0.0, 0.1, 0.69, 0.7, 3.0])
        assert [read_number(frame) for frame in batch.frames_THWC] == [0, 2, 2, 6, 11]
        # The list does not say how long the last one is shown: as long as the one before.
        assert video.info.duration_seconds == pytest.approx(2.3 + 1.6) and video.info.last_seconds == 2.3
    with Video(write_list(tmp_path / "r.json", frames=names, fps="30000/1001")) as video:
        assert video.info.average_fps == pytest.approx(30000 / 1001)


def test_regions_caches_and_shared_readers(kitchen: Path) -> None:
    path = f"{kitchen}#fps=2"
    request = FrameRequest(48, 32, seconds=(1.0,), region=Region(Box(0, 0, 0.5, 0.5), "normalised"))

    async def look() -> None:
        video = await open_video(path)
        assert video is await open_video(path)
        first = await decode_frames(video, request, deadline_seconds=10)
        again = await decode_frames(video, request, deadline_seconds=10)
        assert (first.num_cached, again.num_cached) == (0, 1)
        np.testing.assert_array_equal(first.frames_THWC[0], draw_number(2)[:32, :48])

    asyncio.run(look())


def test_an_image_that_changes_is_another_video(kitchen: Path) -> None:
    path, frame = f"{kitchen}#fps=2", kitchen / "frame_3.png"
    before = file_identity(path)
    assert before == file_identity(path) != file_identity(f"{kitchen}#fps=4")
    with Video(path) as video:
        Image.fromarray(draw_number(40)).save(frame)
        os.utime(frame, ns=(1, 1))
        assert file_identity(path) != before
        assert [read_number(picture) for picture in video.frames_at_indices([1]).frames_THWC] == [1]
        with pytest.raises(LostFileError, match=r"frame_3\.png: the frame was changed"):
            video.frames_at_indices([2])


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["cover.png", "frame_1.png"], r"'cover\.png' and 'frame_1\.png'"),
        (["left_1.png", "left_2.png", "right_1.png"], "differ in more than numbers"),
        (["frame_1.png", "frame_01.png"], "have the same number"),
        (["0.5.png", "0.25.png"], "may be decimals or not"),
        (["frame_1.png", "frame_2.jpg"], "differ in more than numbers"),
        (["frame_1.tiff"], "the folder has no image"),
    ],
)
def test_a_folder_without_a_clear_order_is_refused(tmp_path: Path, names: list[str], message: str) -> None:
    write_frames(tmp_path / "f", names)
    with pytest.raises(UnreadableVideoError, match=message):
        Video(f"{tmp_path / 'f'}#fps=2")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"fps": 0}, "positive number, got 0"),
        ({"fps": -2}, "positive number, got -2"),
        ({"fps": "1/0"}, "positive number"),
        ({"fps": True}, "positive number"),
        ({"fps": 10**400}, "positive number"),
        ({}, "need a rate"),
        ({"fps": 2, "times": [0, 1]}, "got both"),
        ({"times": [0]}, "2 frames need 2 times"),
        ({"times": [0, float("nan")]}, "2 frames need 2 times"),
        ({"times": [0, 0]}, "must increase, got 0 after 0"),
        ({"times": [0.5, 1.5]}, "which is at 0, got 0.5; subtract it"),
        ({"times": [0, -1]}, "must increase, got -1 after 0"),
        ({"frames": [], "fps": 1}, "a list of frames is a JSON object such as"),
        ({"frames": [3], "fps": 1}, "a list of frames is a JSON object such as"),
    ],
)
def test_a_list_that_is_none_is_refused(tmp_path: Path, content: Mapping[str, Any], message: str) -> None:
    write_frames(tmp_path, ["a.png", "b.png"])
    with pytest.raises(UnreadableVideoError, match=message):
        Video(write_list(tmp_path / "list.json", **{"frames": ["a.png", "b.png"], **content}))


def test_missing_and_damaged_images_are_named(tmp_path: Path, kitchen: Path) -> None:
    path = f"{kitchen}#fps=2"
    (kitchen / "frame_5.png").write_bytes((kitchen / "frame_5.png").read_bytes()[:200])
    with Video(path) as video:
        assert len(video.frames_at_indices([3, 5])) == 2
        with pytest.raises(UnreadableVideoError, match=r"frame_5\.png: the frame cannot be read"):
            video.frames_at_indices([3, 4])
    (kitchen / "frame_5.png").write_bytes(b"")
    with pytest.raises(UnreadableVideoError, match=r"frame_5\.png: the frame is no file with an image"):
        Video(path)
    with pytest.raises(UnreadableVideoError, match=r"gone\.png: the frame cannot be read: No such file"):
        Video(write_list(tmp_path / "l.json", frames=["kitchen/frame_1.png", "gone.png"], fps=1))
    for text in ("<html>", "[" * 100_000, "{}"):
        (tmp_path / "l.json").write_text(text, encoding="utf-8")
        with pytest.raises(UnreadableVideoError, match="a list of frames is a JSON object such as"):
            Video(tmp_path / "l.json")


def test_what_is_no_folder_of_frames(tmp_path: Path, kitchen: Path) -> None:
    with pytest.raises(UnreadableVideoError, match=r"is a folder, no video file; .*kitchen#fps=2"):
        Video(kitchen)
    with pytest.raises(UnreadableVideoError, match="positive number, got '0'"):
        Video(f"{kitchen}#fps=0")
    with pytest.raises(VideoNotFoundError, match="no such video file"):
        Video(f"{write_video(tmp_path / 'v.mp4', num_frames=4, fps=2)}#fps=2")
    with pytest.raises(VideoNotFoundError):
        Video(tmp_path / "gone.json")


def test_a_rollout_on_frames_is_one_on_a_video(tmp_path: Path) -> None:
    """Initial frames and a call show the same numbers, times and pixels as a video file of the same pictures."""
    write_frames(tmp_path / "f", [f"{number}.png" for number in range(40)])
    film = write_video(tmp_path / "v.mp4", num_frames=40, fps=4)
    turns = [
        '<think>x</think><tool_call>{"name": "crop_video", "arguments": {"start_time": 2, "end_time": 4}}</tool_call>',
        "<think>y</think><answer>B</answer>",
    ]
    settings = {"initial_frames": 8, "call_frames": 4}
    options = {"options": ["a", "b"], "question_type": "mc"}
    of_frames, of_film = (
        replay("longvt", path, "Which?\nA. a\nB. b", "B", turns, options, settings)
        for path in (f"{tmp_path / 'f'}#fps=4", str(film))
    )
    assert of_frames == of_film
    assert of_frames["turns"][0]["calls"][0]["ok"]
    assert str(tmp_path) not in of_frames["turns"][0]["observation"]
