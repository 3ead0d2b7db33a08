"""Learning curves of runs as a figure, a table and numbers; and the summary at the end of a run.

The numbers come from a run's records, under the names of `docs/training.md`, and from verl's file log. Files are read
one after the other, so that only metrics stay in memory.
"""

from __future__ import annotations

import io
import itertools
import json
import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from verl_video_tools.core.errors import UsageError, writing
from verl_video_tools.core.files import whole_file
from verl_video_tools.core.machine import page
from verl_video_tools.core.types import StopReason
from verl_video_tools.records.metrics import Rollout, rollout_metrics
from verl_video_tools.records.records import RECORDS_NAME, has_steps, read_records, records_folder, step_files

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LOG_NAMES = "metrics*.jsonl"
"""Files of verl's file logger (`trainer.logger=["console","file"]`) in a run's folder. `vvt train` names them by
VERL_FILE_LOGGER_PATH."""

Steps = Mapping[int, Mapping[str, float]]
"""Step to metric to value, in order of steps."""

HEADLINES = {
    "reward": "rollout/score/mean",
    "accuracy": "rollout/acc/mean",
    "executed calls per rollout": "tool/executed_per_rollout",
    "frames per rollout": "frames/total/mean",
    "groups with unequal rewards": "group/unequal_reward_rate",
    "generated tokens": "tokens/generated/mean",
}
"""Metrics of the table of a run, by row."""

FINE_TUNING = {"loss": "train/loss", "validation loss": "val/loss", "learning rate": "train/lr"}
GAP = "training/rollout_probs_diff_mean"
"""verl's name for the mean difference between probabilities of sampled tokens in the engine and in the actor."""

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""By Okabe and Ito (https://jfly.uni-koeln.de/color/): distinguishable with any colour vision."""

_TRAINED = "training/global_step"
"""verl logs this metric at trained steps only, and not at a validation between them."""
_POLICY = ""
"""Stands for the methods that a run trains. Methods that a run only validates are averaged separately, because a mean
over the policy and the same policy without tools describes neither."""
_LOGGED = {
    "Loss of the policy": {"policy gradient": "actor/pg_loss"},
    "KL": {"to the reference": "actor/kl_loss", "in the update": "actor/ppo_kl"},
    "Entropy": {"entropy": "actor/entropy"},
    "Norm of the gradient": {"norm": "actor/grad_norm"},
    "Seconds per step": {"whole step": "timing_s/step", "rollouts": "timing_s/gen", "update": "timing_s/update_actor"},
    "Probabilities: engine against actor": {"mean": GAP},
}
"""Metrics of verl 0.9.1 by panel and label."""
_MAX_CURVES = 6
"""In a panel whose labels are tools or error codes: only the most frequent ones are drawn."""
_MIN_STEPS_TO_SMOOTH = 30
_COLUMNS, _DPI = 3, 110
_DASHES: tuple[Any, ...] = ("-", (0, (4, 1.5)), (0, (1.2, 1.2)), (0, (6, 1.5, 1.2, 1.5)))
_STYLE: Any = {
    "font.size": 9,
    "text.parse_math": False,  # names may hold dollar signs
    "axes.titlesize": 10,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "grid.color": "#d9dde4",
    "legend.edgecolor": "none",
    "legend.fontsize": 8,
}


# ------------------------------------------------------------------------------------------------------------- reading


@dataclass(frozen=True)
class Run:
    """One run's numbers.

    Attributes:
        name: in figure and table.
        training: metrics of each step's rollouts.
        held_out: metrics of each validation, over the rows that all validations measured.
        held_out_ends: metrics of the first and the last validation, over the rows that both measured.
        log: what verl logged, by its own names.
    """

    name: str
    training: Steps
    held_out: Steps = field(default_factory=dict)
    held_out_ends: Steps = field(default_factory=dict)
    log: Steps = field(default_factory=dict)

    def only_measured(self) -> list[str]:
        """Methods that were recorded on validation rows alone, in a run that trained others."""
        trained = methods_in(self.training)
        return [method for method in methods_in(self.held_out) if method not in trained] if trained else []


def read_run(name: str, run: Path, progress: Callable[[int, int], None] = lambda done, total: None) -> Run:
    """Read a run, also one that is still training.

    Args:
        run: as `records_folder` takes it. Every `metrics*.jsonl` beside the records is read, in order of names, because
            each start of a run writes one.
        progress: called after each file of records, with the number of files read and in total.

    Raises:
        UsageError: there is no record, or a line of a file cannot be read.
    """
    records = records_folder(run)
    if not has_steps(records):
        raise UsageError(
            f"{run}: no recorded step; give a run's folder (trainer.default_local_dir), or its folder of "
            "step_*.jsonl. A run writes the first of them after its first step"
        )
    validations = step_files(records, validation=True)
    total, num_read = len(step_files(records)) + len(validations), itertools.count(1)

    def advance() -> None:
        progress(next(num_read), total)

    training = read_training(records, advance)
    trained = methods_in(training)
    held_out = _read_held_out(validations, trained, advance)
    ends = _read_held_out(sorted({*validations[:1], *validations[-1:]}), trained, lambda: None)
    if not training and not held_out:
        raise UsageError(f"{records}: its files hold no whole line, so there is no recorded rollout yet")
    folder = records.parent if records.name == RECORDS_NAME else records
    return Run(name, training, held_out, ends, _merged_logs(folder, _TRAINED))


def read_training(records: Path, advance: Callable[[], None] = lambda: None) -> Steps:
    """Metrics of each training step in a folder of records; empty if there is none.

    Raises:
        UsageError: a line cannot be read.
    """
    steps = _read_steps(step_files(records), advance)
    return dict(sorted((step, rollout_metrics([each for _, each in rollouts])) for step, rollouts in steps))


def read_log(path: Path) -> Steps:
    """Numbers that verl's file logger wrote, by step. An incomplete last line is skipped, and so is a line that a full
    disk cut short, even if the next line follows without a line break.

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
                    # Inside a JSON string a quotation mark has a backslash before it, so this begins a line.
                    line = json.loads(text[max(0, text.rfind(b'{"step":')) :])
                    numbers = {name: float(value) for name, value in line["data"].items() if _is_number(value)}
                    steps[int(line["step"])] |= numbers
                except (ValueError, TypeError, KeyError, AttributeError) as error:
                    raise UsageError(f"{path}, line {number}: not a line of verl's log ({error!r:.200})") from error
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror or error})") from error
    return dict(sorted(steps.items()))


def _merged_logs(folder: Path, trained: str) -> Steps:
    """The logs of all starts of a run as one.

    Once a start has trained a step, earlier logs of that step and later ones are of a policy that was lost. The step at
    which a start resumes is only validated, so its earlier log stays.

    Args:
        trained: a metric of all steps that were trained, and of no other step.
    """
    steps: dict[int, dict[str, float]] = {}
    for log in map(read_log, sorted(folder.glob(LOG_NAMES))):
        first = min((step for step, metrics in log.items() if trained in metrics), default=math.inf)
        steps = {step: metrics for step, metrics in steps.items() if step < first}
        for step, metrics in log.items():
            steps[step] = {**steps.get(step, {}), **metrics}
    return dict(sorted(steps.items()))


def methods_in(steps: Steps) -> list[str]:
    """Methods of the rollouts that the metrics describe."""
    return sorted(_matching(steps, "video_tools/(.+)/score/mean"))


def _read_steps(files: Sequence[Path], advance: Callable[[], None]) -> Iterator[tuple[int, list[tuple[str, Rollout]]]]:
    """Rollouts of each step, each with a key of its row.

    Raises:
        UsageError: a line is not a rollout of a training run.
    """
    for file in files:
        steps: dict[int, list[tuple[str, Rollout]]] = defaultdict(list)
        for number, line in enumerate(read_records(file), start=1):
            try:
                steps[int(line["step"])].append((_row_key(line), Rollout.from_line(line)))
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise UsageError(f"{file}, line {number}: not a rollout of a training run ({error!r:.200})") from error
        yield from steps.items()
        advance()


def _row_key(line: Mapping[str, Any]) -> str:
    # An index is unique in one file of rows, and a run may validate on several files.
    row = line.get("extra_info") or {}
    parts = [row.get(name) for name in ("index", "question", "video_path", "video_paths", "image_paths")]
    question = line["trajectory"].question if parts[:2] == [None, None] else None
    return repr((line["trajectory"].method, line.get("data_source"), question, *parts))


def _read_held_out(files: Sequence[Path], trained: Sequence[str], advance: Callable[[], None]) -> Steps:
    """Metrics of validations, each over the rows that all of them measured.

    A run may measure fewer rows between its first step and its last (`interim_validation_rows`), and means over
    different rows differ even if the policy does not change. A method that is only measured has rows of its own.
    """

    def by_policy(rollouts: Iterable[tuple[str, Rollout]]) -> dict[str, dict[str, list[Rollout]]]:
        """Rollouts by row, of the trained policy and of each method that is only measured."""
        rows: dict[str, dict[str, list[Rollout]]] = defaultdict(lambda: defaultdict(list))
        for key, rollout in rollouts:
            method = rollout.trajectory.method
            rows[_POLICY if not trained or method in trained else method][key].append(rollout)
        return rows

    shared: dict[str, set[str]] = {}
    for _, rollouts in _read_steps(files, advance):
        for policy, rows in by_policy(rollouts).items():
            shared[policy] = shared.get(policy, rows.keys()) & rows.keys()
    held_out: dict[int, dict[str, float]] = {}
    for step, rollouts in _read_steps(files, lambda: None):
        metrics = {
            policy: rollout_metrics(
                [rollout for key, times in rows.items() if key in shared[policy] for rollout in times]
            )
            for policy, rows in by_policy(rollouts).items()
        }
        held_out[step] = metrics.pop(_POLICY, {})
        for others in metrics.values():
            held_out[step] |= {name: value for name, value in others.items() if name.startswith("video_tools/")}
    return dict(sorted(held_out.items()))


def _metric_names(steps: Steps) -> list[str]:
    return list(dict.fromkeys(name for metrics in steps.values() for name in metrics))


def _matching(steps: Steps, pattern: str) -> dict[str, str]:
    """Metrics whose name matches, by the group of the match."""
    return {match[1]: name for name in _metric_names(steps) if (match := re.fullmatch(pattern, name))}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# -------------------------------------------------------------------------------------------------------------- panels

Curves = Mapping[str, Mapping[int, float]]
"""Label to values by step."""


@dataclass(frozen=True)
class Panel:
    """Curves with one y axis.

    Attributes:
        curves: those of each run.
        is_share: values are shares, drawn in per cent.
    """

    title: str
    curves: Sequence[Curves]
    is_share: bool = False


def panels_of(runs: Sequence[Run]) -> list[Panel]:
    """Every panel for which some run has a value."""

    def training(names: Mapping[str, str]) -> list[Curves]:
        return [_curves(run.training, names) for run in runs]

    def by_method(key: str) -> dict[str, str]:
        return {method: f"video_tools/{method}/{key}/mean" for method in methods}

    methods = sorted({method for run in runs for method in methods_in(run.training)})
    parts = {method: rf"video_tools/{re.escape(method)}/(?!(?:score|acc)/)([^/]+)/mean" for method in methods}
    panels = [Panel("Reward", [_reward(run) for run in runs])]
    for method, pattern in parts.items():
        curves = [_curves(run.training, _matching(run.training, pattern)) for run in runs]
        panels.append(Panel(f"Parts of the reward: {method}", curves))
    if any(len(methods_in(run.training)) > 1 for run in runs):
        held_out = [_curves(run.held_out, by_method("acc")) for run in runs]
        panels += [
            Panel("Reward by method", training(by_method("score"))),
            Panel("Accuracy by method", training(by_method("acc")), True),
            Panel("Held-out accuracy by method", held_out, True),
        ]
    # The reasons of several runs would be too many curves for one panel.
    reasons = list(StopReason) if len(runs) == 1 else [StopReason.ANSWER]
    ends = training({reason: f"stop/{reason}" for reason in reasons})
    frames = {"all": "frames/total/mean", "initial": "frames/initial/mean", "by calls": "frames/tool/mean"}
    panels += [
        Panel("Accuracy", [_accuracy(run) for run in runs], True),
        Panel("Executed calls per rollout", training({"calls": "tool/executed_per_rollout"})),
        Panel("Frames per rollout", training(frames)),
        Panel("How rollouts ended", [_without_zeros(curves) for curves in ends], True),
        Panel("Calls per rollout, by tool", [_rates(run.training, "tool/(.+)/calls_per_rollout") for run in runs]),
        Panel("Refused calls per rollout, by reason", [_rates(run.training, "tool/error/(.+)") for run in runs]),
        Panel("Groups with unequal rewards", training({"groups": "group/unequal_reward_rate"}), True),
        Panel("Generated tokens per rollout", training({"tokens": "tokens/generated/mean"})),
        Panel("Flagged rollouts of a step", training({"rollouts": "rollout/flagged"})),
        *(Panel(title, [_curves(run.log, names) for run in runs]) for title, names in _LOGGED.items()),
    ]
    return [panel for panel in panels if any(panel.curves)]


def _curves(steps: Steps, names: Mapping[str, str]) -> dict[str, dict[int, float]]:
    """A curve for each label whose metric has a finite value."""
    curves = {
        label: {step: metrics[name] for step, metrics in steps.items() if math.isfinite(metrics.get(name, math.nan))}
        for label, name in names.items()
    }
    return {label: values for label, values in curves.items() if values}


def _reward(run: Run) -> Curves:
    """Without methods that are only measured, because their rewards have another scale."""
    name = "rollout/score/mean"
    return _curves(run.training, {"training": name}) | _curves(run.held_out, {"held-out": name})


def _accuracy(run: Run) -> Curves:
    held_out = {"held-out": "rollout/acc/mean"}
    held_out |= {f"held-out {method}": f"video_tools/{method}/acc/mean" for method in run.only_measured()}
    return _curves(run.training, {"training": "rollout/acc/mean"}) | _curves(run.held_out, held_out)


def _rates(steps: Steps, pattern: str) -> Curves:
    """The most frequent of the rates whose names match. A step that lacks a rate had no such call."""
    names = _matching(steps, pattern)
    curves = {label: {step: metrics.get(name, 0.0) for step, metrics in steps.items()} for label, name in names.items()}
    most_frequent = sorted(curves, key=lambda label: -sum(curves[label].values()))[:_MAX_CURVES]
    return _without_zeros({label: curves[label] for label in most_frequent})


def _without_zeros(curves: Curves) -> Curves:
    """The curves that are not 0 at every step."""
    return {label: values for label, values in curves.items() if any(values.values())}


# -------------------------------------------------------------------------------------------------------------- output


def write_report(runs: Sequence[Run], out: Path) -> str:
    """Write `curves.png`, `report.md` and `curves.json`.

    Args:
        runs: the curves of several runs are drawn in the same panels, one colour per run.
        out: an existing folder.

    Returns:
        The text of `report.md`.

    Raises:
        UsageError: a file cannot be written.
    """
    text = "\n".join(["# Learning curves\n", "![Learning curves](curves.png)\n", *map(_section, runs)])
    numbers = [
        {"name": run.name}
        | {part: _steps_json(getattr(run, part)) for part in ("training", "held_out", "held_out_ends", "log")}
        for run in runs
    ]
    contents = {
        "curves.png": _figure(panels_of(runs), [run.name for run in runs]),
        "curves.json": json.dumps({"runs": numbers}, indent=1, allow_nan=False).encode(),
        "report.md": text.encode(errors="replace"),
    }
    for name, content in contents.items():
        with writing(out / name, "give another --out"), whole_file(out / name) as partial:
            partial.write_bytes(content)
    return text


def _section(run: Run) -> str:
    """What a run consists of, and a table of its first and last step."""
    counts = [int(sum(metrics[f"rollout/{key}"] for metrics in run.training.values())) for key in ("count", "flagged")]
    facts = f"{len(run.training)} training steps with {counts[0]} rollouts, {counts[1]} of them flagged"
    if run.held_out:
        measured = [
            int(next(iter(steps.values())).get("rollout/count", 0)) for steps in (run.held_out, run.held_out_ends)
        ]
        facts += f"; held-out rollouts of a validation: {measured[0]} in the curves, {measured[1]} in the table"
    if only_measured := run.only_measured():
        facts += f"; held-out columns are without {', '.join(only_measured)}"
    held_out = {f"held-out, step {step}": metrics for step, metrics in run.held_out_ends.items()}
    table = _table("mean per rollout", _first_and_last(run.training) | held_out, HEADLINES)
    return f"## {run.name}\n\n{facts}.\n\n{table}"


def _first_and_last(steps: Steps) -> dict[str, Mapping[str, float]]:
    return {f"step {step}": steps[step] for step in (min(steps), max(steps))} if steps else {}


def _table(heading: str, columns: Mapping[str, Mapping[str, float]], rows: Mapping[str, str]) -> str:
    """A table of Markdown. `rows` are metrics by label; a metric without any value has no row."""
    lines = [[heading, *columns], ["---", *("---:" for _ in columns)]]
    for label, name in rows.items():
        values = [metrics.get(name) for metrics in columns.values()]
        if any(value is not None for value in values):
            lines.append([label, *("-" if value is None else _number(value) for value in values)])
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _number(value: float) -> str:
    return f"{value:.3f}" if value == 0 or abs(value) >= 0.001 else f"{value:.1e}"


def _steps_json(steps: Steps) -> dict[str, Any]:
    """Metrics as lists beside the list of steps, null where a step lacks a metric."""

    def finite(value: float | None) -> float | None:
        return value if value is not None and math.isfinite(value) else None

    values = {name: [finite(metrics.get(name)) for metrics in steps.values()] for name in _metric_names(steps)}
    return {"steps": list(steps), "metrics": values}


def _figure(panels: Sequence[Panel], names: Sequence[str]) -> bytes:
    """All panels as one PNG."""
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    with matplotlib.rc_context(_STYLE):
        num_rows = math.ceil(len(panels) / _COLUMNS)
        figure = Figure(figsize=(4.6 * _COLUMNS, 3.2 * num_rows + 0.4), layout="constrained", facecolor="white")
        places = list(figure.subplots(num_rows, _COLUMNS, squeeze=False).flat)
        for axes, panel in zip(places, panels, strict=False):
            _draw(axes, panel)
        for axes in places[len(panels) :]:
            axes.set_axis_off()
        if len(names) > 1:
            keys = [Line2D([], [], color=COLOURS[number % len(COLOURS)]) for number in range(len(names))]
            figure.legend(keys, names, loc="outside upper left", ncols=4)
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=_DPI)
    return file.getvalue()


def _draw(axes: Axes, panel: Panel) -> None:
    """Draw a panel: a colour per label for one run; a colour per run and a dash pattern per label for several."""
    from matplotlib.lines import Line2D
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    axes.set_title(panel.title)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if panel.is_share:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    labels = list(dict.fromkeys(label for curves in panel.curves for label in curves))
    is_one_run = len(panel.curves) == 1

    def style(run: int, label: int) -> dict[str, Any]:
        colour, dashes = (label, label // len(COLOURS)) if is_one_run else (run, label)
        return {"color": COLOURS[colour % len(COLOURS)], "linestyle": _DASHES[dashes % len(_DASHES)]}

    for number, curves in enumerate(panel.curves):
        for label, values in curves.items():
            line = style(number, labels.index(label))
            window = smoothing_window(len(values))
            if window > 1:
                axes.plot(list(values), list(values.values()), color=line["color"], linewidth=0.8, alpha=0.3)
            averages = moving_average(list(values.values()), window)
            axes.plot(list(values), averages, **line, linewidth=1.8, marker="o" if window == 1 else "", markersize=3)
    axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    keys = [style(0, number) | ({} if is_one_run else {"color": "grey"}) for number in range(len(labels))]
    axes.legend([Line2D([], [], **key) for key in keys], labels)


def moving_average(values: Sequence[float], window: int) -> list[float]:
    """Mean over a window around each value, cut off at the ends."""
    half = window // 2
    return [float(np.mean(values[max(0, place - half) : place + half + 1])) for place in range(len(values))]


def smoothing_window(num_steps: int) -> int:
    """Steps in the moving average of a curve, an odd number; 1 for a short curve."""
    return 1 if num_steps < _MIN_STEPS_TO_SMOOTH else 2 * (num_steps // 40) + 5


# ------------------------------------------------------------------------------------------------- the end of a run


def print_summary(folder: Path) -> None:
    """Print a table of the first and the last step of a run, from its records or from verl's log of a fine-tuning run.

    Raises:
        UsageError: a line of them cannot be read.
    """
    records = records_folder(folder)
    if steps := read_training(records):
        print(f"{len(steps)} steps\n{_table('mean per rollout', _first_and_last(steps), HEADLINES)}")
        print(f"trajectories: {records.resolve()}/step_*.jsonl")
        if num_incomplete := sum(metrics.get("rollout/incomplete_video", 0.0) for metrics in steps.values()):
            print(
                f"{num_incomplete:.0f} rollouts are about videos whose end is missing (downloads that broke off); "
                "`vvt data validate ROWS --probe` names the files"
            )
        return
    loss = FINE_TUNING["loss"]
    steps = {step: metrics for step, metrics in _merged_logs(folder, loss).items() if loss in metrics}
    if steps:
        print(f"{len(steps)} steps\n{_table('fine-tuning', _first_and_last(steps), FINE_TUNING)}")
    else:
        print(f"no recorded step in {folder}")


def smoke_test_report(device: str, run_dir: Path) -> str:
    """What a smoke test has tested, for people.

    Args:
        device: `cpu` or `gpu`.
        run_dir: the smoke test's folder, with the logs of verl's file logger.
    """
    steps = {step: metrics for path in sorted(run_dir.glob(LOG_NAMES)) for step, metrics in read_log(path).items()}
    gaps = [metrics[GAP] for metrics in steps.values() if GAP in metrics]
    facts = f"steps {', '.join(map(str, sorted(steps)))}"
    if gaps:
        facts += f"; a token's probability differs by {max(gaps):.4f} between engine and actor (worst step's mean)"
    lines = [
        f"smoke test on DEVICE={device}: packed sequences, two ranks with Ulysses, bfloat16, gradient checkpointing, "
        "the method's own options, checkpoint and resumption",
        facts,
    ]
    if device == "cpu":
        lines.append(f"what only a GPU can show: {page('cpu')}")
    return "\n".join(f"[verl_video_tools] {line}" for line in lines)
