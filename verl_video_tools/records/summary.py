"""What ends a run: a table of its first and last step, and what a smoke test has shown.

    python -m verl_video_tools.records.summary FOLDER [--smoke-test cpu|gpu]

FOLDER is a run's, or that of its trajectories. The table comes from the recorded trajectories, or from verl's log of a
fine-tuning run, which records none.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console
from rich.table import Table

from verl_video_tools.records.records import records_folder
from verl_video_tools.records.report import HEADLINES, LOG_NAMES, Steps, merged, read_log, read_training

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

FINE_TUNING = {"loss": "train/loss", "validation loss": "val/loss", "learning rate": "train/lr"}
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--smoke-test", metavar="DEVICE", help="instead: what a smoke test on this device has shown")
    options = parser.parse_args()
    if options.smoke_test:
        print(smoke_test_report(options.smoke_test, options.folder))
    else:
        print_summary(options.folder)


def print_summary(folder: Path) -> None:
    console = Console()
    records = records_folder(folder)
    if steps := read_training(records):
        console.print(_table(steps, HEADLINES, "mean over the step's rollouts"))
        console.print(f"trajectories: {records.resolve()}/step_*.jsonl", soft_wrap=True)
    elif steps := _fine_tuning(folder):
        console.print(_table(steps, FINE_TUNING, "fine-tuning"))
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


def _table(steps: Steps, metrics: Mapping[str, str], heading: str) -> Table:
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


if __name__ == "__main__":
    main()
