"""Every kind of file that a reader of videos meets: each codec and container, the damaged, and what is no video."""

from __future__ import annotations

import os
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.stream import Disposition

from tests.videos.files import draw_number, remux, write_audio, write_video

WHOLE = "whole_"
"""Prefix of the sound file that a damaged or cut one is made from."""

X265 = "log-level=none:pools=none:frame-threads=1"
UNEVEN_SECONDS = [Fraction(i, 10) + Fraction(i % 3, 50) + (Fraction(2) if i >= 30 else 0) for i in range(60)]


def _edit_list(path: Path) -> Path:
    whole = write_video(path.with_name(WHOLE + path.name), num_frames=90)
    return remux(whole, path, from_seconds=1.5)


def _cut_stream(path: Path, **options: Any) -> Path:
    """A transport stream that begins in the middle of a group of pictures, as a recording does."""
    whole = write_video(path.with_name(WHOLE + path.name), num_frames=120, **options)
    data = whole.read_bytes()
    path.write_bytes(data[len(data) // 3 // 188 * 188 :])
    return path


def _false_keys(path: Path) -> Path:
    """A file in which every fifth packet is marked as a key frame, though hardly any is one."""
    whole = write_video(path.with_name(WHOLE + path.name), num_frames=90, gop_frames=45)
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
    # Several frames share the time stamp of one PES packet: FFmpeg guesses their times, after a seek otherwise.
    "shared_times.mpg": lambda path: write_video(
        path, codec="mpeg2video", num_frames=150, width=192, height=128, gop_frames=25, codec_options={"b": "150000"}
    ),
    "shared_times_no_b.mpg": lambda path: write_video(
        path, codec="mpeg2video", num_frames=150, width=128, b_frames=0, codec_options={"b": "60000"}
    ),
    "rotated_90.mp4": lambda path: write_video(path, rotation_degrees=90),
    "rotated_180.mp4": lambda path: write_video(path, rotation_degrees=180),
    "rotated_270.mp4": lambda path: write_video(path, rotation_degrees=-90),
}

REPRESENTATIVE = (
    "h264.mp4",  # B-frames: stored in another order than shown; an MP4's sample table has all times
    "hevc.mp4",  # its own rules for what can be decoded after a seek
    "vp9.webm",  # Matroska: packets with an index, times rounded to milliseconds
    "cut_open_gop.ts",  # damaged: MPEG-TS without an index that begins in the middle of an open group of pictures
    "uneven.mkv",  # a varying frame rate: no time follows from an index
    "edit_list.mp4",  # frames before the start are hidden
    "rotated_90.mp4",  # height and width as shown are not those stored
    "mpeg4.avi",  # no presentation times: read in one pass, not by seeks
)
"""Kinds of `WRITERS` that stand for all: each is read in another way. `tests/video/test_every_kind.py` has the rest."""

QUARTER_TURNS = {"rotated_90.mp4": 1, "rotated_180.mp4": 2, "rotated_270.mp4": 3}
"""Counter-clockwise turns that a player makes; files not named here need none."""


def scramble(source: Path, target: Path, first_share: float, last_share: float) -> Path:
    """Overwrite a stretch of a file, given as shares of its length, with random bytes."""
    data = bytearray(source.read_bytes())
    first, last = int(len(data) * first_share), int(len(data) * last_share)
    data[first:last] = np.random.default_rng(0).integers(0, 256, last - first, dtype=np.uint8).tobytes()
    target.write_bytes(data)
    return target


def _long_whole(path: Path) -> Path:
    """300 frames in groups of 30; an MP4 has its index before the frames."""
    container_options = {"movflags": "faststart"} if path.suffix == ".mp4" else {}
    whole = path.with_name(WHOLE + path.name)
    return write_video(whole, num_frames=300, gop_frames=30, container_options=container_options)


def _truncated(path: Path) -> Path:
    data = _long_whole(path).read_bytes()
    path.write_bytes(data[: len(data) * 6 // 10])
    return path


DAMAGED_WRITERS: dict[str, Callable[[Path], Path]] = {
    "truncated.mp4": _truncated,
    "truncated.mkv": _truncated,
    "truncated.ts": _truncated,
    "corrupt.mp4": lambda path: scramble(_long_whole(path), path, 0.45, 0.65),
    "corrupt.mkv": lambda path: scramble(_long_whole(path), path, 0.5, 0.6),
    "corrupt.ts": lambda path: scramble(_long_whole(path), path, 0.5, 0.6),
}
"""Videos of 300 frames that are cut off or hold a stretch of noise; what is left of them can be decoded."""

KNOWN_SHARE = {"corrupt.mp4": 1.0}
"""Part of a damaged file, from its start, whose frames are known to exist: an MP4's index survives; else 0.4."""


def unreadable_files(folder: Path) -> dict[str, Path]:
    text, empty, noise, no_index = (folder / name for name in ("text.mp4", "empty.mp4", "noise.mp4", "no_index.mp4"))
    text.write_text("This is no video. " * 100)
    os.mkfifo(pipe := folder / "pipe.mp4")
    empty.write_bytes(b"")
    noise.write_bytes(np.random.default_rng(0).integers(0, 256, 20_000, dtype=np.uint8).tobytes())
    data = write_video(folder / "sound.mp4").read_bytes()
    no_index.write_bytes(data[: data.index(b"moov") - 4])
    fragments = write_video(folder / "fragments.mp4", container_options={"movflags": "frag_keyframe+empty_moov"})
    data = fragments.read_bytes()
    (no_frames := folder / "no_frames.mp4").write_bytes(data[: data.index(b"moof") - 4])
    return {
        "text": text,
        "empty": empty,
        "noise": noise,
        "no_index": no_index,
        "audio": write_audio(folder / "audio.mp4"),
        "wav": write_audio(folder / "audio.mkv"),
        "no_frames": no_frames,
        "cover": write_cover(folder / "cover.m4a"),
        "pipe": pipe,
        "device": Path("/dev/zero"),
        "too_long": folder / ("long" * 100),
        "folder": folder,
    }


def write_cover(path: Path) -> Path:
    """A song with a picture attached, which FFmpeg presents as a video stream."""
    with av.open(str(path), "w", format="mp4") as container:
        audio = container.add_stream("aac", rate=16_000, layout="mono")
        cover = container.add_stream("mjpeg", rate=1)
        cover.width, cover.height, cover.pix_fmt = 96, 64, "yuvj420p"
        cover.disposition = Disposition.attached_pic
        frame = av.VideoFrame.from_ndarray(draw_number(1), format="rgb24")
        container.mux([*cover.encode(frame), *cover.encode(None)])
        sound = av.AudioFrame.from_ndarray(np.zeros((1, 1024), dtype=np.float32), "fltp", layout="mono")
        sound.sample_rate, sound.pts = 16_000, 0
        container.mux([*audio.encode(sound), *audio.encode(None)])
    return path
