"""verl's SFT trainer, fixed where it would end early, name no checkpoint of its last step, or train beyond it.

    torchrun -m verl_video_tools.verl_plugin.sft_trainer OPTION=VALUE ...

Without a GPU, with `VERL_PLATFORM=cpu`, `python` may take the place of `torchrun`.
"""

from __future__ import annotations

import logging
import math
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hydra
import torch
import torch.distributed as dist
from omegaconf import DictConfig
from verl.trainer.sft_trainer import SFTTrainer
from verl.utils.device import auto_set_device
from verl.utils.distributed import destroy_global_process_group, initialize_global_process_group

from verl_video_tools.core.files import share_weights
from verl_video_tools.core.machine import page
from verl_video_tools.verl_plugin.marked_warnings import MARK
from verl_video_tools.verl_plugin.run_checks import check_family
from verl_video_tools.verl_plugin.settings import describe_run, end_with_epochs

logger = logging.getLogger(__name__)

# What torchrun would set for a single process. verl's worker reads the address, but nobody connects to it.
_SINGLE_PROCESS = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}


NUM_RECENT = 256
"""Dialogues that a rank trained on last, by which the end of a run says what its model has learnt."""
LEAST_LIKELY_TOKENS = 0.5
"""Share of likely tokens below which a model does not write a method's turns. After a cold start that works it is
higher: tags and the syntax of calls alone are a good part of a turn, and have probabilities near 1."""


class LearntDialogues:
    """How much of the dialogues trained on last the model would have written itself.

    A token with more than half of the probability is the model's first choice. Where that holds for all trained tokens
    of a dialogue, greedy decoding writes its turns as they are. Both follow from the log-probabilities that the loss
    takes, so that no other forward pass is needed; a first choice with less probability is not counted.
    """

    def __init__(self, loss_fn: Callable[..., tuple[torch.Tensor, dict[str, Any]]]) -> None:
        self._loss_fn = loss_fn
        self._recent: deque[tuple[int, int]] = deque(maxlen=NUM_RECENT)
        """Of each dialogue its trained tokens, and those of them that are likely."""

    def loss(self, model_output: Any, data: Any, dp_group: Any = None) -> tuple[torch.Tensor, dict[str, Any]]:
        """verl's loss of a micro-batch, whose dialogues are counted unless they are only validated.

        Args:
            model_output: with `log_probs`, nested (rows, tokens); those at a place are of the token after it.
            data: with `loss_mask`, nested likewise.
        """
        if torch.is_grad_enabled():
            counts = []
            for log_probs, mask in zip(model_output["log_probs"].unbind(), data["loss_mask"].unbind(), strict=True):
                is_trained = mask[1:] > 0
                is_likely = log_probs.detach()[:-1] > math.log(0.5)
                counts.append(torch.stack([is_trained.sum(), (is_likely & is_trained).sum()]))
            self._recent.extend((trained, likely) for trained, likely in torch.stack(counts).tolist() if trained)
        return self._loss_fn(model_output=model_output, data=data, dp_group=dp_group)

    def summary(self, device: str, dp_group: Any) -> str:
        """One sentence about the dialogues of all ranks of a data-parallel group, which all have to call this; empty
        without dialogues."""
        trained, likely = (sum(counts) for counts in zip(*self._recent, strict=True)) if self._recent else (0, 0)
        reproduced = sum(trained == likely for trained, likely in self._recent)
        sums = torch.tensor([len(self._recent), reproduced, trained, likely], dtype=torch.float64, device=device)
        if dp_group is not None:
            dist.all_reduce(sums, group=dp_group)
        num_dialogues, reproduced, trained, likely = map(int, sums.tolist())
        if not num_dialogues:
            return ""
        share = likely / trained
        text = (
            f"of the last {num_dialogues} dialogues that it was trained on, the model would write {reproduced} word "
            f"for word; {share:.0%} of their tokens are likely (more than half of the probability)"
        )
        if share >= LEAST_LIKELY_TOKENS:
            return text
        return (
            f"{text}. Below {LEAST_LIKELY_TOKENS:.0%} a model hardly writes its method's calls and answers; train "
            f"longer (trainer.total_epochs) or on more dialogues before reinforcement learning ({page('cold-start')})"
        )


class VideoToolsSFTTrainer(SFTTrainer):
    """- `_build_config`: says what is known of the model's family, and refuses what would train another model.
    - `_build_engine`: the loss also counts what the model would have written itself (`LearntDialogues`).
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

    def _build_engine(self) -> None:
        super()._build_engine()
        self.learnt = LearntDialogues(self.loss_fn)
        self.training_client.set_loss_fn(loss_fn=self.learnt.loss)

    def _build_dataloader(self) -> None:
        super()._build_dataloader()
        end_with_epochs(self.config.trainer, len(self.train_dataloader), is_reported=self.rank == 0)

    def _init_engine(self) -> None:
        super()._init_engine()
        self.save_freq, self.test_freq = self.save_freq or -1, self.test_freq or -1

    def fit(self) -> None:
        if (step := self.resume_global_step) >= self.total_training_steps:
            if self.rank == 0:
                print(f"{MARK} the run is over: step {step} of {self.total_training_steps}", flush=True)
            return
        if self.resume_global_step and self.resume_global_step % self.steps_per_epoch == 0:
            self._build_dataloader()
            self._build_ckpt_handler()
        super().fit()
        summary = self.learnt.summary(self.device_name, self.engine.get_data_parallel_group())
        if self.rank == 0:
            if summary:
                print(f"{MARK} {summary}", flush=True)
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
