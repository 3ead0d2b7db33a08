"""Our trainer, which says what it does and takes the rows of a batch in the order of the data set.

verl hands them over in the order of random ids. The sum of gradients then differs in its last bits from run to run, and
equal weights would prove nothing.
"""

from __future__ import annotations

from typing import Any

from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1 import register_trainer

from tests.faults.moments import mark
from verl_video_tools.verl_plugin.trainer import VideoToolsTrainer

_MOMENT_OF_PHASE = {
    "generating rollouts": "generation",
    "saving a checkpoint": "checkpoint",
    "sending the new weights to the engine": "weight_sync",
    "measuring held-out rows": "validation",
}


@register_trainer("video_tools_marked")
class MarkedTrainer(VideoToolsTrainer):
    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._position_of: dict[str, int] = {}

    def _enter(self, phase: str) -> None:
        super()._enter(phase)
        if phase in _MOMENT_OF_PHASE:
            mark(self.global_steps, _MOMENT_OF_PHASE[phase])

    def _update_actor(self, batch: KVBatchMeta, metrics: dict) -> KVBatchMeta:
        mark(self.global_steps, "update")
        return super()._update_actor(batch, metrics)

    def _submit_batch_to_rollout(self, batch: TensorDict) -> int:
        self._position_of = {uid: position for position, uid in enumerate(batch["uid"])}
        return super()._submit_batch_to_rollout(batch)

    def _balance_batch(self, batch: KVBatchMeta, metrics: dict, *args: Any, **kwargs: Any) -> KVBatchMeta:
        batch.reorder(sorted(range(len(batch.keys)), key=lambda row: self._place(batch.keys[row])))
        return super()._balance_batch(batch, metrics, *args, **kwargs)

    def _place(self, key: str) -> tuple[int, int, int]:
        """verl's keys are {uid}_{session}_{sequence}."""
        uid, session, sequence = key.rsplit("_", 2)
        return self._position_of[uid], int(session), int(sequence)
