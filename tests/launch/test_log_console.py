"""What a recipe prints of a run: steps, our messages, and the end of the log of a run that failed."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread

import pytest

from tests.waiting import wait_until
from verl_video_tools.launch import console
from verl_video_tools.launch.console import Console, clean, metrics, step_line, write_line
from verl_video_tools.verl_plugin.marked_warnings import MARK

REPO = Path(__file__).parents[2]
IMPATIENT = [sys.executable, "-m", "tests.launch.quick_supervise"]
"""Does not wait for a reader at the end; run in the repository."""
SUPERVISE = [*IMPATIENT, "--patient"]
RAY = "\x1b[36m(TaskRunnerV1 pid=21972)\x1b[0m "
STEP = (
    "step:{step} - global_seqlen/min:2195.0 - rollout/score/mean:0.5 - rollout/acc/mean:0.25 - rollout/flagged:0.0 - "
    "tool/executed_per_rollout:1.5 - frames/total/mean:11.0 - perf/time_per_step:21.2 - actor/grad_norm:9.1e-05"
)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Its only item is what `time.monotonic` says."""
    now = [1000.0]
    monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
    return now


class Run:
    """A log that grows, and what was shown of it."""

    def __init__(self, folder: Path, *, verbose: bool = False, before: str = "") -> None:
        self.path = folder / "run.log"
        self.path.write_text(before)
        self.stream = io.StringIO()
        self.console = Console(self.path, verbose, self.stream)

    def write(self, text: str) -> None:
        with self.path.open("a") as file:
            file.write(text)
        self.console.show_new_lines()

    @property
    def shown(self) -> list[str]:
        return self.stream.getvalue().splitlines()


def test_a_line_per_step_with_the_time_left(tmp_path: Path, clock: list[float]) -> None:
    run = Run(tmp_path)
    run.write(f"{RAY}INFO:2026-01-01 00:00:00,150:Total training steps: 12\n")
    for step in (1, 2, 3):
        clock[0] += 60
        run.write(f"{RAY}{STEP.format(step=step)}\n{RAY}WARNING: target_num_threads 8 should not exceed 2\n")
    line = "reward 0.500, accuracy 0.250, calls 1.50, frames 11.0, flagged 0, 21 s"
    assert run.shown == [f"step 1/12  {line}", f"step 2/12  {line}, 10 min left", f"step 3/12  {line}, 9 min left"]


def test_short_steps_share_a_line_and_the_last_one_is_shown(tmp_path: Path, clock: list[float]) -> None:
    run = Run(tmp_path)
    run.write("Total steps: 100, num_warmup_steps: 5\n")
    for step in range(1, 101):
        clock[0] += 1
        bar = f"Epoch 1/1: {step}%|#  | {step}/100 [00:01<06:16,  1.03s/it]"
        run.write(f"{bar}step:{step} - train/loss:{1 / step} - train/lr:0.001\n")
    assert [line.split()[1] for line in run.shown] == [*(f"{step}/100" for step in range(10, 101, 10))]
    assert run.shown[0].startswith("step 10/100  loss 0.1000, learning rate 1.0e-03, ")
    assert run.shown[-1] == "step 100/100  loss 0.0100, learning rate 1.0e-03"


def test_a_run_that_stops_early_shows_how_far_it_came(tmp_path: Path, clock: list[float]) -> None:
    run = Run(tmp_path)
    run.write("step:1 - train/loss:2.0\nstep:2 - train/loss:1.0\n")
    run.console.show_rest(143)
    assert run.shown == ["step 2  loss 1.0000"]


def test_validation_is_shown_at_once(tmp_path: Path, clock: list[float]) -> None:
    run = Run(tmp_path)
    run.write(f"{RAY}step:0 - val-core/my_data/acc/mean@1:np.float64(0.233) - val-aux/num_turns/min:np.int64(3)\n")
    assert run.shown == ["step 0  held-out accuracy (my_data) 0.233"]


def test_our_own_messages_pass_and_nothing_else(tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.write(f"{RAY}{MARK} judge: 3 of 8 judgements failed\x1b[32m [repeated 2x across cluster]\x1b[0m\nINFO: x\n")
    assert run.shown == [f"{MARK} judge: 3 of 8 judgements failed"]


def test_a_warning_that_comes_again_and_again_is_shown_three_times(tmp_path: Path) -> None:
    run = Run(tmp_path)
    for row in range(9):
        run.write(f"{RAY}{MARK} warning: rollout of row {row}: /videos/{row}.mp4: no such video file\n")
    run.write(f"{MARK} error: the judge counts as down: no reply\n")
    lines = [f"{MARK} warning: rollout of row {row}: /videos/{row}.mp4: no such video file" for row in range(3)]
    assert run.shown == [
        *lines[:2],
        f"{lines[2]} (further warnings of this kind are in the log only)",
        f"{MARK} error: the judge counts as down: no reply",
    ]


@pytest.mark.parametrize(
    "line",
    [
        "step:1 - version:1.2.3 - train/loss:1.0",
        "step:" + "9" * 5000 + " - train/loss:1.0",
        "Total steps: " + "9" * 5000,
    ],
)
def test_no_line_of_a_log_ends_the_run(line: str, tmp_path: Path) -> None:
    run = Run(tmp_path)
    run.write(f"{line}\n{MARK} the run goes on\n")
    assert run.shown[-1] == f"{MARK} the run goes on"


def test_a_log_that_is_away_for_a_moment_is_read_on(tmp_path: Path) -> None:
    run = Run(tmp_path)
    elsewhere = run.path.rename(tmp_path / "elsewhere.log")
    run.console.show_new_lines()
    elsewhere.rename(run.path)
    run.write(f"{MARK} the run goes on\n")
    assert run.shown == [f"{MARK} the run goes on"]
    run.path.unlink()
    run.console.show_rest(1)
    assert "failed with exit code 1" in run.shown[-1]


def test_a_long_step_says_what_it_does(tmp_path: Path, clock: list[float]) -> None:
    run = Run(tmp_path)
    doing = "step 1/80: generating rollouts for {} s, 2 groups finished, 6 running"
    run.write(f"{RAY}{MARK} {doing.format(30)}\n")
    clock[0] += 61
    run.write(f"{RAY}{MARK} {doing.format(61)}\n{RAY}{MARK} step 2\n")
    assert run.shown == [doing.format(61)]


def test_a_failure_shows_the_end_of_this_start_s_log_without_noise(tmp_path: Path) -> None:
    run = Run(tmp_path, before="Traceback of an earlier start\n")
    run.write(f"{RAY}INFO: starting\n{RAY}WARNING: target_num_threads 8 should not exceed 2\n")
    run.write("Traceback (most recent call last):\n  File x.py\n      ^^^^^\nValueError: no such thing\n")
    run.console.show_rest(1)
    assert run.shown == [
        f"{MARK} failed with exit code 1; the end of {run.path}:",
        "  INFO: starting",
        "  Traceback (most recent call last):",
        "    File x.py",
        "  ValueError: no such thing",
    ]


def test_the_error_is_shown_above_the_report_of_a_launcher(tmp_path: Path) -> None:
    run = Run(tmp_path)
    error = "torch.OutOfMemoryError: CUDA out of memory"
    run.write(f"[rank3]: Traceback (most recent call last):\n[rank3]:   File x.py\n[rank3]: {error}\n")
    run.write("ERROR 11-25 15:58:42 [async_llm.py:704] vllm.v1.engine.exceptions.EngineDeadError: it died\n")
    run.write(f"{MARK} for the user\n")
    for rank in range(8):
        run.write(f"Failures:\n[{rank}]:\n  rank : {rank}\n  exitcode : 1 (pid: {100 + rank})\n{error}\n")
    run.write("ray.exceptions.ActorDiedError: The actor died\n")
    run.write("".join(f"report {number}\n" for number in range(30)))
    run.console.show_rest(1)
    assert run.shown[:5] == [
        f"{MARK} for the user",
        f"{MARK} errors in {run.path}:",
        "  vllm.v1.engine.exceptions.EngineDeadError: it died",
        f"  {error}",
        f"{MARK} failed with exit code 1; the end of {run.path}:",
    ]
    assert run.shown[5:] == [f"  report {number}" for number in range(30)]


def test_the_last_line_needs_no_end(tmp_path: Path) -> None:
    run = Run(tmp_path, verbose=True)
    run.write("half")
    assert run.shown == []
    run.console.show_rest(1)
    assert run.shown == ["half"]


@pytest.mark.parametrize("returncode", [0, 130, 143])
def test_no_end_of_the_log_where_nothing_failed(tmp_path: Path, returncode: int) -> None:
    run = Run(tmp_path)
    run.write("ValueError: handled\n")
    run.console.show_rest(returncode)
    assert run.shown == []


def test_verbose_shows_every_line_as_it_is(tmp_path: Path) -> None:
    run = Run(tmp_path, verbose=True, before="earlier\n")
    run.write(f"{RAY}INFO: x\nstep:1 - train/loss:2.0\nhalf a li")
    run.write("ne\n")
    run.console.show_rest(1)
    assert run.shown == [f"{RAY}INFO: x", "step:1 - train/loss:2.0", "half a line"]


@pytest.mark.slow
def test_who_closes_the_output_does_not_end_the_run(tmp_path: Path) -> None:
    read, written = os.pipe()
    os.close(read)
    command = [*SUPERVISE, "--log", str(tmp_path / "run.log"), "--", sys.executable, "-c"]
    code = f"import time\nfor n in range(3): print('{MARK}', n, flush=True); time.sleep(0.3)"
    assert subprocess.run([*command, code], cwd=REPO, stdout=written, timeout=60, check=False).returncode == 0
    os.close(written)
    assert (tmp_path / "run.log").read_text().splitlines() == [f"{MARK} {n}" for n in range(3)]


@pytest.mark.slow
def test_who_does_not_read_the_output_keeps_no_signal_from_the_run(tmp_path: Path) -> None:
    read, written = os.pipe()
    log = tmp_path / "run.log"
    code = "import time; print(('x' * 1000 + '\\n') * 1000, flush=True); time.sleep(600)"
    command = [*IMPATIENT, "--log", str(log), "--verbose", "--", sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=REPO, stdout=written, stderr=written) as process:
        wait_until(lambda: log.exists() and log.stat().st_size >= 1_000_000, "what the command prints", 60)
        time.sleep(0.5)  # the supervisor has met the full pipe
        process.terminate()
        assert process.wait(60) == 128 + signal.SIGTERM
    os.close(written)
    os.close(read)


@pytest.mark.slow
def test_a_slow_reader_gets_every_line(tmp_path: Path) -> None:
    code, log = "for n in range(30_000): print(n, 'x' * 50)", tmp_path / "run.log"
    num_bytes = sum(len(f"{n} {'x' * 50}\n") for n in range(30_000))
    command = [*SUPERVISE, "--log", str(log), "--verbose", "--", sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=REPO, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        wait_until(lambda: log.exists() and log.stat().st_size >= num_bytes, "the end of the command", 60)
        time.sleep(1.0)  # less than the supervisor waits; a pipe takes 64 KiB
        shown = [int(line.split()[0]) for line in process.stdout]
        assert process.wait(60) == 0
    assert shown == list(range(30_000))


def test_characters_that_the_encoding_lacks_are_escaped(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w", encoding="ascii") as stream:
        write_line(stream, "caf\u00e9")
    assert (tmp_path / "out").read_text() == "caf\\xe9\n"


def test_a_pipe_that_does_not_block_gets_every_line() -> None:
    read, written = os.pipe()
    os.set_blocking(written, False)
    lines = [f"{number} " + "x" * 10_000 for number in range(50)]  # a pipe takes 64 KiB
    with os.fdopen(written, "w") as stream, os.fdopen(read) as reader:
        writer = Thread(target=lambda: [write_line(stream, line) for line in lines], daemon=True)
        writer.start()
        assert [reader.readline().rstrip("\n") for _ in lines] == lines
        writer.join(60)
        assert not writer.is_alive()


def test_a_supervised_command_writes_to_the_log_and_its_failure_is_shown(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    code = f"import sys; print('out'); print('{MARK} for the user', file=sys.stderr); sys.exit('it failed')"
    run = subprocess.run(
        [*SUPERVISE, "--log", str(log), "--", sys.executable, "-c", code],
        cwd=REPO,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (run.returncode, run.stderr) == (1, "")
    assert sorted(log.read_text().splitlines()) == sorted(["out", f"{MARK} for the user", "it failed"])
    shown = run.stdout.splitlines()
    assert f"{MARK} for the user" in shown and "  it failed" in shown
    assert f"{MARK} failed with exit code 1; the end of {log}:" in shown


def test_lines_and_numbers_are_read() -> None:
    assert clean(f"  0%| | 0/1\r100%|#| 1/1\r{RAY}text \x1b[32m [repeated 3x across cluster]\x1b[0m\n") == "text"
    assert metrics("a/b:1.5 - c@1:np.float64(-2e-05) - d:x - e:f:3") == {"a/b": 1.5, "c@1": -2e-05, "e:f": 3.0}
    assert step_line(1, None, {"actor/entropy": 1.0}, None) is None


@pytest.mark.parametrize(("seconds", "shown"), [(20, "20 s"), (90, "2 min"), (3 * 3600 + 125, "3 h 02 min")])
def test_time_left(seconds: float, shown: str) -> None:
    assert step_line(1, 9, {"train/loss": 1.0}, seconds) == f"step 1/9  loss 1.0000, {shown} left"
