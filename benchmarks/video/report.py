"""The figures of a run as tables, as JSON, as a plot, and in a page between two markers.

    python -m benchmarks.video.report outputs/bench_video/video_io.json docs/video-benchmark.md

rewrites what stands between the markers of the page with the figures of that run.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- bench-video: begin -->", "<!-- bench-video: end -->"

COLUMNS = {
    "limit": "decode limit",
    "ours_warm": "ours warm",
    "ours_cold": "ours cold",
    "torchcodec_warm": "torchcodec exact warm",
    "torchcodec_cold": "torchcodec exact cold",
    "qwen": "qwen-vl-utils",
    "decord": "decord",
}


def shape_table(results: dict[str, Any]) -> str:
    """Markdown: CPU milliseconds per request, a row per file and shape, a column per reader."""
    readers = [reader for reader in COLUMNS if any(reader in row for row in _rows(results).values())]
    lines = [
        "| CPU ms per request | " + " | ".join(COLUMNS[reader] for reader in readers) + " | cold / qwen-vl-utils |",
        "|---" * (len(readers) + 2) + "|",
    ]
    notes: list[str] = []
    most = max(cost["repetitions"] for row in _rows(results).values() for cost in row.values() if "cpu_ms" in cost)
    for name, row in _rows(results).items():
        cells = [_cell(row.get(reader), reader, notes, most) for reader in readers]
        ours, theirs = row.get("ours_cold", {}), row.get("qwen", {})
        has_both = "cpu_ms" in ours and "cpu_ms" in theirs
        cells.append(f"{ours['cpu_ms'] / theirs['cpu_ms']:.2f}" if has_both else "")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    notes.append(f"Medians of {most} requests at random places, the same for all readers.")
    return "\n".join(lines) + "\n\n" + "  \n".join(reversed(notes))


def _rows(results: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        f"{file} {shape}": row for file, shapes in results["shapes"]["costs"].items() for shape, row in shapes.items()
    }


def _cell(cost: dict[str, Any] | None, reader: str, notes: list[str], most: int) -> str:
    if cost is None:
        return ""
    if "failure" in cost:
        note = f"{COLUMNS[reader]}: {cost['failure']}"
        if note not in notes:
            notes.append(note)
        return "missing" if cost["failure"].startswith("missing") else "failed"
    text = f"{cost['cpu_ms']:.0f}"
    if cost["wrong_frames"]:
        text += f" ({cost['wrong_frames']} of {cost['asked_frames']} frames wrong)"
    return text if cost["repetitions"] == most else f"{text} (median of {cost['repetitions']})"


def trace_table(results: dict[str, Any]) -> str:
    """Markdown: CPU seconds per group of rollouts."""
    ways = {
        "qwen": "qwen-vl-utils",
        "uncached": "ours, no cache",
        "exact": "ours",
        "grid": "ours, 0.5 s grid",
    }
    lines = ["| CPU s per group | " + " | ".join(ways.values()) + " |", "|---" * (len(ways) + 1) + "|"]
    for group, costs in results["traces"].items():
        cells = [f"{costs[way]['cpu_seconds']:.2f}" if "cpu_seconds" in costs.get(way, {}) else "" for way in ways]
        lines.append(f"| {group} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def target_table(results: dict[str, Any]) -> str:
    """Markdown: every target with its value and whether it is met."""
    words = {True: "pass", False: "**FAIL**", None: "not measured"}
    lines = ["| target | measured | at most | |", "|---|---|---|---|"]
    for target in results["targets"]:
        value = "" if target["value"] is None else f"{target['value']:.3g}"
        is_bad = target["passed"] is not True
        note = f": {target['note']}" if target["note"] and is_bad else ""
        lines.append(f"| {target['name']} | {value} | {target['limit']:.3g} | {words[target['passed']]}{note} |")
    return "\n".join(lines)


def summary(results: dict[str, Any]) -> str:
    """Markdown for a page: what was measured, where, and both tables of costs."""
    targets = results["targets"]
    num_passed = sum(target["passed"] is True for target in targets)
    accuracy = results["accuracy"].values()
    asked, right = (sum(result[name] for result in accuracy) for name in ("asked", "right"))
    files = "; ".join(f"{name} = {text}" for name, text in results["files"].items())
    versions = ", ".join(dict.fromkeys(results["shapes"]["versions"].values()))
    return "\n\n".join(
        [
            f"{files}. Frames of 588x336. {results['machine']['cores']} cores ({results['machine']['cpu']}), "
            f"{results['date']}, `{results['command']}`. {versions}.",
            shape_table(results),
            trace_table(results),
            f"Cache hit: {results['cache_hit']['cpu_ms_per_frame']:.2f} ms per frame. Frames right: {right} of {asked} "
            f"on {len(results['accuracy'])} kinds of files. {num_passed} of {len(targets)} targets met.",
        ]
    )


def publish(results: dict[str, Any], page: Path) -> None:
    """Put the summary between the markers of a page.

    Raises:
        ValueError: the page does not hold both markers, in order.
    """
    text = page.read_text(encoding="utf-8")
    begin, end = text.find(BEGIN), text.find(END)
    if not 0 <= begin < end:
        raise ValueError(f"{page}: must hold the line {BEGIN} and, after it, {END}")
    page.write_text(f"{text[: begin + len(BEGIN)]}\n{summary(results)}\n{text[end:]}", encoding="utf-8")


def plot(results: dict[str, Any], path: Path) -> None:
    """Bars of CPU milliseconds per file and shape, a colour per reader, on a logarithmic scale."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    files = results["shapes"]["costs"]
    widths = [len(shapes) for shapes in files.values()]
    figure, axes_of_files = plt.subplots(
        1, len(files), figsize=(14, 5), sharey=True, squeeze=False, width_ratios=widths, layout="constrained"
    )
    for axes, (file, shapes) in zip(axes_of_files[0], files.items(), strict=True):
        for position, (reader, label) in enumerate(COLUMNS.items()):
            places, heights = [], []
            for place, row in enumerate(shapes.values()):
                if "cpu_ms" in row.get(reader, {}):
                    places.append(place + (position - len(COLUMNS) / 2) / (len(COLUMNS) + 1.5))
                    heights.append(row[reader]["cpu_ms"])
            axes.bar(places, heights, width=1 / (len(COLUMNS) + 1.5), label=label, color=f"C{position}")
        axes.set_yscale("log")
        axes.set_xticks(range(len(shapes)), list(shapes))
        axes.set_title(f"{file}: {results['files'][file]}")
        axes.grid(axis="y", alpha=0.3)
    axes_of_files[0][0].set_ylabel("CPU ms per request")
    axes_of_files[0][0].legend(fontsize="small")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description="Put the figures of a run into a page, between its markers.")
    parser.add_argument("results", type=Path, help="the JSON file that benchmarks.video_io wrote")
    parser.add_argument("page", type=Path, help=f"a page that holds {BEGIN} and {END}")
    arguments = parser.parse_args()
    publish(json.loads(arguments.results.read_text(encoding="utf-8")), arguments.page)


if __name__ == "__main__":
    main()
