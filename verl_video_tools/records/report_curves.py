"""What a run left behind as numbers per step: its records under the names of `docs/training.md`, and verl's log.

Files are read one after the other, and of each only the metrics stay in memory.
"""

from __future__ import annotations

import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import UsageError
from verl_video_tools.records.metrics import rollout_metrics
from verl_video_tools.records.records import RECORDS_NAME, has_steps, records_folder, step_files
from verl_video_tools.records.report_rounds import Rounds, by_step, read_rounds

LOG_NAMES = "metrics*.jsonl"
"""verl's file logger (`trainer.logger=["console","file"]`) in a run's folder, where VERL_FILE_LOGGER_PATH names it."""

Steps = Mapping[int, Mapping[str, float]]
"""Step to metric to value, in order of steps."""

_TRAINED = "training/global_step"
"""verl logs it for steps that it trains, and for no validation apart from one."""

_METHOD_SCORE = re.compile(r"video_tools/(.+)/score/mean", re.DOTALL)

HEADLINES = {
    "reward": "rollout/score/mean",
    "accuracy": "rollout/acc/mean",
    "executed calls per rollout": "tool/executed_per_rollout",
    "frames per rollout": "frames/total/mean",
    "groups with unequal rewards": "group/unequal_reward_rate",
}
"""What a table of a run shows, by its label."""


@dataclass(frozen=True)
class Run:
    """One run's numbers.

    Attributes:
        name: as figures and tables call it.
        records: folder of its records.
        last_rollouts: file with the rollouts to look at, those of the latest policy.
        last_is_validation: they are on validation rows.
        training: metrics of each step's rollouts.
        rounds: those of validation, where they were recorded.
        log: what verl logged, by its own names.
    """

    name: str
    records: Path
    last_rollouts: Path
    last_is_validation: bool
    training: Steps
    rounds: Rounds = field(default_factory=Rounds)
    log: Steps = field(default_factory=dict)

    @property
    def validation(self) -> Steps:
        """Metrics of the rollouts on validation rows, over the rows that all rounds share. Where a run measures methods
        that it does not train, such as the same questions without tools, these have their means by method
        (`video_tools/<method>/...`), and all other metrics are of the trained ones."""
        return self.rounds.metrics

    def methods(self) -> list[str]:
        """Methods whose rollouts were recorded."""
        return sorted({*methods_in(self.training), *methods_in(self.validation)})

    def only_measured(self) -> list[str]:
        """Methods that were recorded on validation rows alone, in a run that trained others."""
        trained = methods_in(self.training)
        return [method for method in methods_in(self.validation) if method not in trained] if trained else []


def recorded_folder(run: Path) -> Path:
    """Folder of a run's records, as `records_folder` finds it.

    Raises:
        UsageError: it holds no step.
    """
    folder = records_folder(run)
    if not has_steps(folder):
        raise UsageError(
            f"{run}: no recorded step; give a run's folder (trainer.default_local_dir), or its folder of "
            "step_*.jsonl. A run writes its first when its first step is done"
        )
    return folder


def read_run(name: str, run: Path, log: Path | None = None, advance: Callable[[], None] = lambda: None) -> Run:
    """Read a run, finished or still going.

    Args:
        run: as `records_folder` takes it.
        log: verl's log; by default every `metrics*.jsonl` in the run's folder, in order of their names: a run that was
            started again has several.
        advance: called after each file of records.

    Raises:
        UsageError: there is no record, or a line of a file cannot be read.
    """
    records = recorded_folder(run)
    training, last_step = _read_steps(step_files(records), advance)
    files = step_files(records, validation=True)
    rounds = read_rounds(files, methods_in(training), advance)
    is_validation = max(rounds.metrics, default=-1) >= max(training, default=-1)
    last = rounds.last if is_validation else last_step
    if last is None:
        raise UsageError(f"{records}: its files hold no whole line, so there is no recorded rollout yet")
    folder = records.parent if records.name == RECORDS_NAME else records
    logs = sorted(folder.glob(LOG_NAMES)) if log is None else [log]
    return Run(name, records, last, is_validation, training, rounds, merged(map(read_log, logs)))


def read_training(records: Path) -> Steps:
    """Metrics of each training step in a folder of records; empty where there is none.

    Raises:
        UsageError: a line cannot be read.
    """
    return _read_steps(step_files(records), lambda: None)[0]


def read_log(path: Path) -> Steps:
    """Numbers that verl's file logger wrote, by step. A last line without its line end was cut, and is left out, and so
    is one that a full disk has cut, behind which the next one stands.

    Raises:
        UsageError: the file or a line of it cannot be read.
    """
    steps: dict[int, dict[str, float]] = defaultdict(dict)
    try:
        with path.open("rb") as file:
            for number, text in enumerate(file, start=1):
                if not text.endswith(b"\n"):
                    break
                try:
                    # In a text of JSON a quotation mark has a backslash before it, so this begins a line.
                    line = json.loads(text[max(0, text.rfind(b'{"step":')) :])
                    values = {str(name): value for name, value in line["data"].items()}
                    step = int(line["step"])
                except (ValueError, TypeError, KeyError, AttributeError) as error:
                    raise UsageError(f"{path}, line {number}: not a line of verl's log ({error!r:.200})") from error
                steps[step] |= {name: float(value) for name, value in values.items() if _is_number(value)}
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror or error})") from error
    return dict(sorted(steps.items()))


def merged(logs: Iterable[Steps], trained: str = _TRAINED) -> Steps:
    """Logs of a run's starts, in their order, as one.

    From the first step on that a start has trained, what former ones have logged is of a policy that was lost. At the
    step at which it resumes a run only validates, and that step keeps what was logged of it.

    Args:
        trained: a metric of all steps that were trained, and of no others.
    """
    steps: dict[int, dict[str, float]] = {}
    for log in logs:
        first = min((step for step, metrics in log.items() if trained in metrics), default=math.inf)
        steps = {step: metrics for step, metrics in steps.items() if step < first}
        for step, metrics in log.items():
            steps[step] = {**steps.get(step, {}), **metrics}
    return dict(sorted(steps.items()))


def run_names(runs: Sequence[Path]) -> list[str]:
    """The last folders of each path, as many as it takes to tell the runs apart.

    Raises:
        UsageError: a run is given twice.
    """
    folders = [path.resolve() for path in runs]
    parts = [(folder.parent if folder.name == RECORDS_NAME else folder).parts for folder in folders]
    for count in range(1, max(map(len, parts)) + 1):
        names = ["/".join(own[-count:]) for own in parts]
        if len(set(names)) == len(names):
            return names
    raise UsageError(f"a run is given twice: {', '.join(map(str, runs))}")


def methods_in(steps: Steps) -> list[str]:
    """Methods of the rollouts that the metrics are of."""
    return sorted({match[1] for name in metric_names(steps) if (match := _METHOD_SCORE.fullmatch(name))})


def metric_names(steps: Steps) -> list[str]:
    """Every metric that some step has, in order of appearance."""
    return list(dict.fromkeys(name for metrics in steps.values() for name in metrics))


def to_json(runs: Sequence[Run]) -> str:
    """All numbers: per run, metrics as lists beside the list of steps, null where a step lacks one."""
    return json.dumps({"runs": [_run_json(run) for run in runs]}, indent=1, allow_nan=False) + "\n"


def _read_steps(files: Sequence[Path], advance: Callable[[], None]) -> tuple[Steps, Path | None]:
    """Metrics of the steps, and the last file with a rollout in it."""
    steps: dict[int, dict[str, float]] = {}
    last = None
    for file in files:
        found = by_step(file)
        steps |= {step: rollout_metrics([rollout for _, rollout in members]) for step, members in found.items()}
        last = file if found else last
        advance()
    return dict(sorted(steps.items())), last


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _run_json(run: Run) -> dict[str, Any]:
    parts = {"training": run.training, "held_out": run.validation, "held_out_ends": run.rounds.ends, "log": run.log}
    return {"name": run.name, "records": str(run.records), **{name: _steps_json(part) for name, part in parts.items()}}


def _steps_json(steps: Steps) -> dict[str, Any]:
    def finite(value: float | None) -> float | None:
        return value if value is not None and math.isfinite(value) else None

    values = {name: [finite(metrics.get(name)) for metrics in steps.values()] for name in metric_names(steps)}
    return {"steps": list(steps), "metrics": values}
