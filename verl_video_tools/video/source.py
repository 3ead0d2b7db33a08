"""A video file as PyAV opens it: which files may be opened, and the packets of the video stream from a place on."""

from __future__ import annotations

import ctypes
import os
import stat
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import av
import av.container.core
from av.container import InputContainer
from av.stream import Discard, Disposition
from av.video.stream import VideoStream

from verl_video_tools.core.errors import DeadlineError, UnreadableVideoError, VideoNotFoundError
from verl_video_tools.core.sample import Clip
from verl_video_tools.video.file_head import missing_bytes, why_no_video

FORMATS = (
    *("mov", "matroska", "webm", "mpegts", "mpeg", "mpegvideo", "m4v", "flv", "avi", "asf", "ogg", "mxf", "nut", "rm"),
    *("h264", "hevc", "vvc", "h263", "h261", "av1", "obu", "ivf", "vc1", "mjpeg", "dv", "gif", "apng", "wtv", "swf"),
    *("nsv", "yuv4mpegpipe", "gxf", "dirac", "dnxhd", "avs2", "avs3", "cavsvideo", "live_flv"),
)
"""FFmpeg's demuxers that read video from one file. FFmpeg chooses by content, not by name: without this list a file
`evil.mp4` that holds a playlist (hls, concat, dash) would show any file of this machine."""

MAX_PICTURE_PIXELS = 8192 * 8192
"""Largest picture that is decoded; 8K has half of it. A decoder holds several, of at least 1.5 bytes a pixel."""

MAX_BLOCK_BYTES = 128 << 20
"""Largest block of memory that FFmpeg gets. A header of a few hundred bytes may announce 80 million frames, for which
FFmpeg would make a table of 24 bytes each; so many bytes hold those of a day at 60 frames a second. A plane of the
largest picture has half of them."""

MAX_STREAMS = 64
"""Most streams of a file. Each has tables of its own."""

# For all of PyAV's FFmpeg, which has no such option for one file. The library is the one that PyAV is linked with.
ctypes.CDLL(av.container.core.__file__).av_max_alloc(ctypes.c_size_t(MAX_BLOCK_BYTES))

OPEN_OPTIONS = {
    "protocol_whitelist": "file",
    "format_whitelist": ",".join(FORMATS),
    "max_streams": str(MAX_STREAMS),
    "max_pixels": str(MAX_PICTURE_PIXELS),  # to find out about a stream, FFmpeg decodes some of its pictures
}

OPEN_SECONDS = 60.0
"""Time that FFmpeg may take to open a file and find its streams."""

MAX_DURATION_SECONDS = 24 * 3600.0
"""Longest video that is read."""

MAX_PACKETS = 24 * 3600 * 60
"""Most packets of a stream that are read: so many hold a day at 60 frames a second."""

SEEK_MARGIN_SECONDS = (0.0, 2.0, 16.0)
"""How far before its goal a seek aims, try after try; after the last try the file is read from its start."""


class Deadline:
    """A point in time that work must not pass; None means never."""

    def __init__(self, seconds: float | None, what: str) -> None:
        self._what = what
        self._seconds = seconds
        self._end = None if seconds is None else time.monotonic() + seconds

    def left_seconds(self) -> float | None:
        return None if self._end is None else max(0.0, self._end - time.monotonic())

    def error(self) -> DeadlineError:
        return DeadlineError(f"{self._what}: not done within {self._seconds} s; allow more time or ask for less")

    def check(self) -> None:
        """Raise DeadlineError if the time is over."""
        if self._end is not None and time.monotonic() >= self._end:
            raise self.error()


NEVER = Deadline(None, "")


class LostFileError(UnreadableVideoError):
    """The file changed, is gone, or its file system gave an error. The opened file cannot be used any more."""


def open_container(path: str | os.PathLike[str]) -> InputContainer:
    """Open a local file to read it.

    Raises:
        av.FFmpegError: it cannot be opened; for a container that is not read, `av.ArgumentError`.
        OSError: the same, where there is no such file.
    """
    # Absolute, as FFmpeg takes "a:b.mp4" for a protocol "a"; and a title that is not UTF-8 is no error.
    return av.open(
        os.path.abspath(path), "r", metadata_errors="replace", options=OPEN_OPTIONS, timeout=(OPEN_SECONDS, None)
    )


class VideoSource:
    """The video stream of one file. Not thread-safe: PyAV forbids two threads in one container.

    After `close`, the next use opens the file again.

    Raises:
        VideoNotFoundError: there is no such file.
        UnreadableVideoError: FFmpeg cannot open it, or it holds no video stream that can be decoded.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        try:
            status = self.path.stat()
        except FileNotFoundError:
            raise VideoNotFoundError(f"{self.path}: no such video file") from None
        except OSError as error:  # for one, a folder on the way that may not be entered
            raise UnreadableVideoError(f"{self.path}: cannot be opened as a video: {error.strerror}") from error
        if stat.S_ISDIR(status.st_mode):
            raise UnreadableVideoError(str(Clip(os.fspath(path), None).why_missing()))
        if not stat.S_ISREG(status.st_mode):  # reading a pipe or a device may wait for ever
            raise UnreadableVideoError(f"{self.path}: not a regular file, so no video can be read from it")
        self.size_bytes, self._modified_ns = status.st_size, status.st_mtime_ns
        self._container: InputContainer | None = None
        container = self._open()
        self.missing_bytes = missing_bytes(self.path)
        self.container_names = frozenset(container.format.name.split(","))
        self.codec_name: str = self._stream.codec_context.codec.canonical_name
        self.average_rate: Fraction | None = self._stream.average_rate
        self.nominal_rate: Fraction = self.average_rate or self._stream.guessed_rate or Fraction(25)

    def _open(self) -> InputContainer:
        try:
            container = open_container(self.path)
        except av.ArgumentError as error:
            raise UnreadableVideoError(
                f"{self.path}: cannot be opened as a video: {error}. What is no container of one file (a playlist, a "
                "list such as concat or dash, a picture) is not read"
            ) from error
        except (av.FFmpegError, OSError) as error:
            reason = (why_no_video(self.path) if isinstance(error, av.InvalidDataError) else None) or error
            raise UnreadableVideoError(f"{self.path}: cannot be opened as a video: {reason}") from error
        self._container = container
        try:
            self._stream, self.time_base = self._video_stream(container)
        except BaseException:
            self.close()
            raise
        for other in container.streams:
            if other is not self._stream:
                other.discard = Discard.all
        codec = self._stream.codec_context
        codec.options = {"max_pixels": str(MAX_PICTURE_PIXELS)}  # a stream may change its size
        # One thread: many requests run side by side, and frame threads cost CPU and delay without gain.
        codec.thread_count = 1
        codec.thread_type = "NONE"
        return container

    def _video_stream(self, container: InputContainer) -> tuple[VideoStream, Fraction]:
        stream = container.streams.best("video")
        if not isinstance(stream, VideoStream) or stream.disposition & Disposition.attached_pic:
            raise UnreadableVideoError(f"{self.path}: the file holds no video stream")
        if getattr(stream, "codec_context", None) is None or stream.time_base is None:
            raise UnreadableVideoError(f"{self.path}: FFmpeg has no decoder for the video stream")
        width, height = stream.codec_context.width, stream.codec_context.height
        if width * height > MAX_PICTURE_PIXELS:
            raise UnreadableVideoError(
                f"{self.path}: pictures of {width}x{height} are larger than the {MAX_PICTURE_PIXELS} pixels that are "
                "decoded; scale the video down"
            )
        return stream, stream.time_base

    @property
    def stream(self) -> VideoStream:
        """The video stream of the open file. Do not keep it, because `close` and `rewind` end it."""
        self.wake()
        return self._stream

    def wake(self) -> None:
        """Open the file again if it was closed."""
        if self._container is None:
            self.rewind()

    @property
    def is_open(self) -> bool:
        return self._container is not None

    def close(self) -> None:
        """Free the file and the decoder."""
        if self._container is not None:
            self._container.close()
            # The decoder, with its pictures, lives as long as the stream. `stream` never hands out None: it opens the
            # file first.
            self._container = self._stream = None  # type: ignore[assignment]

    def __del__(self) -> None:
        # PyAV's container and streams refer to each other: dropped unclosed, they would wait, with the file's buffers,
        # for the garbage collector, which does not see how large they are.
        if getattr(self, "_container", None) is not None:
            self.close()

    def check_unchanged(self) -> None:
        """Raise LostFileError if the file is gone or is another one than that which was opened first."""
        try:
            status = self.path.stat()
        except OSError as error:
            raise LostFileError(f"{self.path}: cannot be opened again: {error.strerror}") from error
        if (status.st_size, status.st_mtime_ns) != (self.size_bytes, self._modified_ns):
            raise LostFileError(f"{self.path}: the file was changed while it was in use")

    def rewind(self) -> None:
        """Start again at the first packet, by opening the file anew: not every container can seek."""
        self.close()
        self.check_unchanged()
        try:
            self._open()
        except UnreadableVideoError as error:
            raise LostFileError(str(error)) from error

    def packets(self, deadline: Deadline) -> Iterator[av.Packet]:
        """Packets of the stream from the present position to the end, in decode order.

        Damage ends them like the end of the file: what comes before it stays usable.

        Raises:
            LostFileError: the file system did not give what is in the file, which must not pass for a shorter one.
        """
        stream = self.stream  # before the container, which it may make anew
        assert self._container is not None
        try:
            for count, packet in enumerate(self._container.demux(stream)):
                deadline.check()
                self.check_num_packets(count)
                if packet.size:
                    yield packet
        except av.FFmpegError as error:
            if isinstance(error, OSError):  # the file system's own; for damage FFmpeg has others
                raise LostFileError(f"{self.path}: reading the file failed: {error.strerror}") from error
        except IndexError:
            # PyAV trips over a stream that began after FFmpeg had looked for streams (late audio in FLV or MPEG-TS). It
            # does so only when it flushes its streams at the end of the file, after the last packet.
            return

    def check_num_packets(self, num_packets: int) -> None:
        """Raise UnreadableVideoError for more packets than are read."""
        if num_packets > MAX_PACKETS:
            raise UnreadableVideoError(
                f"{self.path}: the video stream has more than {MAX_PACKETS} packets, the most that are read; cut the "
                "video into shorter ones"
            )

    def packets_from(self, pts: int, seek_tick: int | None, deadline: Deadline) -> Iterator[av.Packet]:
        """Packets from the one with a presentation time on; none if the file does not hold it any more.

        Args:
            seek_tick: where to seek; None reads from the start of the file.
        """
        # Seeks lie: MPEG-TS lands between key frames, and an index may point behind the goal. So a seek counts only if
        # the packet is met before any that is decoded after it.
        for margin_seconds in (*(SEEK_MARGIN_SECONDS if seek_tick is not None else ()), None):
            if margin_seconds is None or seek_tick is None:
                self.rewind()
            elif not self._seek(seek_tick - int(margin_seconds / self.time_base)):
                continue
            packets = self.packets(deadline)
            for packet in packets:
                if packet.pts == pts:
                    yield packet
                    yield from packets
                    return
                if margin_seconds is not None and packet.dts is not None and packet.dts > pts:
                    break

    def packet_at(self, dts: int, deadline: Deadline) -> av.Packet | None:
        """The packet that an MP4 file holds for a time of decoding; not for decoding, unless it is a key frame."""
        if self._seek(dts, any_frame=True):  # at this packet or a few before it
            for packet in self.packets(deadline):
                if packet.dts is None or packet.dts >= dts:
                    return packet
        return None

    def _seek(self, tick: int, any_frame: bool = False) -> bool:
        stream = self.stream
        assert self._container is not None
        try:
            self._container.seek(tick, stream=stream, backward=True, any_frame=any_frame)
        except av.FFmpegError:
            return False
        return True

    def decode(self, packet: av.Packet | None) -> list[av.VideoFrame] | None:
        """Frames that the decoder hands out for a packet (None: all that it still holds); None if it refuses it."""
        try:
            return self.stream.codec_context.decode(packet)
        except av.FFmpegError:
            return None

    def skip_unreferenced(self, skip: bool) -> None:
        """Let the decoder leave out pictures that no other picture is predicted from."""
        self.stream.codec_context.skip_frame = "NONREF" if skip else "DEFAULT"
