"""What the options ask of the machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from verl_video_tools.core.check import Status
from verl_video_tools.core.errors import UsageError
from verl_video_tools.dry_run import machine
from verl_video_tools.dry_run.memory import gpu_of
from verl_video_tools.planner.memory import GPU

H100 = "NVIDIA H100 80GB HBM3, 81559 MiB"


def attention(options: dict[str, Any], device: str, has_gpus: bool) -> Any:
    (check,) = machine.check_attention(OmegaConf.create({"override_config": options}), device, has_gpus)
    return check


@pytest.mark.parametrize(
    ("device", "has_gpus", "status"),
    [("gpu", True, Status.FAILED), ("gpu", False, Status.WARNING), ("cpu", False, Status.FAILED)],
)
def test_flash_attention_is_asked_for_by_default(
    device: str, has_gpus: bool, status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "installed_version", lambda name: None)
    check = attention({}, device, has_gpus)
    assert check.status is status and "attn_implementation=sdpa" in check.fix


@pytest.mark.parametrize(("error", "status"), [("", Status.OK), ("ImportError: undefined symbol", Status.FAILED)])
def test_flash_attention_must_load(error: str, status: Status, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "installed_version", lambda name: "2.8.3")
    monkeypatch.setattr(machine, "python_error", lambda code: error)
    check = attention({"attn_implementation": "flash_attention_2"}, "gpu", True)
    assert check.status is status and error in check.detail


@pytest.mark.parametrize("chosen", ["sdpa", "packed_by_torch"])
def test_other_attention_needs_nothing(chosen: str) -> None:
    assert attention({"attn_implementation": chosen}, "cpu", False).status is Status.OK


@pytest.mark.parametrize(
    ("gpus", "address", "status"),
    [
        ([H100] * 8, None, Status.OK),
        ([H100] * 4, None, Status.FAILED),
        ([H100] * 4, "10.0.0.1:6379", Status.OK),  # the driver's machine need not be one that trains
        ([], None, Status.WARNING),
    ],
)
def test_gpus(gpus: list[str], address: str | None, status: Status, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    if address:
        monkeypatch.setenv("RAY_ADDRESS", address)
    (check,) = machine.check_gpus("gpu", gpus, 8)
    assert check.status is status
    assert list(machine.check_gpus("cpu", gpus, 1)) == []


def test_loggers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "module_exists", lambda module: module == "wandb")
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert [check.status for check in machine.check_loggers(["console", "file"])] == [Status.OK]
    (missing,) = machine.check_loggers(["console", "mlflow"])
    assert missing.status is Status.FAILED and "not installed: mlflow" in missing.detail
    assert [check.status for check in machine.check_loggers("wandb")] == [Status.OK, Status.WARNING]
    (unknown,) = machine.check_loggers(["console", "wanbd"])
    assert unknown.status is Status.FAILED and "verl knows no wanbd" in unknown.detail and "wandb" in unknown.fix
    (missing,) = machine.check_loggers(["trackio"])
    assert missing.status is Status.FAILED and "not installed: trackio" in missing.detail
    (tmp_path / "netrc").write_text("machine api.wandb.ai login user password x")
    assert [check.status for check in machine.check_loggers("wandb")] == [Status.OK]


def test_a_gpu_has_the_name_and_the_memory_that_nvidia_smi_reports() -> None:
    assert gpu_of(H100) == GPU("NVIDIA H100 80GB HBM3", 81559 * 2**20)


def test_a_gpu_without_a_size() -> None:
    with pytest.raises(UsageError, match="DRY_RUN_GPU"):
        gpu_of("NVIDIA H100, [N/A]")
