"""Learning curves of runs: a figure, a table of first and last step, and the numbers behind both; the end of a run.

The numbers come from a run's records, under the names of `docs/training.md`, and from verl's file log. Files are read
one after the other, and only metrics stay in memory.
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
from verl_video_tools.core.types import StopReason
from verl_video_tools.records.metrics import Rollout, rollout_metrics
from verl_video_tools.records.records import RECORDS_NAME, has_steps, read_records, records_folder, step_files

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.table import Table

LOG_NAMES = "metrics*.jsonl"
"""Files of verl's file logger (`trainer.logger=["console","file"]`) in a run's folder. The recipes name them by
VERL_FILE_LOGGER_PATH."""

Steps = Mapping[int, Mapping[str, float]]
"""Step to metric to value, in order of steps."""

HEADLINES = {
    "reward": "rollout/score/mean",
    "accuracy": "rollout/acc/mean",
    "executed calls per rollout": "tool/executed_per_rollout",
    "frames per rollout": "frames/total/mean",
    "groups with unequal rewards": "group/unequal_reward_rate",
}
"""Rows of the table of a run, by their labels."""

FINE_TUNING = {"loss": "train/loss", "validation loss": "val/loss", "learning rate": "train/lr"}
ONLY_ON_A_GPU = (
    "flash-attn's own kernels",
    "NCCL",
    "the bytes that offloading moves",
    "vLLM's sleep mode and CUDA graphs",
    "our front end of its server",
    "weights over CUDA IPC",
    "torch.compile",
    "memory and time at real lengths",
)
"""What a smoke test cannot show without a GPU; docs/cpu.md says what takes the place of each."""
TESTED = (
    "packed sequences",
    "two ranks with Ulysses",
    "bfloat16",
    "gradient checkpointing",
    "the method's own options",
    "checkpoint and resumption",
)
GAP = "training/rollout_probs_diff_mean"
"""verl's name for the mean difference between probabilities of sampled tokens in the engine and in the actor."""

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""By Okabe and Ito (https://jfly.uni-koeln.de/color/): distinguishable with any colour vision."""

_TRAINED = "training/global_step"
"""verl logs it for trained steps, and not for a validation outside of them."""
_POLICY = ""
"""Stands for the methods that a run trains. A method that it only measures is compared by itself, since a mean over the
policy and the same policy without tools describes neither."""
_LOGGED = {
    "Loss of the policy": {"policy gradient": "actor/pg_loss"},
    "KL": {"to the reference": "actor/kl_loss", "in the update": "actor/ppo_kl"},
    "Entropy": {"entropy": "actor/entropy"},
    "Norm of the gradient": {"norm": "actor/grad_norm"},
    "Seconds per step": {"whole step": "timing_s/step", "rollouts": "timing_s/gen", "update": "timing_s/update_actor"},
    "Probabilities: engine against actor": {"mean": "training/rollout_probs_diff_mean"},
}
"""Metrics of verl 0.9.1 by panel and label."""
_MOST_CURVES = 6
"""Of a panel whose labels are tools or error codes: the most frequent ones."""
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
        held_out: metrics of each validation round, over the rows that all rounds measured.
        held_out_ends: metrics of the first and the last round, over the rows that both measured.
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


def read_run(name: str, run: Path, progress: Callable[[int, int], None] = lambda done, wanted: None) -> Run:
    """Read a run, finished or still going.

    Args:
        run: as `records_folder` takes it. Every `metrics*.jsonl` beside the records is read, in order of names: a run
            that was started again has several.
        progress: called after each file of records, with the numbers read and wanted.

    Raises:
        UsageError: there is no record, or a line of a file cannot be read.
    """
    records = records_folder(run)
    files = step_files(records, validation=True)
    num_files, num_read = len(step_files(records)) + len(files), itertools.count(1)

    def advance() -> None:
        progress(next(num_read), num_files)

    if not has_steps(records):
        raise UsageError(
            f"{run}: no recorded step; give a run's folder (trainer.default_local_dir), or its folder of "
            "step_*.jsonl. A run writes its first when its first step is done"
        )
    training = read_training(records, advance)
    held_out = _read_held_out(files, methods_in(training), advance)
    ends = _read_held_out(sorted({*files[:1], *files[-1:]}), methods_in(training), lambda: None)
    if not training and not held_out:
        raise UsageError(f"{records}: its files hold no whole line, so there is no recorded rollout yet")
    folder = records.parent if records.name == RECORDS_NAME else records
    return Run(name, training, held_out, ends, merged(map(read_log, sorted(folder.glob(LOG_NAMES)))))


def read_training(records: Path, advance: Callable[[], None] = lambda: None) -> Steps:
    """Metrics of each training step in a folder of records; empty where there is none.

    Raises:
        UsageError: a line cannot be read.
    """
    steps = _read_steps(step_files(records), advance)
    metrics = {step: rollout_metrics([rollout for _, rollout in members]) for step, members in steps}
    return dict(sorted(metrics.items()))


def read_log(path: Path) -> Steps:
    """Numbers that verl's file logger wrote, by step. A last line without its line end was cut and is left out. So is a
    line that a full disk has cut, behind which the next one stands.

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


def methods_in(steps: Steps) -> list[str]:
    """Methods of the rollouts that the metrics are of."""
    matches = (re.fullmatch("video_tools/(.+)/score/mean", name) for name in _metric_names(steps))
    return sorted({match[1] for match in matches if match})


def _read_steps(files: Sequence[Path], advance: Callable[[], None]) -> Iterator[tuple[int, list[tuple[str, Rollout]]]]:
    """Rollouts of each step, each with a key of its row.

    Raises:
        UsageError: a line is no rollout of a training run.
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
    # An index is one of a file of rows, and a run may validate on several.
    row = line.get("extra_info") or {}
    parts = [row.get(name) for name in ("index", "question", "video_path", "video_paths", "image_paths")]
    question = line["trajectory"].question if parts[:2] == [None, None] else None
    return repr((line["trajectory"].method, line.get("data_source"), question, *parts))


def _read_held_out(files: Sequence[Path], trained: Sequence[str], advance: Callable[[], None]) -> Steps:
    """Metrics of validation rounds, each over the rows that all of them measured.

    A run may measure fewer rows between its first step and its last (`interim_validation_rows`), and means over
    different rows differ also where the policy has stayed the same. A method that is only measured has its own rows.
    """

    def part_of(rollout: Rollout) -> str:
        return _POLICY if not trained or rollout.trajectory.method in trained else rollout.trajectory.method

    shared: dict[str, set[str]] = {}
    for _, members in _read_steps(files, advance):
        measured: dict[str, set[str]] = defaultdict(set)
        for key, rollout in members:
            measured[part_of(rollout)].add(key)
        for part, keys in measured.items():
            shared[part] = shared.get(part, keys) & keys

    held_out: dict[int, dict[str, float]] = {}
    for step, members in _read_steps(files, lambda: None):
        kept: dict[str, list[Rollout]] = defaultdict(list)
        for key, rollout in members:
            if key in shared.get(part_of(rollout), ()):
                kept[part_of(rollout)].append(rollout)
        held_out[step] = rollout_metrics(kept.pop(_POLICY, []))
        for rollouts in kept.values():
            others = rollout_metrics(rollouts)
            held_out[step] |= {name: value for name, value in others.items() if name.startswith("video_tools/")}
    return dict(sorted(held_out.items()))


def _metric_names(steps: Steps) -> list[str]:
    return list(dict.fromkeys(name for metrics in steps.values() for name in metrics))


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

    def labels(self) -> list[str]:
        return list(dict.fromkeys(label for curves in self.curves for label in curves))


def panels_of(runs: Sequence[Run]) -> list[Panel]:
    """Every panel for which some run has a value."""

    def training(names: Mapping[str, str]) -> list[Curves]:
        return [_curves(run.training, names) for run in runs]

    methods = sorted({method for run in runs for method in methods_in(run.training)})
    panels = [Panel("Reward", [_reward(run) for run in runs])]
    panels += [Panel(f"Parts of the reward: {name}", [_parts(run.training, name) for run in runs]) for name in methods]
    if any(len(methods_in(run.training)) > 1 for run in runs):
        panels.append(Panel("Reward by method", training(_by_method(methods, "score"))))
        panels.append(Panel("Accuracy by method", training(_by_method(methods, "acc")), True))
        held_out = [_curves(run.held_out, _by_method(methods, "acc")) for run in runs]
        panels.append(Panel("Held-out accuracy by method", held_out, True))
    # The reasons of several runs would be too many curves for one panel.
    reasons = list(StopReason) if len(runs) == 1 else [StopReason.ANSWER]
    ends = training({reason: f"stop/{reason}" for reason in reasons})
    frames = {"all": "frames/total/mean", "initial": "frames/initial/mean", "by calls": "frames/tool/mean"}
    panels += [
        Panel("Accuracy", [_accuracy(run) for run in runs], True),
        Panel("Executed calls per rollout", training({"calls": "tool/executed_per_rollout"})),
        Panel("Frames per rollout", training(frames)),
        Panel("How rollouts ended", [{name: c for name, c in own.items() if any(c.values())} for own in ends], True),
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
    curves = {}
    for label, name in names.items():
        values = {step: metrics[name] for step, metrics in steps.items() if math.isfinite(metrics.get(name, math.nan))}
        if values:
            curves[label] = values
    return curves


def _reward(run: Run) -> Curves:
    """Without methods that are only measured: their rewards are of another scale."""
    name = "rollout/score/mean"
    return _curves(run.training, {"training": name}) | _curves(run.held_out, {"held-out": name})


def _accuracy(run: Run) -> Curves:
    held_out = {"held-out": "rollout/acc/mean"}
    held_out |= {f"held-out {method}": f"video_tools/{method}/acc/mean" for method in run.only_measured()}
    return _curves(run.training, {"training": "rollout/acc/mean"}) | _curves(run.held_out, held_out)


def _parts(steps: Steps, method: str) -> Curves:
    """The recorded components of a method's reward."""
    pattern = re.compile(rf"video_tools/{re.escape(method)}/(?!(?:score|acc)/)([^/]+)/mean")
    return _curves(steps, {match[1]: name for name in _metric_names(steps) if (match := pattern.fullmatch(name))})


def _by_method(methods: Sequence[str], key: str) -> dict[str, str]:
    return {method: f"video_tools/{method}/{key}/mean" for method in methods}


def _rates(steps: Steps, pattern: str) -> Curves:
    """The most frequent of the rates whose names match; a step that lacks one had none."""
    names = {match[1]: name for name in _metric_names(steps) if (match := re.fullmatch(pattern, name))}
    curves = {label: {step: metrics.get(name, 0.0) for step, metrics in steps.items()} for label, name in names.items()}
    most = sorted(curves, key=lambda label: -sum(curves[label].values()))[:_MOST_CURVES]
    return {label: curves[label] for label in most if any(curves[label].values())}


# -------------------------------------------------------------------------------------------------------------- output


def write_report(runs: Sequence[Run], out: Path) -> str:
    """Write `curves.png`, `report.md` and `curves.json`.

    Args:
        runs: several are drawn over each other, each in a colour of its own.
        out: an existing folder.

    Returns:
        The text of `report.md`.

    Raises:
        UsageError: a file cannot be written.
    """
    text = "\n".join(["# Learning curves\n", "![Learning curves](curves.png)\n", *map(_table, runs)])
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


def _table(run: Run) -> str:
    """First and last step of a run as a table of Markdown."""
    training = {step: run.training[step] for step in (min(run.training), max(run.training))} if run.training else {}
    columns = [(f"step {step}", metrics) for step, metrics in training.items()]
    columns += [(f"held-out, step {step}", metrics) for step, metrics in run.held_out_ends.items()]
    rows = [
        [label, *("-" if (value := metrics.get(name)) is None else f"{value:.3f}" for _, metrics in columns)]
        for label, name in (HEADLINES | {"generated tokens": "tokens/generated/mean"}).items()
    ]
    lines = [["mean per rollout", *(heading for heading, _ in columns)], ["---", *("---:" for _ in columns)], *rows]
    counts = [int(sum(metrics[f"rollout/{key}"] for metrics in run.training.values())) for key in ("count", "flagged")]
    facts = f"{len(run.training)} training steps with {counts[0]} rollouts, {counts[1]} of them flagged"
    if run.held_out:
        measured = [
            int(next(iter(steps.values())).get("rollout/count", 0)) for steps in (run.held_out, run.held_out_ends)
        ]
        facts += f"; held-out rollouts of a validation: {measured[0]} in the curves, {measured[1]} in the table"
    if only_measured := run.only_measured():
        facts += f"; held-out columns are without {', '.join(only_measured)}"
    return f"## {run.name}\n\n{facts}.\n\n" + "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _steps_json(steps: Steps) -> dict[str, Any]:
    """Metrics as lists beside the list of steps, null where a step lacks one."""

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
    """Of one run each label has a colour; of several each run has one, and each label its dashes."""
    from matplotlib.lines import Line2D
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    axes.set_title(panel.title)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if panel.is_share:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    labels = panel.labels()
    is_one_run = len(panel.curves) == 1

    def look(run: int, label: int) -> dict[str, Any]:
        colour, dashes = (label, label // len(COLOURS)) if is_one_run else (run, label)
        return {"color": COLOURS[colour % len(COLOURS)], "linestyle": _DASHES[dashes % len(_DASHES)]}

    for number, curves in enumerate(panel.curves):
        for label, values in curves.items():
            style = look(number, labels.index(label))
            window = smoothing_window(len(values))
            if window > 1:
                axes.plot(list(values), list(values.values()), color=style["color"], linewidth=0.8, alpha=0.3)
            averaged = moving_average(list(values.values()), window)
            axes.plot(list(values), averaged, **style, linewidth=1.8, marker="o" if window == 1 else "", markersize=3)
    axes.set_ylim(bottom=min(0.0, axes.get_ylim()[0]))
    looks = [look(0, number) | ({} if is_one_run else {"color": "grey"}) for number in range(len(labels))]
    axes.legend([Line2D([], [], **each) for each in looks], labels)


def moving_average(values: Sequence[float], window: int) -> list[float]:
    """Mean over a window around each value; at the ends over as much of it as there is."""
    half = window // 2
    return [float(np.mean(values[max(0, place - half) : place + half + 1])) for place in range(len(values))]


def smoothing_window(num_steps: int) -> int:
    """Steps in the moving average of a curve, an odd number; 1 for a short curve."""
    return 1 if num_steps < _MIN_STEPS_TO_SMOOTH else 2 * (num_steps // 40) + 5


# ------------------------------------------------------------------------------------------- the end of a run


def print_summary(folder: Path) -> None:
    """Print a table of the first and the last step of a run, from its records or from verl's log of a fine-tuning run.

    Raises:
        UsageError: a line of them cannot be read.
    """
    from rich.console import Console

    console = Console()
    records = records_folder(folder)
    if steps := read_training(records):
        console.print(_summary_table(steps, HEADLINES, "mean over the step's rollouts"))
        console.print(f"trajectories: {records.resolve()}/step_*.jsonl", soft_wrap=True)
    elif steps := _fine_tuning(folder):
        console.print(_summary_table(steps, FINE_TUNING, "fine-tuning"))
    else:
        console.print(f"no recorded step in {folder}")


def smoke_test_report(device: str, run_dir: Path) -> str:
    """A paragraph for people.

    Args:
        device: `cpu` or `gpu`, where it ran.
        run_dir: the smoke test's folder, with the logs of verl's file logger.
    """
    steps = {step: metrics for path in sorted(run_dir.glob(LOG_NAMES)) for step, metrics in read_log(path).items()}
    gaps = [metrics[GAP] for metrics in steps.values() if GAP in metrics]
    facts = f"steps {', '.join(map(str, sorted(steps)))}"
    if gaps:
        facts += f"; a token's probability differs by {max(gaps):.4f} between engine and actor (worst step's mean)"
    lines = [f"smoke test on DEVICE={device}: {', '.join(TESTED)}", facts]
    if device == "cpu":
        lines.append(f"only a GPU can show: {', '.join(ONLY_ON_A_GPU)}")
    return "\n".join(f"[verl_video_tools] {line}" for line in lines)


def _fine_tuning(folder: Path) -> Steps:
    """Of all starts, the latest of a step that was repeated."""
    trained = "train/loss"
    steps = merged(map(read_log, sorted(folder.glob(LOG_NAMES))), trained)
    return {step: values for step, values in steps.items() if trained in values}


def _summary_table(steps: Steps, metrics: Mapping[str, str], heading: str) -> Table:
    from rich.table import Table

    first, last = min(steps), max(steps)
    table = Table(title=f"{len(steps)} steps", title_justify="left")
    table.add_column(heading)
    table.add_column(f"step {first}", justify="right")
    table.add_column(f"step {last}", justify="right")
    for label, metric in metrics.items():
        values = [steps[step].get(metric) for step in (first, last)]
        if any(value is not None for value in values):
            table.add_row(label, *("" if value is None else _number(value) for value in values))
    return table


def _number(value: float) -> str:
    return f"{value:.3f}" if value == 0 or abs(value) >= 0.001 else f"{value:.1e}"
