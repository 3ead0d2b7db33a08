"""Our reward manager, which says when it scores a rollout and takes a while for it, so that a fault can meet it."""

from __future__ import annotations

import asyncio
from typing import Any

from verl import DataProto

from tests.faults.moments import mark
from verl_video_tools.verl_plugin.reward_manager import VideoToolsRewardManager

_SCORING_SECONDS = 0.5


class MarkedRewardManager(VideoToolsRewardManager):
    async def run_single(self, data: DataProto) -> dict[str, Any]:
        mark(int(data[-1].non_tensor_batch["global_steps"]), "reward")
        await asyncio.sleep(_SCORING_SECONDS)
        return await super().run_single(data)
