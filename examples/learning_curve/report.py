"""What is told of a run of `run.py` when its stages are done: a table, and the content of `results.json`."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from examples.learning_curve.held_out import mean_gain, mean_of, read_outcomes
from examples.learning_curve.measured import (
    Outcomes,
    accuracy_of,
    by_kind,
    cost_curve,
    hard,
    looked,
    pixels_per_token,
    rollout_counts,
)
from examples.learning_curve.plans import NO_TOOLS
from examples.learning_curve.provenance import Starts
from verl_video_tools.core.errors import UsageError

if TYPE_CHECKING:
    from examples.learning_curve.run import Learning

GAIN = "after RL less after SFT"
"""In `results.json`: what reinforcement learning changes where another look is needed."""
RFT_LESS_RL = "after RFT less after RL, all questions"
"""In `results.json`: what fine-tuning on rollouts changes, initial frames included."""
TRAINING = "rollouts of training"
"""In `results.json`: how many there were in each run, and how many were flagged, so that they did not train."""
SFT_WITHOUT_TOOLS, RL_WITHOUT_TOOLS = "after SFT, without tools", "after RL, without tools"
"""In `results.json`: the same weights, asked with the prompt of the method without tools."""


def results_of(run: Learning, console: Console) -> dict[str, Any]:
    """The content of `results.json`, which is also printed: plan, origin, accuracies, gains, and what training cost.

    Raises:
        UsageError: a measurement is missing, or cannot be read.
    """
    policies = {name: read_outcomes(*source) for name, source in _sources(run).items()}
    accuracy = {name: accuracy_of(outcomes) for name, outcomes in policies.items()}
    console.print(_table(f"{run.name}, seed {run.seed}: held-out NeedleClips", policies))
    results = {**run.told(), **_origin(run), "accuracy": accuracy}
    own, otherwise = "after RL", _ablation_name(run)
    compared = [(own, name) for name in ("after SFT", RL_WITHOUT_TOOLS, otherwise)]
    for after, before in [*compared, ("after RFT", "after SFT"), ("after RFT", "after RL")]:
        if after in policies and before in policies:
            then, now = hard(policies[before]), hard(policies[after])
            gain = mean_gain(then, now)
            results[f"{after} less {before}"] = asdict(gain)
            if before != otherwise:  # which is paid by other rules
                results[f"reward {after} less {before}"] = asdict(mean_gain(then, now, "score"))
            console.print(f"{after} less {before}: {gain}, paired by question", highlight=False)
    if "after RFT" in policies:
        results[RFT_LESS_RL] = asdict(mean_gain(policies["after RL"], policies["after RFT"]))
    results[TRAINING] = {name: rollout_counts(run.out / name) for name in ("rl", "ablation") if name in run.stages}
    for name, counts in results[TRAINING].items():
        console.print(f"{name}: {counts['flagged']} of {counts['rollouts']} rollouts flagged", highlight=False)
    try:
        results["cost"] = cost_curve(run.rl, run.method, pixels_per_token(run.base))
    except (UsageError, ValueError) as error:  # the accuracies stand without it
        console.print(f"what training cost is not known: {error}", highlight=False)
    return results


def _table(title: str, policies: dict[str, dict[int, Any]]) -> Table:
    table = Table(title=title, title_justify="left")
    for column in ("policy", "needs another look", "95 %", "calls", "seconds per look", "initial frames tell"):
        table.add_column(column)
    for name, outcomes in policies.items():
        table.add_row(name, *_cells(outcomes))
    return table


def _cells(outcomes: Outcomes) -> list[str]:
    asked, easy = hard(outcomes), by_kind(outcomes).get("direct", {})
    estimate, seen = mean_of(asked), looked(asked)
    return [
        f"{estimate.mean:.1%} of {len(asked)}",
        f"{estimate.low:.1%} to {estimate.high:.1%}",
        f"{mean_of(asked, 'executed_calls').mean:.2f}",
        f"{mean_of(seen, 'seconds_per_look').mean:.0f}" if seen else "none",
        f"{mean_of(easy).mean:.1%} of {len(easy)}" if easy else "none",
    ]


def _origin(run: Learning) -> dict[str, Any]:
    """Code and machine of the run, and `minutes` by stage."""
    done = {name: json.loads(run.done(name).read_text()) for name in run.stages}
    minutes = {name: round(told["seconds_since_last_start"] / 60, 1) for name, told in done.items()}
    return {**Starts(run.out).told([*run.stages]), "minutes": minutes}


def _sources(run: Learning) -> dict[str, tuple[Path, str]]:
    """File of held-out rollouts, and the method that answers, for each policy."""
    last = run.plan.rl_steps
    sources = {
        "after SFT": (run.measured("rl", 0), run.method),
        "after RL": (run.measured("rl", last), run.method),
    }
    if run.plan.compares_without_tools:
        sources[SFT_WITHOUT_TOOLS] = (run.measured("rl", 0), NO_TOOLS)
        sources[RL_WITHOUT_TOOLS] = (run.measured("rl", last), NO_TOOLS)
    if run.plan.rft:
        sources["after RFT"] = (run.measured("rft_validation", 0), run.method)
    if run.ablation:
        sources[_ablation_name(run)] = (run.measured("ablation", last), run.method)
    return sources


def _ablation_name(run: Learning) -> str:
    return f"after RL, {run.ablation.title}" if run.ablation else ""
