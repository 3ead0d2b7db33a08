"""Names in the package that differ between the commits that are measured."""

from __future__ import annotations

from typing import Any

try:
    from verl_video_tools.config import config_path
except ImportError:  # commit 983c6c5a
    from verl_video_tools.verl_plugin.config import config_path  # type: ignore[import-not-found, no-redef]  # there
from verl_video_tools.verl_plugin.agent_loop_worker import VideoAgentLoopWorker
from verl_video_tools.verl_plugin.vllm_front_end import FrontEndServer

PLUGIN = "verl_video_tools.verl_plugin.plugin"
Server: Any = FrontEndServer

__all__ = ["PLUGIN", "Server", "VideoAgentLoopWorker", "config_path"]


def router_config() -> str | None:
    """Our router's configuration file; None at a commit that has none."""
    try:
        return str(config_path("group-router"))
    except Exception:
        return None
