"""A run before its start, as its checks see it, and what checks have found: a table for people, JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from verl_video_tools import __version__

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from verl_video_tools.verl_plugin.model_tokens import RunModel
    from verl_video_tools.verl_plugin.run_checks import Kind


ROWS_OF_A_START = 8
"""Rows of each split that the start of a run samples, in a second or two."""


@dataclass
class PlannedRun:
    """What is checked, and what checks have found for those behind them.

    Attributes:
        program: of verl.
        config: its whole configuration.
        device: `cpu` or `gpu`.
        thorough: everything is checked that needs neither Ray nor an engine nor weights, in a minute; else only what
            takes no longer than a second or two.
        num_rows: rows to sample of each split, spread evenly over its files.
        stand_in: folder of the model whose tokenizer and processor stand for those of one that is trained first.
        uses_other_nodes: the run has processes on other machines.
        ray_address: of the Ray cluster that the run joins; None: it starts Ray itself.
        model: tokenizer and processor, once they are loaded.
    """

    program: Kind
    config: DictConfig
    device: str
    thorough: bool
    num_rows: int = ROWS_OF_A_START
    stand_in: str | None = None
    uses_other_nodes: bool = False
    ray_address: str | None = None
    model: RunModel | None = None

    @property
    def model_section(self) -> Any:
        """The section `model` of the configuration."""
        return self.config.actor_rollout_ref.model if self.program == "grpo" else self.config.model


class Status(StrEnum):
    """Outcome of a check. Only `FAILED` makes a report's exit code 1."""

    OK = "ok"
    WARNING = "warning"
    """Training may work, slower or with trouble later."""
    SKIPPED = "skipped"
    """Not judged, because something that it needs has failed already."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of a report.

    Attributes:
        group: heading under which the line stands.
        name: what was checked.
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


def one_line(error: BaseException) -> str:
    """An error as the detail of a check."""
    return " ".join(f"{type(error).__name__}: {error}".split())


@dataclass(frozen=True)
class Report:
    """The checks of an installation or of a run on a device, `cpu` or `gpu`."""

    device: str
    checks: Sequence[Check]

    @property
    def failed(self) -> list[Check]:
        return [check for check in self.checks if check.status is Status.FAILED]

    def as_json(self) -> str:
        """One JSON object: version, device, ok, checks with the fields of `Check`."""
        checks = [asdict(check) for check in self.checks]
        return json.dumps(
            {"version": __version__, "device": self.device, "ok": not self.failed, "checks": checks}, indent=2
        )

    def table(self) -> str:
        """A line per check, below a heading per group, then what has to be fixed."""
        lines = [f"verl_video_tools {__version__}, DEVICE={self.device}", *_lines(self.checks), "", self._verdict()]
        return "\n".join(lines)

    def show(self, as_json: bool = False) -> int:
        """Print it on standard output; the exit code of a command that does no more."""
        print(self.as_json() if as_json else self.table())
        return 1 if self.failed else 0

    def problems(self) -> str:
        """The lines of what failed or may give trouble; empty where nothing does."""
        return "\n".join(_lines([check for check in self.checks if check.status in (Status.FAILED, Status.WARNING)]))

    def _verdict(self) -> str:
        failed = self.failed
        if not failed:
            return "No problem found."
        problems = "1 problem" if len(failed) == 1 else f"{len(failed)} problems"
        verdict = f"{problems} to fix: {', '.join(check.name for check in failed)}."
        if any(check.group == "packages" for check in failed):
            verdict += " In a checkout, `make install` fixes all packages at once."
        return verdict


def _lines(checks: Sequence[Check]) -> Iterator[str]:
    name_width = max((len(check.name) for check in checks), default=0)
    status_width = max(len(status) for status in Status)
    group = ""
    for check in checks:
        if check.group != group:
            group = check.group
            yield from ("", group)
        text = ", ".join(part for part in (check.found, check.detail) if part)
        yield f"  {check.status:<{status_width}}  {check.name:<{name_width}}  {text}".rstrip()
        if check.fix:
            yield f"  {'':<{status_width}}  {'':<{name_width}}  fix: {check.fix}"
