"""`vvt train` without verl's programs: a function stands for them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("verl", reason="a run configures verl")

from tests.recipes.options import OF_THE_CALLER
from verl_video_tools.core.errors import UsageError
from verl_video_tools.launch import data, train
from verl_video_tools.launch.checks.report import Check, Report
from verl_video_tools.verl_plugin.checkpoints import LAST_CHECKPOINT


@dataclass
class Launcher:
    """Starts runs in `folder`, and notes what they start.

    Attributes:
        programs: training programs, each with its options and its environment.
        stop_files: those of the programs, which end a step with a checkpoint.
        vvt: commands that make the rows.
        reports: other programs that were started, the summary and `export_model`.
        checked: runs whose checks were asked for, and whether thoroughly.
        found: what these find.
        exit_code: of the training programs.
        has_summary: the records can be read.
    """

    folder: Path
    programs: list[tuple[list[str], Mapping[str, str]]] = field(default_factory=list)
    stop_files: list[Path | None] = field(default_factory=list)
    vvt: list[str] = field(default_factory=list)
    reports: list[list[str]] = field(default_factory=list)
    checked: list[tuple[train.Plan, bool]] = field(default_factory=list)
    found: list[Check] = field(default_factory=list)
    exit_code: int = 0
    has_summary: bool = True

    def run(self, stage: Any, *overrides: str, **flags: bool) -> int:
        return train.train(train.Request(stage, overrides, **flags))

    @property
    def modules(self) -> list[str]:
        return [command[2] for command, _ in self.programs]

    def supervise(self, command: Sequence[str], stop_file: Path | None, console: Any) -> int:
        """In the place of the supervisor; a cold start leaves a model."""
        self.programs.append((list(command), dict(os.environ)))
        self.stop_files.append(stop_file)
        if self.exit_code == 0:
            run_dir = Path(console.log).parent
            (run_dir / LAST_CHECKPOINT).write_text("2")
            if "sft_trainer" in command[2]:
                (run_dir / "huggingface").mkdir(exist_ok=True)
                (run_dir / "huggingface" / "config.json").write_text("{}")
        return self.exit_code

    def check(self, plan: train.Plan, thorough: bool) -> Report:
        """In the place of the checks, which need rows and a model."""
        self.checked.append((plan, thorough))
        return Report(plan.device, self.found)

    def summary(self, folder: Path) -> None:
        self.reports.append(["summary", str(folder)])
        if not self.has_summary:
            raise UsageError("step_000001.jsonl, line 3: not a recorded rollout")

    def report(self, command: Sequence[str], **_: Any) -> SimpleNamespace:
        """In the place of subprocesses."""
        self.reports.append([str(word) for word in command])
        return SimpleNamespace(returncode=0, stdout="")


@pytest.fixture
def launcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Launcher]:
    found = Launcher(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("verl_video_tools.launch.supervise.supervise", found.supervise)
    export = "verl_video_tools.verl_plugin.export_model.export_model"
    monkeypatch.setattr(export, lambda *folders: found.reports.append(["export_model"]))
    monkeypatch.setattr("verl_video_tools.records.report.print_summary", found.summary)
    monkeypatch.setattr(train, "_check", found.check)
    monkeypatch.setattr(train, "subprocess", SimpleNamespace(run=found.report))
    monkeypatch.setattr(data, "_vvt", lambda *arguments: found.vvt.append(" ".join(arguments)))
    variables = {name: os.environ[name] for name in OF_THE_CALLER if name in os.environ}
    variables |= {"DEVICE": "cpu", "OUTPUT_DIR": str(tmp_path)}
    with mock.patch.dict(os.environ, variables, clear=True):
        yield found
