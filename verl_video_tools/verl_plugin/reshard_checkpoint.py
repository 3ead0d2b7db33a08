"""A checkpoint of a run for another number of devices.

    python -m verl_video_tools.verl_plugin.reshard_checkpoint CHECKPOINT_DIR NUM_DEVICES

verl 0.9.1 writes weights and optimiser of an FSDP actor as one file per device, and a run reads only those of its own
number of devices. This program writes the files of another number beside them, from the last checkpoint of the run (or
of fine-tuning): the same weights and the same moments, in other pieces. Then start the recipe again with that number.

Learning rate schedule and random state of a device that there was not before are those of device 0; the recipes' actors
draw no random numbers. Devices in more than one dimension (`fsdp_size` below their number) are refused.
"""

from __future__ import annotations

import argparse
import os
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

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
    # Those that this program has added are younger.
    size = min(written, key=lambda size: found[size][0].stat().st_mtime)
    return [found[size][rank] for rank in range(size)]


def reshard(checkpoint: Path, num_devices: int) -> None:
    """Write the files of `num_devices` devices, each in a process of its own.

    Args:
        checkpoint: the actor's folder, which holds `model_world_size_*_rank_*.pt`.

    Raises:
        UsageError: there are no files of weights, or they are cut in more than one dimension.
    """
    if not (files := shard_files(checkpoint, "model")):
        raise UsageError(f"{checkpoint} holds no complete set of model_world_size_*_rank_*.pt; was it cut short?")
    if len(files) == num_devices:
        raise UsageError(f"{checkpoint} is of {num_devices} devices already: {files[0].name}")
    _check(torch.load(files[0], weights_only=False, mmap=True, map_location="cpu"), files[0])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(_write, (checkpoint, num_devices, port), nprocs=num_devices)


def _check(state: Mapping[str, Any], file: Path) -> None:
    for name, value in state.items():
        if isinstance(value, DTensor) and (value.device_mesh.ndim != 1 or not isinstance(value.placements[0], Shard)):
            raise UsageError(
                f"{file}: weight {name!r} is placed as {value.placements} on {value.device_mesh}; only "
                "sharding over all devices in one dimension can be changed"
            )


def _write(rank: int, checkpoint: Path, num_devices: int, port: int) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(num_devices), "LOCAL_RANK": str(rank)}
    dist.init_process_group("gloo", f"tcp://127.0.0.1:{port}", rank=rank, world_size=num_devices)
    for kind in KINDS:
        files = shard_files(checkpoint, kind)
        if not files:
            continue
        states = [torch.load(file, weights_only=False, mmap=True, map_location="cpu") for file in files]
        own = states[rank if rank < len(states) else 0]
        state = own if kind == "extra_state" else _merge(states)
        target = checkpoint / f"{kind}_world_size_{num_devices}_rank_{rank}.pt"
        torch.save(state, unfinished := target.with_suffix(".unfinished"))
        unfinished.rename(target)
        dist.barrier()  # nobody may take a part of the new files for the old ones
    dist.destroy_process_group()


def _merge(values: list[Any]) -> Any:
    """The structure that all have, with this process's piece of tensors that are cut; of anything else the first."""
    first = values[0]
    if isinstance(first, DTensor):
        return _resharded(values)
    if isinstance(first, dict):  # an ordered one, too
        return type(first)({key: _merge([value[key] for value in values]) for key in first})
    if isinstance(first, list | tuple):
        return type(first)(_merge(list(each)) for each in zip(*values, strict=True))
    return first


_meshes: dict[tuple[str, Any], Any] = {}


def _resharded(pieces: list[DTensor]) -> DTensor:
    """This process's piece of the tensor that `pieces`, in order of their ranks, are cut from."""
    first, shape, stride = pieces[0], pieces[0].shape, pieces[0].stride()
    (placement,) = first.placements
    assert isinstance(placement, Shard)
    whole = torch.cat([piece.to_local() for piece in pieces if piece.to_local().numel()], dim=placement.dim)
    cut = whole.chunk(dist.get_world_size(), dim=placement.dim)  # as FSDP cuts it: the last ones may have less, or none
    rank = dist.get_rank()
    local = cut[rank].clone() if rank < len(cut) else whole.narrow(placement.dim, 0, 0).clone()
    key = first.device_mesh.device_type, first.device_mesh.mesh_dim_names
    if key not in _meshes:
        _meshes[key] = init_device_mesh(key[0], (dist.get_world_size(),), mesh_dim_names=key[1])
    return DTensor.from_local(local, _meshes[key], [placement], run_check=False, shape=shape, stride=stride)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint_dir", type=Path, help="trainer.default_local_dir of the run")
    parser.add_argument("num_devices", type=int, help="of the run that goes on: NNODES x NDEVICES_PER_NODE")
    options = parser.parse_args()
    chosen = last_checkpoint(options.checkpoint_dir)
    reshard(chosen, options.num_devices)
    print(f"{chosen} can be resumed on {options.num_devices} devices")
