"""Writes the tables and pictures of docs/learning.md, docs/learning-runs.md and README.md, from `results`.

Usage: python -m examples.learning_curve.tables

What stands between `<!-- learning-... -->` and `<!-- end -->` is replaced. README.md and the picture there change when
each of the five methods has a result.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from statistics import fmean

from examples.learning_curve import pictures
from examples.learning_curve.bars import bars
from examples.learning_curve.chosen import KINDS, Chosen, choose
from examples.learning_curve.claims import learning_runs, report
from examples.learning_curve.equal_cost import COSTS, accuracy_at, largest_common, mean_of_runs
from examples.learning_curve.provenance import REPO
from examples.learning_curve.report import GAIN, RFT_LESS_RL, RL_WITHOUT_TOOLS, SFT_WITHOUT_TOOLS
from examples.learning_curve.schedule import COMPARED, METHODS, SHARED_TURNS
from examples.learning_curve.stored import CLAIMS_FOLDER, Result, load
from examples.learning_curve.texts import count_spread, gain_interval, gain_spread, interval, points, spread, thousands
from verl_video_tools.evaluation.tables import markdown_table

PAGES = (REPO / "docs" / "learning.md", REPO / "docs" / "learning-runs.md", REPO / "README.md")
NOT_RUN = "not run yet"


def summary(chosen: Chosen) -> str:
    """Accuracy of each scheduled method before and after reinforcement learning: mean, lowest and highest run."""
    rows = []
    for method, runs in chosen.scheduled.items():
        if not runs:
            rows.append([f"`{method}`", NOT_RUN, "", ""])
            continue
        before, after = (
            spread([run["accuracy"][stage]["needs another look"]["mean"] for run in runs])
            for stage in ("after SFT", "after RL")
        )
        rows.append([f"`{method}`", ", ".join(str(run["seed"]) for run in runs), before, f"**{after}**"])
    return markdown_table(["method", "seeds", "before", "after"], rows, num_text_columns=2)


def gains(chosen: Chosen) -> str:
    """Gain by reinforcement learning of each method, mean over its runs, lowest and highest, and its calls after it."""
    rows = []
    for method, runs in chosen.by_method.items():
        if not runs:
            rows.append([f"`{method}`", NOT_RUN, "", ""])
            continue
        of_runs = [run[GAIN] for run in runs]
        rows.append(
            [
                f"`{method}`",
                gain_spread([gain["mean"] for gain in of_runs]),
                points(min(gain["low"] for gain in of_runs)),
                f"{fmean(calls_per_question(run) for run in runs):.2f}",
            ]
        )
    return markdown_table(
        ["method", "gain in points", "lowest end of a run's interval", "calls per question"], rows, num_text_columns=1
    )


def calls_per_question(run: Result) -> float:
    """After RL, on the kinds that need another look; these have equal numbers of questions."""
    calls = {kind: value for kind, value in run["accuracy"]["after RL"]["calls by kind"].items() if kind != "direct"}
    return sum(calls.values()) / len(calls)


def by_kind(chosen: Chosen) -> str:
    """Accuracy by kind of question, mean over runs, lowest and highest."""
    kinds = [kind for kind in KINDS if any(kind in measured_kinds(run) for run in chosen.counted)]
    rows = []
    for method, runs in chosen.by_method.items():
        for policy in ("after SFT", "after RL", "after RFT", SFT_WITHOUT_TOOLS, RL_WITHOUT_TOOLS):
            shares = [run["accuracy"][policy]["by kind"] for run in runs if policy in run["accuracy"]]
            if shares:
                cells = [spread([share[kind] for share in shares]) if kind in shares[0] else "" for kind in kinds]
                rows.append([f"`{method}`", policy, *cells])
    head = ["method", "policy", *(KINDS[kind] for kind in kinds)]
    return markdown_table(head, rows, num_text_columns=2) if rows else NOT_RUN.capitalize() + "."


def measured_kinds(run: Result) -> Mapping[str, float]:
    return run["accuracy"]["after RL"]["by kind"]


def every_run(chosen: Chosen) -> str:
    """A row of each result that there is."""
    rows = []
    for name, run in chosen.results.items():
        accuracy = {policy: entry["needs another look"] for policy, entry in run["accuracy"].items()}
        rows.append(
            [
                f"`{name}`",
                *(interval(accuracy[policy]) if policy in accuracy else "" for policy in ("after SFT", "after RL")),
                gain_interval(run[GAIN]),
                interval(accuracy[RL_WITHOUT_TOOLS]) if RL_WITHOUT_TOOLS in accuracy else "",
                interval(accuracy["after RFT"]) if "after RFT" in accuracy else "",
                f"{sum(run['minutes'].values()):.0f}{'+' * bool(run['stages_resumed'])}" if "minutes" in run else "",
                ", ".join(f"`{commit[:8]}{commit[40:]}`" for commit in run.get("commits", ())),
                chosen.remark(name),
            ]
        )
    head = ["run", "after SFT", "after RL", "gain", "RL, no tools", "after RFT", "minutes", "commit", "remark"]
    return markdown_table(head, rows, num_text_columns=1)


def equal_cost(chosen: Chosen) -> str:
    """Accuracy at the largest cost that all runs have reached, and the cost of a question."""
    runs_of = {method: [run for run in chosen.of(method) if "cost" in run] for method in (*METHODS, *COMPARED)}
    curves = {method: [run["cost"]["measurements"] for run in runs] for method, runs in runs_of.items()}
    known = [curve for each in curves.values() for curve in each]
    budgets = {cost: largest_common(known, cost) for cost in COSTS} if known else {}
    rows = []
    for method, runs in runs_of.items():
        if not runs:
            rows.append([f"`{method}`", NOT_RUN, *[""] * 6])
            continue
        ends = [curve[-1] for curve in curves[method]]
        equal = [mean_of_runs([accuracy_at(curve, cost, budgets[cost]) for curve in curves[method]]) for cost in COSTS]
        whole = mean_of_runs([accuracy_at(curve, COSTS[0], curve[-1][COSTS[0]]) for curve in curves[method]])
        rows.append(
            [
                f"`{method}`",
                str(len(runs)),
                *(interval(vars(estimate)) for estimate in equal),
                interval(vars(whole)),
                " and ".join(thousands(fmean(end[cost] for end in ends)) for cost in COSTS),
                *(count_spread([run["cost"]["per question"][cost] for run in runs]) for cost in COSTS),
            ]
        )
    names = [cost.replace("_", " ") for cost in COSTS]
    at = [f"at {thousands(budget)} {name}" for budget, name in zip(budgets.values(), names, strict=False)]
    head = ["method", "runs", *(at or [f"at equal {name}" for name in names]), "whole run", "tokens of that"]
    head += [f"{name} per question" for name in names]
    table = markdown_table(head, rows, num_text_columns=2)
    if not known:
        return table
    caption = "Held-out accuracy by tokens of training: mean over runs, with intervals"
    return f"{table}\n\n![{caption}](images/{pictures.BY_COST})"


def claims(chosen: Chosen) -> str:
    """What the runs of each claim have decided so far; some are decided by learning runs."""
    counted = {name: run for name, run in chosen.results.items() if name not in chosen.remarks}
    paired = [run for run in chosen.of(SHARED_TURNS) if learning_runs.counterpart(run, counted.values())]
    results = dict(chosen.claims) | {name: run for name, run in counted.items() if RFT_LESS_RL in run or run in paired}
    return report.table(report.read(results)) if results else NOT_RUN.capitalize() + "."


def picture(chosen: Chosen) -> str:
    told = "" if chosen.is_complete else "; earlier runs, at other settings"
    text = f"Held-out accuracy on questions that need another look, after each stage{told}"
    return f"![{text}](images/{pictures.BY_STAGE})"


def headline(chosen: Chosen) -> str | None:
    """The README's sentence; None before each method has a result."""
    if not chosen.is_complete:
        return None
    gains = [run[GAIN]["mean"] for method in METHODS for run in chosen.of(method)]
    low, high = 100 * min(gains), 100 * max(gains)
    text = f"The reward alone raises accuracy by {low:.0f} to {high:.0f} points ({len(gains)} runs)"
    if spatial := [run[GAIN]["mean"] for run in chosen.of("compose_spatial")]:
        text += f",\nand by {100 * fmean(spatial):.0f} for a [composition](docs/compose.md) that crops and zooms"
    return f"{text}. [Results and limits](docs/learning.md)."


def duration(chosen: Chosen) -> str | None:
    """Of the counted runs, the shortest and the longest; None before each method has a result.

    Of a stage that was resumed a result tells the minutes since then alone: such runs are left out.
    """
    minutes = [sum(run["minutes"].values()) for run in chosen.counted if not run["stages_resumed"]]
    return f"{min(minutes):.0f} to {max(minutes):.0f} minutes" if chosen.is_complete and minutes else None


PARTS: Mapping[str, Callable[[Chosen], str | None]] = {
    "learning-picture": picture,
    "learning-summary": summary,
    "learning-gains": gains,
    "learning-bars": bars,
    "learning-kinds": by_kind,
    "learning-cost": equal_cost,
    "learning-runs": every_run,
    "learning-claims": claims,
    "learning-duration": duration,
    "learning-headline": headline,
}
"""Names of generated parts, and what makes them; None leaves a part as it is."""

WITHIN_TEXT = {"learning-duration", "learning-headline"}


def page(text: str, chosen: Chosen) -> str:
    """A page with its parts as the results have them.

    Raises:
        ValueError: the page has a part that nothing makes.
    """

    def made(found: re.Match[str]) -> str:
        if found[1] not in PARTS:
            raise ValueError(f"nothing makes the part {found[1]}; there are {', '.join(PARTS)}")
        part = PARTS[found[1]](chosen)
        if part is None:
            return found[0]
        space = "" if found[1] in WITHIN_TEXT else "\n\n"
        return f"<!-- {found[1]} -->{space}{part}{space}<!-- end -->"

    return re.sub(r"<!-- (learning-\w+) -->.*?<!-- end -->", made, text, flags=re.DOTALL)


def main() -> None:
    chosen = choose(load(), load(CLAIMS_FOLDER))
    for path in PAGES:
        path.write_text(page(path.read_text(encoding="utf-8"), chosen), encoding="utf-8")
    pictures.draw_all(chosen, REPO / "docs" / "images")


if __name__ == "__main__":
    main()
