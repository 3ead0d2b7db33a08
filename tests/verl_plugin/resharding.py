"""Ranks write, or read, a checkpoint by verl's own engine, after one step of fine-tuning.

    torchrun --standalone --nproc_per_node=N -m tests.verl_plugin.resharding MODEL_DIR FOLDER write|read

Rank 0 writes FOLDER/state_N.pt: whole weights, the optimiser's whole moments by the weights' names, and the schedule.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from verl.workers.config import FSDPEngineConfig

from tests.verl_plugin.training import Run, whole


def main() -> None:
    """Command line: see the module's docstring."""
    model_dir, folder, action = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    dist.init_process_group("gloo")
    run = Run(FSDPEngineConfig, model_dir)
    checkpoint = str(folder / "checkpoint")
    if action == "write":
        run.step()
        run.engine.save_checkpoint(checkpoint, global_step=1)
    else:
        run.engine.load_checkpoint(checkpoint)
    moments = run.engine.optimizer.state
    state = {
        "weights": {name: whole(weight.detach()).clone() for name, weight in run.named()},
        "moments": {
            f"{name}.{kind}": whole(value).clone()
            for name, weight in run.named()
            for kind, value in moments[weight].items()
        },
        "schedule": run.engine.lr_scheduler.state_dict(),
    }
    if dist.get_rank() == 0:
        torch.save(state, folder / f"state_{dist.get_world_size()}.pt")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
