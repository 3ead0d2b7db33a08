"""A report's files: the page, which loads nothing and runs nothing, the image, and the numbers.

Names that a policy or a data set chose are escaped by the template; in the figures they are drawn, not written.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from verl_video_tools.records.page import render, write_whole
from verl_video_tools.records.report_curves import HEADLINES, Run, Steps, methods_in, to_json
from verl_video_tools.records.report_figures import colour_of_run, curves_png, panel_svg, smoothing_window
from verl_video_tools.records.report_panels import Panel, main_panels, more_panels
from verl_video_tools.records.report_rounds import Rounds, told_rows

_SWATCH = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1 1"><rect width="1" height="1" fill="{colour}"/></svg>'
_ROWS = HEADLINES | {"generated tokens": "tokens/generated/mean"}


def write_report(runs: Sequence[Run], out: Path, pages: Mapping[str, str]) -> int:
    """Write `report.html`, `curves.png` and `curves.json`.

    Args:
        runs: several are drawn over each other, a colour for each.
        out: an existing folder.
        pages: the viewer's page beside the report, by the name of the run whose rollouts it shows.

    Returns:
        Size of the page in bytes.

    Raises:
        UsageError: a file cannot be written.
        SetupError: matplotlib is not installed.
    """
    names = [run.name for run in runs]
    main = main_panels(runs)
    content = render(
        "report.html",
        ("base.css", "report.css"),
        title=" | ".join(names),
        smoothed=_smoothed(runs),
        main_figures=[_figure(panel, names) for panel in main],
        more_figures=[_figure(panel, names) for panel in more_panels(runs)],
        runs=[
            _section(run, colour_of_run(number) if len(runs) > 1 else None, pages.get(run.name))
            for number, run in enumerate(runs)
        ],
    )
    write_whole(out / "curves.json", to_json(runs).encode())
    write_whole(out / "curves.png", curves_png(main, names))
    write_whole(out / "report.html", content)
    return len(content)


def _figure(panel: Panel, names: Sequence[str]) -> dict[str, str]:
    return {"svg": _base64(panel_svg(panel, names)), "alt": f"{panel.title}: {', '.join(panel.labels())}"}


def _smoothed(runs: Sequence[Run]) -> str:
    windows = {smoothing_window(len(steps)) for run in runs for steps in (run.training, run.validation)}
    return " or ".join(str(window) for window in sorted(windows) if window > 1)


def _section(run: Run, colour: str | None, page: str | None) -> dict[str, Any]:
    # A mean over the policy and the same policy without tools tells of neither.
    validation = f"held-out, {', '.join(methods_in(run.training))} alone" if run.only_measured() else "held-out"
    parts = {name: steps for name, steps in (("training", _ends(run.training)), (validation, run.rounds.ends)) if steps}
    rows = []
    for label, metric in _ROWS.items():
        cells = [metrics.get(metric) for steps in parts.values() for metrics in steps.values()]
        rows.append((label, ["-" if cell is None else f"{cell:.3f}" for cell in cells]))
    return {
        "name": run.name,
        "swatch": None if colour is None else _base64(_SWATCH.format(colour=colour).encode()),
        "facts": _facts(run),
        "parts": [
            {"name": name, "steps": list(steps), "on": _rows_of_ends(run.rounds) if name == validation else ""}
            for name, steps in parts.items()
        ],
        "rows": rows,
        "page": page,
        "page_of": f"held-out rows at step {max(run.validation)}"
        if run.last_is_validation
        else f"step {max(run.training)}",
    }


def _ends(steps: Steps) -> Steps:
    return {step: steps[step] for step in (min(steps), max(steps))} if steps else {}


def _rows_of_ends(rounds: Rounds) -> str:
    """What rows the first and the last round are compared on."""
    if not any(rounds.num_rows.values()):
        return ""  # the policy was not measured
    if not rounds.num_end_rows:
        return "each on other rows"
    is_cut = any(rounds.num_rows[step] > rounds.num_end_rows for step in rounds.ends)
    return f"on the {told_rows(rounds.num_end_rows)} of both" if is_cut else f"on {told_rows(rounds.num_end_rows)}"


def _rounds_told(rounds: Rounds) -> str:
    told = f"held-out rounds recorded: {len(rounds.metrics)}"
    if None not in rounds.marks:
        return told
    counts = [count for count in rounds.num_rows.values() if count]
    told += f", of {min(counts)} to {told_rows(max(counts))}"
    if not rounds.num_shared:
        return f"{told}, none of which all have measured: points of their curves cannot be compared"
    return f"{told}; their curves are over the {told_rows(rounds.num_shared)} that all have measured"


def _facts(run: Run) -> str:
    num_rollouts = sum(int(metrics["rollout/count"]) for metrics in run.training.values())
    num_flagged = sum(int(metrics["rollout/flagged"]) for metrics in run.training.values())
    facts = [
        f"{', '.join(run.methods())}",
        f"training steps recorded: {len(run.training)}, with {num_rollouts} rollouts, {num_flagged} of them flagged",
        _rounds_told(run.rounds),
        "with verl's log" if run.log else "without verl's log",
    ]
    return f"{'; '.join(facts)}. Records: {run.records}"


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
