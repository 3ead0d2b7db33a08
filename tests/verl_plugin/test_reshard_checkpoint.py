"""A checkpoint of two devices goes on with one, and with three."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

from tests.verl_plugin.harness import model_dir
from tests.verl_plugin.ranks import REPO, run_ranks
from verl_video_tools.core.errors import UsageError
from verl_video_tools.verl_plugin.reshard_checkpoint import reshard, shard_files


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As a run leaves it; its checkpoint lies in `global_step_1/actor`."""
    folder = tmp_path_factory.mktemp("run")
    run_ranks("tests.verl_plugin.resharding", 2, model_dir(), str(folder), "write", timeout_seconds=200)
    (folder / "global_step_1").mkdir()
    (folder / "global_step_1" / "actor").symlink_to(folder / "checkpoint")
    (folder / "latest_checkpointed_iteration.txt").write_text("1")
    return folder


@pytest.mark.long
@pytest.mark.parametrize("num_devices", [1, 3])
def test_weights_moments_and_schedule_are_the_same_bits(num_devices: int, run_dir: Path) -> None:
    command = [sys.executable, "-m", "verl_video_tools.verl_plugin.reshard_checkpoint", str(run_dir), str(num_devices)]
    program = subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=100)
    assert program.returncode == 0, program.stderr[-4000:]
    run_ranks("tests.verl_plugin.resharding", num_devices, model_dir(), str(run_dir), "read", timeout_seconds=200)
    expected: dict[str, Any] = torch.load(run_dir / "state_2.pt")
    found: dict[str, Any] = torch.load(run_dir / f"state_{num_devices}.pt")
    for kind in ("weights", "moments"):
        assert found[kind].keys() == expected[kind].keys()
        differing = [name for name in expected[kind] if not torch.equal(found[kind][name], expected[kind][name])]
        assert differing == []
    assert any(name.endswith("exp_avg") and value.any() for name, value in found["moments"].items())
    assert found["schedule"] == expected["schedule"]


@pytest.mark.parametrize(("told", "expected"), [(3, 3), (2, 2), (4, 2), (None, 2)])
def test_files_of_an_abandoned_attempt_are_not_taken(told: int | None, expected: int, tmp_path: Path) -> None:
    """A step that was written on two devices, and, by a run that resumed before it, again on three."""
    for age, world_size in ((20, 2), (10, 3)):
        for rank in range(world_size):
            file = tmp_path / f"model_world_size_{world_size}_rank_{rank}.pt"
            file.touch()
            os.utime(file, (1e9 - age, 1e9 - age))
    if told is not None:
        (tmp_path / "fsdp_config.json").write_text(json.dumps({"FSDP_version": 2, "world_size": told}))
    assert len(shard_files(tmp_path, "model")) == expected


@pytest.mark.long
def test_what_cannot_be_cut_anew_is_refused(run_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="of 2 devices already"):
        reshard(run_dir / "checkpoint", 2)
    with pytest.raises(UsageError, match="no complete set of model_world_size"):
        reshard(tmp_path, 2)
    shutil.copy(run_dir / "checkpoint" / "model_world_size_2_rank_1.pt", tmp_path)
    with pytest.raises(UsageError, match="was it cut short"):
        reshard(tmp_path, 1)


def test_a_run_on_gpus_is_cut_anew_without_one(tmp_path: Path) -> None:
    """Its workers see a GPU each, and read their files to where the tensors lay when they were saved."""
    whole = torch.arange(40.0).reshape(10, 4)
    meta = TensorMeta(whole.shape, whole.stride(), whole.dtype)
    for rank, piece in enumerate(whole.chunk(2)):
        mesh = DeviceMesh("cuda", torch.arange(2), mesh_dim_names=("fsdp",), _init_backend=False, _rank=rank)
        weight = DTensor(piece.clone(), DTensorSpec(mesh, (Shard(0),), meta), requires_grad=False)
        torch.save({"weight": weight}, tmp_path / f"model_world_size_2_rank_{rank}.pt")
    reshard(tmp_path, 4)
    pieces = []
    for rank in range(4):
        file = tmp_path / f"model_world_size_4_rank_{rank}.pt"
        weight = torch.load(file, weights_only=False)["weight"]
        assert (weight.device_mesh.device_type, weight.device_mesh.size()) == ("cuda", 4)
        assert weight.device_mesh.get_coordinate() == (rank,) and weight.shape == whole.shape
        assert weight.to_local().device.type == "cpu"
        assert weight.to_local().untyped_storage().nbytes() == weight.to_local().nbytes, "of this device alone"
        pieces.append(weight.to_local())
    assert [len(piece) for piece in pieces] == [3, 3, 3, 1]
    assert torch.equal(torch.cat(pieces), whole)
