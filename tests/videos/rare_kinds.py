"""More kinds of files, rarer ones: codecs, containers, rates and depths beside those of `kinds.WRITERS`."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from pathlib import Path

from tests.videos.files import remux, write_video
from tests.videos.kinds import UNEVEN_SECONDS, WHOLE, WRITERS

NTSC_FILM, NTSC = Fraction(24000, 1001), Fraction(30000, 1001)
INTERLACED = {"flags": "+ilme+ildct"}
CLOCK_SECONDS = Fraction(1 << 33, 90_000)
"""After so long the clock of MPEG begins again."""


def _mpeg2(bits_per_second: int, **options: object) -> Callable[[Path], Path]:
    return partial(write_video, codec="mpeg2video", codec_options={"b": str(bits_per_second)}, **options)


def _lossless(codec: str, pixel_format: str, **options: object) -> Callable[[Path], Path]:
    return partial(write_video, codec=codec, num_frames=30, pixel_format=pixel_format, **options)


def _copied(source: str) -> Callable[[Path], Path]:
    """Packets of another kind in the container that the name gives."""
    return lambda path: remux(WRITERS[source](path.with_name(f"{WHOLE}{path.name}_{source}")), path)


RARE_WRITERS: dict[str, Callable[[Path], Path]] = {
    # Program streams: a PES packet holds several frames, and one time for them.
    "film.mpg": _mpeg2(100_000, fps=NTSC_FILM, num_frames=120),
    "25_fps.mpg": _mpeg2(1_000_000, width=128, fps=25, num_frames=500, gop_frames=25),
    "ntsc.mpg": _mpeg2(200_000, fps=NTSC, num_frames=120),
    "50_fps.mpg": _mpeg2(400_000, fps=50, num_frames=150, gop_frames=30),
    "60_fps.mpg": _mpeg2(100_000, fps=60, num_frames=150, b_frames=0),
    "320x240_300k.mpg": _mpeg2(300_000, fps=25, num_frames=150, width=320, height=240, gop_frames=25),
    "640x360_1m.mpg": _mpeg2(1_000_000, fps=25, num_frames=75, width=640, height=360, gop_frames=25),
    "interlaced.mpg": partial(write_video, codec="mpeg2video", fps=25, codec_options=INTERLACED),
    "mpeg1.mpg": partial(write_video, codec="mpeg1video", fps=25, num_frames=100, codec_options={"b": "100000"}),
    "h264.mpg": partial(write_video, num_frames=100),
    "video_cd.mpg": partial(write_video, codec="mpeg1video", fps=25, num_frames=100, container_format="vcd"),
    "super_video_cd.mpg": partial(write_video, codec="mpeg2video", fps=NTSC, num_frames=100, container_format="svcd"),
    "dvd.vob": partial(write_video, codec="mpeg2video", fps=25, num_frames=100, container_format="dvd"),
    # Transport streams.
    "mpeg2.ts": partial(write_video, codec="mpeg2video", fps=25),
    "interlaced_mpeg2.ts": partial(write_video, codec="mpeg2video", fps=25, codec_options=INTERLACED),
    "hevc.ts": partial(write_video, codec="libx265"),
    "blu_ray.m2ts": partial(write_video, container_options={"mpegts_m2ts_mode": "1"}),
    "with_audio.ts": partial(write_video, audio_seconds=2.0),
    "uneven.ts": partial(write_video, times_seconds=UNEVEN_SECONDS),
    "clock_begins_again.ts": partial(write_video, start_seconds=CLOCK_SECONDS - 1, container_options={"muxdelay": "0"}),
    # MP4 and its relatives.
    "interlaced.mp4": partial(write_video, codec_options={"x264-params": "interlaced=1"}),
    "10_bit.mp4": partial(write_video, pixel_format="yuv420p10le", codec="libx265"),
    "10_bit_h264.mp4": partial(write_video, pixel_format="yuv420p10le"),
    "full_colour.mp4": partial(write_video, pixel_format="yuv444p"),
    "1_fps.mp4": partial(write_video, fps=1, num_frames=30),
    "120_fps.mp4": partial(write_video, fps=120, num_frames=120, gop_frames=60),
    "fragmented.mov": partial(write_video, container_options={"movflags": "frag_keyframe+empty_moov"}),
    "fragments_of_3.mp4": partial(
        write_video, container_options={"movflags": "empty_moov+default_base_moof", "frag_duration": "100000"}
    ),
    "prores.mov": partial(write_video, codec="prores_ks", num_frames=20, pixel_format="yuv422p10le"),
    "mjpeg.mov": partial(write_video, codec="mjpeg", num_frames=20, gop_frames=1, b_frames=0, pixel_format="yuvj420p"),
    "animation.mov": _lossless("qtrle", "rgb24"),
    "mpeg4.mp4": partial(write_video, codec="mpeg4"),
    "mpeg2.mp4": partial(write_video, codec="mpeg2video", fps=25),
    "phone.3gp": partial(write_video, codec="h263", width=176, height=144, b_frames=0),
    "vp9.mp4": _copied("vp9.webm"),
    # Matroska and WebM.
    "rotated.mkv": partial(write_video, rotation_degrees=90),
    "10_bit.mkv": partial(write_video, pixel_format="yuv420p10le", codec="libx265"),
    "av1.webm": partial(write_video, codec="libsvtav1", codec_options={"preset": "12"}),
    "mpeg2.mkv": partial(write_video, codec="mpeg2video", fps=25),
    "mpeg4.mkv": partial(write_video, codec="mpeg4"),
    "ffv1.mkv": _lossless("ffv1", "yuv444p", gop_frames=5),
    "uneven.webm": partial(write_video, codec="libvpx-vp9", times_seconds=UNEVEN_SECONDS),
    "97x65.webm": partial(write_video, codec="libvpx-vp9", width=97, height=65, num_frames=30),
    # Containers without times, or with rough ones.
    "h264.avi": partial(write_video, num_frames=50),
    "no_b_frames.avi": partial(write_video, b_frames=0),
    "mjpeg.avi": partial(write_video, codec="mjpeg", num_frames=20, gop_frames=1, b_frames=0, pixel_format="yuvj420p"),
    "huffyuv.avi": _lossless("huffyuv", "yuv422p"),
    "msmpeg4.avi": partial(write_video, codec="msmpeg4", b_frames=0),
    "sorenson.flv": partial(write_video, codec="flv", b_frames=0),
    "uneven.flv": partial(write_video, times_seconds=UNEVEN_SECONDS),
    "wmv2.asf": partial(write_video, codec="wmv2", b_frames=0),
    "vp8.ogv": partial(write_video, codec="libvpx", codec_options={"deadline": "realtime"}, fps=25),
    "h264.nut": partial(write_video),
    "mpeg2.mxf": partial(write_video, codec="mpeg2video", fps=25),
    "real.rm": partial(write_video, codec="rv10", b_frames=0, width=176, height=144),
    "vp9.ivf": _copied("vp9.webm"),
    "stream.h264": partial(write_video),
    "stream.hevc": partial(write_video, codec="libx265"),
    "stream.m1v": partial(write_video, codec="mpeg1video", fps=25),
    "stream.m2v": partial(write_video, codec="mpeg2video", fps=25),
    "stream.mjpeg": partial(
        write_video, codec="mjpeg", num_frames=20, gop_frames=1, b_frames=0, pixel_format="yuvj420p"
    ),
    "stream.y4m": _lossless("wrapped_avframe", "yuv420p"),
    # Animations.
    "animation.gif": _lossless("gif", "rgb8", fps=10, time_base=Fraction(1, 100)),
    "animation.apng": _lossless("apng", "rgb24", fps=10),
}
