"""Which files FFmpeg may open: the one that it is given, as one of these containers, and no other.

FFmpeg recognises a container by its content, whatever the file is called. Some are lists of other files: `evil.mp4`
that holds a playlist would show any file of this machine, or open itself until memory or handles are gone.
"""

from __future__ import annotations

import ctypes
import os

import av
import av.container.core
from av.container import InputContainer

FORMATS = (
    *("mov", "matroska", "webm", "mpegts", "mpeg", "mpegvideo", "m4v", "flv", "avi", "asf", "ogg", "mxf", "nut", "rm"),
    *("h264", "hevc", "vvc", "h263", "h261", "av1", "obu", "ivf", "vc1", "mjpeg", "dv", "gif", "apng", "wtv", "swf"),
    *("nsv", "yuv4mpegpipe", "gxf", "dirac", "dnxhd", "avs2", "avs3", "cavsvideo", "live_flv"),
)
"""FFmpeg's demuxers that read video from one file. Not among them: hls, dash, concat, imf, image2, sdp, mlv, vobsub,
and the runners of scripts, which all open something else."""

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
    "format_whitelist": ",".join(dict.fromkeys(FORMATS)),
    "max_streams": str(MAX_STREAMS),
    "max_pixels": str(MAX_PICTURE_PIXELS),  # to find out about a stream, FFmpeg decodes some of its pictures
}

OPEN_SECONDS = 60.0
"""Time that FFmpeg may take to open a file and find its streams."""


def open_container(path: str | os.PathLike[str]) -> InputContainer:
    """Open a local file to read it.

    Raises:
        av.FFmpegError: it cannot be opened; for a container that is not read, `av.ArgumentError`.
        OSError: the same, where there is no such file.
    """
    # Absolute, as FFmpeg takes "a:b.mp4" for a protocol "a"; and a title that is not UTF-8 is no error.
    return av.open(
        os.path.abspath(path),
        "r",
        metadata_errors="replace",
        options=OPEN_OPTIONS,
        timeout=(OPEN_SECONDS, None),
    )
