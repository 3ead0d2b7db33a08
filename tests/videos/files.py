"""Small test videos whose every picture carries its frame number, so that a wrong frame is seen.

The upper half of a picture is a barcode of 12 black or white blocks (2 rows of 6, most significant bit first); the
lower half is moving texture, so that encoders really predict. Blocks are 16 x 16 pixels at the native size of
96 x 64, large enough to survive lossy coding, scaling and (for `read_number`) any later resize.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt

WIDTH = 96
HEIGHT = 64
TICKS_PER_SECOND = 90_000


@dataclass(frozen=True, slots=True)
class Barcode:
    """A number in black and white blocks along the top of a picture, most significant bit first."""

    columns: int
    rows: int
    height_share: float
    """Part of the picture's height that the blocks take."""

    @property
    def bits(self) -> int:
        return self.columns * self.rows

    def num_rows(self, height: int) -> int:
        """Rows of pixels that the blocks take."""
        return int(height * self.height_share)

    def draw(self, picture_HWC: npt.NDArray[np.uint8], number: int) -> None:
        """Draw a number, 0 <= number < 2 ** bits, into a picture with any number of channels."""
        if not 0 <= number < 1 << self.bits:
            raise ValueError(f"number must be in [0, {1 << self.bits}), got {number}")
        bits = [(number >> (self.bits - 1 - position)) & 1 for position in range(self.bits)]
        blocks = np.array(bits, dtype=np.uint8).reshape(self.rows, self.columns) * 255
        height, width = picture_HWC.shape[:2]
        num_rows = self.num_rows(height)
        rows = np.arange(num_rows) * self.rows // num_rows
        columns = np.arange(width) * self.columns // width
        picture_HWC[:num_rows] = blocks[rows][:, columns, None]

    def read(self, frames_THWC: npt.NDArray[np.generic]) -> list[int]:
        """The numbers that `draw` drew, at whatever size the pictures now have."""
        height, width = frames_THWC.shape[1:3]
        y = ((np.arange(self.rows) + 0.5) * height * self.height_share / self.rows).astype(int)
        x = ((np.arange(self.columns) + 0.5) * width / self.columns).astype(int)
        bits = frames_THWC[:, y[:, None], x[None, :]].mean(axis=-1).reshape(-1, self.bits) > 127
        return (bits @ (1 << np.arange(self.bits)[::-1])).tolist()


BLOCKS = Barcode(columns=6, rows=2, height_share=0.5)


def draw_number(number: int, width: int = WIDTH, height: int = HEIGHT) -> npt.NDArray[np.uint8]:
    """A picture (H, W, 3) uint8 that shows `number` (0 <= number < 4096)."""
    y, x = np.mgrid[0 : height - height // 2, 0:width]
    picture_HWC = np.empty((height, width, 3), dtype=np.uint8)
    BLOCKS.draw(picture_HWC, number)
    picture_HWC[height // 2 :, :, 0] = (x * 3 + number * 5) % 256
    picture_HWC[height // 2 :, :, 1] = (y * 7 + number * 2) % 256
    picture_HWC[height // 2 :, :, 2] = ((x + y + number) // 4 % 2) * 160
    return picture_HWC


def read_number(picture_HWC: npt.NDArray[np.uint8]) -> int:
    """The number that `draw_number` drew, at whatever size the picture now has."""
    return BLOCKS.read(picture_HWC[None])[0]


@contextmanager
def _usual_scheduling() -> Iterator[None]:
    """SVT-AV1 makes the thread that encodes a real-time one where it may, as root: all other processes then starve."""
    policy, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    try:
        yield
    finally:
        os.sched_setscheduler(0, policy, parameters)


def write_video(
    path: Path,
    *,
    num_frames: int = 60,
    fps: Fraction | int = 30,
    times_seconds: Sequence[Fraction | float] | None = None,
    start_seconds: Fraction | float = 0,
    codec: str = "libx264",
    gop_frames: int = 12,
    b_frames: int = 2,
    rotation_degrees: int = 0,
    mirrored: bool = False,
    width: int = WIDTH,
    height: int = HEIGHT,
    codec_options: Mapping[str, str] | None = None,
    container_options: Mapping[str, str] | None = None,
    audio_seconds: float = 0.0,
    pixel_format: str = "yuv420p",
    container_format: str | None = None,
    time_base: Fraction | None = None,
) -> Path:
    """Write frames 0 ... n-1, frame i at ``start_seconds + i / fps`` or ``start_seconds + times_seconds[i]``.

    `rotation_degrees` is the counter-clockwise turn that a player has to make, stored as a display matrix;
    `mirrored` swaps left and right after it. `container_format` is FFmpeg's name of a container that the file's suffix
    does not give.
    """
    times = [Fraction(time) for time in times_seconds or [Fraction(i) / Fraction(fps) for i in range(num_frames)]]
    if codec in FIXED_RATE_CODECS or path.suffix == ".avi":  # no finer clock than the frame rate
        time_base = 1 / Fraction(fps)
    time_base = time_base or Fraction(1, TICKS_PER_SECOND)
    options = {"g": str(gop_frames), "bf": str(b_frames), **DEFAULT_OPTIONS.get(codec, {}), **(codec_options or {})}
    with (
        _usual_scheduling(),
        av.open(str(path), "w", format=container_format, options=dict(container_options or {})) as container,
    ):
        stream = container.add_stream(codec, rate=Fraction(fps), options=options)
        stream.width, stream.height, stream.pix_fmt = width, height, pixel_format
        stream.codec_context.thread_count = 1
        stream.codec_context.time_base = time_base
        if rotation_degrees or mirrored:
            stream.set_display_rotation(rotation_degrees, hflip=mirrored)
        audio = container.add_stream("aac", rate=16_000, layout="mono") if audio_seconds else None
        for number, time in enumerate(times):
            frame = av.VideoFrame.from_ndarray(draw_number(number, width, height), format="rgb24")
            frame.pts = round((Fraction(start_seconds) + time) / time_base)
            frame.time_base = time_base
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))
        if audio is not None:
            _write_silence(container, audio, audio_seconds)
    return path


def write_grey(path: Path, num_frames: int, fps: Fraction, width: int, height: int) -> None:
    """A constant frame rate and nothing to see: quick to write, also with thousands of frames."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=fps, options={"preset": "ultrafast", "bf": "0"})
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.codec_context.thread_count = 1
        frame = av.VideoFrame.from_ndarray(np.full((height * 3 // 2, width), 128, np.uint8), format="yuv420p")
        frame.time_base = 1 / fps
        for index in range(num_frames):
            frame.pts = index
            container.mux(stream.encode(frame))
        container.mux(stream.encode(None))


MakeVideo = Callable[..., str]
"""Path of a grey video: `make_video(num_frames=3000, fps=Fraction(30), width=64, height=36)`."""


def write_audio(path: Path, seconds: float = 1.0) -> Path:
    """A file that holds sound and no picture."""
    with av.open(str(path), "w") as container:
        _write_silence(container, container.add_stream("aac", rate=16_000, layout="mono"), seconds)
    return path


def remux(
    source: Path,
    target: Path,
    *,
    from_seconds: float | None = None,
    times: int = 1,
    container_options: Mapping[str, str] | None = None,
) -> Path:
    """Copy the packets of the video stream unchanged into another container.

    From the packet of `from_seconds` backwards to its key frame, if given: an MP4 then gets an edit list that hides the
    frames before the first packet's time zero. With `times` > 1 the packets are written again and again, one copy after
    the other.
    """
    with av.open(str(source)) as reader, av.open(str(target), "w", options=dict(container_options or {})) as writer:
        stream = reader.streams.video[0]
        out = writer.add_stream_from_template(stream)
        duration_ticks = int(stream.duration or 0)
        for copy in range(times):
            offset_ticks = 0
            if from_seconds is not None:
                offset_ticks = -round(from_seconds / stream.time_base)
                reader.seek(-offset_ticks, stream=stream)
            else:
                reader.seek(0)
            for packet in reader.demux(stream):
                if packet.size == 0:
                    continue
                shift = offset_ticks + copy * duration_ticks
                packet.pts += shift
                packet.dts += shift
                packet.stream = out
                writer.mux(packet)
    return target


def sequential_numbers(path: Path) -> tuple[list[int], list[Fraction]]:
    """Reference: numbers and times in seconds (from the first frame) of every frame, decoded from start to end."""
    numbers, times = [], []
    with av.open(str(path)) as container:
        for frame in container.decode(video=0):
            numbers.append(read_number(frame.to_ndarray(format="rgb24")))
            times.append(frame.pts * frame.time_base)
    return numbers, [time - times[0] for time in times]


DEFAULT_OPTIONS: dict[str, dict[str, str]] = {
    "libx264": {"preset": "veryfast", "crf": "23", "sc_threshold": "0"},
    "libx265": {"preset": "ultrafast", "x265-params": "log-level=none:pools=none:frame-threads=1"},
    "libvpx-vp9": {"deadline": "realtime", "cpu-used": "8", "lag-in-frames": "8", "auto-alt-ref": "1"},
}
FIXED_RATE_CODECS = frozenset({"mpeg4", "mpeg1video", "mpeg2video", "h263", "flv", "rv10", "msmpeg4", "wmv2"})


def _write_silence(container: av.container.OutputContainer, stream: av.AudioStream, seconds: float) -> None:
    samples_per_frame = 1024
    for start in range(0, int(seconds * stream.rate), samples_per_frame):
        frame = av.AudioFrame.from_ndarray(np.zeros((1, samples_per_frame), dtype=np.float32), "fltp", layout="mono")
        frame.sample_rate = stream.rate
        frame.pts = start
        container.mux(stream.encode(frame))
    container.mux(stream.encode(None))
