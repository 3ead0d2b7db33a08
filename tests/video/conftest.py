"""Test videos of many kinds, written once per session, each with its reference: every frame decoded in sequence."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import av
import numpy as np
import numpy.typing as npt
import pytest

from tests.video_files import read_number, remux, write_video
from verl_video_tools.video.picture import PictureMaker

X265 = "log-level=none:pools=none:frame-threads=1"
UNEVEN_SECONDS = [Fraction(i, 10) + Fraction(i % 3, 50) + (Fraction(2) if i >= 30 else 0) for i in range(60)]


@dataclass(frozen=True)
class Reference:
    """What decoding a file from start to end shows, in order."""

    path: Path

    @cached_property
    def _frames(self) -> list[tuple[Fraction, npt.NDArray[np.uint8]]]:
        maker = PictureMaker()
        frames = []
        with av.open(str(self.path)) as container:
            container.streams.video[0].codec_context.thread_count = 1
            for frame in container.decode(video=0):
                turned = frame.rotation % 180 != 0
                width, height = (frame.height, frame.width) if turned else (frame.width, frame.height)
                frames.append((frame.pts * frame.time_base, maker.picture(frame, width, height)))
        return frames

    @cached_property
    def pictures(self) -> list[npt.NDArray[np.uint8]]:
        return [picture for _, picture in self._frames]

    @cached_property
    def timestamps_seconds(self) -> list[float]:
        return [float(time - self._frames[0][0]) for time, _ in self._frames]

    @cached_property
    def numbers(self) -> list[int]:
        return [read_number(picture) for picture in self.pictures]

    def index_at(self, seconds: float) -> int:
        return bisect_right(self.timestamps_seconds, seconds) - 1


def _edit_list(path: Path) -> Path:
    whole = write_video(path.with_name("whole_" + path.name), num_frames=90)
    return remux(whole, path, from_seconds=1.5)


def _cut_stream(path: Path, **options: Any) -> Path:
    """A transport stream that begins in the middle of a group of pictures, as a recording does."""
    whole = write_video(path.with_name("whole_" + path.name), num_frames=120, **options)
    data = whole.read_bytes()
    path.write_bytes(data[len(data) // 3 // 188 * 188 :])
    return path


def _false_keys(path: Path) -> Path:
    """A file in which every fifth packet is marked as a key frame, though hardly any is one."""
    whole = write_video(path.with_name("whole_" + path.name), num_frames=90, gop_frames=45)
    with av.open(str(whole)) as reader, av.open(str(path), "w") as writer:
        stream = writer.add_stream_from_template(reader.streams.video[0])
        for count, packet in enumerate(reader.demux(video=0)):
            if packet.size:
                packet.is_keyframe = packet.is_keyframe or count % 5 == 0
                packet.stream = stream
                writer.mux(packet)
    return path


INTRA_REFRESH = {"x264-params": "intra-refresh=1:keyint=20", "bf": "2"}

WRITERS: dict[str, Callable[[Path], Path]] = {
    "h264.mp4": lambda path: write_video(path, num_frames=100, gop_frames=24, b_frames=3),
    "h264_pyramid.mkv": lambda path: write_video(
        path, num_frames=100, codec_options={"x264-params": "b-pyramid=normal"}
    ),
    "no_b_frames.mp4": lambda path: write_video(path, b_frames=0),
    "intra_only.mp4": lambda path: write_video(path, num_frames=20, gop_frames=1, b_frames=0),
    "one_frame.mp4": lambda path: write_video(path, num_frames=1),
    "one_group.mp4": lambda path: write_video(path, gop_frames=1000),
    "ntsc.mp4": lambda path: write_video(path, fps=Fraction(30000, 1001)),
    "with_audio.mp4": lambda path: write_video(path, audio_seconds=3.0),
    "odd_size.mp4": lambda path: write_video(path, width=98, height=66, num_frames=30),
    "open_gop.mp4": lambda path: write_video(path, codec_options={"x264-params": "open-gop=1", "bf": "3"}),
    "open_gop.ts": lambda path: write_video(path, codec_options={"x264-params": "open-gop=1", "bf": "3"}),
    "uneven.mp4": lambda path: write_video(path, times_seconds=UNEVEN_SECONDS),
    "uneven.mkv": lambda path: write_video(path, times_seconds=UNEVEN_SECONDS),
    "starts_late.mkv": lambda path: write_video(path, start_seconds=5),
    "starts_late.mp4": lambda path: write_video(path, start_seconds=5),
    "starts_late.ts": lambda path: write_video(path, start_seconds=5),
    "edit_list.mp4": _edit_list,
    "fragmented.mp4": lambda path: write_video(path, container_options={"movflags": "frag_keyframe+empty_moov"}),
    "half_fragmented.mp4": lambda path: write_video(path, container_options={"movflags": "frag_keyframe"}),
    "no_cues.mkv": lambda path: write_video(path, container_options={"live": "1"}),
    "cut.ts": _cut_stream,
    "cut_open_gop.ts": lambda path: _cut_stream(path, codec_options={"x264-params": "open-gop=1", "bf": "3"}),
    "cut_hevc.ts": lambda path: _cut_stream(
        path, codec="libx265", codec_options={"x265-params": f"open-gop=1:bframes=4:{X265}"}
    ),
    "interlaced.ts": lambda path: write_video(path, codec_options={"x264-params": "interlaced=1"}),
    "intra_refresh.mp4": lambda path: write_video(path, num_frames=100, codec_options=INTRA_REFRESH),
    "intra_refresh.mkv": lambda path: write_video(path, num_frames=100, codec_options=INTRA_REFRESH),
    "cut_intra_refresh.ts": lambda path: _cut_stream(path, codec_options=INTRA_REFRESH),
    "false_keys.mkv": _false_keys,
    "false_keys.mp4": _false_keys,
    "flash.flv": lambda path: write_video(path),
    "hevc.mp4": lambda path: write_video(path, codec="libx265", num_frames=90, codec_options={"preset": "medium"}),
    "hevc_open.mkv": lambda path: write_video(
        path, codec="libx265", codec_options={"x265-params": f"open-gop=1:bframes=4:b-pyramid=1:{X265}"}
    ),
    "hevc_layers.mp4": lambda path: write_video(
        path, codec="libx265", codec_options={"x265-params": f"temporal-layers=1:bframes=3:b-pyramid=1:{X265}"}
    ),
    "vp9.webm": lambda path: write_video(path, codec="libvpx-vp9"),
    "vp8.webm": lambda path: write_video(
        path, codec="libvpx", codec_options={"auto-alt-ref": "1", "lag-in-frames": "16", "deadline": "good"}
    ),
    "av1.mp4": lambda path: write_video(path, codec="libsvtav1", codec_options={"preset": "12"}),
    "mpeg4.avi": lambda path: write_video(path, codec="mpeg4"),
    "mpeg2.mpg": lambda path: write_video(path, codec="mpeg2video"),
    "rotated_90.mp4": lambda path: write_video(path, rotation_degrees=90),
    "rotated_180.mp4": lambda path: write_video(path, rotation_degrees=180),
    "rotated_270.mp4": lambda path: write_video(path, rotation_degrees=-90),
}


@pytest.fixture(scope="session")
def reference_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Reference]:
    """The reference of a file of `WRITERS` by name; writes the file when it is first asked for."""
    folder = tmp_path_factory.mktemp("videos")
    references: dict[str, Reference] = {}

    def get(name: str) -> Reference:
        if name not in references:
            references[name] = Reference(WRITERS[name](folder / name))
        return references[name]

    return get


@pytest.fixture(scope="session", params=sorted(WRITERS))
def reference(request: pytest.FixtureRequest, reference_of: Callable[[str], Reference]) -> Reference:
    """Each kind of file in turn."""
    return reference_of(request.param)
