"""The full probe, against what the test files were made of."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.video.conftest import Reference
from tests.videos.files import remux, write_video
from verl_video_tools.core.errors import DeadlineError, UnreadableVideoError
from verl_video_tools.video import Video
from verl_video_tools.video.probe import probe


def test_each_kind(reference: Reference) -> None:
    found = probe(reference.path, check_decoding=True)
    with Video(reference.path) as video:
        assert found.info == video.info
        assert video.timestamps_seconds().tolist() == reference.timestamps_seconds
    assert found.num_damaged_frames == 0
    assert found.num_keyframes >= 1
    assert 0 < found.mean_gop_seconds <= found.longest_gop_seconds <= found.info.duration_seconds + 1e-9
    assert json.loads(json.dumps(dataclasses.asdict(found)))["codec"] == found.codec


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("h264.mp4", {"codec": "h264", "container": "mov,mp4,m4a,3gp,3g2,mj2", "pixel_format": "yuv420p"}),
        ("h264.mp4", {"profile": "High", "num_keyframes": 5, "longest_gop_seconds": pytest.approx(0.8)}),
        ("h264.mp4", {"is_random_access": True, "is_variable_frame_rate": False, "audio_codecs": ()}),
        ("uneven.mp4", {"is_variable_frame_rate": True}),
        ("uneven.mkv", {"is_variable_frame_rate": True}),
        ("ntsc.mp4", {"is_variable_frame_rate": False}),
        ("starts_late.mkv", {"start_seconds": 5.0, "is_variable_frame_rate": False, "time_base": "1/1000"}),
        ("starts_late.ts", {"start_seconds": 5.0, "time_base": "1/90000"}),
        ("with_audio.mp4", {"audio_codecs": ("aac",)}),
        ("rotated_90.mp4", {"rotation_degrees": 90}),
        ("rotated_270.mp4", {"rotation_degrees": 270}),
        ("edit_list.mp4", {"has_edit_list": True}),
        ("flash.flv", {"has_edit_list": False}),
        ("no_b_frames.mp4", {"has_edit_list": True}),
        ("vp8.webm", {"codec": "vp8", "is_random_access": False, "num_keyframes": 1}),
        ("vp9.webm", {"codec": "vp9", "is_random_access": True}),
        ("av1.mp4", {"codec": "av1"}),
        ("mpeg4.avi", {"container": "avi", "is_random_access": False}),
        ("intra_only.mp4", {"num_keyframes": 20}),
        ("intra_refresh.mp4", {"num_keyframes": 1}),
    ],
)
def test_facts(name: str, expected: dict[str, object], reference_of: Callable[[str], Reference]) -> None:
    found = dataclasses.asdict(probe(reference_of(name).path))
    assert {key: found[key] for key in expected} == expected


def test_bit_rate_is_of_the_whole_file(reference_of: Callable[[str], Reference]) -> None:
    path = reference_of("h264.mp4").path
    assert probe(path).bit_rate == pytest.approx(path.stat().st_size * 8 / (100 / 30), rel=1e-3)


def test_colour_marks(tmp_path: Path) -> None:
    marks = {"x264-params": "colorprim=bt709:transfer=smpte2084:colormatrix=bt709"}
    found = probe(write_video(tmp_path / "marked.mp4", codec_options=marks))
    assert (found.color_space, found.color_range) == ("itu709", "mpeg")
    assert (found.color_transfer, found.color_primaries) == ("smpte2084", "bt709")
    plain = probe(write_video(tmp_path / "plain.mp4"))
    assert (plain.color_space, plain.color_range, plain.color_transfer, plain.color_primaries) == (None,) * 4


def test_keyframe_indices_are_those_of_the_encoder(reference_of: Callable[[str], Reference]) -> None:
    for name, expected in {"h264.mp4": [0, 24, 48, 72, 96], "edit_list.mp4": [3, 15, 27, 39]}.items():
        assert Video(reference_of(name).path).keyframe_indices() == expected
    open_gop = Video(reference_of("open_gop.mp4").path)
    batch = open_gop.frames_at_indices(open_gop.keyframe_indices())
    assert len(batch) == open_gop.info.num_frames // 12 and not batch.corrupt.any()


def test_damage_is_counted_only_if_asked(tmp_path: Path) -> None:
    path = write_video(tmp_path / "whole.mp4", num_frames=300, gop_frames=30)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 400] = np.random.default_rng(0).bytes(400)
    path.write_bytes(data)
    assert probe(path).num_damaged_frames is None
    found = probe(path, check_decoding=True)
    with Video(path) as video:
        assert found.num_damaged_frames == video.frames_at_indices(range(300)).corrupt.sum() > 0


def test_bad_files_raise(tmp_path: Path) -> None:
    (tmp_path / "text.mp4").write_text("no video")
    with pytest.raises(UnreadableVideoError, match=r"text\.mp4"):
        probe(tmp_path / "text.mp4")
    long = remux(write_video(tmp_path / "short.mp4", num_frames=300), tmp_path / "long.mp4", times=20)
    with pytest.raises(DeadlineError, match=r"long\.mp4"):
        probe(long, deadline_seconds=0.02, check_decoding=True)
