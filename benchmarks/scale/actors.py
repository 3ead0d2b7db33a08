"""The processes of a step: inference servers and agent loop workers, the real classes with a probe beside them."""

from __future__ import annotations

import asyncio
from typing import Any

import ray
from verl.workers.rollout.llm_server import LLMServerClient

from verl_video_tools.verl_plugin.agent_loop_worker import VideoAgentLoopWorker
from verl_video_tools.verl_plugin.vllm_front_end import FrontEndServer

from .executor import ScriptedExecutor
from .probes import LoopProbe

_Worker: Any = VideoAgentLoopWorker.__ray_actor_class__  # Ray adds it


class ProbedServer(FrontEndServer):
    """verl's server; its engine core runs in a process of its own, with `ScriptedExecutor`."""

    async def run_server(self, args: Any) -> None:
        args.distributed_executor_backend = f"{ScriptedExecutor.__module__}.{ScriptedExecutor.__qualname__}"
        await super().run_server(args)

    async def probe_start(self, profile: bool) -> None:
        await self.engine.collective_rpc(method="bench_counts")
        self._probe = LoopProbe()
        await self._probe.start(profile=profile)

    async def probe_stop(self) -> dict[str, Any]:
        result = await self._probe.stop()
        (counts,) = await self.engine.collective_rpc(method="bench_counts")
        return result | {"core": counts}


@ray.remote
class ProbedWorker(_Worker):  # chosen at run time
    async def probe_start(self, profile: bool) -> None:
        self.llm_client.forget()
        self._probe = LoopProbe()
        await self._probe.start(profile=profile)

    async def wait(self) -> None:
        """Until all rollouts have ended."""
        while self.background_tasks:
            await asyncio.gather(*self.background_tasks)

    async def probe_stop(self) -> dict[str, Any]:
        result: dict[str, Any] = await self._probe.stop()
        return result | {"sent": self.llm_client.sent}

    async def ready(self) -> None: ...


class ProbedClient(LLMServerClient):
    """verl's client. Its requests say by their ids whose turn it is; it counts the bytes of images that it hands on.

    Attributes:
        sent: `images`, shown in requests; `references`, to objects in Ray's store; `bytes`, of pixels that were handed
            on, those of an object once.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.forget()

    def forget(self) -> None:
        """Count from zero."""
        self.sent = {"images": 0, "references": 0, "bytes": 0}
        self._turns: dict[str, int] = {}
        self._variants: dict[str, int] = {}
        self._objects: set[str] = set()

    def _vllm_request_id(self, request_id: str) -> str:
        variant = self._variants.setdefault(request_id, len(self._variants))
        turn = self._turns.get(request_id, 0)
        self._turns[request_id] = turn + 1
        return f"{super()._vllm_request_id(request_id)}v{variant}t{turn}"

    async def generate(self, request_id: str, **request: Any) -> Any:  # passes all on
        self._count(request.get("image_data") or [])
        return await super().generate(request_id, **request)

    def _count(self, images: list[Any]) -> None:
        for image in images:
            if (reference := getattr(image, "reference", None)) is not None:
                self.sent["images"] += len(image.names)
                self.sent["references"] += 1
                if (name := reference.hex()) not in self._objects:
                    self._objects.add(name)
                    size = ray.experimental.get_local_object_locations([reference])[reference]["object_size"]
                    self.sent["bytes"] += size
            else:
                self.sent["images"] += 1
                self.sent["bytes"] += image.width * image.height * 3
