"""Videos whose frames are image files: a folder of them at a rate, or a JSON file that lists them.

A folder is named with its rate, `kitchen#fps=2` (`core.sample.read_clip`). Its frames are ordered by the numbers in
their names. A list is a file such as ``{"frames": ["a.jpg", "b.jpg"], "times": [0, 0.5]}`` or ``{..., "fps": 2}``, with
paths that start from its folder.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import numpy as np

from verl_video_tools.core.errors import UnreadableVideoError, VideoNotFoundError
from verl_video_tools.core.sample import Clip
from verl_video_tools.video.pictures import UNREADABLE, upright_picture
from verl_video_tools.video.reader import Decode, FrameIndex
from verl_video_tools.video.source import MAX_PACKETS, MAX_PICTURE_PIXELS, Deadline, LostFileError

LIST_SUFFIX = ".json"
IMAGE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".webp", ".bmp"})
"""Of the files of a folder that are its frames; others are ignored."""

MAX_LIST_BYTES = 64 << 20
"""Largest list that is read."""

TICKS_PER_SECOND = 1_000_000_000
"""Times of a list are kept to the nanosecond, so that each comes back as it was written."""

MAX_NUMBER = 1e9
"""Rates and times are below; so neither NaN nor infinity, nor an integer of thousands of digits, is one."""

_RATE = re.compile(r"\d{1,9}(?:\.\d{1,9}|/\d{1,9})?")
_NUMBERS = re.compile(r"\d+")


@dataclass(frozen=True)
class FrameFiles:
    """The image files of a video, in order.

    Attributes:
        path: of the folder or the list.
        files: of the frames, absolute.
        ticks: when each is shown, ascending from 0, in units of `time_base` seconds.
        sizes_and_times: bytes, and time of the last change in nanoseconds, of each file.
        rate: frames a second; None for a list with times.
    """

    path: Path
    files: tuple[Path, ...]
    ticks: tuple[int, ...]
    time_base: Fraction
    sizes_and_times: tuple[tuple[int, int], ...]
    rate: Fraction | None

    def digest(self) -> str:
        """Changes with any of the files, their order and their times."""
        facts = (self.files, self.ticks, self.time_base, self.sizes_and_times)
        return hashlib.blake2b(repr(facts).encode(), digest_size=16).hexdigest()


def find_frame_files(clip: Clip) -> FrameFiles | None:
    """The image files that a path stands for; None if it names a video file.

    Raises:
        VideoNotFoundError: there is no such folder or list.
        UnreadableVideoError: one of the files is missing or empty, the order of a folder is unclear, or a list is none.
    """
    path = Path(os.path.abspath(clip.file))
    if clip.fps is None and path.suffix.lower() != LIST_SUFFIX:
        return None
    if (missing := clip.why_missing()) is not None:
        raise VideoNotFoundError(missing)
    try:
        if clip.fps is not None:
            files, rate, times = frames_of_folder(path), clip.fps, None
        else:
            files, rate, times = _read_list(path)
        checked_rate, seconds = check_timing(len(files), rate, times)
    except (OSError, ValueError) as error:
        raise UnreadableVideoError(f"{clip.file}: {error}") from error
    states = tuple(_state(file) for file in files)
    if checked_rate is None:
        ticks = tuple(map(_ticks, seconds))
        return FrameFiles(path, files, ticks, Fraction(1, TICKS_PER_SECOND), states, None)
    return FrameFiles(path, files, tuple(range(len(files))), 1 / checked_rate, states, checked_rate)


def frames_of_folder(folder: Path) -> tuple[Path, ...]:
    """The images of a folder, by the numbers in their names: `frame_2.jpg` comes before `frame_10.jpg`.

    Raises:
        ValueError: it has none, or their names differ in more than numbers, or give no order.
        OSError: the folder cannot be read.
    """
    names = [
        name
        for name in os.listdir(folder)
        if os.path.splitext(name)[1].lower() in IMAGE_SUFFIXES and not name.startswith(".")
    ]
    if not names:
        raise ValueError(f"the folder has no image ({', '.join(sorted(IMAGE_SUFFIXES))})")
    examples: dict[str, str] = {}
    for name in sorted(names):
        examples.setdefault(_NUMBERS.sub("0", name), name)
    if len(examples) > 1:  # a cover picture, or the frames of two cameras
        first, second, *_ = examples.values()
        raise ValueError(
            f"the names of its images differ in more than numbers, such as {first!r} and {second!r}; leave frames of "
            "one video in the folder, or list them in a JSON file"
        )
    names.sort(key=_numbers)
    for name, following in pairwise(names):
        if _numbers(name) == _numbers(following):
            raise ValueError(f"the images {name!r} and {following!r} have the same number")
    if names != sorted(names, key=_decimals):  # `0.25.jpg` and `0.5.jpg` may count hundredths, or number 25 and 5
        raise ValueError("the numbers in the names may be decimals or not, with other orders; list them in a JSON file")
    return tuple(folder / name for name in names)


def _numbers(name: str) -> list[int]:
    return [int(digits) for digits in _NUMBERS.findall(os.path.splitext(name)[0])]


def _decimals(name: str) -> list[Fraction]:
    return [Fraction(digits) for digits in re.findall(r"\d+(?:\.\d+)?", os.path.splitext(name)[0])]


def _read_list(path: Path) -> tuple[tuple[Path, ...], Any, Any]:
    """Paths of a list, its rate and its times, None for what it does not have. Raises ValueError or OSError."""
    with path.open("rb") as file:
        text = file.read(MAX_LIST_BYTES + 1)
    try:
        content = json.loads(text) if len(text) <= MAX_LIST_BYTES else None
    except (ValueError, RecursionError):
        content = None
    names = content.get("frames") if isinstance(content, dict) else None
    if not isinstance(names, list) or not names or not all(isinstance(name, str) and name for name in names):
        raise ValueError('a list of frames is a JSON object such as {"frames": ["a.jpg", "b.jpg"], "fps": 2}')
    assert isinstance(content, dict)
    return tuple(path.parent / name for name in names), content.get("fps"), content.get("times")


def check_timing(num_frames: int, rate: Any, times: Any) -> tuple[Fraction | None, tuple[float, ...]]:
    """The rate of frames, or their times in seconds; the other one is None or empty.

    Args:
        rate: as `read_rate` takes it; None if there are times.
        times: a list of numbers; None if there is a rate.

    Raises:
        ValueError: there are both or too many frames, the rate is none, or the times are not as many as the frames,
            ascending from 0.
    """
    if num_frames > MAX_PACKETS:
        raise ValueError(f"{num_frames} frames are more than the {MAX_PACKETS} that are read")
    if times is None:
        return read_rate(rate), ()
    if rate is not None:
        raise ValueError("frames have either a rate (fps) or times, got both")
    if not isinstance(times, Sequence) or not all(map(_is_number, times)) or len(times) != num_frames:
        raise ValueError(f"{num_frames} frames need {num_frames} times in seconds, got {times!r:.80}")
    if times[0] != 0:
        raise ValueError(
            f"times of frames count from the first one, which is at 0, got {times[0]:g}; subtract it from all times, "
            "also from those in questions and segments"
        )
    for earlier, later in pairwise(times):
        if not _ticks(later) > _ticks(earlier):
            raise ValueError(f"the times of the frames must increase, got {later:g} after {earlier:g}")
    return None, tuple(map(float, times))


def read_rate(value: Any) -> Fraction:
    """A rate of frames, exactly as its digits say.

    Args:
        value: a number, also as a text such as `30000/1001`.

    Raises:
        ValueError: it is no positive number.
    """
    if value is None:
        raise ValueError("frames need a rate (fps), or times in seconds")
    if _is_number(value) or (isinstance(value, str) and _RATE.fullmatch(value.strip())):
        with suppress(ZeroDivisionError):
            rate = Fraction(str(value).strip())
            if 0 < rate < MAX_NUMBER:
                return rate
    raise ValueError(f"the rate of frames (fps) must be a positive number, got {value!r:.80}")


def _ticks(seconds: float) -> int:
    return round(Fraction(seconds) * TICKS_PER_SECOND)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MAX_NUMBER


def _state(file: Path) -> tuple[int, int]:
    """Size in bytes and time of the last change. Raises UnreadableVideoError: it is no file, or empty."""
    try:
        status = file.stat()
    except OSError as error:
        raise UnreadableVideoError(f"{file}: the frame cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(status.st_mode) or not status.st_size:
        raise UnreadableVideoError(f"{file}: the frame is no file with an image")
    return status.st_size, status.st_mtime_ns


def frame_list(files: Sequence[Path], rate: Any, times: Any) -> str:
    """The text of a list of frames; arguments and errors are those of `check_timing`."""
    check_timing(len(files), rate, times)
    timing = {"fps": rate} if times is None else {"times": times}
    return json.dumps({"frames": list(map(str, files)), **timing}, indent=1) + "\n"


def with_rate(folder: str | os.PathLike[str], rate: Fraction) -> str:
    """The path of a folder of frames at a rate, which is rounded to nine decimals."""
    return f"{os.fspath(folder)}#fps={f'{float(rate):.9f}'.rstrip('0').rstrip('.')}"


class FrameFileReader:
    """Reads the frames of image files, in the place of a `VideoSource` and its `FrameReader`.

    An image that cannot be read is an error that names it: unlike a frame of a stream it can be made again.

    Raises:
        UnreadableVideoError: the first frame cannot be read.
    """

    missing_bytes = 0
    is_mirrored = False
    is_open = False
    """No file is held between calls."""

    def __init__(self, frame_files: FrameFiles, deadline: Deadline) -> None:
        self._frame_files = frame_files
        self.path = frame_files.path
        self.time_base, self.average_rate = frame_files.time_base, frame_files.rate
        numbers = np.arange(len(frame_files.files))
        ticks = np.array(frame_files.ticks, dtype=np.int64)
        last_duration = 0 if frame_files.rate is None else 1
        self.index = FrameIndex(ticks, numbers, ticks, ticks, numbers, last_duration)
        _, _, frame = next(self.frames([0], range(len(numbers)), deadline))
        self.first_frame_size = frame.width, frame.height

    def frames(
        self, indices: Sequence[int], within: range, deadline: Deadline, decode: Decode | None = None
    ) -> Iterator[tuple[int, int, av.VideoFrame]]:
        """As `FrameReader.frames`, without frames that replace others.

        Raises:
            UnreadableVideoError: an image cannot be read.
            LostFileError: it was changed since the video was opened.
        """
        for index in indices:
            deadline.check()
            file = self._frame_files.files[index]
            if _state(file) != self._frame_files.sizes_and_times[index]:
                raise LostFileError(f"{file}: the frame was changed while it was in use")
            try:
                picture = upright_picture(file, MAX_PICTURE_PIXELS)
            except UNREADABLE as error:
                raise UnreadableVideoError(f"{file}: the frame cannot be read: {error}") from error
            yield index, index, av.VideoFrame.from_ndarray(np.asarray(picture), format="rgb24")

    def wake(self) -> None:
        """Nothing was closed."""

    def close(self) -> None:
        """Nothing is open."""

    def check_unchanged(self) -> None:
        """Each file was compared when it was read."""
