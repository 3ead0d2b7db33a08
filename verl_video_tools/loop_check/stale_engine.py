"""A vLLM replica that drops new weights from a step on, and goes on as if it had them (see `stale_weights`)."""

from __future__ import annotations

import os
from typing import Any

import torch
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension

from verl_video_tools.loop_check.records import STALE_VARIABLE
from verl_video_tools.loop_check.stale_updates import is_dropped
from verl_video_tools.verl_plugin.vllm_front_end import FrontEndReplica, FrontEndServer

_Extension: Any = vLLMColocateWorkerExtension
_Server: Any = FrontEndServer
if os.environ.get("VERL_PLATFORM") == "cpu":
    from verl_video_tools.verl_plugin.platforms.cpu_vllm import CpuVllmServer, CpuWorkerExtension

    _Extension, _Server = CpuWorkerExtension, CpuVllmServer


class StaleExtension(_Extension):
    """Runs inside vLLM's worker process."""

    _num_weight_updates = 0

    def update_weights_from_ipc(
        self, peft_config: Any = None, base_sync_done: bool = False, use_shm: bool = False
    ) -> None:
        self._num_weight_updates += 1
        if not is_dropped(self._num_weight_updates, int(os.environ[STALE_VARIABLE])):
            super().update_weights_from_ipc(peft_config, base_sync_done, use_shm)
            return
        device = getattr(self, "device", None) or torch.device("cpu")
        receiver = BucketedWeightReceiver(zmq_handle=self._get_zmq_handle(), device=device, use_shm=use_shm)
        receiver.receive_weights(on_bucket_received=lambda weights, is_last: None)


class StaleServer(_Server):
    def _get_worker_extension_cls(self) -> str:
        return f"{StaleExtension.__module__}.{StaleExtension.__qualname__}"


class StaleReplica(FrontEndReplica):
    """verl's replica, launching `StaleServer`."""

    own_server = StaleServer
