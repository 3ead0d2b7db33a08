"""A rollout replica for tests: logs what the server was given and returned, and plants faults on request.

Loaded in every process through `VERL_USE_EXTERNAL_MODULES=tests.integration.instrumented`; environment variables:
VVT_TEST_SERVER_LOG (file for one JSON line per generation), VVT_TEST_HELD_WEIGHTS (file for one JSON line per update
of weights: a digest of each that vLLM holds afterwards under its name), VVT_TEST_SKIP_WEIGHT_SYNC=1 (weights are
received and dropped). A request whose `extra_args` name `ABORT` is aborted in the engine.
"""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import torch

from tests.integration.digests import digest
from verl_video_tools.verl_plugin.platforms.cpu_vllm import CpuVllmReplica, CpuVllmServer, CpuWorkerExtension

ABORT = "vvt_test_abort"


class InstrumentedExtension(CpuWorkerExtension):
    def update_weights_from_ipc(self, *args: Any, **kwargs: Any) -> None:
        if os.environ.get("VVT_TEST_SKIP_WEIGHT_SYNC") == "1":
            runner, self.model_runner = self.model_runner, _IgnoresWeights()
            try:
                super().update_weights_from_ipc(*args, **kwargs)
            finally:
                self.model_runner = runner
        else:
            super().update_weights_from_ipc(*args, **kwargs)
        if path := os.environ.get("VVT_TEST_HELD_WEIGHTS"):
            named = self.model_runner.get_model().named_parameters()
            # Layers that vLLM's CPU kernels have repacked keep an empty weight.
            held = {name: digest(weight) for name, weight in named if weight.numel()}
            with open(path, "a") as file:
                file.write(json.dumps(held) + "\n")


class _IgnoresWeights:
    model = torch.nn.Module()

    def reload_weights(self, weights_iterator: Any) -> None: ...


class InstrumentedServer(CpuVllmServer):
    def _get_worker_extension_cls(self) -> str:
        return f"{__name__}.InstrumentedExtension"

    async def generate(
        self, prompt_ids: list[int], sampling_params: dict[str, Any], request_id: str, **kwargs: Any
    ) -> Any:
        aborts = sampling_params.get("extra_args", {}).pop(ABORT, False)
        generation = asyncio.ensure_future(super().generate(prompt_ids, sampling_params, request_id, **kwargs))
        while aborts and not generation.done():  # the engine may not know the request yet
            await self.engine.abort(request_id)
            await asyncio.sleep(0.01)
        output = await generation
        if path := os.environ.get("VVT_TEST_SERVER_LOG"):
            sent = kwargs.get("image_data") or ()  # references, which our front end takes
            line = {
                "prompt_ids": list(prompt_ids),
                "images": [name for piece in sent for name in piece.names],
                "token_ids": list(output.token_ids),
                "log_probs": list(output.log_probs or ()),
            }
            with open(path, "a") as file:
                file.write(json.dumps(line) + "\n")
        return output


class InstrumentedReplica(CpuVllmReplica):
    http_server_class = InstrumentedServer
