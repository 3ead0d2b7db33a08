"""An opened video file: its stream, its packets from a chosen place on, and a clock for deadlines."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path

import av
from av.stream import Discard, Disposition
from av.video.stream import VideoStream

from verl_video_tools.core.errors import DeadlineError, UnreadableVideoError, VideoNotFoundError
from verl_video_tools.video.containers import MAX_PICTURE_PIXELS, open_container

BACK_OFF_SECONDS = (0.0, 1.0, 4.0, 16.0)
"""How far before its goal a seek aims, try after try; after the last try the file is read from its start."""

MAX_DURATION_SECONDS = 24 * 3600.0
"""Longest video that is read."""

MAX_PACKETS = 24 * 3600 * 60
"""Most packets of a stream that are read: so many hold a day at 60 frames a second. Each costs some 100 bytes."""


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
    """The file system gave an error, or the file is gone: what was opened is of no more use."""


class VideoSource:
    """The video stream of one file. Not thread-safe: PyAV forbids two threads in one container.

    After `close`, whatever needs the file opens it again, see `wake`.

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
        if not stat.S_ISREG(status.st_mode):  # reading a pipe or a device may wait for ever
            raise UnreadableVideoError(f"{self.path}: not a regular file, so no video can be read from it")
        self._size_bytes, self._modified_ns = status.st_size, status.st_mtime_ns
        self._stream: VideoStream | None = None
        self._open()
        self.container_names = frozenset(self._container.format.name.split(","))
        self.codec_name: str = self.stream.codec_context.codec.canonical_name

    def _open(self) -> None:
        try:
            self._container = open_container(self.path)
        except av.ArgumentError as error:
            raise UnreadableVideoError(
                f"{self.path}: cannot be opened as a video: {error}. What is no container of one file (a playlist, a "
                "list such as concat or dash, a picture) is not read"
            ) from error
        except (av.FFmpegError, OSError) as error:
            raise UnreadableVideoError(f"{self.path}: cannot be opened as a video: {error}") from error
        try:
            stream, self.time_base = self._video_stream()
        except BaseException:
            self._container.close()
            raise
        for other in self._container.streams:
            if other is not stream:
                other.discard = Discard.all
        self._stream = stream
        # One thread: many requests run side by side, and frame threads cost CPU and delay without gain.
        stream.codec_context.thread_count = 1
        stream.codec_context.thread_type = "NONE"

    def _video_stream(self) -> tuple[VideoStream, Fraction]:
        stream = self._container.streams.best("video")
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
        stream.codec_context.options = {"max_pixels": str(MAX_PICTURE_PIXELS)}  # a stream may change its size
        return stream, stream.time_base

    @property
    def stream(self) -> VideoStream:
        """Of the file as it is open now. Do not keep it: it ends with `close` and `rewind`."""
        self.wake()
        assert self._stream is not None
        return self._stream

    @property
    def is_open(self) -> bool:
        return self._stream is not None

    def close(self) -> None:
        """Free the file and the decoder."""
        self._stream = None  # the decoder, with its pictures, lives as long
        self._container.close()

    def wake(self) -> None:
        """Open the file again if it was closed; what is read then begins with the first packet.

        Raises:
            LostFileError: it cannot be opened any more, or is another one by now.
        """
        if self._stream is not None:
            return
        try:
            status = self.path.stat()
        except OSError as error:
            raise LostFileError(f"{self.path}: cannot be opened again: {error.strerror}") from error
        if (status.st_size, status.st_mtime_ns) != (self._size_bytes, self._modified_ns):
            raise LostFileError(f"{self.path}: the file was changed while it was in use")
        self._open_again()

    def __del__(self) -> None:
        # PyAV's container and streams refer to each other: dropped unclosed, they would wait, with the file's buffers,
        # for the garbage collector, which does not see how large they are.
        if hasattr(self, "_container"):
            self._container.close()

    def rewind(self) -> None:
        """Start again at the first packet, by opening the file anew: not every container can seek.

        Raises:
            LostFileError: it cannot be opened any more.
        """
        if self._stream is None:
            self.wake()
        else:
            self.close()
            self._open_again()

    def _open_again(self) -> None:
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

    def packets_from(
        self,
        seek_tick: int | None,
        is_entry: Callable[[av.Packet], bool],
        is_beyond: Callable[[av.Packet], bool],
        deadline: Deadline,
    ) -> Iterator[av.Packet]:
        """Packets from the one that `is_entry` accepts on; none if the file does not hold it any more.

        Seeks lie: MPEG-TS lands between key frames, and an index may point behind the goal. So a seek counts only if
        the entry is met before any packet that `is_beyond` it; else one further back is tried, at last the start.

        Args:
            seek_tick: aim of the seek in the stream's time base; None reads from the start at once.
        """
        for back_off_seconds in (*(BACK_OFF_SECONDS if seek_tick is not None else ()), None):
            if back_off_seconds is None or seek_tick is None:
                self.rewind()
            elif not self._seek(seek_tick - int(back_off_seconds / self.time_base)):
                continue
            packets = self.packets(deadline)
            for packet in packets:
                if is_entry(packet):
                    yield packet
                    yield from packets
                    return
                if back_off_seconds is not None and is_beyond(packet):
                    break

    def _seek(self, tick: int) -> bool:
        stream = self.stream
        try:
            self._container.seek(tick, stream=stream, backward=True)
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
