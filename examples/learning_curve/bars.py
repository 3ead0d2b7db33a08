"""What the runs were to show, set before they were made, and whether they do."""

from __future__ import annotations

from examples.learning_curve.chosen import Chosen
from examples.learning_curve.claims import learning_runs
from examples.learning_curve.report import GAIN
from examples.learning_curve.schedule import COMPARED_WITH, METHODS, SCHEDULE, SHARED_TURNS
from examples.learning_curve.texts import percent, points
from verl_video_tools.evaluation.tables import markdown_table

NUM_SEEDS = len({planned.seed for planned in SCHEDULE if planned.method == METHODS[0]})
LEAST_GAIN = 0.30
"""Of each run, in accuracy after RL less after SFT."""
LEAST_VIDEOBRAIN = 0.70
LEAST_ORDER, LEAST_ORDERED = 0.60, 3
"""Accuracy on "order of two", and how many methods are to reach it."""


def bars(chosen: Chosen) -> str:
    """A row for each: what was measured, and whether it is met.

    It is open until all runs are made, unless it is about each of them and one has missed it.
    """
    runs_of = {method: chosen.of(method) for method in METHODS}
    num_made = sum(len({run["seed"] for run in runs}) for runs in runs_of.values())
    num_planned = NUM_SEEDS * len(METHODS)
    gains = {f"{run['method']} {run['seed']}": run[GAIN] for runs in runs_of.values() for run in runs}
    means = {
        method: sum(run["accuracy"]["after RL"]["needs another look"]["mean"] for run in runs) / len(runs)
        for method, runs in runs_of.items()
        if runs
    }
    orders = {
        method: sum(run["accuracy"]["after RL"]["by kind"]["order"] for run in runs) / len(runs)
        for method, runs in runs_of.items()
        if runs
    }
    ordered = [method for method, share in orders.items() if share >= LEAST_ORDER]
    rows = [[f"{NUM_SEEDS} seeds for each of the {len(METHODS)} methods", f"{num_made} of {num_planned} runs",
             "met" if num_made == num_planned else "open"]]  # fmt: skip

    def add(bar: str, measured: str, is_met: bool, is_lost: bool = False) -> None:
        is_open = num_made < num_planned and not is_lost
        rows.append([bar, measured, "open" if is_open else "met" if is_met else "not met"])

    def lowest(end: str) -> tuple[str, float]:
        name = min(gains, key=lambda run: gains[run][end])
        return f"lowest {points(gains[name][end])} (`{name}`)", gains[name][end]

    for bar, end, least in (
        (f"gain of each run at least {points(LEAST_GAIN)} points", "mean", LEAST_GAIN),
        ("interval of each gain above zero", "low", None),
    ):
        measured, value = lowest(end) if gains else ("", 0.0)
        is_met = value > 0 if least is None else value >= least
        add(bar, measured, is_met, is_lost=bool(gains) and not is_met)
    brain = means.get("videobrain")
    add(f"VideoBrain's mean at least {percent(LEAST_VIDEOBRAIN)}", "" if brain is None else percent(brain),
        brain is not None and brain >= LEAST_VIDEOBRAIN)  # fmt: skip
    listed = ", ".join(f"`{method}` {percent(share)}" for method, share in orders.items())
    add(f'"order of two" at least {percent(LEAST_ORDER)} for at least {LEAST_ORDERED} methods', listed,
        len(ordered) >= LEAST_ORDERED)  # fmt: skip
    return markdown_table(["bar", "measured", ""], [*rows, _shared_turns(chosen)], num_text_columns=3)


def _shared_turns(chosen: Chosen) -> list[str]:
    most, counted = learning_runs.MOST_TOKENS, chosen.counted
    pairs = [(run, learning_runs.counterpart(run, counted)) for run in chosen.of(SHARED_TURNS)]
    shares = [learning_runs.token_share(run, plain) for run, plain in pairs if plain is not None]
    is_whole = len(shares) == learning_runs.SEEDS[SHARED_TURNS]
    mark = "not met" if max(shares, default=0.0) > most else "met" if is_whole else "open"
    bar = f"`{SHARED_TURNS}` samples at most {percent(most)} of `{COMPARED_WITH}`'s tokens"
    return [bar, ", ".join(map(percent, shares)), mark]
