"""Faults one after the other in one folder, which is cheaper than each in a folder of its own.

What resumes after a fault does a whole step, is compared with a run without faults, and meets the next fault two steps
later. Each run has one.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.check import check_says, check_struck, says
from tests.faults.compare import different_weights, rollouts, weights
from tests.faults.moments import marks
from tests.faults.plan import FAULTS, NUM_ROWS, REFERENCE_STEPS, ROWS_PER_STEP, Cell
from tests.faults.plant import plant_of, undo
from tests.faults.results import Result, commit
from tests.faults.run import FaultRun, clear, let_happen, start, strike
from tests.waiting import wait_until

GROUP_SIZE = 4


@dataclass
class Chain:
    """The folder, and the run that is under way there.

    Attributes:
        name: of the folders below `output_dir`, one for each few faults.
        reference: folder of a run without faults; None compares no content, only which rollouts there are.
    """

    output_dir: Path
    name: str
    inputs: Mapping[str, str]
    reference: Path | None
    folder: Path = field(default=Path(), init=False)
    _number: int = field(default=0, init=False)
    _run: FaultRun | None = field(default=None, init=False)
    _options: tuple[str, ...] = field(default=(), init=False)

    def strike(self, cell: Cell, options: tuple[str, ...]) -> FaultRun:
        """The run with this fault, once it is over."""
        run = self._living(options, FAULTS[cell.fault].max_further_steps)
        self._run = None  # what fails from here on leaves no run, and the next cell begins a new folder
        step, moment = _position(run)
        step += 2 if moment == "validation" else 1  # the next step begins any moment
        try:
            strike(run, step, cell.moment, plant_of(cell, self.inputs["TRAIN_FILES"]))
        finally:
            run.kill()
            undo(self.folder)
        return run

    def pass_by(self, cell: Cell) -> None:
        """Plant a fault with which the run goes on, and wait until it has said so and done the step.

        The run lives on for the next fault; when the last one has been resumed from, every rollout has been recorded.
        """
        run = self._living((), FAULTS[cell.fault].max_further_steps)
        self._run = None
        step = _position(run)[0] + 1
        try:
            let_happen(run, step, cell.moment, plant_of(cell, self.inputs["TRAIN_FILES"]))
            self._wait_for_step(run, step)
            # Ray hands lines on a second or two after they were printed.
            wait_until(lambda: says(run, FAULTS[cell.fault].says), f"message of {cell}", 60.0)
        except BaseException:
            run.kill()
            raise
        finally:
            undo(self.folder)
        self._run = run

    def resume(self) -> FaultRun:
        """The same command again, once its first step is over and is what it has to be."""
        step = saved_step(self.folder) + 1
        run = self._start()
        try:
            self._wait_for_step(run, step)
            self._check_work(step)
        except BaseException:
            run.kill()
            raise
        self._run = run
        return run

    def _check_work(self, last_step: int) -> None:
        """Every rollout up to this step recorded once, and as without a fault; the same weights, bit for bit."""
        done = {key: content for key, content in rollouts(self.folder).items() if key[0] <= last_step}
        if self.reference is None:
            assert set(done) == _in_order(last_step)
            return
        expected = {key: content for key, content in rollouts(self.reference).items() if key[0] <= last_step}
        assert done.keys() == expected.keys()
        assert [key for key in done if done[key] != expected[key]] == []
        assert not different_weights(weights(self.folder, last_step), weights(self.reference, last_step))

    def close(self) -> None:
        """End the run that is under way, if any."""
        if self._run is not None:
            self._run.process.terminate()
            self._run.finish()
            self._run = None

    def _living(self, options: tuple[str, ...], max_further_steps: int) -> FaultRun:
        """The run that has resumed, or a first one; it must not come to its last step before it notices the fault."""
        if self._run is not None and self._options == options:
            step, _ = _position(self._run)
            if step + 3 + max_further_steps < REFERENCE_STEPS:
                return self._run
        self.close()
        self._number += 1
        self.folder = self.output_dir / f"{self.name}_{self._number}"
        clear(self.folder)
        self._options = options
        run = self._start()
        self._wait_for_step(run, 1)
        return run

    def _start(self) -> FaultRun:
        return start(self.folder, REFERENCE_STEPS, *self._options, **self.inputs)

    @staticmethod
    def _wait_for_step(run: FaultRun, step: int) -> None:
        assert run.wait_for(f"{step} validation"), f"the run ended before its step {step}:\n{run.log[-6000:]}"
        assert run.wait_for(f"{step + 1} generation"), run.log[-6000:]  # now the step is recorded
        run.look()


def end_and_resume(chain: Chain, cell: Cell) -> Result:
    """Let a fault happen that ends a run; the run ends as the plan says, and the same command resumes."""
    fault = FAULTS[cell.fault]
    struck = chain.strike(cell, fault.options)
    check_struck(struck, cell)
    resumed = chain.resume()
    check_says(resumed, fault.resumed_says)
    resumed_seconds = round(time.monotonic() - resumed.started)
    return Result(round(struck.ended_seconds, 1), round(struck.seconds), resumed_seconds, commit())


def saved_step(folder: Path) -> int:
    """That a run resumes from; where its file is empty, the last that is there."""
    tracker = folder / "latest_checkpointed_iteration.txt"
    if tracker.exists() and (text := tracker.read_text()):
        return int(text)
    whole = [path for path in folder.glob("global_step_*") if (path / "data.pt").exists()]
    return max((int(path.name.rsplit("_", 1)[1]) for path in whole), default=0)


def _position(run: FaultRun) -> tuple[int, str]:
    step, moment = marks(run.marks_path)[-1].split()
    return int(step), moment


def _in_order(last_step: int) -> set[tuple[int, int, int]]:
    """Step, row and session of every rollout, where rows come in order, epoch after epoch."""
    return {
        (step, row % NUM_ROWS["train"], session)
        for step in range(1, last_step + 1)
        for row in range((step - 1) * ROWS_PER_STEP, step * ROWS_PER_STEP)
        for session in range(GROUP_SIZE)
    }
