"""verl's vLLM server on vLLM's CPU build: only the weight update differs.

vLLM's CPU linear layers repack their weights for oneDNN when they are loaded and drop the originals, so verl's in-place
copy finds empty parameters. The worker extension below collects the buckets that verl sends through shared memory and
hands them to vLLM's own `reload_weights`, and repacks what that forgets.
"""

from __future__ import annotations

from typing import Any

import torch
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding

from verl_video_tools.verl_plugin.vllm_front_end import FrontEndReplica, FrontEndServer


def repack_tied_heads(model: torch.nn.Module) -> None:
    """Pack the weights of heads that share them with the embeddings.

    vLLM 0.29 has such a head as a layer of its own. `reload_weights` loads nothing into it, so it goes on with the
    packed copy of the former weights (docs/upstream/tied-heads.md). In vLLM 0.24 the head is the embeddings.
    """
    layers = list(model.modules())
    embedded = {id(layer.weight) for layer in layers if type(layer) is VocabParallelEmbedding}
    for layer in layers:
        if isinstance(layer, ParallelLMHead) and id(layer.weight) in embedded:
            layer.quant_method.process_weights_after_loading(layer)


class CpuWorkerExtension(vLLMColocateWorkerExtension):
    """Runs inside vLLM's worker process."""

    def update_weights_from_ipc(
        self, peft_config: Any = None, base_sync_done: bool = False, use_shm: bool = False
    ) -> None:
        """Receive all buckets, then reload. Overrides verl's in-place copy (see the module's docstring).

        An adapter is added beside the weights; verl's own way to do so needs no in-place copy.
        """
        if peft_config and base_sync_done:
            super().update_weights_from_ipc(peft_config, base_sync_done, use_shm)
            return
        received: list[tuple[str, torch.Tensor]] = []
        receiver = BucketedWeightReceiver(
            zmq_handle=self._get_zmq_handle(), device=torch.device("cpu"), use_shm=use_shm
        )
        # Cloned: the tensors are views of a shared-memory buffer that closes after the last bucket.
        receiver.receive_weights(
            on_bucket_received=lambda weights, is_last: received.extend((name, w.clone()) for name, w in weights)
        )
        self.model_runner.reload_weights(weights_iterator=iter(received))
        repack_tied_heads(self.model_runner.model)


class CpuVllmServer(FrontEndServer):
    """verl's server with our front end and our worker extension (a hook that verl documents for subclasses)."""

    def _get_worker_extension_cls(self) -> str:
        return f"{CpuWorkerExtension.__module__}.{CpuWorkerExtension.__qualname__}"


class CpuVllmReplica(FrontEndReplica):
    """verl's replica, launching `CpuVllmServer`."""

    http_server_class = CpuVllmServer
