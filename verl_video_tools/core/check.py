"""One line of a report on an installation or on a planned run, and how several are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Status(StrEnum):
    """Outcome of a check. Only `FAILED` makes a report's exit code 1."""

    OK = "ok"
    UNTESTED = "untested"
    """It should work, but the tests run with another version."""
    WARNING = "warning"
    """Training may work, slower or with trouble later."""
    ABSENT = "absent"
    """An optional part that is not installed."""
    SKIPPED = "skipped"
    """Not judged, because something that it needs has failed already."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of a report.

    Attributes:
        group: heading under which the line stands.
        name: what was looked at.
        status: the outcome.
        found: what was found, such as a version.
        detail: what is wrong or worth knowing.
        fix: the command that fixes it; empty where nothing is wrong.
    """

    group: str
    name: str
    status: Status
    found: str = ""
    detail: str = ""
    fix: str = ""


def check_lines(checks: Sequence[Check]) -> list[str]:
    """A line per check, below a heading per group, and under it the command that fixes it."""
    name_width = max((len(check.name) for check in checks), default=0)
    status_width = max(len(status) for status in Status)
    lines, group = [], ""
    for check in checks:
        if check.group != group:
            group = check.group
            lines += ["", group]
        text = ", ".join(part for part in (check.found, check.detail) if part)
        lines.append(f"  {check.status:<{status_width}}  {check.name:<{name_width}}  {text}".rstrip())
        if check.fix:
            lines.append(f"  {'':<{status_width}}  {'':<{name_width}}  fix: {check.fix}")
    return lines


def one_line(error: BaseException) -> str:
    """An error as the detail of a check."""
    return " ".join(f"{type(error).__name__}: {error}".split())
