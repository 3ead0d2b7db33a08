"""verl's SFT trainer, fixed where it would end early, name no checkpoint of its last step, or train beyond it.

    torchrun -m verl_video_tools.verl_plugin.sft_trainer OPTION=VALUE ...

Without a GPU, with `VERL_PLATFORM=cpu`, `python` may take the place of `torchrun`.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path

import hydra
import torch.distributed as dist
from omegaconf import DictConfig
from verl.trainer.sft_trainer import SFTTrainer
from verl.utils.device import auto_set_device
from verl.utils.distributed import destroy_global_process_group, initialize_global_process_group

from verl_video_tools.core.files import share_weights
from verl_video_tools.verl_plugin.run_checks import check_family
from verl_video_tools.verl_plugin.settings import describe_run, end_with_epochs

logger = logging.getLogger(__name__)

# What torchrun would set for a single process. verl's worker reads the address, but nobody connects to it.
_SINGLE_PROCESS = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}


class VideoToolsSFTTrainer(SFTTrainer):
    """- `_build_config`: says what is known of the model's family, and refuses what would train another model.
    - `_build_dataloader`: a run whose epochs are over early has a last step, too (`settings.end_with_epochs`).
    - `_init_engine`: intervals of 0 steps are never, as in reinforcement learning; verl divides by them.
    - `fit`: a checkpoint that was written at the end of an epoch holds the state of a data loader that is used up, and
      verl counts the epoch in which that gives nothing: a pass over the rows is left out. A run resumed at its last
      step is over; verl asks for the last step only after it has trained on one more batch. Others may read the
      weights (`share_weights`).
    """

    save_freq: int
    test_freq: int

    def _build_config(self) -> None:
        super()._build_config()
        if (warning := check_family(self.model_config.hf_config, self.config.model)) and self.rank == 0:
            logger.warning(warning)

    def _build_dataloader(self) -> None:
        super()._build_dataloader()
        end_with_epochs(self.config.trainer, len(self.train_dataloader), is_reported=self.rank == 0)

    def _init_engine(self) -> None:
        super()._init_engine()
        self.save_freq, self.test_freq = self.save_freq or -1, self.test_freq or -1

    def fit(self) -> None:
        if (step := self.resume_global_step) >= self.total_training_steps:
            if self.rank == 0:
                print(f"[verl_video_tools] the run is over: step {step} of {self.total_training_steps}", flush=True)
            return
        if self.resume_global_step and self.resume_global_step % self.steps_per_epoch == 0:
            self._build_dataloader()
            self._build_ckpt_handler()
        super().fit()
        if self.rank == 0:
            share_weights(Path(self.config.trainer.default_local_dir))


def _initialize_cpu_process_group() -> None:
    """verl's own function would ask torch for the process group "cpu:gloo,cpu:gloo", which torch refuses."""
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:
        os.environ.update(_SINGLE_PROCESS)
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


@hydra.main(config_path="pkg://verl.trainer.config", config_name="sft_trainer_engine", version_base=None)
def main(config: DictConfig) -> None:
    """Train as `verl.trainer.sft_trainer` does."""
    if os.environ.get("VERL_PLATFORM") == "cpu":
        config.trainer.device = "cpu"
        _initialize_cpu_process_group()
    else:
        auto_set_device(config)
        initialize_global_process_group()
    if dist.get_rank() == 0:
        describe_run(config, config.data)
    VideoToolsSFTTrainer(config=config).fit()
    destroy_global_process_group()


if __name__ == "__main__":
    main()
