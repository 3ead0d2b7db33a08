"""The benchmark of reading frames: that it runs, measures what it says, and that a missed target shows."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.video.costs import Cost, TraceCost
from benchmarks.video.long_files import STRIP, LongVideo, write_long_video
from benchmarks.video.requests import SHAPES, Request, group_trace, make_request
from benchmarks.video.worker import SHARED, MissingReader, Worker, WorkFailed
from benchmarks.video_io import Traces, shape_table, trace_table

REPO = Path(__file__).parents[2]
TINY = LongVideo("tiny", 192, 112, copy_seconds=2, copies=3)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_long_video(TINY, tmp_path_factory.mktemp("long"))


@pytest.mark.long
@pytest.mark.timeout(300)
def test_smoke_run(tmp_path: Path) -> None:
    readers = ["ours_cold", "ours_warm"]
    command = [sys.executable, "-m", "benchmarks.video_io", "--quick", "--readers", *readers]
    command += ["--out", str(tmp_path / "out"), "--cache-dir", str(tmp_path / "videos")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, cwd=REPO)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "out" / "video_io.json").read_text())
    for shapes in results["shapes"]["costs"].values():
        for row in shapes.values():
            assert set(row) == set(readers)
            assert all(row[reader]["cpu_ms"] > 0 and row[reader]["wrong_frames"] == 0 for reader in readers)
    assert results["cache_hit_ms"] > 0 and results["traces"]["G=2"]["exact"]["wrong_frames"] == 0
    assert done.stdout == (tmp_path / "out" / "video_io.md").read_text()


def test_long_video_numbers_its_frames(tiny: Path) -> None:
    rng = np.random.default_rng(0)
    requests = [make_request(str(tiny), TINY.num_frames, TINY.fps, shape, rng) for shape in (SHAPES[0], SHAPES[4])]
    with Worker("ours_warm") as worker:
        work = worker.run([requests])
    assert work.numbers[0] == [[TINY.number_of(index) for index in request.indices] for request in requests]
    assert work.cpu_seconds > 0


def test_barcode_survives_scaling_of_the_picture() -> None:
    frames_THWC = np.full((3, 112, 192, 3), 90, dtype=np.uint8)
    for frame, number in zip(frames_THWC, (0, 9_999, 16_383), strict=True):
        STRIP.draw(frame, number)
    assert STRIP.read(frames_THWC) == STRIP.read(frames_THWC[:, ::2, ::2]) == [0, 9_999, 16_383]


def test_worker_names_a_missing_package(tmp_path: Path) -> None:
    (tmp_path / "decord.py").write_text("raise ImportError('No module named decord')")
    with pytest.raises(MissingReader, match="decord"):
        Worker("decord", {"PYTHONPATH": f"{tmp_path}:{REPO}"})


def test_worker_goes_on_after_an_error_and_ends_at_its_time_limit(tiny: Path, tmp_path: Path) -> None:
    good = make_request(str(tiny), TINY.num_frames, TINY.fps, SHAPES[4], np.random.default_rng(0))
    with Worker(SHARED) as worker:
        with pytest.raises(WorkFailed, match="VideoNotFoundError"):
            worker.run([[Request(str(tmp_path / "gone.mp4"), (0.0,), (0,))]])
        assert len(worker.run([[good], [good]]).numbers) == 2
        with pytest.raises(WorkFailed, match="Hang"):
            worker.run([[good] * 500], time_limit_seconds=0.05)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_requests_lie_inside_the_file(shape: Any) -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        request = make_request("a.mp4", 4_000, 30, shape, rng)
        assert len(request.indices) == len(request.seconds) == shape.num_frames
        assert list(request.indices) == sorted(set(request.indices))
        assert request.indices[0] >= 0 and request.indices[-1] < 4_000
        assert [math.floor(time * 30) for time in request.seconds] == list(request.indices)


def test_group_trace_looks_around_one_moment() -> None:
    rollouts = group_trace("a.mp4", 108_000, 30, num_rollouts=8, seed=0)
    assert [[len(request.indices) for request in requests] for requests in rollouts] == [[32, 16, 16, 16]] * 8
    assert len({requests[0] for requests in rollouts}) == 1
    starts = [request.seconds[0] for requests in rollouts for request in requests[1:]]
    assert len(starts) == 24 and len(set(starts)) > 20 and max(starts) - min(starts) < 20.1


def test_tables_name_wrong_frames_fewer_requests_and_what_is_missing() -> None:
    row: dict[str, Cost | str] = {
        "ours_cold": Cost(31.4, 9, 90, 1),
        "qwen": Cost(100.0, 3, 30, 0),
        "torchcodec_warm": "missing: torchcodec_warm: No module named 'torchcodec'",
    }
    text = shape_table({"A": {"W16": row}}).splitlines()
    assert (
        text[0] == "| CPU ms per request | ours cold | torchcodec exact warm | qwen-vl-utils | cold / qwen-vl-utils |"
    )
    assert text[2].startswith("| A W16 | 31 (1 of 90 frames wrong) | missing: torchcodec_warm: No module")
    assert text[2].endswith("| 100 (median of 3) | 0.31 |")
    traces: Traces = {"G=4": {"exact": TraceCost(3.9, 4, 1, 0), "qwen": "Hang: no answer"}}
    assert trace_table(traces).splitlines()[-1] == "| G=4 | Hang: no answer |  | 3.90 |"
