"""Results as tables: Markdown to read, CSV for programs (pandas makes LaTeX and other forms of it)."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import writing
from verl_video_tools.evaluation.items import COSTS
from verl_video_tools.evaluation.results import PUBLISHED
from verl_video_tools.evaluation.statistics import MIN_VIDEOS

Results = Mapping[str, Mapping[str, Any]]
"""Contents of `results.json`, by the name that tables show."""

TABLES = ("table.md", "table.csv")
"""What `write_tables` writes."""

OVERALL = "all"
ADVICE = "name a folder that can be made and written"
TOO_FEW = "too few"

_COUNTS = ("items", "failed")
_UNREADABLE = ("unreadable", f"unreadable{PUBLISHED}")
_COMMON = {*_COUNTS, *_UNREADABLE, "accuracy", "partial", "frames", "differing", "visual_tokens", "videos", "intervals"}
"""Figures that every result has, beside the benchmark's."""
_NOTE = f"In brackets: 95 % intervals, by video; none where there are too few videos for one (fewer than {MIN_VIDEOS})."


@dataclass(frozen=True, slots=True)
class Table:
    """Cells as text.

    Attributes:
        num_text_columns: the columns after these are set flush right, as numbers.
        note: a sentence below it.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    num_text_columns: int
    note: str = ""

    def markdown(self) -> str:
        table = markdown_table(list(self.head), [list(row) for row in self.rows], self.num_text_columns)
        return f"{table}\n\n{self.note}" if self.note else table


def markdown_table(head: list[str], rows: list[list[str]], num_text_columns: int) -> str:
    """Cells as a table; the columns after the first `num_text_columns` are set flush right, as numbers."""
    marks = ["---"] * num_text_columns + ["---:"] * (len(head) - num_text_columns)
    cells = [[cell.replace("|", "\\|") for cell in row] for row in [head, *rows]]
    return "\n".join("| " + " | ".join(row) + " |" for row in [cells[0], marks, *cells[1:]])


def write_tables(results: Results, folder: Path, further: Sequence[Table] = ()) -> str:
    """Write `table.md` and `table.csv` into `folder`.

    Args:
        further: tables for the first, below the others.

    Returns:
        The Markdown.

    Raises:
        UsageError: they cannot be written.
    """
    lines = list(_long_table(results))
    columns = list(dict.fromkeys(name for line in lines for name in line))
    text = markdown(results, further)
    with writing(folder, ADVICE):
        folder.mkdir(parents=True, exist_ok=True)
        in_markdown, in_csv = (folder / name for name in TABLES)
        in_markdown.write_text(text, encoding="utf-8")
        with in_csv.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(lines)
    return text


def markdown(results: Results, further: Sequence[Table] = ()) -> str:
    """The results with their frames, what they cost, and accuracy by group, a column for each result.

    Accuracies and metrics are in percent; in round brackets stands the number of items, without those that failed.
    """
    tables = [_overall_table(results), _cost_table(results), _group_table(results), *further]
    return "\n\n".join(table.markdown() for table in tables if table.rows) + "\n"


def _long_table(results: Results) -> Iterator[dict[str, Any]]:
    """A line for each result and group, those of all items first; the bounds of an interval are two columns."""
    for name, result in results.items():
        protocol = result["protocol"]
        facts = {"result": name, **_facts_of(protocol)}
        for grouping, group, figures in _lines_of(result):
            plain = {key: value for key, value in figures.items() if key != "intervals"}
            bounds = {
                f"{key}_{end}": value
                for key, interval in figures.get("intervals", {}).items()
                for end, value in zip(("low", "high"), interval or (None, None), strict=True)
            }
            costs = _mean_costs(result) if grouping == OVERALL else {}
            yield {**facts, "grouping": grouping, "group": group, **plain, **bounds, **costs}


def _lines_of(result: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Grouping, group and figures: of all items, then of each group."""
    yield OVERALL, OVERALL, result["overall"]
    for grouping, groups in result["groups"].items():
        for group, figures in groups.items():
            yield grouping, group, figures


def number(value: float | None, is_whole: bool = False) -> str:
    """A cell; `-` for a figure that is not known."""
    return "-" if value is None else f"{value:,.{0 if is_whole else 1}f}"


def percent(value: float | None) -> str:
    return number(None if value is None else 100 * value)


def bracketed(interval: Sequence[float] | None) -> str:
    """An interval of shares, in percent."""
    return f"[{TOO_FEW}]" if interval is None else f"[{percent(interval[0])}, {percent(interval[1])}]"


def _overall_table(results: Results) -> Table:
    metrics = _metric_names(results)
    unreadable = [name for name in _UNREADABLE if any(result["overall"].get(name) for result in results.values())]
    repeats = ["repeats"] if any("repeats" in result for result in results.values()) else []
    head = ["result", "questions", "model", "method", *_COUNTS, *repeats, "accuracy"]
    head += [name.replace(PUBLISHED, ", published") for name in (*metrics, *unreadable)]
    rows = []
    for name, result in results.items():
        protocol, overall, frames = result["protocol"], result["overall"], result["frames"]
        rows.append(
            [
                name,
                *map(str, _facts_of(protocol).values()),
                *(str(overall[key]) for key in _COUNTS),
                *(_repeats_cell(result.get("repeats")) for _ in repeats),
                *(_figure_cell(overall, key) for key in ("accuracy", *metrics)),
                *(str(overall.get(key, "-")) for key in unreadable),
                *(number(frames[key]["mean"]) for key in ("total", "initial", "tool")),
            ]
        )
    return Table([*head, "frames", "initial", "tools"], rows, 4, _NOTE)


def _cost_table(results: Results) -> Table:
    """Means per item; no rows where nothing is known."""
    costs = {name: _mean_costs(result) for name, result in results.items()}
    rows = [[name, *(number(each[key], key.endswith("tokens")) for key in COSTS)] for name, each in costs.items()]
    is_known = any(value is not None for each in costs.values() for value in each.values())
    return Table(["per item", *(name.replace("_", " ") for name in COSTS)], rows if is_known else [], 1)


def _facts_of(protocol: Mapping[str, Any]) -> dict[str, Any]:
    return {**{key: protocol[key] for key in ("questions", "model")}, "method": method_label(protocol)}


def method_label(protocol: Mapping[str, Any]) -> str:
    """The label of a method, where the protocol has one: `direct, video input` is another baseline than `direct`."""
    return str(protocol.get("label", protocol["method"]))


def _group_table(results: Results) -> Table:
    by_result = [
        {(grouping, group): figures for grouping, group, figures in _lines_of(result) if grouping != OVERALL}
        for result in results.values()
    ]
    names = dict.fromkeys(name for groups in by_result for name in groups)
    rows = [[*name, *map(_group_cell, (groups.get(name) for groups in by_result))] for name in names]
    return Table(["grouping", "group", *results], rows, 2)


def _mean_costs(result: Mapping[str, Any]) -> dict[str, float | None]:
    costs = result.get("costs") or {}
    return {name: None if costs.get(name) is None else costs[name]["mean"] for name in COSTS}


def _metric_names(results: Results) -> list[str]:
    """Figures beyond those that every result has; of the published ones only the accuracy."""
    found = dict.fromkeys(
        name
        for result in results.values()
        for name in result["overall"]
        if name not in _COMMON and (name == f"accuracy{PUBLISHED}" or not name.endswith(PUBLISHED))
    )
    partial = any(result["overall"]["partial"] for result in results.values())
    return [*(["partial"] if partial else []), *found]


def _figure_cell(figures: Mapping[str, Any], key: str, *, tells_too_few: bool = True) -> str:
    value, interval = figures.get(key), figures.get("intervals", {}).get(key)
    if value is None:
        return "-"
    return f"{percent(value)} {bracketed(interval)}" if interval or tells_too_few else percent(value)


def _group_cell(figures: Mapping[str, Any] | None) -> str:
    """The accuracy, without a word where there is no interval, as in most groups of a small benchmark."""
    if figures is None:
        return ""
    return f"{_figure_cell(figures, 'accuracy', tells_too_few=False)} ({figures['items'] - figures['failed']})"


def _repeats_cell(repeats: Mapping[str, Any] | None) -> str:
    if repeats is None:
        return "1"
    spread = repeats["standard_deviation"]
    return str(repeats["number"]) if spread is None else f"{repeats['number']} (SD {percent(spread)})"
