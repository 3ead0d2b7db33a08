"""Results as tables (Markdown, CSV, JSON) and as a plot of accuracy against frames."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import writing

Results = Mapping[str, Mapping[str, Any]]
"""Contents of `results.json`, by the name that tables show."""

OVERALL = "all"
_COUNTS = ("items", "failed")
_ADVICE = "name a folder that can be made and written"


def write_tables(results: Results, folder: Path) -> str:
    """Write `table.md`, `table.csv` and `table.json` into `folder`.

    Returns:
        The Markdown.

    Raises:
        UsageError: they cannot be written.
    """
    lines = list(long_table(results))
    columns = list(dict.fromkeys(name for line in lines for name in line))
    text = markdown(results)
    with writing(folder, _ADVICE):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "table.md").write_text(text, encoding="utf-8")
        (folder / "table.json").write_text(json.dumps(lines, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        with (folder / "table.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(lines)
    return text


def long_table(results: Results) -> Iterator[dict[str, Any]]:
    """A line for each result and group, those of all items first."""
    for name, result in results.items():
        protocol = result["protocol"]
        facts = {"result": name, **_facts(protocol)}
        for grouping, group, figures in _lines(result):
            yield {**facts, "grouping": grouping, "group": group, **figures}


def markdown(results: Results) -> str:
    """Two tables: the results with their frames, then accuracy by group, a column for each result.

    Accuracies and metrics are in percent; in brackets stands the number of items, without those that failed.
    """
    parts = [_overall_table(results)]
    groups = _group_table(results)
    return "\n".join([*parts, *(["", groups] if groups else [])]) + "\n"


def _overall_table(results: Results) -> str:
    metrics = _metric_names(results)
    head = [
        "result",
        "questions",
        "model",
        "method",
        "items",
        "failed",
        "accuracy",
        *metrics,
        "frames",
        "first",
        "tools",
    ]
    rows = []
    for name, result in results.items():
        protocol, overall, frames = result["protocol"], result["overall"], result["frames"]
        rows.append(
            [
                name,
                *map(str, _facts(protocol).values()),
                *(str(overall[key]) for key in _COUNTS),
                *(_percent(overall.get(key)) for key in ("accuracy", *metrics)),
                *(_number(frames[key]["mean"]) for key in ("total", "initial", "tool")),
            ]
        )
    return markdown_table(head, rows, num_text_columns=4)


def _facts(protocol: Mapping[str, Any]) -> dict[str, Any]:
    """Of a method the label, where the protocol has one: `direct, video input` is another baseline than `direct`."""
    return {
        **{key: protocol[key] for key in ("questions", "model")},
        "method": protocol.get("label", protocol["method"]),
    }


def _group_table(results: Results) -> str:
    """Empty where no result has groups."""
    names = list(
        dict.fromkeys(
            (grouping, group)
            for result in results.values()
            for grouping, group, _ in _lines(result)
            if grouping != OVERALL
        )
    )
    by_result = [
        {(grouping, group): figures for grouping, group, figures in _lines(result)} for result in results.values()
    ]
    rows = [[*name, *(_accuracy_cell(figures.get(name)) for figures in by_result)] for name in names]
    return markdown_table(["grouping", "group", *results], rows, num_text_columns=2) if rows else ""


def _lines(result: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    yield OVERALL, OVERALL, result["overall"]
    for grouping, groups in result["groups"].items():
        for group, figures in groups.items():
            yield grouping, group, figures


def _metric_names(results: Results) -> list[str]:
    """Figures beyond those that every result has."""
    common = {*_COUNTS, "accuracy", "partial", "frames"}
    found = dict.fromkeys(name for result in results.values() for name in result["overall"] if name not in common)
    partial = any(result["overall"]["partial"] for result in results.values())
    return [*(["partial"] if partial else []), *found]


def _accuracy_cell(figures: Mapping[str, Any] | None) -> str:
    if figures is None:
        return ""
    return f"{_percent(figures['accuracy'])} ({figures['items'] - figures['failed']})"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def markdown_table(head: list[str], rows: list[list[str]], num_text_columns: int) -> str:
    """Cells as a table; the columns after the first `num_text_columns` are set flush right, as numbers."""
    marks = ["---"] * num_text_columns + ["---:"] * (len(head) - num_text_columns)
    cells = [[cell.replace("|", "\\|") for cell in row] for row in [head, *rows]]
    return "\n".join("| " + " | ".join(row) + " |" for row in [cells[0], marks, *cells[1:]])


# ---------------------------------------------------------------------------------------------------------------- plot


def write_plot(results: Results, folder: Path) -> Path | None:
    """Draw `accuracy_frames.png`: a point for each result; of a single one also the groups of its first grouping that
    has several.

    Returns:
        The file; None if no item was graded.

    Raises:
        UsageError: it cannot be written.
    """
    points = [
        (name, _facts(result["protocol"])["method"], result["overall"])
        for name, result in results.items()
        if result["overall"]["accuracy"] is not None
    ]
    if not points:
        return None
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    methods = list(dict.fromkeys(method for _, method, _ in points))
    for name, method, overall in points:
        _draw_point(axes, name, overall, f"C{methods.index(method)}", size=8)
    if len(points) == 1:
        groupings = next(iter(results.values()))["groups"].values()
        for group, figures in next((groups for groups in groupings if len(groups) > 1), {}).items():
            if figures["accuracy"] is not None:
                _draw_point(axes, group, figures, "C7", size=4)
    if len(methods) > 1:
        for number, method in enumerate(methods):
            axes.plot([], "o", color=f"C{number}", label=method)
        axes.legend(fontsize="small")
    axes.set_xlabel("frames per item, initial and from tools")
    axes.set_ylabel("accuracy in percent")
    axes.margins(0.15)
    axes.grid(alpha=0.3)
    path = folder / "accuracy_frames.png"
    with writing(folder, _ADVICE):
        folder.mkdir(parents=True, exist_ok=True)
        # Without the library's version in it, the same result gives the same file.
        figure.savefig(path, dpi=120, metadata={"Software": None})
    return path


def _draw_point(axes: Any, name: str, figures: Mapping[str, Any], color: str, size: int) -> None:
    place = figures["frames"], 100 * figures["accuracy"]
    axes.plot(*place, "o", color=color, markersize=size)
    axes.annotate(name, place, xytext=(6, 4), textcoords="offset points", fontsize="small")
