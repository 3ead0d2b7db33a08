"""Names in the package that differ between the commits that are measured."""

from __future__ import annotations

from typing import Any

from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer

Server: Any = vLLMHttpServer
try:
    from verl_video_tools.verl_plugin.agent_loop_worker import VideoAgentLoopWorker
    from verl_video_tools.verl_plugin.config import config_path

    PLUGIN = "verl_video_tools.verl_plugin.plugin"
except ImportError:  # commit 051fa21
    from verl_video_tools.agent_loop.worker import VideoAgentLoopWorker  # type: ignore[import-not-found, no-redef]  # of 051fa21
    from verl_video_tools.config import config_path  # type: ignore[import-not-found, no-redef]  # of 051fa21

    PLUGIN = "verl_video_tools.plugin"
else:
    from verl_video_tools.verl_plugin.vllm_front_end import FrontEndServer

    Server = FrontEndServer

__all__ = ["PLUGIN", "Server", "VideoAgentLoopWorker", "config_path"]


def router_config() -> str | None:
    """Our router's configuration file; None at a commit that has none."""
    try:
        return str(config_path("group-router"))
    except Exception:
        return None
