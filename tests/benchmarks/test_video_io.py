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

from benchmarks.video import report
from benchmarks.video.checks import Refusal, TruthfulFile, check_accuracy
from benchmarks.video.costs import Cost, ShapeCosts, TraceCost, cache_environment
from benchmarks.video.limit import PacketMap, UnitCosts
from benchmarks.video.long_files import STRIP, LongVideo, write_long_video
from benchmarks.video.requests import SHAPES, Request, group_trace, make_request
from benchmarks.video.targets import bad_file_targets, memory_target, shape_targets, trace_targets
from benchmarks.video.worker import SHARED, MissingReader, Worker, WorkFailed
from tests.videos.files import write_video

REPO = Path(__file__).parents[2]
TINY = LongVideo("tiny", 192, 112, copy_seconds=2, copies=3)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_long_video(TINY, tmp_path_factory.mktemp("long"))


@pytest.mark.long
@pytest.mark.timeout(300)
def test_smoke_run(tmp_path: Path) -> None:
    readers = ["ours_cold", "ours_warm"]
    command = [sys.executable, "-m", "benchmarks.video_io", "--quick", "--no-gate", "--memory-requests", "40"]
    command += ["--out", str(tmp_path / "out"), "--cache-dir", str(tmp_path / "videos"), "--readers", *readers]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, cwd=REPO)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "out" / "video_io.json").read_text())
    for shapes in results["shapes"]["costs"].values():
        for row in shapes.values():
            assert set(row) == {"limit", *readers}
            assert all(row[reader]["cpu_ms"] > 0 and row[reader]["wrong_frames"] == 0 for reader in readers)
    assert all(result["asked"] == result["right"] > 0 for result in results["accuracy"].values())
    assert "frames right" in done.stdout.lower() and "not measured" in done.stdout
    assert (tmp_path / "out" / "video_io.png").stat().st_size > 10_000
    page = tmp_path / "page.md"
    page.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    report.publish(results, page)
    assert page.read_text().startswith("before\n") and page.read_text().endswith("after\n")
    assert "\nold\n" not in page.read_text() and report.shape_table(results) in page.read_text()


def test_long_video_numbers_its_frames(tiny: Path) -> None:
    rng = np.random.default_rng(0)
    requests = [make_request(str(tiny), TINY.num_frames, TINY.fps, shape, rng) for shape in (SHAPES[0], SHAPES[4])]
    with Worker("ours_warm") as worker:
        work = worker.run([requests])
    assert work.numbers[0] == [[TINY.number_of(index) for index in request.indices] for request in requests]
    assert work.cpu_seconds > 0 and work.rss_bytes > 0


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


@pytest.mark.slow
def test_a_wrong_frame_is_counted(tmp_path: Path) -> None:
    path = write_video(tmp_path / "h264.mp4", num_frames=30)
    truth = TruthfulFile(path, numbers=[*range(29), 7], times_seconds=[index / 30 for index in range(30)])
    result = check_accuracy(SHARED, [truth], 20, seed=0, environment=cache_environment("test-wrong", cache_bytes=0))
    accuracy = result["h264.mp4"]
    assert accuracy.asked == 4 * 2 * 20 * 4
    assert 0 < accuracy.asked - accuracy.right < accuracy.asked / 2
    assert accuracy.first_wrong is not None and "frame 29, not 7" in accuracy.first_wrong


def test_limit_counts_packets_from_the_key_frame(tmp_path: Path) -> None:
    path = write_video(tmp_path / "groups.mp4", num_frames=40, gop_frames=10, b_frames=0)
    packet_map = PacketMap(path)

    def packets(*indices: int) -> int:
        return packet_map.num_packets(Request(str(path), (0.0,) * len(indices), indices))

    assert packets(0) == 1
    assert packets(9) == packets(9, 3) == 10
    assert packets(12, 14, 35) == 5 + 6
    request = Request(str(path), (0.0, 0.0), (12, 14))
    assert packet_map.limit_seconds(request, UnitCosts(2.0, 3.0)) == 5 * 2.0 + 2 * 3.0


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


def cost(cpu_ms: float, wrong_frames: int | None = 0) -> Cost:
    return Cost(cpu_ms, cpu_ms, 5, 10, wrong_frames)


def test_missed_and_unmeasured_targets_show() -> None:
    row: dict[str, Cost | str] = {
        "limit": cost(10, None),
        "ours_cold": cost(31, wrong_frames=1),
        "ours_warm": cost(11),
        "qwen": cost(100),
        "torchcodec_warm": "missing: torchcodec_warm: No module named 'torchcodec'",
    }
    found = {target.name: target for target in shape_targets(ShapeCosts({"A": {"W16": row}}, {}, {}))}
    assert found["A W16 cold / qwen-vl-utils"].passed is False
    assert found["A W16 warm / torchcodec exact warm"].passed is None
    assert "torchcodec" in found["A W16 warm / torchcodec exact warm"].note
    assert found["A W16 cold / decode limit"].passed is False
    assert found["A W16 warm / decode limit"].passed is True
    assert found["wrong frames of ours in all requests above"].value == 1
    traces: dict[str, dict[str, TraceCost | str]] = {
        "G=4": {"qwen": TraceCost(24, 24, 1, 0), "exact": TraceCost(3.9, 4, 1, 0), "grid": TraceCost(3.1, 4, 1, None)}
    }
    assert [(target.value, target.passed) for target in trace_targets(traces)] == [
        (pytest.approx(3.9 / 24), True),
        (pytest.approx(3.1 / 24), False),
        (0, True),
    ]
    assert memory_target([50, 100, 100, 104], 10).passed is True
    assert memory_target([100, 100, 104, 108], 10).passed is False
    assert [t.passed for t in bad_file_targets({"text": Refusal("ValueError", 0.1)})] == [False]
