"""A segment from its start to its end, with a recipe that only counts."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from benchmarks.soak import growth, run
from benchmarks.soak.__main__ import tell
from benchmarks.soak.growth import Verdict, all_growth
from benchmarks.soak.run import Options, SegmentError, run_segment
from benchmarks.soak.segments import read_segments
from tests.waiting import is_gone, wait_until

REPO = Path(run.__file__).parents[2]

RECIPE = """
trap 'echo saved > "$RUN_DIR/saved"; exit 143' TERM
mkdir -p "$RUN_DIR"
echo $$ > "$RUN_DIR/pid"
for step in $(seq 7 {last}); do
    echo '{{"step": '$step', "data": {{}}}}' >> "$VERL_FILE_LOGGER_PATH"
    sleep 0.1
done
echo "CUDA is out of luck"
exit 3
"""

LEAKING_RECIPE = """
mkdir -p "$RUN_DIR"
"$PYTHON" - <<'END' &
import os, setproctitle, time
setproctitle.setproctitle("ray::VideoAgentLoopWorker")
kept = []
with open(os.environ["VERL_FILE_LOGGER_PATH"], "w", buffering=1) as log:
    for step in range(1, 400):
        kept += [os.urandom(10_000) for _ in range(100)]
        log.write('{"step": %d, "data": {}}\\n' % step)
        time.sleep(0.02)
END
trap 'kill $!; exit 143' TERM
wait
"""


@pytest.fixture(autouse=True)
def _short_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of tests are shorter than the warm-up of a real run."""
    monkeypatch.setattr(growth, "WARM_UP_STEPS", 40)


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "recipes").mkdir()
    (tmp_path / "out" / run.DEMO / "videos").mkdir(parents=True)
    monkeypatch.setattr(run, "REPO", tmp_path)
    return tmp_path / "out"


@pytest.mark.slow
def test_a_segment_ends_in_order_when_its_time_is_over(out: Path) -> None:
    (out.parent / "recipes" / "mixed_grpo.sh").write_text(RECIPE.format(last=900))
    assert run_segment(Options(out, seconds=0.6, seed=0, leak_mb=0)) == "time"
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


def test_a_run_that_ends_by_itself_is_told_with_its_last_words(out: Path) -> None:
    (out.parent / "recipes" / "mixed_grpo.sh").write_text(RECIPE.format(last=8))
    with pytest.raises(SegmentError, match="CUDA is out of luck"):
        run_segment(Options(out, seconds=60, seed=0, leak_mb=0))
    (segment,) = read_segments(out)
    assert segment.outcome == "the run ended by itself, with exit code 3"
    assert {sample["step"] for sample in segment.samples} <= {7, 8}


@pytest.mark.slow
def test_a_process_that_keeps_a_megabyte_a_step_is_found(out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "_LOOK_SECONDS", 0.01)
    (out.parent / "recipes" / "mixed_grpo.sh").write_text(LEAKING_RECIPE)
    for _ in range(8):  # a busy machine takes few samples in a segment
        run_segment(Options(out, seconds=4.0, seed=0, leak_mb=1))
        found = {(each.of, each.measure): each for each in all_growth(read_segments(out))}
        leaking = found["agent loop worker", "memory_mb"]
        if Verdict.OPEN not in (leaking.verdict, found["recipe", "memory_mb"].verdict):
            break
    assert leaking.verdict is Verdict.GROWS and leaking.slope is not None
    assert leaking.slope.per_step == pytest.approx(1.0, abs=0.1)
    assert found["recipe", "memory_mb"].verdict in (Verdict.NONE, Verdict.BELOW)  # a shell takes a page now and then
    assert tell(out, docs=False) == 1


def test_recipes_know_the_variables_that_a_soak_sets() -> None:
    known = "".join(path.read_text() for path in (REPO / "recipes").glob("*.sh"))
    assert [name for name in run._SETTINGS if f"{name}:-" not in known] == ["RAY_task_events_max_num_task_in_gcs"]


def test_every_agent_loop_of_the_package_gets_the_leak(tmp_path: Path) -> None:
    leaking = OmegaConf.to_container(OmegaConf.load(run._leaking_loops(tmp_path)))
    usual = OmegaConf.to_container(OmegaConf.load(run.AGENT_LOOPS))
    assert isinstance(leaking, list) and isinstance(usual, list)
    assert [loop["name"] for loop in leaking] == [loop["name"] for loop in usual]
    module, _, name = {loop["_target_"] for loop in leaking}.pop().rpartition(".")
    found = importlib.util.find_spec(module)
    assert found is not None and found.origin is not None
    assert f"class {name}(VideoAgentLoop)" in Path(found.origin).read_text()
