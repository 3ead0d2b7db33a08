"""Results as tables, and runs beside each other: Markdown to read, CSV for programs (pandas makes LaTeX of it)."""

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
"""Those of `items.jsonl`."""

TABLES = ("table.md", "table.csv")
PAIRED = "paired.json"

_OVERALL = "all"
_ADVICE = "name a folder that can be made and written"
_COUNTS = ("items", "failed")
_UNREAD = ("unread", f"unread{PUBLISHED}")
_COMMON = {*_COUNTS, *_UNREAD, "accuracy", "partial", "frames", "differing", "visual_tokens", "videos", "intervals"}
"""Figures that every result has, beside the benchmark's."""
_NOTE = f"In brackets: 95 % intervals, by video; none where there are too few videos for one (fewer than {MIN_VIDEOS})."
_PAIRED_NOTE = "Paired by item. p: of a test by permutation of whole videos, not corrected for the number of rows."


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]], num_text_columns: int) -> str:
    """Cells as a table; the columns after the first `num_text_columns` are set flush right, as numbers."""
    marks = ["---"] * num_text_columns + ["---:"] * (len(head) - num_text_columns)
    cells = [[cell.replace("|", "\\|") for cell in row] for row in [head, *rows]]
    return "\n".join("| " + " | ".join(row) + " |" for row in [cells[0], marks, *cells[1:]])


def write_tables(results: Results, folder: Path, comparisons: Sequence[Mapping[str, Any]] = ()) -> str:
    """Write `TABLES`, and `PAIRED` where there are comparisons (`compare`), into `folder`.

    Returns:
        The Markdown.

    Raises:
        UsageError: they cannot be written.
    """
    lines = list(_long_table(results))
    columns = list(dict.fromkeys(name for line in lines for name in line))
    text = markdown(results, comparisons)
    with writing(folder, _ADVICE):
        folder.mkdir(parents=True, exist_ok=True)
        in_markdown, in_csv = (folder / name for name in TABLES)
        in_markdown.write_text(text, encoding="utf-8")
        with in_csv.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(lines)
        if comparisons:
            in_json = json.dumps(list(comparisons), indent=2, ensure_ascii=False)
            (folder / PAIRED).write_text(f"{in_json}\n", encoding="utf-8")
    return text


def markdown(results: Results, comparisons: Sequence[Mapping[str, Any]] = ()) -> str:
    """The results with their frames, what they cost, and accuracy by group, a column for each result.

    Accuracies and metrics are in percent; in round brackets stands the number of items, without those that failed.
    """
    tables = [_overall_table(results), _cost_table(results), _group_table(results), _paired_table(comparisons)]
    return "\n\n".join(table for table in tables if table) + "\n"


def _long_table(results: Results) -> Iterator[dict[str, Any]]:
    """A line for each result and group, those of all items first; the bounds of an interval are two columns."""
    for name, result in results.items():
        facts = {"result": name, **_facts_of(result["protocol"])}
        by_group = {(_OVERALL, _OVERALL): {**result["overall"], **_mean_costs(result)}, **_groups_of(result)}
        for (grouping, group), figures in by_group.items():
            plain = {key: value for key, value in figures.items() if key != "intervals"}
            bounds = {
                f"{key}_{end}": value
                for key, interval in figures.get("intervals", {}).items()
                for end, value in zip(("low", "high"), interval or (None, None), strict=True)
            }
            yield {**facts, "grouping": grouping, "group": group, **plain, **bounds}


def _overall_table(results: Results) -> str:
    overalls = {name: result["overall"] for name, result in results.items()}
    unread = [name for name in _UNREAD if any(overall.get(name) for overall in overalls.values())]
    repeats = ["repeats"] if any("repeats" in result for result in results.values()) else []
    # Of the published figures the accuracy alone.
    metrics = [name for overall in overalls.values() for name in overall if name not in _COMMON]
    metrics = [name for name in metrics if name == f"accuracy{PUBLISHED}" or not name.endswith(PUBLISHED)]
    partial = ["partial"] if any(overall["partial"] for overall in overalls.values()) else []
    shares = ["accuracy", *partial, *dict.fromkeys(metrics)]
    head = ["result", "questions", "model", "method", *_COUNTS, *repeats]
    head += [name.replace(PUBLISHED, ", published") for name in (*shares, *unread)]
    rows = [
        [
            name,
            *map(str, _facts_of(results[name]["protocol"]).values()),
            *(str(overall[key]) for key in _COUNTS),
            *(_repeats_cell(results[name].get("repeats")) for _ in repeats),
            *(_figure_cell(overall, key) for key in shares),
            *(str(overall.get(key, "-")) for key in unread),
            *(_number(results[name]["frames"][key]["mean"]) for key in ("total", "initial", "tool")),
        ]
        for name, overall in overalls.items()
    ]
    return markdown_table([*head, "frames", "initial", "tools"], rows, 4) + f"\n\n{_NOTE}"


def _cost_table(results: Results) -> str:
    """Means per item; empty where nothing is known."""
    costs = {name: _mean_costs(result) for name, result in results.items()}
    if all(value is None for each in costs.values() for value in each.values()):
        return ""
    rows = [
        [name, *(_number(value, 0 if key.endswith("tokens") else 1) for key, value in each.items())]
        for name, each in costs.items()
    ]
    return markdown_table(["per item", *(name.replace("_", " ") for name in COSTS)], rows, 1)


def _group_table(results: Results) -> str:
    """Accuracies, without a word where there is no interval, as in most groups of a small benchmark."""
    by_result = [_groups_of(result) for result in results.values()]

    def cell(figures: Mapping[str, Any] | None) -> str:
        if figures is None:
            return ""
        return f"{_figure_cell(figures, 'accuracy', '')} ({figures['items'] - figures['failed']})"

    names = dict.fromkeys(name for groups in by_result for name in groups)
    rows = [[*name, *(cell(groups.get(name)) for groups in by_result)] for name in names]
    return markdown_table(["grouping", "group", *results], rows, 2) if rows else ""


def _groups_of(result: Mapping[str, Any]) -> dict[tuple[str, str], Mapping[str, Any]]:
    """Figures by grouping and group."""
    return {
        (grouping, group): figures for grouping, groups in result["groups"].items() for group, figures in groups.items()
    }


def _facts_of(protocol: Mapping[str, Any]) -> dict[str, Any]:
    return {"questions": protocol["questions"], "model": protocol["model"], "method": _label(protocol)}


def _label(protocol: Mapping[str, Any]) -> str:
    """Of the method: `direct, video input` is another baseline than `direct`."""
    return str(protocol.get("label", protocol["method"]))


def _mean_costs(result: Mapping[str, Any]) -> dict[str, float | None]:
    costs = result.get("costs") or {}
    return {name: None if costs.get(name) is None else costs[name]["mean"] for name in COSTS}


def _number(value: float | None, digits: int = 1) -> str:
    """A cell; `-` for a figure that is not known."""
    return "-" if value is None else f"{value:,.{digits}f}"


def _percent(value: float | None) -> str:
    return _number(None if value is None else 100 * value)


def _bracketed(interval: Sequence[float] | None, without: str) -> str:
    """An interval of shares, in percent, behind its value; `without` where there is none."""
    return without if interval is None else f" [{_percent(interval[0])}, {_percent(interval[1])}]"


def _figure_cell(figures: Mapping[str, Any], key: str, without: str = " [too few]") -> str:
    value = figures.get(key)
    return "-" if value is None else _percent(value) + _bracketed(figures.get("intervals", {}).get(key), without)


def _repeats_cell(repeats: Mapping[str, Any] | None) -> str:
    if repeats is None:
        return "1"
    spread = repeats["standard_deviation"]
    return str(repeats["number"]) if spread is None else f"{repeats['number']} (SD {_percent(spread)})"


# ------------------------------------------------------------------------------------------------- paired differences


def compare(runs: Mapping[str, Lines]) -> list[dict[str, Any]]:
    """Each run with each earlier one, on the items that both have answered, by our verdicts and by published ones.

    Returns:
        Entries of `paired.json`: `result` and `minus` name the runs; `better` and `worse` count the items of which the
        run has a greater, or a smaller, share of the answers right; `difference` of the accuracies is None where the
        runs share no two videos, `interval` and `p_value` as `statistics.Difference` has them.
    """
    comparisons = []
    for suffix in ("", PUBLISHED):
        answered = {name: found for name, lines in runs.items() if (found := _correctness(lines, f"label{suffix}"))}
        for minus, run in combinations(answered, 2):
            ours, theirs = answered[run], answered[minus]
            shared = [item for item in ours if item in theirs]
            differences = [ours[item][0] - theirs[item][0] for item in shared]
            videos = [ours[item][1] for item in shared]
            paired = paired_difference(differences, videos) if len(set(videos)) > 1 else None
            comparisons.append(
                {
                    "result": run,
                    "minus": minus,
                    "figure": f"accuracy{suffix}",
                    "shared_items": len(shared),
                    "only_in_result": len(ours) - len(shared),
                    "only_in_minus": len(theirs) - len(shared),
                    "better": sum(difference > 0 for difference in differences),
                    "worse": sum(difference < 0 for difference in differences),
                    "videos": len(set(videos)),
                    "difference": None if paired is None else paired.value,
                    "interval": None if paired is None else paired.interval,
                    "p_value": None if paired is None else paired.p_value,
                }
            )
    return comparisons


def _correctness(lines: Lines, label: str) -> dict[str, tuple[float, str]]:
    """The share of an item's answers that are right, and its video, by item; without items that failed each time."""
    answers: dict[str, list[bool]] = {}
    videos: dict[str, str] = {}
    for line in lines:
        if line.get(label) is not None:
            answers.setdefault(line["item"], []).append(line[label] == AnswerLabel.CORRECT)
            videos[line["item"]] = line["video"]
    return {item: (sum(right) / len(right), videos[item]) for item, right in answers.items()}


def _paired_table(comparisons: Sequence[Mapping[str, Any]]) -> str:
    """A row for each pair; differences are in points of percent."""
    head = ["result", "minus", "figure", "shared items", "only in it", "only in the other", "videos", "better", "worse"]
    counts = ("shared_items", "only_in_result", "only_in_minus", "videos", "better", "worse")
    rows = []
    for each in comparisons:
        # Without scatter there is a p-value and no interval.
        without = "" if each["difference"] is None or each["p_value"] is not None else " [too few]"
        difference = _percent(each["difference"]) + _bracketed(each["interval"], without)
        p_value = "< 0.001" if each["p_value"] is not None and each["p_value"] < 0.001 else _number(each["p_value"], 3)
        figure = each["figure"].replace("_", ", ")
        rows.append([each["result"], each["minus"], figure, *(str(each[name]) for name in counts), difference, p_value])
    return f"{markdown_table([*head, 'difference', 'p'], rows, 3)}\n\n{_PAIRED_NOTE}" if rows else ""
