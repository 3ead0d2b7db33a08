"""The SFT trainer without a GPU, in one process.

    python -m verl_video_tools.verl_plugin.platforms.cpu_sft OPTION=VALUE ...

verl's own entry point asks torch for the process group "cpu:gloo,cpu:gloo" when the device is the CPU, which torch
refuses. Here gloo is initialised first and the same trainer runs. `VERL_PLATFORM=cpu` must be set.
"""

from __future__ import annotations

import os

import hydra
import torch.distributed as dist
from omegaconf import DictConfig

from verl_video_tools.core.errors import UsageError
from verl_video_tools.verl_plugin.hydra_groups import register

# What torchrun would set for a single process. The address is read by verl's worker, but nobody connects to it.
_ALONE = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}


@hydra.main(config_path="pkg://verl.trainer.config", config_name="sft_trainer_engine", version_base=None)
def main(config: DictConfig) -> None:
    """Train as `verl_plugin.sft_trainer` does."""
    if os.environ.get("VERL_PLATFORM") != "cpu":
        raise UsageError("set VERL_PLATFORM=cpu; on a GPU run `torchrun -m verl_video_tools.verl_plugin.sft_trainer`")
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:
        os.environ.update(_ALONE)
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    from verl_video_tools.verl_plugin.settings import describe_run
    from verl_video_tools.verl_plugin.sft_trainer import VideoToolsSFTTrainer

    config.trainer.device = "cpu"
    if dist.get_rank() == 0:
        describe_run(config, config.data)
    VideoToolsSFTTrainer(config=config).fit()
    dist.destroy_process_group()


if __name__ == "__main__":
    register()  # verl is imported after Hydra has composed the configuration
    main()
