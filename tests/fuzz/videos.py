"""Surface `videos`: small files with damaged bytes. Each frame is right, marked, or refused by name."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from tests.fuzz.damage import damaged, damages
from tests.fuzz.surface import Surface
from tests.videos.files import BLOCKS, write_video
from verl_video_tools.core.errors import VideoError
from verl_video_tools.core.types import FrameBatch
from verl_video_tools.video import Video

NUM_FRAMES, FPS = 40, 10
DEADLINE_SECONDS = 20.0
KINDS: dict[str, dict[str, Any]] = {
    "h264.mp4": {},
    "faststart.mp4": {"container_options": {"movflags": "faststart"}},
    "fragmented.mp4": {"container_options": {"movflags": "frag_keyframe+empty_moov"}},
    "h264.mkv": {},
    "h264.ts": {},
    "mpeg4.avi": {"codec": "mpeg4"},
    "mpeg2.mpg": {"codec": "mpeg2video", "fps": 25},
    "vp8.webm": {"codec": "libvpx"},
    "flash.flv": {},
}
"""File names and what `write_video` is told beside."""
LATE_FRAMES = 3
"""Before the end of a file that was cut: a packet may be whole while others, stored after it, are gone; in a program
stream FFmpeg then takes one time for another, in one pass as well."""


class Videos(Surface):
    """Files that were cut or whose bytes were changed, asked for frames in any order."""

    name: ClassVar[str] = "videos"
    unit: ClassVar[str] = "frames asked for in damaged files"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._num_files = 0
        common = {"num_frames": NUM_FRAMES, "fps": FPS, "width": 48, "height": 32, "gop_frames": 10}
        self.whole = {
            name: write_video(folder / f"whole_{name}", **{**common, **options}).read_bytes()
            for name, options in KINDS.items()
        }

    def make(self, random: Random) -> Any:
        times = [random.uniform(0, NUM_FRAMES / FPS) for _ in range(random.choice((1, 4, 16, 40)))]
        return {
            "kind": random.choice([*KINDS]),
            "damages": random.choice((["cut"], [], [])) or damages(random),
            "cut": random.random(),
            "seconds": sorted(times) if random.random() < 0.5 else times,
        }

    def check(self, case: Any) -> int:
        name, is_cut = case["kind"], case["damages"] == ["cut"]
        whole = self.whole[name]
        data = whole[: int(case["cut"] * len(whole))] if is_cut else damaged(whole, case["damages"])
        self._num_files += 1  # a name of its own: files are known by their paths
        path = self.folder / f"{self._num_files}_{name}"
        path.write_bytes(data)
        try:
            self._read(path, case["seconds"], is_cut)
        except VideoError as error:
            assert str(error).strip(), f"{type(error).__name__} says nothing"
        finally:
            path.unlink()
        return len(case["seconds"])

    def _read(self, path: Path, seconds: list[float], is_cut: bool) -> None:
        with Video(path, deadline_seconds=DEADLINE_SECONDS) as video:
            info = video.info
            assert info.num_frames >= 1 and 0 < info.average_fps < math.inf and 0 <= info.duration_seconds < math.inf
            asked = [min(time, info.duration_seconds) for time in seconds]
            batch = video.frames_at(asked, deadline_seconds=DEADLINE_SECONDS)
            assert len(batch) == len(asked)
            _check_facts(batch, asked)
            if is_cut:
                self._check_numbers(batch, info.num_frames)

    @staticmethod
    def _check_numbers(batch: FrameBatch, num_frames: int) -> None:
        """What is left of a file that was cut is sound: the picture of a frame is that of its number."""
        numbers = BLOCKS.read(batch.frames_THWC)
        for number, index, corrupt in zip(numbers, batch.indices.tolist(), batch.corrupt.tolist(), strict=True):
            tolerance = LATE_FRAMES if index >= num_frames - LATE_FRAMES else 0
            assert corrupt or abs(number - index) <= tolerance, f"picture {number} as frame {index} of {num_frames}"


def _check_facts(batch: FrameBatch, asked: list[float]) -> None:
    """Later times show later frames; a frame that stands in for a damaged one may be of any time."""
    shown = zip(asked, batch.timestamps_seconds.tolist(), batch.indices.tolist(), batch.corrupt.tolist(), strict=True)
    ordered = sorted((time, told, index) for time, told, index, corrupt in shown if not corrupt)
    assert all(math.isfinite(told) and index >= 0 for _, told, index in ordered)
    for (_, earlier, _), (_, later, _) in pairwise(ordered):
        assert earlier <= later, f"times that are told go back from {earlier} to {later}"
