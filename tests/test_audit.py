"""`make audit`: a vulnerability that is not accepted fails it, and so does a pin about which nothing is known."""

from __future__ import annotations

import importlib.util
import json
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

REPO = Path(__file__).parents[1]
FOUND = {
    "name": "setuptools",
    "version": "77.0.3",
    "vulns": [{"id": "PYSEC-2025-49", "aliases": ["CVE-2025-47273"], "fix_versions": ["78.1.1"]}],
}
NEW = {"name": "numpy", "version": "2.3.5", "vulns": [{"id": "PYSEC-2099-1", "aliases": [], "fix_versions": []}]}
CLEAN = {"name": "rich", "version": "15.0.0", "vulns": []}
UNKNOWN = {"name": "torch", "skip_reason": "Dependency not found on PyPI and could not be audited: torch (2.11.0)"}


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    """The script, which is no module of a package."""
    spec = importlib.util.spec_from_file_location("audit", REPO / "requirements" / "audit.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("pins", "code", "told"),
    [
        ([CLEAN], 0, "1 pins, of which 0 could not be looked up"),
        ([CLEAN, FOUND], 0, "setuptools==77.0.3: PYSEC-2025-49, CVE-2025-47273, fixed in 78.1.1; accepted: vLLM"),
        ([FOUND, NEW], 1, "numpy==2.3.5: PYSEC-2099-1, fixed in no version yet; NOT ACCEPTED"),
        ([CLEAN, UNKNOWN], 2, "2 pins, of which 1 could not be looked up: torch"),
        ([NEW, UNKNOWN], 1, "NOT ACCEPTED"),
    ],
)
def test_what_it_makes_of_pip_audit(
    audit: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    pins: list[dict[str, Any]],
    code: int,
    told: str,
) -> None:
    found = subprocess.CompletedProcess([], 1, json.dumps({"dependencies": pins, "fixes": []}), "")
    monkeypatch.setattr(audit.subprocess, "run", lambda *_, **__: found)
    assert audit.main(["cpu.txt"]) == code
    assert told in capsys.readouterr().out


def test_a_service_that_cannot_be_reached_is_no_clean_bill(
    audit: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """pip-audit prints no JSON then, and exits as it does for a finding."""
    failed = subprocess.CompletedProcess([], 1, "", "ServiceError: could not connect")
    monkeypatch.setattr(audit.subprocess, "run", lambda *_, **__: failed)
    with pytest.raises(SystemExit) as ended:
        audit.main(["cpu.txt"])
    assert ended.value.code == 2 and "could not connect" in capsys.readouterr().err


def test_what_is_accepted_has_a_reason_and_is_pinned(audit: ModuleType) -> None:
    reasons = audit.accepted(audit.ACCEPTED.read_text())
    assert reasons
    pins = "".join((REPO / "requirements" / f"{device}.txt").read_text() for device in ("cpu", "gpu"))
    for _, package in reasons:
        assert f"\n{package}==" in pins, f"{package} is pinned no more: its line can go"
    with pytest.raises(ValueError, match="say why this finding may stay"):
        audit.accepted("CVE-2099-1 numpy\n")
