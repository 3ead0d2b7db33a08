"""A segment from its start to its end, with a recipe that only counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.soak import run
from benchmarks.soak.run import Options, run_segment
from benchmarks.soak.segments import read_segments
from tests.waiting import is_gone, wait_until

RECIPE = """
for option in "$@"; do case $option in trainer.default_local_dir=*) RUN_DIR=${option#*=} ;; esac; done
trap 'echo saved > "$RUN_DIR/saved"; exit 143' TERM
mkdir -p "$RUN_DIR"
echo $$ > "$RUN_DIR/pid"
for step in $(seq 7 900); do
    echo '{"step": '$step', "data": {}}' >> "$VERL_FILE_LOGGER_PATH"
    sleep 0.1
done
"""


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "recipes").mkdir()
    (tmp_path / "out" / run.DEMO / "videos").mkdir(parents=True)
    monkeypatch.setattr(run, "REPO", tmp_path)
    return tmp_path / "out"


@pytest.mark.slow
def test_a_segment_ends_in_order_when_its_time_is_over(out: Path) -> None:
    (out.parent / "recipes" / "mixed_grpo.sh").write_text(RECIPE)
    assert run_segment(Options(out, seconds=0.6, seed=0)) == "time"
    (segment,) = read_segments(out)
    assert segment.outcome == "time"
    assert len(segment.samples) >= 2 and segment.samples[0]["step"] >= 7
    assert segment.samples[-1]["processes"]["recipe"]["processes"] >= 1
    assert set(segment.samples[-1]["folders"]) == {
        "temporary files",
        "Ray's session",
        "cache folders",
        "files in /dev/shm",
    }
    assert (out / "run" / "saved").exists()
    pid = int((out / "run" / "pid").read_text())
    wait_until(lambda: is_gone(pid), "the recipe's end", 30)
