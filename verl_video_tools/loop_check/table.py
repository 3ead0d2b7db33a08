"""The verdicts of a conformance run as a table: for a terminal, for a file, and for the documentation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from verl_video_tools.loop_check.audit import CHECK_NAMES, CLEAN, Verdict, sentences, told_by_training
from verl_video_tools.loop_check.faults import TOLD


def results(verdicts: Sequence[Verdict], loops: Sequence[str], max_probs_diff: float) -> dict[str, Any]:
    """All that a table says, as JSON takes it.

    Args:
        loops: names of the loops that the rows have run.
        max_probs_diff: see `audit.told_by_training`.
    """
    clean = next((verdict.probs_difference for verdict in verdicts if verdict.fault == CLEAN), None)
    return {
        "loops": list(loops),
        "max_probs_diff": max_probs_diff,
        "faults": [
            verdict.to_dict() | {"training": told_by_training(verdict, clean, max_probs_diff)} for verdict in verdicts
        ],
    }


def outcome(fault: Mapping[str, Any]) -> str:
    """A word on an entry of `results`."""
    if not fault["rollouts"]:
        return "never planted" if fault["fault"] != CLEAN else "no rollouts"
    if fault["fault"] == CLEAN:
        return "clean" if not fault["caught"] else "FAILED"
    if fault["caught"]:
        return "caught"
    return "kept out" if not fault["uncaught"] else "MISSED"


def text_table(found: Mapping[str, Any]) -> str:
    """A line for each fault, with the rollouts that break each check."""
    header = ["fault", "rollouts", "outcome", "checks", "training shows"]
    lines = [
        [
            fault["fault"],
            str(fault["rollouts"]),
            outcome(fault),
            checks_of(fault),
            fault["training"],
        ]
        for fault in found["faults"]
    ]
    lines = [header, *lines]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def explanations(found: Mapping[str, Any]) -> list[str]:
    """What is wrong with clean rows, check by check, and which faults nobody would have seen."""
    told, held = [], sentences()
    for fault in found["faults"]:
        if fault["fault"] == CLEAN:
            told += [
                f"clean rows break {name}. What should hold: {held[name]} For example: {fault['examples'][name]}."
                for name in CHECK_NAMES
                if fault["by_check"].get(name)
            ]
        elif not fault["good"]:
            told.append(f"{fault['fault']} ({outcome(fault)}): {TOLD.get(fault['fault'], 'unknown')}.")
    return told


def checks_of(fault: Mapping[str, Any]) -> str:
    """The checks that a fault breaks, with the rollouts of each; those that could not be applied to any."""
    parts = [f"{name} {fault['by_check'][name]}" for name in CHECK_NAMES if fault["by_check"].get(name)]
    idle = [name for name in CHECK_NAMES if not fault["checked"].get(name)]
    trained = fault["rollouts"] - fault["failed"] - fault["left_out"]
    if idle and trained:
        parts.append(f"(not applied: {', '.join(idle)})")
    return ", ".join(parts) or "-"


def markdown_table(found: Sequence[Mapping[str, Any]]) -> str:
    """Faults down, loops across: what catches each, and what training shows of it.

    Args:
        found: `results` of each loop.
    """
    present = {each["fault"] for one in found for each in one["faults"]}
    names = [fault for fault in (CLEAN, *TOLD) if fault in present]
    titles = [", ".join(f"`{loop}`" for loop in one["loops"]) for one in found]
    lines = [
        "| fault | " + " | ".join(f"{title}: caught by | training shows" for title in titles) + " |",
        "|---" * (1 + 2 * len(found)) + "|",
    ]
    for name in names:
        cells = [name]
        for one in found:
            fault = next((each for each in one["faults"] if each["fault"] == name), None)
            cells += ["not run", ""] if fault is None else [_cell(fault), fault["training"]]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(fault: Mapping[str, Any]) -> str:
    said = outcome(fault)
    if said == "caught":
        checks = ", ".join(f"`{name}`" for name in CHECK_NAMES if fault["by_check"].get(name))
        return f"{fault['caught']} of {fault['rollouts']}: {checks}"
    return f"{said} ({fault['rollouts']})"
