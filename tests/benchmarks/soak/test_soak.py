"""From samples to a verdict, without a run: files of segments, growth, page and exit code."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.soak import __main__ as command
from benchmarks.soak import growth, page
from benchmarks.soak.__main__ import tell
from benchmarks.soak.fit import Slope, common_slope
from benchmarks.soak.growth import ALL, BOUNDS, Verdict, all_growth, verdict
from benchmarks.soak.run import Options
from benchmarks.soak.segments import SegmentsDifferError, SegmentWriter, copy_segments, read_segments, soaked_hours

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
            writer = SegmentWriter(tmp_path, {"commit": "0123456", "seed": 0, "leak_mb": leak_mb})
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
    assert tell(folder, docs=False) == 1
    text = capsys.readouterr().out
    assert re.search(r"^- \*\*agent loop worker, memory: grows by (0\.9|1\.0)\d* \[", text, re.MULTILINE)
    assert "Soaked so far: 10 minutes, 200 steps in 2 segments, commits 0123456. Faults: judge away (2)." in text
    assert "agent loop worker</text>" in (folder / "soak.svg").read_text()


def test_without_a_leak_the_exit_code_is_0(soaked: Callable[[float], Path]) -> None:
    assert tell(soaked(0.0), docs=False) == 0


def test_a_soak_goes_on_from_the_segments_of_another_machine(soaked: Callable[[float], Path], tmp_path: Path) -> None:
    kept, other = soaked(0.0), tmp_path / "other"
    copy_segments(kept, other)
    copy_segments(kept, other)
    assert soaked_hours(read_segments(other)) == soaked_hours(read_segments(kept))
    writer = SegmentWriter(other, {"commit": "0123456", "seed": 0, "leak_mb": 0.0})
    writer.close("time")
    assert writer.number == 3


def test_what_the_repository_keeps_is_compressed(soaked: Callable[[float], Path], tmp_path: Path) -> None:
    soak, kept = soaked(0.0), tmp_path / "kept"
    for _ in range(2):
        copy_segments(soak, kept, compressed=True)
    assert [path.name for path in sorted(kept.iterdir())] == ["segment_0001.jsonl.gz", "segment_0002.jsonl.gz"]
    assert read_segments(kept) == read_segments(soak)
    next_one = SegmentWriter(kept, {})
    next_one.close("time")
    assert next_one.number == 3


def test_segments_of_two_soaks_are_not_mixed(soaked: Callable[[float], Path], tmp_path: Path) -> None:
    SegmentWriter(other := tmp_path / "other", {"commit": "89abcde", "seed": 0, "leak_mb": 0.0}).close("time")
    with pytest.raises(SegmentsDifferError, match=r"segment_0001.jsonl and .* differ: give another folder with --out"):
        copy_segments(soaked(0.0), other)


def test_the_recipes_of_a_soak_are_given_absolute_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They work in its folder, where a relative one would name another."""
    asked: list[Options] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["soak"])
    monkeypatch.setattr(command, "soak", lambda options, *_: asked.append(options))
    command.main()
    assert asked[0].out == tmp_path / "outputs" / "soak"


def test_segments_fill_the_hours_though_each_ends_before_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(5)
    given: list[float] = []

    def run_segment(options: Options) -> str:
        given.append(options.seconds)
        writer = SegmentWriter(options.out, {"commit": "0123456"})
        for step in range(100):
            writer.sample(sample(step, 0, rng, 0.0))  # the last one after 297 of 300 seconds
        writer.close("time")
        return "time"

    monkeypatch.setattr(command, "prepare", lambda out: None)
    monkeypatch.setattr(command, "run_segment", run_segment)
    command.soak(Options(tmp_path, seconds=300.0, seed=0, leak_mb=0.0), hours=600 / 3600, most_segments=None)
    assert len(read_segments(tmp_path)) == 2
    assert given == [300.0, 300.0]
    command.soak(Options(tmp_path, seconds=300.0, seed=0, leak_mb=0.0), hours=720 / 3600, most_segments=None)
    assert given[2:] == [pytest.approx(720 - 2 * 297)], "the last segment takes what is left"


def test_a_soak_without_a_sample_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    SegmentWriter(tmp_path, {"commit": "0123456"}).close("time")
    assert tell(tmp_path, docs=False) == 2
    assert "no sample" in capsys.readouterr().err


def test_too_few_steps_are_no_success(
    soaked: Callable[[float], Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(growth, "WARM_UP_STEPS", 90)
    assert tell(soaked(LEAK_MB), docs=False) == 2
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


def test_a_line_of_an_unknown_kind_is_named(tmp_path: Path) -> None:
    (tmp_path / "segment_0001.jsonl").write_text(json.dumps({"weather": "rain"}) + "\n")
    with pytest.raises(ValueError, match="unknown kind of line 'weather'"):
        read_segments(tmp_path)


def test_the_page_takes_the_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "reliability.md"
    copy.write_text(page.PAGE.read_text())
    monkeypatch.setattr(page, "PAGE", copy)
    page.into_page("A table.")
    page.into_page("Another table.")
    assert copy.read_text().count("table.") == 1 + page.PAGE.read_text().count(" A table.")
    assert "<!-- soak -->\n\nAnother table.\n<!-- end of soak -->" in copy.read_text()
