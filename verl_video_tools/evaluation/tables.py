"""Results as tables, and evaluations beside each other: Markdown for readers, CSV for programs."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from verl_video_tools.core.errors import writing
from verl_video_tools.core.types import AnswerLabel
from verl_video_tools.evaluation.items import COSTS
from verl_video_tools.evaluation.results import PUBLISHED
from verl_video_tools.evaluation.statistics import MIN_VIDEOS, paired_difference

Results = Mapping[str, Mapping[str, Any]]
"""Contents of `results.json`, by the name that tables show."""

Lines = Sequence[Mapping[str, Any]]
"""Lines of `items.jsonl`."""

TABLES = ("table.md", "table.csv")
PAIRED = "paired.json"

_OVERALL = "all"
_COUNTS = ("items", "failed")
_UNREAD = ("unread", f"unread{PUBLISHED}")
_COMMON = {*_COUNTS, *_UNREAD, "accuracy", "partial", "frames", "differing", "visual_tokens", "videos", "intervals"}
"""Figures that every result has. All others are the benchmark's."""
_FRAMES = {"frames": "total", "initial": "initial", "tools": "tool"}
_NOTE = f"In brackets: 95 % intervals, by video; none with too few videos for one (fewer than {MIN_VIDEOS})."
_PAIRED_NOTE = "Paired by item. p: of a permutation test over whole videos, not corrected for the number of rows."


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]], num_text_columns: int) -> str:
    """A table of Markdown. The columns after the first `num_text_columns` hold numbers and are aligned right."""
    marks = ["---"] * num_text_columns + ["---:"] * (len(head) - num_text_columns)
    cells = [[cell.replace("|", "\\|") for cell in row] for row in [head, *rows]]
    return "\n".join("| " + " | ".join(row) + " |" for row in [cells[0], marks, *cells[1:]])


def write_tables(results: Results, folder: Path, comparisons: Sequence[Mapping[str, Any]] = ()) -> str:
    """Write `TABLES`, and `PAIRED` if there are comparisons (`compare`), into `folder`.

    Returns:
        The Markdown.

    Raises:
        UsageError: they cannot be written.
    """
    lines = list(_lines(results))
    text = markdown(results, comparisons)
    with writing(folder, "name a folder that can be made and written"):
        folder.mkdir(parents=True, exist_ok=True)
        in_markdown, in_csv = (folder / name for name in TABLES)
        in_markdown.write_text(text, encoding="utf-8")
        with in_csv.open("w", encoding="utf-8", newline="") as file:
            columns = dict.fromkeys(name for line in lines for name in line)
            writer = csv.DictWriter(file, list(columns), lineterminator="\n")
            writer.writeheader()
            writer.writerows(lines)
        if comparisons:
            in_json = json.dumps(list(comparisons), indent=2, ensure_ascii=False)
            (folder / PAIRED).write_text(f"{in_json}\n", encoding="utf-8")
    return text


def markdown(results: Results, comparisons: Sequence[Mapping[str, Any]] = ()) -> str:
    """Results with their frames and costs, accuracy by group, and paired differences.

    Accuracies and metrics are in per cent. Round brackets hold the number of items that did not fail.
    """
    tables = [_overall_table(results), _cost_table(results), _group_table(results), _paired_table(comparisons)]
    return "\n\n".join(table for table in tables if table) + "\n"


def _lines(results: Results) -> Iterator[dict[str, Any]]:
    """Lines of the CSV: one for each result and group, with two columns for an interval."""
    for name, result in results.items():
        facts = {"result": name, **_facts(result["protocol"])}
        by_group = {(_OVERALL, _OVERALL): {**result["overall"], **_mean_costs(result)}, **_groups(result)}
        for (grouping, group), figures in by_group.items():
            plain = {key: value for key, value in figures.items() if key != "intervals"}
            bounds = {
                f"{key}_{end}": value
                for key, interval in figures.get("intervals", {}).items()
                for end, value in zip(("low", "high"), interval or (None, None), strict=True)
            }
            yield {**facts, "grouping": grouping, "group": group, **plain, **bounds}


def _overall_table(results: Results) -> str:
    overalls = [result["overall"] for result in results.values()]
    has_repeats = any("repeats" in result for result in results.values())
    # Of the published figures only the accuracy.
    metrics = [name for overall in overalls for name in overall if name not in _COMMON]
    metrics = [name for name in metrics if name == f"accuracy{PUBLISHED}" or not name.endswith(PUBLISHED)]
    partial = ["partial"] if any(overall["partial"] for overall in overalls) else []
    shares = ["accuracy", *partial, *dict.fromkeys(metrics)]
    unread = [name for name in _UNREAD if any(overall.get(name) for overall in overalls)]
    rows = []
    for name, result in results.items():
        overall = result["overall"]
        row = {"result": name, **_facts(result["protocol"]), **{key: str(overall[key]) for key in _COUNTS}}
        if has_repeats:
            row["repeats"] = _repeats_cell(result.get("repeats"))
        row |= {key.replace(PUBLISHED, ", published"): _figure_cell(overall, key) for key in shares}
        row |= {key.replace(PUBLISHED, ", published"): str(overall.get(key, "-")) for key in unread}
        row |= {heading: _number(result["frames"][key]["mean"]) for heading, key in _FRAMES.items()}
        rows.append(row)
    return f"{_table(rows, 4)}\n\n{_NOTE}"


def _cost_table(results: Results) -> str:
    """Means per item; empty if nothing is known."""
    costs = {name: _mean_costs(result) for name, result in results.items()}
    if all(value is None for each in costs.values() for value in each.values()):
        return ""
    rows = []
    for name, each in costs.items():
        cells = {key: _number(value, 0 if key.endswith("tokens") else 1) for key, value in each.items()}
        rows.append({"per item": name, **{key.replace("_", " "): cell for key, cell in cells.items()}})
    return _table(rows, 1)


def _group_table(results: Results) -> str:
    """Accuracies. A missing interval is not mentioned, because most groups of a small benchmark have none."""
    by_result = [_groups(result) for result in results.values()]

    def cell(figures: Mapping[str, Any] | None) -> str:
        if figures is None:
            return ""
        return f"{_figure_cell(figures, 'accuracy', '')} ({figures['items'] - figures['failed']})"

    names = dict.fromkeys(name for groups in by_result for name in groups)
    rows = [[*name, *(cell(groups.get(name)) for groups in by_result)] for name in names]
    return markdown_table(["grouping", "group", *results], rows, 2) if rows else ""


def _paired_table(comparisons: Sequence[Mapping[str, Any]]) -> str:
    """A row for each pair of results. Differences are in percentage points."""
    counts = {
        "shared items": "shared_items",
        "only in it": "only_in_result",
        "only in the other": "only_in_minus",
        "videos": "videos",
        "better": "better",
        "worse": "worse",
    }
    rows = []
    for each in comparisons:
        # Without scatter there is a p-value and no interval.
        no_interval = "" if each["difference"] is None or each["p_value"] is not None else " [too few]"
        is_tiny = each["p_value"] is not None and each["p_value"] < 0.001
        rows.append(
            {
                "result": each["result"],
                "minus": each["minus"],
                "figure": each["figure"].replace("_", ", "),
                **{heading: str(each[name]) for heading, name in counts.items()},
                "difference": _percent(each["difference"]) + _interval_text(each["interval"], no_interval),
                "p": "< 0.001" if is_tiny else _number(each["p_value"], 3),
            }
        )
    return f"{_table(rows, 3)}\n\n{_PAIRED_NOTE}" if rows else ""


def _table(rows: Sequence[Mapping[str, str]], num_text_columns: int) -> str:
    """Rows with the same headings."""
    return markdown_table(list(rows[0]), [list(row.values()) for row in rows], num_text_columns)


def _groups(result: Mapping[str, Any]) -> dict[tuple[str, str], Mapping[str, Any]]:
    """Figures by grouping and group."""
    return {
        (grouping, group): figures for grouping, groups in result["groups"].items() for group, figures in groups.items()
    }


def _facts(protocol: Mapping[str, Any]) -> dict[str, str]:
    # A method's label tells `direct, video input` from `direct`.
    label = protocol.get("label", protocol["method"])
    return {"questions": str(protocol["questions"]), "model": str(protocol["model"]), "method": str(label)}


def _mean_costs(result: Mapping[str, Any]) -> dict[str, float | None]:
    costs = result.get("costs") or {}
    return {name: None if costs.get(name) is None else costs[name]["mean"] for name in COSTS}


def _number(value: float | None, digits: int = 1) -> str:
    """A cell; `-` for an unknown figure."""
    return "-" if value is None else f"{value:,.{digits}f}"


def _percent(value: float | None) -> str:
    return _number(None if value is None else 100 * value)


def _interval_text(interval: Sequence[float] | None, missing: str) -> str:
    return missing if interval is None else f" [{_percent(interval[0])}, {_percent(interval[1])}]"


def _figure_cell(figures: Mapping[str, Any], key: str, missing: str = " [too few]") -> str:
    """A share in per cent with its interval, or with `missing` instead of an interval."""
    value = figures.get(key)
    return "-" if value is None else _percent(value) + _interval_text(figures.get("intervals", {}).get(key), missing)


def _repeats_cell(repeats: Mapping[str, Any] | None) -> str:
    if repeats is None:
        return "1"
    spread = repeats["standard_deviation"]
    return str(repeats["number"]) if spread is None else f"{repeats['number']} (SD {_percent(spread)})"


# ------------------------------------------------------------------------------------------------- paired differences


def compare(runs: Mapping[str, Lines]) -> list[dict[str, Any]]:
    """Compare each run with each earlier one on the items that both answered, by our labels and by published ones.

    Returns:
        Entries of `paired.json`: `result` and `minus` name the runs. `better` and `worse` count the items for which the
        run has a larger, or a smaller, share of right answers. `difference` of the accuracies is None if the runs share
        fewer than two videos; `interval` and `p_value` are those of `statistics.Difference`.
    """
    comparisons = []
    for suffix in ("", PUBLISHED):
        shares = {name: items for name, lines in runs.items() if (items := _right_shares(lines, f"label{suffix}"))}
        for minus, run in combinations(shares, 2):
            shared = [item for item in shares[run] if item in shares[minus]]
            differences = [shares[run][item][0] - shares[minus][item][0] for item in shared]
            videos = [shares[run][item][1] for item in shared]
            paired = paired_difference(differences, videos) if len(set(videos)) > 1 else None
            comparisons.append(
                {
                    "result": run,
                    "minus": minus,
                    "figure": f"accuracy{suffix}",
                    "shared_items": len(shared),
                    "only_in_result": len(shares[run]) - len(shared),
                    "only_in_minus": len(shares[minus]) - len(shared),
                    "better": sum(difference > 0 for difference in differences),
                    "worse": sum(difference < 0 for difference in differences),
                    "videos": len(set(videos)),
                    "difference": None if paired is None else paired.value,
                    "interval": None if paired is None else paired.interval,
                    "p_value": None if paired is None else paired.p_value,
                }
            )
    return comparisons


def _right_shares(lines: Lines, label: str) -> dict[str, tuple[float, str]]:
    """The share of right answers and the video of each item that did not fail every time."""
    answers: dict[str, list[bool]] = {}
    videos: dict[str, str] = {}
    for line in lines:
        if line.get(label) is not None:
            answers.setdefault(line["item"], []).append(line[label] == AnswerLabel.CORRECT)
            videos[line["item"]] = line["video"]
    return {item: (sum(right) / len(right), videos[item]) for item, right in answers.items()}
