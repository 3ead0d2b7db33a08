"""`vvt doctor --run`: what is planned, with which options, and what becomes of its report and exit code."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from verl_video_tools.cli import run_check
from verl_video_tools.cli.main import run


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> Trained:
    """In the place of `vvt train`."""
    found = Trained()
    monkeypatch.setattr(run_check, "subprocess", SimpleNamespace(run=found.run))
    return found


class Trained:
    """Notes a command; writes a report where it has one and is asked for it."""

    def __init__(self) -> None:
        self.command: list[str] = []
        self.code, self.report = 0, ""

    def run(self, command: list[str], env: dict[str, str] | None = None, **_: Any) -> SimpleNamespace:
        self.command = command
        if env and self.report:
            Path(env["DRY_RUN_REPORT"]).write_text(self.report)
        return SimpleNamespace(returncode=self.code)


@pytest.mark.parametrize(("name", "stage"), [("longvt_grpo", "grpo"), ("longvt_rft", "rft")])
def test_options_and_exit_code(name: str, stage: str, trained: Trained) -> None:
    trained.code = 1
    assert run(["doctor", "--run", name, "a.b=1", "+c=[d, e]", "~f"]) == 1
    options = ["train", stage, f"+video_tools={name}", "--dry-run", "a.b=1", "+c=[d, e]", "~f"]
    assert trained.command[1:] == ["-m", "verl_video_tools.cli", *options]


def test_json(trained: Trained, capfd: pytest.CaptureFixture[str]) -> None:
    trained.report = '{"ok": true}'
    assert run(["doctor", "--json", "--run", "longvt_grpo"]) == 0
    assert json.loads(capfd.readouterr().out) == {"ok": True}


def test_json_of_a_run_that_ends_early(trained: Trained, capfd: pytest.CaptureFixture[str]) -> None:
    trained.code = 2
    assert run(["doctor", "--json", "--run", "longvt_grpo"]) == 2
    report = json.loads(capfd.readouterr().out)
    assert report["ok"] is False and "exit code 2" in report["checks"][0]["detail"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a=b"], "vvt doctor --run GROUP a=b"),
        (["--run", "nonesuch"], "--run nonesuch: give a method and a stage"),
        (["--run", "longvt_grpo", "--judge-base-url", "http://x"], "the judge is the one that the run's options name"),
    ],
)
def test_bad_usage(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.long
def test_a_real_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("verl", reason="recipes configure verl")
    from verl_video_tools.data.synthetic_rows import make_demo
    from verl_video_tools.methods import method_class
    from verl_video_tools.methods.toolkit.oracle import write_prompt
    from verl_video_tools.synthetic import base_model_dir

    make_demo(tmp_path / "demo", num_train_videos=2, num_test_videos=1, questions_per_video=2, num_processes=1)
    write_prompt(method_class("framethinker"), tmp_path / "demo" / "prompts")
    os.symlink(base_model_dir(), tmp_path / "demo" / "base")
    for name, value in {"DEVICE": "cpu", "OUTPUT_DIR": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    demo = [f"video_tools.demo_dir={tmp_path / 'demo'}", "video_tools.demo.is_made=true"]
    assert run(["doctor", "--run", "framethinker_grpo", *demo]) == 0, capfd.readouterr()
    table = capfd.readouterr().out
    assert "not there yet: the recipe trains it first" in table
    assert table.endswith("No problem found. Nothing was started.\n")
    assert run(["doctor", "--run", "framethinker_grpo", *demo, "data.max_prompt_length=10", "--json"]) == 1
    report = json.loads(capfd.readouterr().out)
    assert [check["name"] for check in report["checks"] if check["status"] == "failed"] == ["training prompts"]
