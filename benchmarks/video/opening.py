"""What it costs that each file is opened in a child process first (`verl_video_tools/video/opening_check.py`).

    python -m benchmarks.video.opening            # a table; five minutes

Reads an hour of 640x360 with and without the check, in turns:

S1 ... U32   requests as in `benchmarks.video_io`, for a file that the process has opened before: it has passed
first S1 ... the same for a file that it opens for the first time, which is what the check costs at most
group        a group of 4 rollouts with 16 requests that begins in a process without a child: its start is included

CPU time of the process and its children, medians.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np
import psutil

from benchmarks.video.long_files import LongVideo, write_long_video
from benchmarks.video.requests import HEIGHT, SHAPES, WIDTH, Request, group_trace, make_request
from verl_video_tools.video import Video, opening_check, video
from verl_video_tools.video.opening_check import OpeningCheck

HOUR = LongVideo("hour", 640, 360, copy_seconds=30, copies=120)
ROLLOUTS = 4
SHAPE_NAMES = ("S1", "W4", "W16", "W32", "U8", "U32")


def cpu_seconds() -> float:
    """CPU time so far of this process and its running children, to the nanosecond."""
    children = [Path(f"/proc/{child.pid}/schedstat").read_text() for child in psutil.Process().children()]
    return time.process_time() + sum(int(text.split()[0]) for text in children) / 1e9


def cost(work: Callable[[], object]) -> float:
    before = cpu_seconds()
    work()
    return cpu_seconds() - before


def compare(name: str, work: Callable[[], object], prepare: Callable[[], object], repetitions: int) -> str:
    """A line of the table. `prepare` puts the check into the state that is measured."""
    with_check, without = [], []
    for _ in range(repetitions):
        prepare()
        with_check.append(cost(work))
        with mock.patch.object(video, "check_opening", lambda *_: None):
            without.append(cost(work))
    ratios = [one / other for one, other in zip(with_check, without, strict=True)]
    medians = [statistics.median(values) for values in (without, with_check, ratios)]
    return (
        f"| {name} | {medians[0] * 1000:.1f} | {medians[1] * 1000:.1f} | {medians[2]:.3f} "
        f"({min(ratios):.3f} to {max(ratios):.3f}) | {repetitions} |"
    )


def read(*requests: Request) -> None:
    with Video(requests[0].path) as opened:
        for request in requests:
            opened.frames_at(request.seconds, HEIGHT, WIDTH)


def forget_files() -> None:
    opening_check._check._passed.clear()


def forget_all() -> None:
    for child in opening_check._check._idle:
        child.kill()
    opening_check._check = OpeningCheck()


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="keeps the video")
    options = parser.parse_args(arguments)
    path = write_long_video(HOUR, options.folder)
    rng = np.random.default_rng(0)
    lines = ["| request | CPU ms without | with the check | ratio | repetitions |", "|---|---|---|---|---|"]
    for prefix, prepare in (("", lambda: None), ("first ", forget_files)):
        for shape in (shape for shape in SHAPES if shape.name in SHAPE_NAMES):
            request = make_request(str(path), HOUR.num_frames, HOUR.fps, shape, rng)
            read(request)
            lines.append(compare(f"{prefix}{shape.name}", partial(read, request), prepare, options.repetitions))
    group = [
        request for rollout in group_trace(str(path), HOUR.num_frames, HOUR.fps, ROLLOUTS, 0) for request in rollout
    ]
    lines.append(compare("group", lambda: read(*group), forget_all, max(3, options.repetitions // 5)))
    print("\n".join(lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
