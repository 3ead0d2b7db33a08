"""What decoding a file from start to end shows: what any other way of reading it must show as well."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt

from tests.videos.files import read_number
from verl_video_tools.video.frame_converter import FrameConverter


@dataclass(frozen=True)
class Reference:
    """What decoding a file from start to end shows, in order."""

    path: Path

    @cached_property
    def _frames(self) -> tuple[list[Fraction], list[npt.NDArray[np.uint8]]]:
        """Times and pictures; frames are spaced evenly where the decoder's times go back or mostly stand still, and a
        time that only comes twice is a tick later the second time."""
        converter = FrameConverter()
        times: list[Fraction | None] = []
        pictures = []
        with av.open(str(self.path)) as container:
            stream = container.streams.video[0]
            stream.codec_context.thread_count = 1
            for frame in container.decode(stream):
                turned = frame.rotation % 180 != 0
                width, height = (frame.height, frame.width) if turned else (frame.width, frame.height)
                times.append(None if frame.pts is None else frame.pts * frame.time_base)
                pictures.append(converter.convert(frame, width, height))
            known = [time for time in times if time is not None]
            num_same = sum(later == earlier for earlier, later in pairwise(known))
            goes_back = any(later < earlier for earlier, later in pairwise(known))
            if len(known) < len(times) or goes_back or num_same > (len(known) - 1) / 2:
                rate = stream.average_rate or stream.guessed_rate
                ticks = [round(index / (rate * stream.time_base)) for index in range(len(times))]
                known = [tick * stream.time_base for tick in ticks]
            for index in range(1, len(known)):
                known[index] = max(known[index], known[index - 1] + stream.time_base)
        return known, pictures

    @cached_property
    def pictures(self) -> list[npt.NDArray[np.uint8]]:
        return self._frames[1]

    @cached_property
    def timestamps_seconds(self) -> list[float]:
        times, _ = self._frames
        return [float(time - times[0]) for time in times]

    @cached_property
    def numbers(self) -> list[int]:
        return [read_number(picture) for picture in self.pictures]

    def index_at(self, seconds: float) -> int:
        """Index of the frame shown at a time."""
        return bisect_right(self.timestamps_seconds, seconds) - 1
