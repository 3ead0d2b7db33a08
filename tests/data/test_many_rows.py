"""10,000 rows, converted from a JSON list and checked: time, memory, and the bad ones among them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

NUM_ROWS = 10_000
BAD_ENTRIES = range(7, NUM_ROWS, 1000)
"""One in a thousand has an answer that is no choice."""
LOST_VIDEOS = range(400, NUM_ROWS, 1000)
"""Of one in a thousand the video goes between conversion and check."""
MAX_SECONDS = 300.0
MAX_BYTES = 1 << 30

# Linux counts what a process held before `exec` as its own, so that a child of the tests would have their memory.
_MEASURED = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[2:]).returncode
open(sys.argv[1], "w").write(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code)
"""


@dataclass(frozen=True)
class Ended:
    """How a command ended; `max_bytes` is the most memory that it held."""

    exit_code: int
    out: str
    err: str
    seconds: float
    max_bytes: int


def vvt(folder: Path, *arguments: str) -> Ended:
    command = [sys.executable, "-m", "verl_video_tools.cli", *arguments]
    begin = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-c", _MEASURED, str(folder / "memory"), *command], capture_output=True, text=True, check=False
    )
    seconds = time.monotonic() - begin
    kibibytes = int((folder / "memory").read_text())
    return Ended(ended.returncode, ended.stdout, ended.stderr, seconds, kibibytes * 1024)


def write_holmes(folder: Path) -> Path:
    """Questions in Video-Holmes' format, with long explanations, each about a video of its own."""
    entries = []
    for number in range(NUM_ROWS):
        choices = [f"The {colour} cup {number}." for colour in ("red", "green", "blue", "black")]
        entries.append(
            {
                "video ID": f"V{number}",
                "Question ID": number,
                "Question Type": "SR",
                "Question": "Which object was opened?",
                "Options": dict(zip("ABCD", choices, strict=True)),
                "Answer": "Nothing." if number in BAD_ENTRIES else "ABCD"[number % 4],
                "Explanation": "The cup was closed before. " * 100,
            }
        )
        (folder / "videos" / f"V{number}.mp4").touch()
    path = folder / "train_Video-Holmes.json"
    path.write_text(json.dumps(entries))
    return path


@pytest.mark.long
@pytest.mark.timeout(2 * MAX_SECONDS + 100)
def test_ten_thousand_rows(tmp_path: Path) -> None:
    videos, rows = tmp_path / "videos", tmp_path / "rows.parquet"
    videos.mkdir()
    annotations = write_holmes(tmp_path)

    options = ("--from", "video-holmes", "--videos", str(videos))
    convert = vvt(tmp_path, "data", "convert", str(annotations), str(rows), *options)
    assert (convert.exit_code, convert.out) == (0, f"{rows}: 9990 rows, 10 skipped\n")
    assert convert.err.splitlines() == [
        f"skipped {annotations}: row {number}: the truth must be one of the letters ABCD, got 'Nothing.'"
        for number in BAD_ENTRIES
    ]

    for number in LOST_VIDEOS:
        (videos / f"V{number}.mp4").unlink()
    validate = vvt(tmp_path, "data", "validate", str(rows))
    assert (validate.exit_code, validate.out) == (1, f"{rows}: 9990 rows, 10 bad\n")
    left_out_before = [sum(bad < number for bad in BAD_ENTRIES) for number in LOST_VIDEOS]
    assert validate.err.splitlines() == [
        f"row {number - left_out}: no such video file: {videos / f'V{number}.mp4'}"
        for number, left_out in zip(LOST_VIDEOS, left_out_before, strict=True)
    ]

    for ended in (convert, validate):
        assert ended.seconds < MAX_SECONDS and ended.max_bytes < MAX_BYTES, ended
