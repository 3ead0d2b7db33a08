"""From samples to a verdict, without a run: files of segments, growth and exit code."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.soak import growth
from benchmarks.soak.__main__ import tell
from benchmarks.soak.growth import ALL, BOUNDS, Slope, Verdict, all_growth, common_slope, verdict
from benchmarks.soak.segments import SegmentWriter, read_segments, soaked_hours

LEAK_MB = 1.0


def sample(step: int, number: int, rng: np.random.Generator, leak_mb: float) -> dict[str, Any]:
    """Of two processes: one leaks, and both fill a cache in their first 30 steps and have noise of 5 MB."""
    warm = 20.0 * min(step, 30)
    kinds = {
        "agent loop worker": {
            "memory_mb": 400 + 100 * number + warm + leak_mb * step + rng.normal(0, 5),
            "handles": 90,
        },
        "trainer": {"memory_mb": 700 + warm + rng.normal(0, 5), "handles": 60 + step % 3},
    }
    processes = {kind: {"processes": 1, "shared_mb": 10.0, "threads": 80, **usage} for kind, usage in kinds.items()}
    folders = {"cache folders": min(0.5 * step, 5.0), "temporary files": 0.1}
    return {"step": 100 * number + step, "seconds": 3.0 * step, "processes": processes, "folders": folders}


@pytest.fixture(autouse=True)
def _short_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of tests are shorter than the warm-up of a real run."""
    monkeypatch.setattr(growth, "WARM_UP_STEPS", 40)


@pytest.fixture
def soaked(tmp_path: Path) -> Callable[[float], Path]:
    """Function: a folder of two segments of 100 steps."""

    def soaked(leak_mb: float) -> Path:
        rng = np.random.default_rng(11)
        for number in range(2):
            writer = SegmentWriter(tmp_path, {"commit": "0123456", "seed": 0})
            for step in range(100):
                writer.sample(sample(step, number, rng, leak_mb))
            writer.fault(60, "judge away")
            writer.close("time")
        return tmp_path

    return soaked


def test_a_leak_is_found_and_nothing_else(soaked: Callable[[float], Path]) -> None:
    found = {(each.of, each.measure): each for each in all_growth(read_segments(soaked(LEAK_MB)))}
    leaking = {key for key, each in found.items() if each.verdict is Verdict.GROWS}
    assert leaking == {("agent loop worker", "memory_mb"), (ALL, "memory_mb")}
    slope = found["agent loop worker", "memory_mb"].slope
    assert slope is not None
    low, high = slope.interval()
    assert low <= LEAK_MB <= high and high - low < 2 * BOUNDS["memory_mb"]


def test_a_heap_that_takes_more_twice_is_no_certain_growth() -> None:
    """As the training process of an hour's soak did, whose slope had an interval of 95 % just above 0."""
    jumps = [[1000.0] * 140 + [1064.0] * 30, [1000.0] * 30 + [1076.0] * 11]
    slope = common_slope([(list(range(len(values))), values) for values in jumps])
    assert slope is not None and verdict(slope, BOUNDS["memory_mb"]) is Verdict.OPEN
    assert verdict(Slope(1.1, 0.55, 200), 0.5) is Verdict.OPEN
    assert verdict(Slope(1.1, 0.3, 200), 0.5) is Verdict.GROWS


def test_filling_a_cache_is_no_growth(soaked: Callable[[float], Path]) -> None:
    assert {each.verdict for each in all_growth(read_segments(soaked(0.0)))} == {Verdict.NONE}


def test_the_exit_code_tells_of_growth(soaked: Callable[[float], Path], capsys: pytest.CaptureFixture[str]) -> None:
    folder = soaked(LEAK_MB)
    assert tell(folder) == 1
    text = capsys.readouterr().out
    assert re.search(r"^- \*\*agent loop worker, memory: grows by (0\.9|1\.0)\d* \[", text, re.MULTILINE)
    assert "Soaked so far: 10 minutes, 200 steps in 2 segments, commits 0123456. Faults: judge away (2)." in text


def test_a_soak_without_a_sample_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    SegmentWriter(tmp_path, {"commit": "0123456"}).close("time")
    assert tell(tmp_path) == 2
    assert "no sample" in capsys.readouterr().err


def test_too_few_steps_are_no_success(
    soaked: Callable[[float], Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(growth, "WARM_UP_STEPS", 90)
    assert tell(soaked(LEAK_MB)) == 2
    assert "soak longer" in capsys.readouterr().err


def test_a_killed_soak_keeps_its_samples(soaked: Callable[[float], Path]) -> None:
    folder = soaked(0.0)
    last = folder / "segment_0002.jsonl"
    lines = last.read_text().splitlines(keepends=True)
    last.write_text("".join(lines[:41]) + lines[41][:30])  # killed while it wrote
    whole, cut = read_segments(folder)
    assert (whole.outcome, cut.outcome) == ("time", "interrupted")
    assert (len(whole.samples), len(cut.samples)) == (100, 40)
    assert soaked_hours([whole, cut]) * 3600 == pytest.approx(99 * 3 + 39 * 3)
    following = SegmentWriter(folder, {})
    following.close("time")
    assert following.number == 3
