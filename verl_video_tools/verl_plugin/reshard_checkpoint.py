"""A checkpoint of a run for another number of devices.

    python -m verl_video_tools.verl_plugin.reshard_checkpoint CHECKPOINT_DIR NUM_DEVICES

verl 0.9.1 writes weights and optimiser of an FSDP actor as one file per device, and a run reads only those of its own
number of devices. This program writes the files of another number beside them, from the last checkpoint of the run (or
of fine-tuning): the same weights and the same moments, in other pieces. Then start the recipe again with that number.

Learning rate schedule and random state of a device that there was not before are those of device 0; the recipes' actors
draw no random numbers. Devices in more than one dimension (`fsdp_size` below their number) are refused.

It needs no GPU, also for a run on GPUs: a worker of verl reads its file where it sees a single GPU, so tensors must lie
on the CPU, and there may be more devices than this machine has.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor._dtensor_spec import DTensorSpec, TensorMeta

from verl_video_tools.core.errors import UsageError
from verl_video_tools.verl_plugin.export_model import last_checkpoint

KINDS = ("model", "optim", "extra_state")


def shard_files(checkpoint: Path, kind: str) -> list[Path]:
    """Those of the number of devices that the checkpoint was written on, by rank; none if it lacks this kind."""
    found: dict[int, dict[int, Path]] = {}
    for path in checkpoint.glob(f"{kind}_world_size_*_rank_*.pt"):
        world_size, rank = map(int, re.findall(r"_world_size_(\d+)_rank_(\d+)\.pt$", path.name)[0])
        found.setdefault(world_size, {})[rank] = path
    written = [size for size, ranks in found.items() if set(ranks) == set(range(size))]
    if not written:
        return []
    if (size := _world_size(checkpoint)) not in written:
        # Those that this program has added are younger.
        size = min(written, key=lambda size: found[size][0].stat().st_mtime)
    return [found[size][rank] for rank in range(size)]


def _world_size(checkpoint: Path) -> int | None:
    """Devices that wrote the checkpoint last: it may hold files of others, of an attempt at the same step that was
    abandoned. None where verl does not tell."""
    file = checkpoint / "fsdp_config.json"
    return int(json.loads(file.read_text())["world_size"]) if file.exists() else None


def reshard(checkpoint: Path, num_devices: int) -> None:
    """Write the files of `num_devices` devices, one after another.

    Args:
        checkpoint: the actor's folder, which holds `model_world_size_*_rank_*.pt`.

    Raises:
        UsageError: there are no files of weights, or they are cut in more than one dimension.
    """
    if not (files := shard_files(checkpoint, "model")):
        raise UsageError(f"{checkpoint} holds no complete set of model_world_size_*_rank_*.pt; was it cut short?")
    if len(files) == num_devices:
        raise UsageError(f"{checkpoint} is of {num_devices} devices already: {files[0].name}")
    _check(_load(files[0]), files[0])
    for kind in KINDS:
        states = [_load(file) for file in shard_files(checkpoint, kind)]
        for rank in range(num_devices if states else 0):
            own = states[rank if rank < len(states) else 0]
            state = own if kind == "extra_state" else _merge(states, _Meshes(rank, num_devices))
            target = checkpoint / f"{kind}_world_size_{num_devices}_rank_{rank}.pt"
            torch.save(state, unfinished := target.with_suffix(".unfinished"))
            unfinished.rename(target)


def _load(file: Path) -> Any:
    return torch.load(file, weights_only=False, mmap=True, map_location="cpu")


def _check(state: Mapping[str, Any], file: Path) -> None:
    for name, value in state.items():
        if isinstance(value, DTensor) and (value.device_mesh.ndim != 1 or not isinstance(value.placements[0], Shard)):
            raise UsageError(
                f"{file}: weight {name!r} is placed as {value.placements} on {value.device_mesh}; only "
                "sharding over all devices in one dimension can be changed"
            )


class _Meshes:
    """Descriptions of `num_devices` devices as one of them has it; nothing is opened on any."""

    def __init__(self, rank: int, num_devices: int) -> None:
        self.rank, self.num_devices = rank, num_devices
        self._by_kind: dict[tuple[str, Any], DeviceMesh] = {}

    def like(self, mesh: DeviceMesh) -> DeviceMesh:
        """One of the same device type and names. `init_device_mesh` would choose a GPU of the rank's number."""
        kind = mesh.device_type, mesh.mesh_dim_names
        if kind not in self._by_kind:
            ranks = torch.arange(self.num_devices)
            described = DeviceMesh(kind[0], ranks, mesh_dim_names=kind[1], _init_backend=False, _rank=self.rank)
            made = DeviceMesh.__new__(DeviceMesh)
            # Names of process groups, of which none is opened here, are those of the run's own files.
            made.__setstate__({**mesh.__getstate__(), **described.__getstate__()})
            self._by_kind[kind] = made
        return self._by_kind[kind]


def _merge(values: list[Any], meshes: _Meshes) -> Any:
    """The structure that all have, with one device's piece of tensors that are cut; of anything else the first."""
    first = values[0]
    if isinstance(first, DTensor):
        return _resharded(values, meshes)
    if isinstance(first, dict):  # an ordered one, too
        return type(first)({key: _merge([value[key] for value in values], meshes) for key in first})
    if isinstance(first, list | tuple):
        return type(first)(_merge(list(each), meshes) for each in zip(*values, strict=True))
    return first


def _resharded(pieces: list[DTensor], meshes: _Meshes) -> DTensor:
    """One device's piece of the tensor that `pieces`, in order of their ranks, are cut from, on the CPU."""
    first, shape, stride = pieces[0], pieces[0].shape, pieces[0].stride()
    (placement,) = first.placements
    assert isinstance(placement, Shard)
    # As FSDP cuts it: the last ones may have less, or none.
    length = -(-shape[placement.dim] // meshes.num_devices)
    local = _between([piece.to_local() for piece in pieces], placement.dim, meshes.rank * length, length)
    spec = DTensorSpec(meshes.like(first.device_mesh), (placement,), TensorMeta(shape, stride, local.dtype))
    return DTensor(local, spec, requires_grad=False)


def _between(pieces: list[torch.Tensor], dim: int, start: int, length: int) -> torch.Tensor:
    """A copy of what lies from `start` on in the tensor that the pieces make up, `length` long or as far as it goes."""
    parts, place = [], 0
    for piece in pieces:
        first, last = max(start - place, 0), min(start + length - place, piece.shape[dim])
        if first < last:
            parts.append(piece.narrow(dim, first, last - first))
        place += piece.shape[dim]
    return torch.cat(parts or [pieces[0].narrow(dim, 0, 0)], dim)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint_dir", type=Path, help="trainer.default_local_dir of the run")
    parser.add_argument("num_devices", type=int, help="of the run that goes on: NNODES x NDEVICES_PER_NODE")
    options = parser.parse_args()
    chosen = last_checkpoint(options.checkpoint_dir)
    reshard(chosen, options.num_devices)
    print(f"{chosen} can be resumed on {options.num_devices} devices")
